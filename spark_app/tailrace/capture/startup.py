"""The first minute: which source is this, does what we have there still fit the journal, and where does the stream
begin?

Called by `process`. Out comes a journal writer whose origin and position are proven to belong to the source, or an
error that says what was seen. Order of a first start: a note in the storage, what the change log needs in the source,
record 0, then (by the first look at the catalog) the tables; dying between any two is repaired by the next start:
without record 0 nothing was read from the source, and the note proves that the objects there were made by this change
log. Without the note they are another client's: it stays.
"""

import logging
from dataclasses import dataclass

from tailrace.capture.admission import check_owner, check_product
from tailrace.capture.renewal import Renewal
from tailrace.changelog import first_start
from tailrace.changelog.paths import DROPPED
from tailrace.changelog.records import EpochStarted, Origin, SourceMoved, SourceRenewed
from tailrace.changelog.state import LogState
from tailrace.changelog.writer import JournalWriter
from tailrace.contract import ownership
from tailrace.contract.resources import Replicator
from tailrace.errors import CorruptLog
from tailrace.seams import seam
from tailrace.sources import removals
from tailrace.sources.api import CreatedByOther, Patience, Source, Subscription
from tailrace.storage.probe import require_exclusive
from tailrace.storage.store import NotFound, Storage

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ids:
    """Randomness of this process, made by the caller."""

    log_id: str
    """The id of a new change log."""
    nonce: str


@dataclass(frozen=True)
class StartContext:
    """The environment in which capture works."""

    replicator: Replicator
    source: Source
    subscription: Subscription
    storage: Storage


def start(place: StartContext, ids: Ids, patience: Patience, handed_over: Renewal | None = None) -> JournalWriter:
    """`handed_over`: what the operator asks for."""
    noted = Renewal.read(place.storage)

    def due(state: LogState) -> Renewal | None:
        return Renewal.due(noted, handed_over, state)

    def admit(state: LogState) -> None:
        origin = _origin(state)
        if not state.released:
            check_owner(place.replicator, place.storage.root, state.owner)
        check_product(place.replicator, origin)
        removals.require_confirmed(place.replicator.spec.tables, removals.of_log(state))
        place.subscription.admit(origin, state.resume_point, due(state) is not None, patience.stopping)

    try:
        started = EpochStarted(owner=ownership.owner(place.replicator))
        journal = JournalWriter.claim(place.storage, ids.nonce, admit, started=started)
    except NotFound:
        return _first_start(place, ids, patience)
    # A deletion that was begun here is over: what is written from now on is to stay.
    place.storage.delete(DROPPED)
    requested = due(journal.state)
    if requested is not None:
        _renew(place, journal, requested, patience)
    _follow(place, journal)
    # Dying before this line: the next start finds the note's id in the journal, and only removes it.
    if noted is not None:
        Renewal.forget(place.storage)
    state = journal.state
    place.subscription.resume(_origin(state), state.resume_point)
    log.info("continuing after record %d at %s", state.number, place.source.text(state.position))
    return journal


def _origin(state: LogState) -> Origin:
    if state.origin is None:
        raise CorruptLog(
            "the change log has no origin",
            "Restore record 0 of its journal, which holds the origin, or point storage.location to the change log of"
            " this Replicator; in Kubernetes, create another Replicator.",
        )
    return state.origin


def _follow(place: StartContext, journal: JournalWriter) -> None:
    """Another server may have taken the source's place. Dying behind the record: the next start finds it moved."""
    found = place.subscription.failed_over(_origin(journal.state), journal.state.resume_point)
    if found is None:
        return
    identity, point = found
    journal.append(point.position, source_state=point.source_state, events=(SourceMoved(identity=identity),))
    log.warning("the source is another server now, which has all that was read: its log is followed")


def _renew(place: StartContext, journal: JournalWriter, requested: Renewal, patience: Patience) -> None:
    """Begin the stream again at another position, as the first start did; the tables follow with the first look."""
    try:
        identity, point = place.subscription.renew(_origin(journal.state), patience)
    except CreatedByOther as error:
        raise error.refusal from None
    rows, parallelism = requested.chunk_rows, requested.parallelism
    event = SourceRenewed(
        id=requested.id, identity=identity, request=requested.request, chunk_rows=rows, parallelism=parallelism
    )
    journal.append(point.position, source_state=point.source_state, events=(event,))
    at = place.source.text(point.position)
    log.warning("the stream starts over at %s (%s): every table is read again", at, requested.id)


def _first_start(place: StartContext, ids: Ids, patience: Patience) -> JournalWriter:
    require_exclusive(place.storage)
    noted = first_start.read(place.storage)
    if noted is not None:
        check_owner(place.replicator, place.storage.root, noted.owner)
    # The id of a start that was interrupted is kept: what it has half made is held under that name.
    origin = place.subscription.prepare(noted.log_id if noted is not None else ids.log_id, noted, patience)
    first_start.write(place.storage, origin)
    try:
        point = place.subscription.begin(origin, patience)
    except CreatedByOther as error:
        first_start.forget(place.storage)
        raise error.refusal from None
    # A first start reads every table anyway; left until after record 0, the note would begin the stream again.
    Renewal.forget(place.storage)
    at = place.source.text(point.position)
    log.info("new change log %s from %s: created %s", origin.log_id, at, ", ".join(origin.made))
    journal = JournalWriter.create(place.storage, origin, point.position, ids.nonce, source_state=point.source_state)
    # Dying here leaves a log without tables: the first look after any start adds those that are missing.
    seam("capture.after-origin")
    first_start.forget(place.storage)
    # Of the log that was here before, and of its tables. Dying before this line: the next start does it.
    place.storage.delete(DROPPED)
    return journal
