"""The records of another Replicator's change log as a `ChangeStream`, in place of the source's log.

    journal there ──> tables (events, versions) ──> Sink
    segments there ─> rows, renumbered ──────────────^

One record there becomes one here at the same position of the source, or a part of one: whatever is true of a table
from a record on begins a record here, too. Sequences are the other log's, less a constant for each life of the stream;
positions and ids of transactions are the source's, so chunks that this Replicator reads by SQL find their replay points
as with the source's own log.

The other log may hold a commit that a new snapshot does not see yet. So tables are only taken up at a record at which a
snapshot sees every transaction that the other journal knows: every later snapshot sees them, too.
"""

import logging
import os
import time
from collections.abc import Collection
from contextlib import ExitStack
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog.followers import FollowerLease, write_lease
from tailrace.changelog.journal import JournalReader, read_record
from tailrace.changelog.records import Event, Heartbeat, Record, Segment, SourceMoved, SourceRenewed
from tailrace.changelog.records.tables import Cascaded, SchemaChanged, TableAdded, TableRemoved, TableStopped
from tailrace.changelog.records.terms import Position, RecordNumber, ResumePoint, Seq, TableSchema
from tailrace.changelog.segments import SEQ, segment_batches, segment_schema
from tailrace.changelog.transactions import TransactionStart
from tailrace.contract import ownership
from tailrace.contract.resources import Replicator
from tailrace.errors import CorruptLog, PositionLost, Retry
from tailrace.seams import seam
from tailrace.sources.api import Changes, Distance, Session, Source, StreamContext, Table, TableRows
from tailrace.sources.followed.comparison import Discrepancy, discrepancy
from tailrace.sources.followed.place import FollowedPlace
from tailrace.sources.followed.tables import FollowedTables
from tailrace.storage.access import StorageRefused
from tailrace.storage.store import NotFound, Storage

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.2
"""Between two looks for the next record at the other log's end."""
LEASE_SECONDS = 10.0
"""Between two writes of the lease."""
DOUBT_SECONDS = 90.0
"""Time that the other Replicator has to find a change of a table: three of its looks at the source's catalog."""
LOOKED_SECONDS = 5.0
"""Time after which a chunk with unknown columns is read again: the other log will know them, or the chunk will not have
them."""
SILENT_SECONDS = 120.0
"""Time without a record, while the source's log is ahead, after which the other Replicator is told to be silent. It
records an idle source's position every ten seconds, and makes its log move every minute."""
UNRECORDED = 100
"""Records that bring nothing here, while the source's log stands still: the place behind so many is recorded."""
_STRUCTURE = (TableAdded, TableRemoved, TableStopped, SchemaChanged, Cascaded)
LOST_FIX = (
    "Resync all tables (`tailrace resync --all`; in Kubernetes, a SnapshotRequest with resync: true and tables: ['*.*']"
    " or spec.recover): it begins at the present end of the change log that is followed."
)


def gone(record: int, root: str) -> PositionLost:
    """The record, or rows that it names."""
    return PositionLost(
        f"the change log at {root} no longer has record {record}, which is the next to follow", LOST_FIX
    )


