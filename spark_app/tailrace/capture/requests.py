"""Serves what planner and apply ask for: events to record, chunks to register, floors for retention.

Called by capture's loop alone. A chunk is registered in a record that ends at or after the position read after the
chunk; its replay point is the first sequence of the first transaction, of all that the journal holds, that its
snapshot misses.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from tailrace.capture.inbox import Call, Gone
from tailrace.capture.protocol import (
    Append,
    BeginChunks,
    ChunkId,
    GetState,
    Recorded,
    RegisterChunk,
    ReportApplied,
)
from tailrace.capture.recorder import Recorder, Requested
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.tables import Applied
from tailrace.changelog.records.terms import Position, RecordNumber, Seq, SeqRanges
from tailrace.errors import Retry, TailraceError
from tailrace.snapshot.ranges import BEGIN_AGAIN, misfit
from tailrace.snapshot.replay import contained_after, contained_through, replay_point
from tailrace.sources.api import ChangeStream
from tailrace.sources.visibility import Visibility

MOST_RANGES = 10_000
"""The most ranges of sequences in one record: each is a few dozen bytes."""


class ChunkTooOld(Retry):
    """The log no longer holds all changes that must be applied over the chunk: it has to be read again."""


@dataclass
class Waiting:
    request: RegisterChunk
    reply: Future[Recorded | None]
    looked: bool = False


class ChunkRequests:
    """Keeps chunks that wait for the stream, and the floors of chunks that are being read."""

    def __init__(
        self,
        recorder: Recorder,
        stream: ChangeStream,
        settle: Callable[[], Position],
        visibility: Callable[[str], Visibility],
    ) -> None:
        """`settle` makes all finished transactions durable; `visibility`: of a chunk, by what it says it saw."""
        self._recorder = recorder
        self._stream = stream
        self._settle = settle
        self._visibility = visibility
        self._waiting: list[Waiting] = []
        self._begun: dict[ChunkId, tuple[int, Seq]] = {}
        """Chunk being read -> (connection, floor)."""
        self._applied: dict[int, Applied] = {}
        self.cut_off: frozenset[int] = frozenset()
        """Tables that failed for too long, as the driver says."""
        self.retention_ran = False

    @property
    def waits_for(self) -> Position | None:
        """The furthest position that a chunk waits for."""
        return max((w.request.chunk.high for w in self._waiting), default=None)

    def floors(self) -> dict[int, Seq]:
        """The sequences, by table, from which chunks being read may have to be replayed."""
        floors: dict[int, Seq] = {}
        for (_, table_id, _), (_, floor) in self._begun.items():
            floors[table_id] = min(floor, floors.get(table_id, floor))
        return floors

    def point_now(self) -> Seq:
        """The replay point of a snapshot taken now."""
        return self._replay_point(self._visibility(self._stream.current_snapshot()))

    def take_applied(self) -> list[Applied]:
        """The progress that targets have reported since; for the next record."""
        known = self._recorder.journal.state
        reported = [
            a
            for a in self._applied.values()
            if a.table_id in known.tables
            and a.applied_record <= known.number
            and (a.applied_record, a.applied_seq)
            > (known.tables[a.table_id].applied_record, known.tables[a.table_id].applied_seq)
        ]
        self._applied = {}
        return reported

    def serve(self, item: Call | Gone) -> None:
        if isinstance(item, Gone):
            self._begun = {k: v for k, v in self._begun.items() if v[0] != item.connection}
            return
        try:
            self._serve(item)
        except TailraceError as error:
            item.reply.set_exception(error)

    def _serve(self, call: Call) -> None:
        match call.request:
            case Append(events=events, added=added):
                self._recorder.request(Requested(events, call.reply, added=added))
            case BeginChunks(chunks=chunks):
                # A snapshot taken later sees at least as much, so its replay point is not below this one.
                floor = self.point_now()
                self._begun |= dict.fromkeys(chunks, (call.connection, floor))
                call.reply.set_result(None)
            case RegisterChunk() as request:
                self._visibility(request.snapshot)  # no chunk may wait that says nothing
                self._waiting.append(Waiting(request, call.reply))
            case ReportApplied(tables=tables, cut_off=cut_off):
                self._applied |= {a.table_id: a for a in tables}
                if cut_off is not None:
                    self.cut_off = frozenset(cut_off)
                call.reply.set_result(None)
            case GetState():
                raise AssertionError("the server answers it without the loop")

    def register(self, position: Position) -> None:
        """Register the chunks whose `high` the stream has reached. `position` as seen without `settle`."""
        ready = [w for w in self._waiting if w.request.chunk.high <= position]
        if not ready:
            return
        self._settle()
        for waiting in ready:
            try:
                done = self._register(waiting)
            except ChunkTooOld as error:  # anything else is not the chunk's: capture ends
                waiting.reply.set_exception(error)
                done = True
            if done:
                self._waiting.remove(waiting)

    def _register(self, waiting: Waiting) -> bool:
        """False: it has to wait longer."""
        request, chunk = waiting.request, waiting.request.chunk
        table_id = chunk.table_id
        if not self._stream.is_captured(table_id):
            raise ChunkTooOld(f"table {table_id} is not captured", "Plan its snapshot again once it is captured.")
        name = self._recorder.journal.state.tables[table_id].schema.name
        version = self._stream.version_with(table_id, request.columns)
        if version is None:
            if waiting.looked:
                raise ChunkTooOld(
                    f"chunk {chunk.chunk} of {name} has columns that no version of"
                    f" the table has: {', '.join(request.columns)}",
                    "The chunk is read again.",
                )
            waiting.looked = self._stream.poll_catalog_for(table_id)
            return False
        if self._other_columns(table_id, chunk.schema_version, version):
            raise ChunkTooOld(f"columns of {name} were dropped or exchanged since", "The chunk is read again.")
        key = (chunk.snapshot_id, table_id, chunk.chunk)
        point, removed = self._checked_point(request, version)
        self._require_fit(chunk)
        # Retention knows the floors of this process only: one that began before a restart may have been passed over.
        forgotten = key not in self._begun and self.retention_ran
        if point <= removed or forgotten:
            raise ChunkTooOld(
                f"chunk {chunk.chunk} of {name} must be replayed from sequence {point}, the log may begin after"
                f" {removed}",
                "The chunk is read again.",
            )
        update = {"replay_point": point, "schema_version": version, "seen": self._contained(request, point)}
        events = tuple(part.model_copy(update=update) for part in (chunk, *request.further))
        self._recorder.request(Requested(events, waiting.reply, replay_point=point))
        self._begun.pop(key, None)
        return True

    def _require_fit(self, chunk: ChunkRegistered) -> None:
        """Its range joins those that are registered: what the journal has once, every later start has to go by."""
        state = self._recorder.journal.state
        table, snapshot = state.tables[chunk.table_id].schema, state.snapshots.get(chunk.snapshot_id)
        known = None if snapshot is None else snapshot.tables.get(chunk.table_id)
        # A list of keys has no ranges, nor a table that is read at once; what is not known the fold refuses.
        if snapshot is None or known is None or not known.started or snapshot.plan.keys is not None or table.keyless:
            return
        asked = (event for event in self._recorder.requested if isinstance(event, ChunkRegistered))
        here = (c for c in asked if (c.snapshot_id, c.table_id) == (chunk.snapshot_id, chunk.table_id))
        why = misfit(chunk, known, here)
        if why is not None:
            raise ChunkTooOld(f"chunk {chunk.chunk} of {table.name} is no part of its snapshot: {why}", BEGIN_AGAIN)

    def _other_columns(self, table_id: int, read: int, named: int) -> bool:
        """True if a version since the one that the chunk was read for has other columns under its names, or may have:
        the log has forgotten that one. Its reader may have seen the table as it was in any of them."""
        schemas = self._recorder.journal.state.tables[table_id].schemas
        forms = {s.table.version: {c.name: c.id for c in s.table.columns} for s in schemas}
        if named not in forms:
            return False
        since = [form for version, form in forms.items() if version >= read and form.keys() == forms[named].keys()]
        return read not in forms or any(form != forms[named] for form in since)

    def _checked_point(self, request: RegisterChunk, version: int) -> tuple[Seq, Seq]:
        """The replay point of a chunk that saw all it must see, and up to where the log is removed."""
        state, chunk = self._recorder.journal.state, request.chunk
        table = state.tables[chunk.table_id]
        name = table.schema.name
        if chunk.high < state.source_since:  # it may have seen what the other server has never had
            raise ChunkTooOld(f"chunk {chunk.chunk} of {name} is of another server", "The chunk is read again.")
        snapshot = state.snapshots.get(chunk.snapshot_id)
        planned = RecordNumber(0) if snapshot is None else snapshot.record
        if snapshot is not None and not snapshot.reads(table):
            raise ChunkTooOld(f"{name} was added again since the snapshot was planned", "The table has a new snapshot.")
        contained = contained_through(table, version, planned)
        visible = self._visibility(request.snapshot)
        if not visible.past(table.edge):
            raise ChunkTooOld(
                f"chunk {chunk.chunk} of {name} does not see all that came before the log has the table's changes",
                "The chunk is read again.",
            )
        point = max(self._replay_point(visible), Seq(contained + 1))
        return point, max(table.trimmed_through, state.transactions.trimmed_through)

    def _replay_point(self, snapshot: Visibility) -> Seq:
        """The open transaction, if any, has not committed before the chunk's `high`: it lies at or after the next
        one."""
        state = self._recorder.journal.state
        return replay_point(snapshot, state.transactions, Seq(state.last_seq + 1))

    def _contained(self, request: RegisterChunk, point: Seq) -> SeqRanges:
        """The changes after its replay point that a chunk of a table without a key has already."""
        state, chunk = self._recorder.journal.state, request.chunk
        table = state.tables[chunk.table_id].schema
        if not table.keyless:
            return ()
        ranges = contained_after(self._visibility(request.snapshot), state.transactions, point, state.last_seq)
        if len(ranges) > MOST_RANGES:
            raise ChunkTooOld(
                f"{table.name} was read while {len(ranges)} transactions became visible before one that the log has"
                " before them",
                "It is read again.",
            )
        return ranges

    def refuse(self, error: TailraceError) -> None:
        for waiting in self._waiting:
            waiting.reply.set_exception(error)
        self._waiting = []
