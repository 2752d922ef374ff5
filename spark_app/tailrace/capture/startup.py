"""The first minute: which source is this, does its slot still fit the journal, and where does the stream begin?

Called by `process`. Out comes a journal writer whose origin, slot and position are proven to belong together, or an
error that says what was seen. Order of a first start: publication, slot, record 0, then (by the first poll) the
tables; dying between any two is repaired by the next start, because without record 0 the slot holds nothing that we
need.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.capture import slots
from tailrace.changelog.records import Origin
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import Replicator
from tailrace.errors import PositionLost, SourceRefused
from tailrace.seams import seam
from tailrace.sources.postgresql.catalog import discover
from tailrace.sources.postgresql.connect import Connection, PgConfig
from tailrace.sources.postgresql.replication import lsn_text, release_slot
from tailrace.storage import NotFound, Storage

log = logging.getLogger(__name__)
MAX_IDENTIFIER = 63


@dataclass(frozen=True)
class Names:
    """Of the source's objects that belong to this Replicator."""

    slot: str
    publication: str
    slot_is_ours: bool
    publication_is_ours: bool
    application: str
    """Of the log connection: a slot held under this name is held by our own predecessor."""

    @staticmethod
    def of(replicator: Replicator) -> "Names":
        source = replicator.spec.source
        made = ("tailrace_" + replicator.metadata.name.replace("-", "_").replace(".", "_"))[:MAX_IDENTIFIER]
        slot = source.slot or made
        return Names(
            slot=slot,
            publication=source.publication or made,
            slot_is_ours=source.slot is None,
            publication_is_ours=source.publication is None,
            application=f"tailrace capture {slot}"[:MAX_IDENTIFIER],
        )


@dataclass(frozen=True)
class Ids:
    """Randomness of this process, made by the caller."""

    log_id: str
    """Of a new change log."""
    nonce: str


@dataclass(frozen=True)
class Place:
    """Where capture works."""

    replicator: Replicator
    config: PgConfig
    storage: Storage
    connection: Connection
    names: Names


def start(place: Place, ids: Ids, progress: Callable[[str | None], None]) -> JournalWriter:
    """`progress` hears what the start waits for (None: nothing)."""
    server = slots.identify(place.connection)
    try:
        journal = JournalWriter.claim(place.storage, ids.nonce)
    except NotFound:
        return _first_start(place, ids, server, progress)
    origin = journal.state.origin
    if origin is None:
        raise PositionLost("the change log has no origin", "record 0 must hold one: use the log of this Replicator")
    _check_origin(place, origin, server, journal.state.position)
    _check_slot(place, origin, journal.state.position)
    release_slot(place.connection, origin.slot, place.names.application, time.sleep)
    log.info("goes on after record %d at %s", journal.state.number, lsn_text(journal.state.position))
    return journal


def _first_start(place: Place, ids: Ids, server: slots.Server, progress: Callable[[str | None], None]) -> JournalWriter:
    names, spec = place.names, place.replicator.spec
    tables = [t for t in discover(place.connection, spec.tables, spec.options) if t.stop is None]
    slots.ensure_publication(place.connection, names.publication, tables, names.publication_is_ours)
    # Dying here leaves a publication that the next start takes over.
    seam("capture.after-publication")
    position = _make_slot(place, progress) if names.slot_is_ours else _given_slot(place)
    # Dying here leaves a slot of ours without a journal: the next start drops it, for nothing was read from it.
    seam("capture.after-slot")
    origin = Origin(
        log_id=ids.log_id,
        system_identifier=server.system_identifier,
        timeline=server.timeline,
        database=server.database,
        slot=names.slot,
        publication=names.publication,
        slot_created=names.slot_is_ours,
    )
    log.info("new change log %s from %s with slot %s", ids.log_id, lsn_text(position), names.slot)
    journal = JournalWriter.create(place.storage, origin, position, ids.nonce)
    # Dying here leaves a log without tables: the first poll after any start adds those that are missing.
    seam("capture.after-origin")
    return journal


