"""The claim of a Replicator to a change log: `tailrace drop` drops only the objects that this Replicator's change log
lists as made. Pure.

What the change log made in the source is the source's to prove (`sources.api.Subscription.remove`).
"""

from dataclasses import dataclass

from tailrace.changelog.records import Origin
from tailrace.changelog.state import LogState
from tailrace.contract import ownership
from tailrace.contract.resources import Replicator


@dataclass(frozen=True)
class Known:
    """The facts on which a decision is based."""

    replicator: Replicator
    root: str
    """The root of the change log."""
    log: LogState | None = None
    """None: there is no change log, or it cannot be read."""
    noted: Origin | None = None
    """The origin that an interrupted first start noted."""

    @property
    def owner(self) -> str:
        """The owner whose change log this Replicator may drop. `storage.adopt` proves nothing here: a start takes a log
        over and writes itself into it; one that never started has made nothing."""
        return ownership.owner(self.replicator)

    @property
    def origin(self) -> Origin | None:
        """The journal's; else the note's."""
        return self.noted if self.log is None else self.log.origin


def foreign(known: Known) -> str | None:
    """The reason why what the origin names belongs to another owner; None: it does not, or there is no origin."""
    if known.log is not None and known.log.origin is not None:
        return (
            None if known.log.owner == known.owner else f"the change log at {known.root} belongs to {known.log.owner}"
        )
    if known.noted is not None and known.noted.owner != known.owner:
        return f"the start that made it was of {known.noted.owner}"
    return None
