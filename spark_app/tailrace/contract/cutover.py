"""The cutover that a manifest asks for."""

from tailrace.contract.base import Duration, Model

ONE_PRODUCT = "cutover moves programs between servers of one product: target.type must be source.type"
NOT_FROM_A_FOLLOWER = "cutover and follow do not go together: the Replicator that reads the source has to stop last"


class CutoverSpec(Model):
    """The end of the replication, as soon as nothing is in its way: programs write to the copies from then on."""

    accept_missing: bool = False
    """Continue although the copies lack columns, defaults, sequences or indexes of the source."""
    verified_within: Duration = "1d"
    """The age that a verification of a table may have; tables without one are verified first."""