def _make_slot(place: Place, progress: Callable[[str | None], None]) -> int:
    """Making a slot waits for every transaction that writes now; meanwhile `progress` names the one in the way."""
    name = place.names.slot
    found = slots.find_slot(place.connection, name)
    if found is not None:
        release_slot(place.connection, name, place.names.application, time.sleep)
        log.warning(
            "slot %s belongs to no change log (a start was interrupted, or the log was deleted): made anew", name
        )
        slots.drop_slot(place.connection, name)
    maker = place.config.named(f"tailrace slot {name}"[:MAX_IDENTIFIER])
    result: list[int | BaseException] = []

    def make() -> None:
        try:
            result.append(slots.create_slot(maker, name))
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=make, name="make-slot", daemon=True)
    thread.start()
    said = None
    while thread.is_alive():
        thread.join(0.5)
        waits = slots.slot_waits_for(place.connection, maker.application_name) if thread.is_alive() else None
        progress(waits)
        if waits is not None and waits.split(",")[0] != said:
            said = waits.split(",")[0]
            log.warning("%s", waits)
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


def _given_slot(place: Place) -> int:
    name = place.names.slot
    found = slots.find_slot(place.connection, name)
    if found is None:
        raise SourceRefused(f"slot {name!r} does not exist", "create it with plugin pgoutput, or leave source.slot out")
    if found.plugin != slots.PLUGIN or found.confirmed is None:
        raise SourceRefused(f"slot {name!r} has plugin {found.plugin!r}", f"create it with plugin {slots.PLUGIN}")
    if found.database != place.config.database:
        raise SourceRefused(f"slot {name!r} belongs to database {found.database!r}", "name a slot of source.database")
    if found.wal_status == "lost":
        raise SourceRefused(f"slot {name!r} has lost its log", "drop it and create it anew")
    release_slot(place.connection, name, place.names.application, time.sleep)
    return found.confirmed


def _check_origin(place: Place, origin: Origin, server: slots.Server, position: int) -> None:
    wanted = (origin.system_identifier, origin.database, origin.slot, origin.publication)
    found = (server.system_identifier, server.database, place.names.slot, place.names.publication)
    what = ("system identifier", "database", "slot", "publication")
    for name, a, b in zip(what, wanted, found, strict=True):
        if a != b:
            raise SourceRefused(
                f"the change log belongs to {name} {a!r}, the manifest leads to {b!r}",
                "give a new source a new change log (an empty storage.location)",
            )
    if server.timeline != origin.timeline:
        raise slots.lost(
            f"the source is on timeline {server.timeline}, the change log was made on {origin.timeline}: after a"
            " failover or a restore nothing proves that it still holds what was captured"
        )
    if server.insert_position < position:
        raise slots.lost(
            f"the source's log ends at {lsn_text(server.insert_position)}, before the journal's position"
            f" {lsn_text(position)}: it was put back to an older state"
        )


def _check_slot(place: Place, origin: Origin, position: int) -> None:
    slot = slots.find_slot(place.connection, origin.slot)
    if slot is None:
        raise slots.lost(f"slot {origin.slot!r} is missing; the journal ends at {lsn_text(position)}")
    if slot.wal_status == "lost":
        raise slots.lost(f"slot {origin.slot!r} has lost its log (max_slot_wal_keep_size)")
    if slot.plugin != slots.PLUGIN or slot.database != origin.database or slot.confirmed is None:
        raise slots.lost(f"slot {origin.slot!r} is another one: plugin {slot.plugin!r}, database {slot.database!r}")
    if slot.confirmed > position:
        raise slots.lost(
            f"slot {origin.slot!r} begins at {lsn_text(slot.confirmed)}, after the journal's position"
            f" {lsn_text(position)}: it was made anew or moved forward by somebody else"
        )
