"""May this change log be continued from this source, with this slot? Reads only; each refusal is an error.

Capture's start asks before it takes anything over, `tailrace doctor` asks the same without taking it.
"""

from tailrace.changelog.records import Origin
from tailrace.changelog.records.terms import Position
from tailrace.contract import ownership
from tailrace.contract.resources import Replicator
from tailrace.databases.postgresql.connect import Connection
from tailrace.errors import PositionLost, SourceRefused
from tailrace.sources.postgresql import objects as slots
from tailrace.sources.postgresql import publication
from tailrace.sources.postgresql.log.connection import lost, lsn_text
from tailrace.sources.postgresql.names import DATABASE, PUBLICATION, SLOT, SYSTEM, TIMELINE, Names, slot_text


def identity(server: slots.ServerIdentity, names: Names) -> dict[str, str]:
    """The identity of the source, for an origin."""
    return {
        SYSTEM: server.system_identifier,
        TIMELINE: str(server.timeline),
        DATABASE: server.database,
        SLOT: names.slot,
        PUBLICATION: names.publication,
    }


def bound(origin: Origin) -> tuple[str, int]:
    """The system and the timeline that connections of this change log insist on."""
    return origin.identity[SYSTEM], int(origin.identity[TIMELINE])


def check_database(origin: Origin, database: str) -> None:
    """Tables of another database of the server may have the same numbers."""
    if origin.identity[DATABASE] != database:
        raise SourceRefused(
            f"the change log belongs to database {origin.identity[DATABASE]!r}, the manifest names {database!r}",
            "Correct source.database; in Kubernetes, create another Replicator.",
        )


def check_free(replicator: Replicator, root: str, names: Names, left: Origin | None, db: Connection) -> None:
    """Before a first start: of our names nothing may exist that an interrupted start of this very change log did not
    leave. Any other slot is kept: a namesake's, or our own whose change log is not where the manifest says."""
    if names.slot_is_ours:
        made = left is not None and left.owner == ownership.owner(replicator) and slot_text(names.slot) in left.made
        if not made and slots.find_slot(db, names.slot) is not None:
            raise of_somebody_else(names.slot, root)
    elif left is None and ownership.is_made(names.slot) and names.slot != ownership.made_by(replicator):
        # Copied from another Replicator, suspended perhaps: what we read of it would be lost to that one.
        raise SourceRefused(
            f"slot {names.slot!r} has the name of a slot that Tailrace makes for another change log, and {root} holds"
            " none that reads it",
            "Leave source.postgresql.slot out: Tailrace then makes another slot for this Replicator. In Kubernetes,"
            " create another Replicator.",
        )
    # With a slot given, ours by name may be a namesake's publication, whose tables we would take out.
    elif names.publication_is_ours and left is None and publication.look(db, names.publication) is not None:
        raise SourceRefused(
            f"publication {names.publication!r} exists, and {root} holds no change log that made it",
            "Name another publication in source.postgresql.publication (in Kubernetes this field cannot be"
            " changed: create another Replicator). If"
            f" nobody needs this one any longer, run `DROP PUBLICATION {names.publication}`.",
        )


def of_somebody_else(slot: str, root: str) -> SourceRefused:
    return SourceRefused(
        f"slot {slot!r} exists, and {root} holds no change log that reads it",
        "Correct storage.location. If another Replicator of the same name uses the slot, give this one its own"
        " source.postgresql.slot and source.postgresql.publication. (In Kubernetes, create another Replicator for it.)"
        f" If nobody needs the slot any longer, run `SELECT pg_drop_replication_slot('{slot}')`.",
    )


def check_origin(names: Names, origin: Origin, server: slots.ServerIdentity) -> None:
    found = {**identity(server, names), TIMELINE: origin.identity[TIMELINE]}
    for name, wanted in origin.identity.items():
        if wanted != found[name]:
            raise SourceRefused(
                f"the change log belongs to {name} {wanted!r}, the manifest names {found[name]!r}",
                "A new source needs a new change log: set storage.location to an empty folder; in Kubernetes, create"
                " another Replicator.",
            )


def check_position(origin: Origin, server: slots.ServerIdentity, position: Position) -> None:
    timeline = origin.identity[TIMELINE]
    if str(server.timeline) != timeline:
        raise lost(
            f"the source is on timeline {server.timeline}, the change log was created on {timeline}: after a"
            " failover or a restore, nothing proves that the source still has the captured changes"
        )
    if server.insert_position < position:
        raise lost(
            f"the source's log ends at {lsn_text(server.insert_position)}, before the journal's position"
            f" {lsn_text(position)}: the source was restored to an older state"
        )


def publication_lost(name: str) -> PositionLost:
    """The log's publication is gone, so it is unknown which changes were left out since."""
    return lost(f"publication {name!r} is missing")


def check_slot(slot: slots.Slot | None, name: str, database: str, position: Position) -> None:
    """`PositionLost` unless the slot, as it was found, still gives everything after the journal's position."""
    if slot is None:
        raise lost(f"slot {name!r} is missing; the journal ends at {lsn_text(position)}")
    if slot.wal_status == "lost":
        raise lost(f"slot {name!r} has lost its log (max_slot_wal_keep_size)", name)
    if slot.plugin != slots.PLUGIN or slot.database != database or slot.confirmed is None:
        raise lost(f"slot {name!r} is another one: plugin {slot.plugin!r}, database {slot.database!r}")
    if slot.confirmed > position:
        raise lost(
            f"slot {name!r} begins at {lsn_text(slot.confirmed)}, after the journal's position"
            f" {lsn_text(position)}: it was re-created, or another client advanced it"
        )
