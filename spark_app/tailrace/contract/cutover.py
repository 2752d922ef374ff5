"""The cutover that a manifest asks for."""

from typing import Self

from pydantic import model_validator

from tailrace.contract.base import A_MINUTE, Duration, Model, at_least_a_minute, rules
from tailrace.contract.units import seconds

ONE_PRODUCT = "cutover moves programs between servers of one product: target.type must be source.type"
NOT_FROM_A_FOLLOWER = "cutover and follow do not go together: the Replicator that reads the source has to stop last"
SHORTEST_WITHIN = 60.0
"""Seconds; a verification becomes older than less while the others run, and would have to be made over and over."""


class CutoverSpec(Model):
    """The end of the replication, as soon as nothing is in its way: programs write to the copies from then on."""

    model_config = rules(at_least_a_minute("verifiedWithin"))

    accept_missing: bool = False
    """Continue although the copies lack columns, defaults, sequences or indexes of the source."""
    verified_within: Duration = "1d"
    """The age that a verification of a table may have, at least 1m; tables without one are verified first."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if seconds(self.verified_within) < SHORTEST_WITHIN:
            raise ValueError(f"verifiedWithin is {self.verified_within}: {A_MINUTE}")
        return self
