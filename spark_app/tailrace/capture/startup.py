"""The first minute: which source is this, does its slot still fit the journal, and where does the stream begin?

Called by `process`. Out comes a journal writer whose origin, slot and position are proven to belong together, or an
error that says what was seen. Order of a first start: a note in the storage, publication, slot, record 0, then (by the
first poll) the tables; dying between any two is repaired by the next start: without record 0 the slot holds nothing
that we need, and the note tells that it is ours. Without the note a slot of our name is somebody else's: it stays.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tailrace.capture.admission import check_owner
from tailrace.capture.renewal import Renewal
from tailrace.changelog.paths import DROPPED
from tailrace.changelog.records import EpochStarted, Origin, SourceRenewed
from tailrace.changelog.state import LogState
from tailrace.changelog.writer import JournalWriter
from tailrace.contract import ownership
from tailrace.contract.resources import Replicator
from tailrace.errors import Retry, SourceRefused
from tailrace.seams import seam
from tailrace.sources import patterns
from tailrace.sources.postgresql import admission, preflight, publication
from tailrace.sources.postgresql import objects as slots
from tailrace.sources.postgresql.catalog import discover
from tailrace.sources.postgresql.connect import Connection, PgConfig
from tailrace.sources.postgresql.facts import observe
from tailrace.sources.postgresql.first_start import FirstStart
from tailrace.sources.postgresql.log.replication import lsn_text, release_slot
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.names import Names
from tailrace.storage.store import NotFound, Storage

log = logging.getLogger(__name__)


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

    def of_log(self, origin: Origin | None) -> "Place":
        """With the names that the change log there gave to what it made."""
        return replace(self, names=Names.of_log(self.replicator, origin))


class Interrupted(Retry):
    """The process was told to end before its start was complete."""


def start(
    place: Place,
    ids: Ids,
    progress: Callable[[str | None], None],
    stopping: threading.Event,
    handed_over: Renewal | None = None,
) -> JournalWriter:
    """`progress` hears what the start waits for (None: nothing). `handed_over`: what the operator asks for."""

    noted = Renewal.read(place.storage)

    def due(state: LogState) -> Renewal | None:
        return next((r for r in (noted, handed_over) if r is not None and not state.has_done(r.id)), None)

    def admit(state: LogState) -> None:
        if not state.released:
            check_owner(place.replicator, place.storage.root, state.owner)
        admission.check_source(place.replicator, state, place.connection, renewing=due(state) is not None)

    try:
        started = EpochStarted(owner=ownership.owner(place.replicator))
        journal = JournalWriter.claim(place.storage, ids.nonce, admit, started=started)
    except NotFound:
        return _first_start(place, ids, progress, stopping)
    # A deletion that was begun here is over: what is written from now on is to stay.
    place.storage.delete(DROPPED)
    place = place.of_log(journal.state.origin)
    asked = due(journal.state)
    if asked is not None:
        _renew(place, journal, asked, progress, stopping)
    # Dying before this line: the next start finds the note's id in the journal, and only removes it.
    if noted is not None:
        Renewal.forget(place.storage)
    position, slot = journal.state.position, place.names.slot
    admission.check_slot(slots.find_slot(place.connection, slot), slot, place.config.database, position)
    release_slot(place.connection, slot, place.names.applications, time.sleep)
    log.info("goes on after record %d at %s", journal.state.number, lsn_text(position))
    return journal


def _renew(
    place: Place,
    journal: JournalWriter,
    asked: Renewal,
    progress: Callable[[str | None], None],
    stopping: threading.Event,
) -> None:
    """Begin the stream anew with another slot, as the first start did; the tables follow with the first poll. Dying
    before the record is safe: the request is still there, and the slot that was made is dropped by the next start."""
    names, server = place.names, slots.identify(place.connection)
    tables = [t for t in _fit_tables(place, renewing=True) if t.stop is None]
    refused = slots.unpublishable(place.connection, names.publication, tables, names.publication_is_ours)
    tables = [t for t in tables if t.oid not in refused]
    slots.ensure_publication(place.connection, names.publication, tables, names.publication_is_ours)
    if names.slot_is_ours and slots.find_slot(place.connection, names.slot) is not None:
        release_slot(place.connection, names.slot, names.applications, time.sleep)
        if slots.find_slot(place.connection, names.slot) is not None:
            slots.drop_slot(place.connection, names.slot)
    seam("capture.renewal-slot")
    position = _make_slot(place, progress, stopping) if names.slot_is_ours else _given_slot(place)
    seam("capture.renewal-record")
    rows, parallelism = asked.chunk_rows, asked.parallelism
    event = SourceRenewed(
        id=asked.id, timeline=server.timeline, request=asked.request, chunk_rows=rows, parallelism=parallelism
    )
    journal.append(position, events=(event,))
    log.warning("the stream begins anew at %s (%s): every table is read again", lsn_text(position), asked.id)


def _first_start(
    place: Place, ids: Ids, progress: Callable[[str | None], None], stopping: threading.Event
) -> JournalWriter:
    server = slots.identify(place.connection)
    place.storage.require_exclusive(f"probe-{ids.nonce}")
    left = FirstStart.read(place.storage)
    if left is not None:
        check_owner(place.replicator, place.storage.root, left.owner)
    # The id of a start that was interrupted is kept: its half-made slot is held under that name.
    log_id = (left.log_id if left is not None else None) or ids.log_id
    names = Names.of(place.replicator, log_id)
    place = replace(place, names=names)
    owner = ownership.owner(place.replicator)
    admission.check_free(place.replicator, place.storage.root, names, left, place.connection)
    if names.slot_is_ours:
        _clear_slot_name(place)
    tables = [t for t in _fit_tables(place) if t.stop is None]
    made = publication.look(place.connection, names.publication)
    outside = [t for t in tables if made is None or not made.membership(t)]
    refused = slots.unpublishable(place.connection, names.publication, outside, names.publication_is_ours)
    tables = [t for t in tables if t.oid not in refused]
    FirstStart(
        slot=names.slot if names.slot_is_ours else None,
        publication=names.publication if names.publication_is_ours else None,
        log_id=log_id,
        owner=owner,
        system_identifier=server.system_identifier,
        database=server.database,
    ).write(place.storage)
    slots.ensure_publication(place.connection, names.publication, tables, names.publication_is_ours)
    # Dying here leaves a publication that the next start takes over.
    seam("capture.after-publication")
    position = _make_slot(place, progress, stopping) if names.slot_is_ours else _given_slot(place)
    # Dying here leaves a slot of ours without a journal: the next start drops it, for nothing was read from it.
    seam("capture.after-slot")
    origin = Origin(
        log_id=log_id,
        system_identifier=server.system_identifier,
        timeline=server.timeline,
        database=server.database,
        slot=names.slot,
        publication=names.publication,
        slot_created=names.slot_is_ours,
        publication_created=names.publication_is_ours,
        owner=owner,
    )
    # A first start reads every table anyway; left until after record 0, the note would cost the next start its slot.
    Renewal.forget(place.storage)
    log.info("new change log %s from %s with slot %s", log_id, lsn_text(position), names.slot)
    journal = JournalWriter.create(place.storage, origin, position, ids.nonce)
    # Dying here leaves a log without tables: the first poll after any start adds those that are missing.
    seam("capture.after-origin")
    FirstStart.forget(place.storage)
    # Of the log that was here before, and of its tables. Dying before this line: the next start does it.
    place.storage.delete(DROPPED)
    return journal


def _fit_tables(place: Place, renewing: bool = False) -> tuple[PgTable, ...]:
    """All that the patterns select, on a source that has passed the preflight. What concerns one table only stops that
    table, at the first poll; and tables may come later. `renewing`: a slot of ours without its log is replaced."""
    source, spec = place.replicator.spec.source, place.replicator.spec
    tables = discover(place.connection, spec.tables, spec.options)
    findings = preflight.check(observe(place.connection, source, place.names.made, tables))
    for finding in findings:
        if finding.level == "warn" or finding.name == "tables":
            log.log(logging.INFO if finding.level == "ok" else logging.WARNING, "%s", finding.message)
    for text in patterns.idle(spec.tables, spec.options, [(t.schema_name, t.table_name) for t in tables]):
        log.warning("%s; ignore this if the tables will be created later", text)
    spared = {"tables", preflight.SLOT_LOG} if renewing and place.names.slot_is_ours else {"tables"}
    preflight.refuse(f for f in findings if f.name not in spared)
    return tables


def _clear_slot_name(place: Place) -> None:
    """Drop what an interrupted start of this very change log left."""
    name = place.names.slot
    if slots.find_slot(place.connection, name) is None:
        return
    release_slot(place.connection, name, place.names.applications, time.sleep)
    log.warning("slot %s was left by a start that was interrupted: made anew", name)
    if slots.find_slot(place.connection, name) is not None:  # half made, it went with its maker
        slots.drop_slot(place.connection, name)


def _make_slot(place: Place, progress: Callable[[str | None], None], stopping: threading.Event) -> int:
    """Making a slot waits for every transaction that writes now; meanwhile `progress` names the one in the way."""
    name = place.names.slot
    maker = place.config.named(place.names.maker)
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
        if stopping.is_set():
            # The note stays: the server gives the slot up with us, unless it was just done.
            raise Interrupted(f"capture was stopped while it created slot {name}")
        waits = slots.slot_waits_for(place.connection, maker.application_name) if thread.is_alive() else None
        progress(waits)
        if waits is not None and waits.split(",")[0] != said:
            said = waits.split(",")[0]
            log.warning("%s", waits)
    if isinstance(result[0], slots.SlotExists):
        # A namesake was faster: the slot is not ours to drop, now or at the next start.
        FirstStart.forget(place.storage)
        raise admission.of_somebody_else(name, place.storage.root)
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


def _given_slot(place: Place) -> int:
    name = place.names.slot
    found = slots.find_slot(place.connection, name)
    if found is None:
        raise SourceRefused(
            f"slot {name!r} does not exist", "Create the slot with plugin pgoutput, or remove source.postgresql.slot."
        )
    if found.plugin != slots.PLUGIN or found.confirmed is None:
        raise SourceRefused(
            f"slot {name!r} has plugin {found.plugin!r}", f"Create the slot with plugin {slots.PLUGIN}."
        )
    if found.database != place.config.database:
        raise SourceRefused(f"slot {name!r} belongs to database {found.database!r}", "Use a slot of source.database.")
    if found.wal_status == "lost":
        raise SourceRefused(f"slot {name!r} has lost its log", "Drop the slot and re-create it.")
    release_slot(place.connection, name, place.names.applications, time.sleep)
    return found.confirmed
