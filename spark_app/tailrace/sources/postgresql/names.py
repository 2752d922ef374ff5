"""The names of a change log's objects in the source: slot and publication, made by Tailrace or named by the user.

They come from the manifest for a new change log, from the journal's origin for one that exists. The origin's identity
holds what makes a source the same: system, timeline, database, slot and publication.
"""

from dataclasses import dataclass

from tailrace.changelog.records import Origin
from tailrace.contract import ownership
from tailrace.contract.ownership import MAX_IDENTIFIER
from tailrace.contract.resources import Replicator

SYSTEM, TIMELINE, DATABASE, SLOT, PUBLICATION = "system identifier", "timeline", "database", "slot", "publication"
"""Keys of an origin's identity."""


def slot_text(name: str) -> str:
    """The slot in an origin's `made`."""
    return f"replication slot {name}"


def publication_text(name: str) -> str:
    return f"publication {name}"


@dataclass(frozen=True)
class Names:
    """The names of the source's objects that belong to one change log."""

    slot: str
    publication: str
    slot_is_ours: bool
    publication_is_ours: bool
    log_id: str = ""

    @property
    def both(self) -> tuple[str, str]:
        """Slot and publication."""
        return self.slot, self.publication

    @property
    def made(self) -> tuple[str, ...]:
        """The objects that Tailrace creates, for an origin."""
        slot = (slot_text(self.slot),) if self.slot_is_ours else ()
        return (*slot, publication_text(self.publication)) if self.publication_is_ours else slot

    @staticmethod
    def of(replicator: Replicator, log_id: str = "") -> "Names":
        """The names for a change log that is still to be created."""
        source, made = replicator.spec.source.postgresql, ownership.made_by(replicator)
        return Names(
            slot=source.slot or made,
            publication=source.publication or made,
            slot_is_ours=source.slot is None,
            publication_is_ours=source.publication is None,
            log_id=log_id,
        )

    @staticmethod
    def of_log(replicator: Replicator, origin: Origin | None) -> "Names":
        """The names for a change log that exists: objects that its origin lists as made keep the names that they have
        there."""
        if origin is None:
            return Names.of(replicator)
        source, made = replicator.spec.source.postgresql, ownership.made_by(replicator)
        slot, publication = origin.identity[SLOT], origin.identity[PUBLICATION]
        return Names(
            slot=source.slot or (slot if slot_text(slot) in origin.made else made),
            publication=source.publication or (publication if publication_text(publication) in origin.made else made),
            slot_is_ours=source.slot is None,
            publication_is_ours=source.publication is None,
            log_id=origin.log_id,
        )

    @property
    def application(self) -> str:
        """The name of the log connection. It contains the change log's id: another Replicator that reads the same given
        slot is never taken for a predecessor."""
        return f"tailrace capture {self.log_id}"[:MAX_IDENTIFIER]

    @property
    def maker(self) -> str:
        """The name of the connection that creates the slot."""
        return f"tailrace slot {self.log_id}"[:MAX_IDENTIFIER]

    @property
    def applications(self) -> tuple[str, ...]:
        """A slot held under one of these names is held by our own predecessor."""
        return (self.application, self.maker)