class FollowedStream:
    def __init__(
        self, source: Source, replicator: Replicator, followed: Storage, log_id: str, context: StreamContext
    ) -> None:
        """`source`: bound to the server of the logs; `followed`: the other log's storage; `log_id`: our own log's."""
        self._source = source
        self._replicator = replicator
        self._storage = followed
        self._log_id = log_id
        self._context = context
        self._sink = context.sink
        self._tables = FollowedTables(replicator.spec, self._sink.state)
        self._place = FollowedPlace.of(self._sink.state.source_state)
        self.position = self._sink.state.position
        self._pending = False
        self._joining = True
        """Tables of the other log may be missing here."""
        self._doubtful: dict[int, tuple[float, Discrepancy]] = {}
        """The tables that look different, since when, and how."""
        self._looks: dict[int, float] = {}
        self._looked = self._leased = float("-inf")
        self._lacking: tuple[float, datetime] | None = None
        """Since when the source's log has been ahead of the other log's newest record; None: it is not, or that record
        has just come."""
        self._closing = ExitStack()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        self._closing.callback(os.close, self._bell)

    def start(self) -> None:
        self._session: Session = self._closing.enter_context(self._source.session())
        self._reader = opened(self._storage)
        if self._reader.state.number < self._place.record:
            raise gone(self._place.record, self._storage.root)
        self._compare_all(self._tables.known)
        self.poll_catalog()
        self._lease()
        log.info("following the change log at %s after its record %d", self._storage.root, self._place.record)

    def fileno(self) -> int:
        return self._bell

    in_transaction = False
    """Its rows are of whole records."""
    of_other_case = ()

    @property
    def pending(self) -> bool:
        return self._pending

    # ---- records ----

    def read(self, most_bytes: int, most_seconds: float) -> bool:
        end = time.monotonic() + most_seconds
        while (record := self._next()) is not None:
            self._take(record)
            if time.monotonic() > end:
                return False
        return True

    def _next(self) -> Record | None:
        """None: there is none yet, or those that there are must wait for the missing tables."""
        number = RecordNumber(self._place.record + 1)
        if number <= self._reader.state.number:
            try:
                return read_record(self._storage, number)
            except NotFound:
                raise gone(number, self._storage.root) from None
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return None
        if self._joining and not self._join():
            self._looked, self._lacking = now, None
            return None
        try:
            record = self._reader.next()
        except CorruptLog as error:
            raise PositionLost(
                f"the change log at {self._storage.root} has ended: {error.message}", LOST_FIX
            ) from error
        if record is None:
            self._looked = now
        elif record.number != number:  # the reader was passed by retention, and began again behind
            raise gone(number, self._storage.root)
        return record

    def _take(self, record: Record) -> None:
        """Dying anywhere here: the records after the durable place come again."""
        self._lacking = None
        self._require_same_source(record)
        structure = any(isinstance(event, _STRUCTURE) for event in record.events)
        if structure:
            self._context.settle()
        # Dying between two records of the other log is dying between two of the source's transactions.
        seam("follow.before-record")
        self._compare_changed(record)
        shift = self._place.seq - (self._sink.next_seq - 1)
        before = dict(self._tables.known)
        events = self._tables.events(record.events, shift, self._sink.state)
        last = Seq(record.last_seq - shift)
        for segment in record.segments:
            table = self._tables.version_there(segment.table_id, segment.schema_version)
            if table is None and segment.table_id in before:
                table = before[segment.table_id].versions.get(segment.schema_version - before[segment.table_id].shift)
            if table is not None:
                rows = self._rows(segment, table, shift)
                self._sink.rows(Changes([rows], [], last, [], None, leaves=[]))
        starts = [start._replace(first_seq=start.first_seq - shift) for start in _starts(record)]
        if events or starts:
            self._sink.rows(Changes([], events, last, starts, record.commit_time, leaves=[]))
            self._pending = True
        self._place = FollowedPlace.behind(record)
        self.position = max(self.position, record.position)
        if structure:
            self._context.settle()

    def _require_same_source(self, record: Record) -> None:
        for event in record.events:
            if isinstance(event, SourceRenewed):
                raise PositionLost(
                    f"the stream that is followed has started over in record {record.number} of the change log at"
                    f" {self._storage.root}",
                    LOST_FIX,
                )
            if isinstance(event, SourceMoved):
                self._settle_place()
                # Dying from here on: the next start finds the move behind the durable place, and records it.
                raise Retry("the source that is followed is another server now", "Capture starts again by itself.")

    def _settle_place(self) -> None:
        """Everything taken so far is durable, and so is the place behind records that brought nothing."""
        self._context.settle()
        if FollowedPlace.of(self._sink.state.source_state).record < self._place.record:
            self._sink.add(Heartbeat())
            self._context.settle()

    def _rows(self, segment: Segment, table: TableSchema, shift: int) -> TableRows:
        schema = segment_schema(table)
        try:
            data = pa.concat_tables(list(segment_batches(self._storage, segment, schema.names)))
        except NotFound:
            raise gone(self._place.record + 1, self._storage.root) from None
        seqs = pc.subtract(data[SEQ], shift).cast(pa.int64())
        rows = data.set_column(data.schema.names.index(SEQ), schema.field(SEQ), seqs).select(schema.names).cast(schema)
        counts = {"inserts": segment.inserts, "updates": segment.updates, "deletes": segment.deletes}
        return TableRows(table, rows, segment.nulled, selected=counts)

    def cut(self) -> None:
        self._sink.cut(ResumePoint(self.position, self._place.model_dump_json()))
        self._pending = False

    # ---- tables ----

    def _join(self) -> bool:
        """Take up the other log's tables that are missing here, at its newest record; False: not yet."""
        there = self._reader.state
        missing = self._tables.missing(there)
        if not missing and self._sink.state.renewal is None:
            self._joining = False
            return True
        if not self._sees_all():
            log.debug("a transaction of the log that is followed is not visible yet")
            return False
        self._compare_all([table.table_id for table in missing])
        self._context.settle()
        # Dying before the record: the next start finds them missing.
        seam("follow.before-join")
        self._sink.add(*self._tables.joined(there, self._sink.state))
        self._context.settle()
        self._joining = False
        return True

    def _sees_all(self) -> bool:
        visible = self._source.visibility(self.current_snapshot())
        return all(bool(visible.sees(ids).all()) for ids, _ in self._reader.state.transactions.pieces())

    def _compare_changed(self, record: Record) -> None:
        """Not of a table as it was: it is compared as it is by now."""
        for event in record.events if record.number == self._reader.state.number else ():
            if isinstance(event, TableAdded | SchemaChanged) and self._tables.selects(event.table):
                self._compare(event.table, self._now(event.table.table_id))

    def _compare_all(self, table_ids: Collection[int]) -> None:
        """With the other log's newest form of each; one look at the catalog."""
        if table_ids:
            spec = self._replicator.spec
            here = {own.schema.table_id: own for own in self._session.tables(spec.read_tables, spec.read_options)}
            for table_id in table_ids:
                self._compare_newest(table_id, here.get(table_id))

    def _compare(self, followed: TableSchema, own: Table | None) -> None:
        """`SourceRefused` if this Replicator reads the table differently; a difference that a change of the table may
        explain has some time to go away. `own`: None if the source no longer has it."""
        found = None if own is None else discrepancy(own, followed)
        if found is None:
            self._doubtful.pop(followed.table_id, None)
            return
        since, _ = self._doubtful.get(followed.table_id, (time.monotonic(), found))
        if found.certain or time.monotonic() - since > DOUBT_SECONDS:
            raise found.refusal
        self._doubtful[followed.table_id] = since, found

    def _now(self, table_id: int) -> Table | None:
        return self._session.table(table_id, self._replicator.spec.read_options)

    def _compare_newest(self, table_id: int, own: Table | None) -> None:
        there = self._reader.state.tables.get(table_id)
        if there is None or there.ended_at is not None:
            self._doubtful.pop(table_id, None)
        else:
            self._compare(there.schema, own)

    def poll_catalog(self) -> float:
        self._context.settle()
        for table_id in list(self._doubtful):
            self._compare_newest(table_id, self._now(table_id))
        events: list[Event] = [*self._tables.left(), *self._tables.read_again(self._sink.state)]
        durable = FollowedPlace.of(self._sink.state.source_state).record
        if self._place.record - durable >= UNRECORDED:
            events.append(Heartbeat())
        if events:
            self._sink.add(*events)
            self._context.settle()
        return 0.0

    def poll_catalog_for(self, table_id: int) -> bool:
        since = self._looks.setdefault(table_id, time.monotonic())
        if time.monotonic() - since < LOOKED_SECONDS:
            return False
        del self._looks[table_id]
        return True

    def is_captured(self, table_id: int) -> bool:
        return self._tables.is_captured(table_id)

    def version_with(self, table_id: int, columns: tuple[str, ...]) -> int | None:
        return self._tables.version_with(table_id, columns)

    # ---- the source, and the other log ----

    def current_snapshot(self) -> str:
        return self._session.current_snapshot()

    def distance(self, position: Position) -> Distance:
        end = self._session.log_end()
        return Distance(end, behind_bytes=None, retained_bytes=None, waiting_for=self._silence(end))

    def _silence(self, end: Position) -> str | None:
        """The other Replicator, if it has recorded nothing for long although the source's log has got further."""
        there, now = self._reader.state, time.monotonic()
        if end <= there.position:
            self._lacking = None
            return None
        self._lacking = self._lacking or (now, datetime.now(UTC))
        since, moment = self._lacking
        if now - since < SILENT_SECONDS:
            return None
        what = f"{there.owner}, which has recorded nothing in the change log at {self._storage.root} since"
        return f"{what} {moment:%Y-%m-%d %H:%M:%S}Z"

    def heartbeat(self) -> None:
        """The other Replicator's capture makes the source's log move."""

    def acknowledge(self, position: Position) -> None:
        """Nothing to do: the next lease says what the other log need not keep."""

    def keep_alive(self, listened: bool = True) -> None:
        if time.monotonic() - self._leased >= LEASE_SECONDS:
            self._lease()

    def _lease(self) -> None:
        durable = FollowedPlace.of(self._sink.state.source_state)
        name, now = ownership.owner(self._replicator), int(time.time() * 1_000_000)
        lease = FollowerLease(log_id=self._log_id, name=name, record=durable.record, seq=durable.seq, written_at=now)
        try:
            write_lease(self._storage, lease)
        except (Retry, StorageRefused) as error:
            log.warning("the lease at %s could not be written: %s", self._storage.root, error)
        self._leased = time.monotonic()

    def close(self) -> None:
        self._closing.close()


def _starts(record: Record) -> list[TransactionStart]:
    ids = record.transactions
    places = ids.prefix or (0,) * len(ids.numbers)
    found = zip(places, ids.numbers, ids.first_seqs, strict=True)
    return [TransactionStart(ids.prefixes[place], number, first) for place, number, first in found]


def opened(storage: Storage) -> JournalReader:
    """`PositionLost` where there is no change log any longer."""
    reader = JournalReader.open(storage)
    if reader.state.origin is None:
        raise PositionLost(f"{storage.root} holds no change log that could be followed", LOST_FIX)
    return reader
