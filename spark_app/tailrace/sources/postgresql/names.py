"""What a Replicator's objects in the source are called, and whose they are: made by this change log, or given.

`startup` resolves them, from the manifest for a new change log and from the journal's origin for one that exists;
`tailrace doctor` and `tailrace drop` use the same.
"""

from dataclasses import dataclass

from tailrace.changelog.records import Origin
from tailrace.contract import ownership
from tailrace.contract.ownership import MAX_IDENTIFIER
from tailrace.contract.resources import Replicator


@dataclass(frozen=True)
class Names:
    """Of the source's objects that belong to one change log."""

    slot: str
    publication: str
    slot_is_ours: bool
    publication_is_ours: bool
    log_id: str = ""
    former: bool = False
    """The slot has its name from before names told namesakes apart."""

    @property
    def made(self) -> tuple[str, str]:
        """Slot and publication."""
        return self.slot, self.publication

    @staticmethod
    def of(replicator: Replicator, log_id: str = "") -> "Names":
        """For a change log that is still to be made."""
        source, made = replicator.spec.source, ownership.made_by(replicator)
        return Names(
            slot=source.postgresql.slot or made,
            publication=source.postgresql.publication or made,
            slot_is_ours=source.postgresql.slot is None,
            publication_is_ours=source.postgresql.publication is None,
            log_id=log_id,
        )

    @staticmethod
    def of_log(replicator: Replicator, origin: Origin | None) -> "Names":
        """For a change log that exists: what its origin says it made keeps the name that it has there."""
        if origin is None:
            return Names.of(replicator)
        source, made = replicator.spec.source, ownership.made_by(replicator)
        former = ownership.former_name(replicator.metadata.name)
        # Before logs had owners the name alone said whose a slot is.
        known = origin.owner is not None or origin.slot == former
        return Names(
            slot=source.postgresql.slot or (origin.slot if origin.slot_created and known else made),
            publication=source.postgresql.publication or (origin.publication if made_publication(origin) else made),
            slot_is_ours=source.postgresql.slot is None,
            publication_is_ours=source.postgresql.publication is None,
            log_id=origin.log_id,
            former=source.postgresql.slot is None and origin.slot == former,
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
        """A slot held under one of these names is held by our own predecessor. Before names told namesakes apart they
        held the slot's; nobody else reads a slot that this log made."""
        before = (f"tailrace capture {self.slot}", f"tailrace slot {self.slot}") if self.former else ()
        return (self.application, self.maker, *(name[:MAX_IDENTIFIER] for name in before))


def made_publication(origin: Origin) -> bool:
    """Whether the change log made its publication. Before this was recorded only the manifest said so."""
    return origin.publication_created is not False
