"""Makes journal records: typed rows become segments, segments and events become a record.

Between the source's stream, which says where transactions end, and the journal. Segments are written first, then
the record that names them, and only then may the source hear of it. Dying between segment and record leaves a file
that no record names; the same changes come again and get the same sequences, because no record holds them.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from tailrace.capture.protocol import Recorded
from tailrace.changelog.record_segments import RecordSegments
from tailrace.changelog.records import Event, Record, Segment, Transactions
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.tables import WRITTEN, TableAdded, TableFingerprint
from tailrace.changelog.records.terms import Position, RecordNumber, ResumePoint, Seq
from tailrace.changelog.state import LogState
from tailrace.changelog.transactions import TransactionStart
from tailrace.changelog.writer import JournalWriter, RecordRefused
from tailrace.errors import Retry
from tailrace.seams import seam
from tailrace.selection.rows import LogRows, of_log
from tailrace.sources.api import Changes, TableRows

log = logging.getLogger(__name__)


@dataclass
class RecordRows:
    """The rows of the transactions of the record being built."""

    segments: RecordSegments = field(default_factory=RecordSegments)
    events: list[Event] = field(default_factory=list)
    transactions: list[TransactionStart] = field(default_factory=list)
    commit_times: list[int] = field(default_factory=list)
    last_seq: Seq | None = None
    bytes: int = 0
    leaves: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class CaptureCounters:
    """Since the start."""

    rows: int = 0
    segments: int = 0
    records: int = 0


@dataclass(frozen=True)
class Requested:
    """Events that the driver asked to have recorded."""

    events: tuple[Event, ...]
    reply: Future[Recorded | None]
    """Answered when they are durable, or when they do not fit."""
    replay_point: Seq | None = None
    added: Mapping[int, RecordNumber] = field(default_factory=dict)
    """The record that added each table, as in `protocol.Append`."""


class Recorder:
    """The `Sink` of a source's stream that writes the change log."""

    def __init__(
        self,
        journal: JournalWriter,
        breathe: Callable[[], None],
        recorded: Callable[[Position], None],
        writing: Callable[[], None] = lambda: None,
    ) -> None:
        """`breathe` is called between long steps (signs of life for the source), `recorded` with each durable
        position, `writing` before each segment: one of a huge row takes a slow line an hour."""
        self.journal = journal
        self._breathe = breathe
        self._writing = writing
        self._recorded = recorded
        self._rows = RecordRows()
        self._events: list[tuple[int, Event]] = []
        """Our own, each with the number of those of the rows that came before it."""
        self._requested: list[Requested] = []
        self._apart: list[Requested] = []
        """Requested ones that wait for records of their own: of several, one did not fit the log."""
        self.counters = CaptureCounters()
        self._logged: set[tuple[int, str]] = set()

    @property
    def durable(self) -> Position:
        """The newest record's position."""
        return self.journal.state.position

    @property
    def state(self) -> LogState:
        return self.journal.state

    @property
    def next_seq(self) -> Seq:
        last = self._rows.last_seq
        return Seq((self.journal.state.last_seq if last is None else last) + 1)

    @property
    def has_requests(self) -> bool:
        """Events without rows that wait for a record."""
        return bool(self._events or self._requested or self._apart)

    def add(self, *events: Event) -> None:
        """Put events of our own into the next record: behind those of the rows that came so far, and before those of
        the rows to come, which may stop the table."""
        self._events += [(len(self._rows.events), event) for event in events]

    @property
    def requested(self) -> Iterator[Event]:
        """The events that others have requested, which the next records bring."""
        return (event for requested in (*self._requested, *self._apart) for event in requested.events)

    def request(self, requested: Requested) -> None:
        """Put requested events into the next record, after those of capture."""
        self._requested.append(requested)

    def rows(self, changes: Changes) -> None:
        for table in changes.tables:
            self._write(table)
            self._breathe()
        self._rows.events += changes.events
        self._rows.leaves += changes.leaves
        self._rows.transactions += changes.transactions[self._goes_on(changes.transactions) :]
        self._rows.commit_times += changes.commit_time or ()
        self._rows.last_seq = changes.last_seq
        self._breathe()

    def _write(self, table: TableRows) -> None:
        """Its segment: rows that the filter lets pass, masked. None, if there are none."""
        self._writing()
        # What another log has brought is selected: a mask is not put over a mask.
        written = None if table.selected is None else LogRows(table.rows, table.selected)
        selected = written or of_log(table.rows, table.schema)
        if not selected.rows.num_rows:
            return

        def known(segment: Segment) -> Segment:
            return selected.counted(segment).model_copy(update={"nulled": table.nulled})

        segment = self._rows.segments.add(self.journal.storage, table.schema, selected.rows, known)
        self.counters.segments += 1
        self.counters.rows += segment.rows

    def _goes_on(self, transactions: list[TransactionStart]) -> bool:
        """True if the first of them has taken sequences before."""
        before = self._rows.transactions
        return bool(before and transactions) and before[-1][:2] == transactions[0][:2]

    def cut(self, point: ResumePoint, rows: bool = True) -> None:
        """Make a record up to `point`, unless there is nothing to say. `rows` False: those taken so far belong to a
        transaction that is still open, so only events go in."""
        taken = self._rows if rows else RecordRows()
        events = _merged(taken.events, self._events)
        self._refuse_outdated(events)
        # Rows that no filter let pass have their sequences all the same: events may name them.
        numbered = taken.last_seq is not None and taken.last_seq > self.journal.state.last_seq
        if not (numbered or taken.events or self.has_requests):
            self._rows = RecordRows() if rows else self._rows
            return
        segments = taken.segments.finish(self.journal.storage)
        # Dying here leaves segments that no record names: they are written again under other names.
        seam("capture.after-segments")
        point = max(point, self.state.resume_point, key=lambda p: p.position)
        try:
            asked = [event for requested in self._requested for event in requested.events]
            record = self._append(point, taken, segments, (*events, *asked))
        except RecordRefused as error:
            if not self._requested:
                raise
            # What somebody asked for does not fit the log: that is theirs to hear; our own changes go on, and others'.
            if len(self._requested) > 1:
                self._requested, self._apart = self._requested[:1], [*self._requested[1:], *self._apart]
            else:
                self._answered()[0].reply.set_exception(error)
            self.cut(point, rows)
            return
        if rows:
            self._rows = RecordRows()
        done, self._events = self._answered(), []
        self.counters.records += 1
        self._log_nulled(record)
        for requested in done:
            requested.reply.set_result(Recorded(record=record.number, replay_point=requested.replay_point))
        # Dying here is safe: the source sends again what the record holds, and capture asks from the record's position.
        seam("capture.before-ack")
        self._recorded(point.position)

    def _append(
        self, point: ResumePoint, taken: RecordRows, segments: tuple[Segment, ...], events: tuple[Event, ...]
    ) -> Record:
        times = taken.commit_times
        return self.journal.append(
            point.position,
            taken.last_seq,
            source_state=point.source_state,
            transactions=Transactions.of(taken.transactions),
            segments=segments,
            # Before the others: one of them may stop the table.
            events=(*self._written(taken.leaves), *events),
            commit_time=(min(times), max(times)) if times else None,
        )

    def _log_nulled(self, record: Record) -> None:
        """Once for each column; how many there are by now, the status says."""
        found = [(s.table_id, s.nulled) for s in record.segments]
        found += [(e.table_id, e.nulled) for e in record.events if isinstance(e, ChunkRegistered)]
        for place in [(table_id, column) for table_id, nulled in found for column, _ in nulled]:
            if place in self._logged:
                continue
            self._logged.add(place)
            table = self.journal.state.tables[place[0]].schema.name
            said = "column %r has values that its type cannot hold: they become NULL (onUnsupported: SetNull)"
            log.warning(said, place[1], extra={"table": table, "record": record.number})

    def _written(self, leaves: list[tuple[int, int]]) -> list[Event]:
        """Events in the record of the rows: the partition may be gone by the next look."""
        new: dict[int, set[str]] = {}
        for root, leaf in leaves:
            known = self.journal.state.tables[root].fingerprint
            if known is not None and str(leaf) not in known.get("file", {}):
                new.setdefault(root, set()).add(str(leaf))
        found: list[Event] = []
        for root, items in new.items():
            parts = self.journal.state.tables[root].fingerprint or {}
            files = {**parts.get("file", {}), **dict.fromkeys(sorted(items), WRITTEN)}
            found.append(TableFingerprint(table_id=root, parts={**parts, "file": files}))
        return found

    def _answered(self) -> list[Requested]:
        """Those of this record; the next one brings one of the others."""
        done, self._requested, self._apart = self._requested, self._apart[:1], self._apart[1:]
        return done

    def _refuse_outdated(self, ours: Sequence[Event]) -> None:
        """Refuses events that were requested for tables that were added again since then, be it in this very record."""
        again = {event.table.table_id for event in ours if isinstance(event, TableAdded)}
        known = self.journal.state.tables
        kept: list[Requested] = []
        for requested in self._requested:
            outdated = [
                i for i, record in requested.added.items()
                if i in again or (i in known and known[i].added_record != record)
            ]  # fmt: skip
            if outdated:
                requested.reply.set_exception(Retry(f"table {outdated[0]} was added again since"))
            else:
                kept.append(requested)
        self._requested = kept


def _merged(of_rows: Sequence[Event], own: Sequence[tuple[int, Event]]) -> list[Event]:
    """The events in the order in which they came."""
    merged, taken = list[Event](), 0
    for before, event in own:
        merged += of_rows[taken:before]
        merged.append(event)
        taken = max(taken, before)
    return [*merged, *of_rows[taken:]]
