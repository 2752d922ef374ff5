"""What a change log's objects in the source are called: slot and publication, made by Tailrace or given.

From the manifest for a new change log, from the journal's origin for one that exists. The origin's identity holds what
makes a source the same: system, timeline, database, slot and publication.
"""

from dataclasses import dataclass

from tailrace.changelog.records import Origin
from tailrace.contract import ownership
from tailrace.contract.ownership import MAX_IDENTIFIER
from tailrace.contract.resources import Replicator

SYSTEM, TIMELINE, DATABASE, SLOT, PUBLICATION = "system identifier", "timeline", "database", "slot", "publication"
"""Keys of an origin's identity."""


def slot_text(name: str) -> str:
    """In an origin's `made`."""
    return f"replication slot {name}"


def publication_text(name: str) -> str:
    return f"publication {name}"


@dataclass(frozen=True)
class Names:
    """Of the source's objects that belong to one change log."""

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
        """What Tailrace makes, for an origin."""
        slot = (slot_text(self.slot),) if self.slot_is_ours else ()
        return (*slot, publication_text(self.publication)) if self.publication_is_ours else slot

    @staticmethod
    def of(replicator: Replicator, log_id: str = "") -> "Names":
        """For a change log that is still to be made."""
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
        """For a change log that exists: what its origin says it made keeps the name that it has there."""
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
        """Of the log connection. It names the change log: another Replicator that reads the same given slot is never
        taken for a predecessor of ours."""
        return f"tailrace capture {self.log_id}"[:MAX_IDENTIFIER]

    @property
    def maker(self) -> str:
        """Of the connection that makes the slot."""
        return f"tailrace slot {self.log_id}"[:MAX_IDENTIFIER]

    @property
    def applications(self) -> tuple[str, ...]:
        """A slot held under one of these names is held by our own predecessor."""
        return (self.application, self.maker)
