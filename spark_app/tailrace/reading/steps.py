"""The steps of a snapshot that talk to the source, to capture and to executors: one function each, run on the snapshot
runner's threads. Each asks the journal first whether its record is there already: an answer may have been lost.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from tailrace.capture.client import CaptureClient
from tailrace.changelog.records.snapshots import (
    ChunkRegistered,
    ReadFailure,
    SnapshotTableFinished,
    SnapshotTableStarted,
)
from tailrace.changelog.records.terms import Key, RecordNumber, Seq, TableSchema
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState, SnapshotTable, TableLog
from tailrace.contract.resources import TableOptions
from tailrace.errors import InvalidManifest, ReadRefused, Retry, SourceRefused, TableGone, TableStop
from tailrace.reading.executors import SMALL_TABLE_BYTES, ChunkExecutors
from tailrace.reading.task import ChunkFile, ChunkTask
from tailrace.seams import seam
from tailrace.snapshot.chunks import CutNext, TableRun
from tailrace.snapshot.ranges import BEGIN_AGAIN, Range
from tailrace.sources.api import ChunkReader, KeyList, KeyRange, Session, Source, Table
from tailrace.sources.patterns import options_of
from tailrace.targets.api import ChunkWriter, Look

log = logging.getLogger(__name__)

ChunkWriters = Callable[[int, TableSchema], ChunkWriter | None]
"""(table id, schema version) -> what writes its chunks; None: the target is not open yet."""


class TargetNotOpen(Retry):
    """The target is not open, as at each start: the snapshot waits until its table's target has been opened. Elsewhere
    it is a `Retry`."""

    @property
    @override
    def name(self) -> str:
        return Retry.__name__


@dataclass(frozen=True)
class Tools:
    """The tools that every step needs."""

    anywhere: Source
    """The source as the manifest names it."""
    options: Callable[[], Sequence[TableOptions]]
    """The options of the current manifest."""
    socket: Path
    executors: ChunkExecutors
    journal: SharedJournal
    writers: ChunkWriters
    opened: Callable[[int], bool]
    """Returns True if the table's target is open; without waiting."""
    is_whole: Callable[[int], bool]
    """Returns True if the table's target holds all that was read, and nothing is being read; without waiting."""
    look: Callable[[int], tuple[Look, RecordNumber] | None]
    """A table's copy, to be compared, and the record that it holds at least; None: not while it is not whole."""
    lost: Callable[[], Iterable[ChunkRegistered]]
    """Registered chunks whose file is gone."""

    @property
    def source(self) -> Source:
        """The very server that is captured now: it may move while the driver runs."""
        origin = self.journal.state.origin
        assert origin is not None, "a snapshot is planned in a change log that has begun"
        return self.anywhere.bound_to(origin)


@dataclass(frozen=True)
class Start:
    table: Table
    max_key: Key | None
    estimated_rows: int
    small: bool = False
    """The table has few bytes, and is read at once."""
    recorded: bool = False
    """The journal had it before."""


def check_edge(tools: Tools, log_table: TableLog) -> str | None:
    """The obstacle to the first chunk; None: there is none."""
    with tools.source.session() as session:
        return session.obstacle(log_table.edge)


def look_up(tools: Tools, session: Session, log_table: TableLog) -> Table:
    options = options_of(tools.options(), log_table.schema.schema_name, log_table.schema.table_name)
    try:
        found = session.table(log_table.table_id, (options,) if options else ())
    except SourceRefused as error:  # a right that this table alone needs; capture meets what concerns all of them
        raise ReadRefused(log_table.schema.name, error.message, error.fix) from error
    if found is None:
        name = log_table.schema.name
        raise TableGone(name, f"{name} (id {log_table.table_id}) no longer exists in the source", "")
    if found.stop is not None:
        raise found.stop
    return found


def find_start(tools: Tools, client: CaptureClient, run: TableRun, log_table: TableLog, chunk_rows: int) -> Start:
    """Fix the range of the table's chunks and record it. A table that fits into one chunk needs no range."""
    with tools.source.session() as session:
        start = look_for_start(tools, session, _logged(tools, run), run, log_table, chunk_rows)
    if not start.recorded:
        client.append([started(run, start)], {run.table_id: log_table.added_record})
    return start


def look_for_start(  # noqa: PLR0917  # as `find_start`
    tools: Tools, session: Session, logged: SnapshotTable, run: TableRun, log_table: TableLog, chunk_rows: int
) -> Start:
    """`logged`: what the journal has of it."""
    table = look_up(tools, session, log_table)
    if logged.started:
        return Start(table, logged.max_key, logged.estimated_rows, recorded=True)
    if run.keys is not None:
        return Start(table, None, len(run.keys))
    keys = session.keys(table)
    estimated = keys.estimated_rows(run.where)
    whole = keys.at_most(chunk_rows)
    size = keys.bytes() if whole else None
    small = size is not None and size <= SMALL_TABLE_BYTES
    if run.sample is not None and not whole:
        estimated = int(estimated * run.sample)
    return Start(table, None if whole else keys.max_key(), estimated, small)


def started(run: TableRun, start: Start) -> SnapshotTableStarted:
    return SnapshotTableStarted(
        snapshot_id=run.snapshot_id,
        table_id=run.table_id,
        max_key=start.max_key,
        estimated_rows=start.estimated_rows,
    )


def find_table(tools: Tools, log_table: TableLog) -> Table:
    with tools.source.session() as session:
        return look_up(tools, session, log_table)


def find_cut(tools: Tools, table: Table, work: CutNext, rows: int) -> Key | None:
    """The key that ends the next chunk; None: it takes the rest of the gap."""
    if work.last:
        return None
    with tools.source.session() as session:
        return session.keys(table).boundary(work.lower, rows, work.upper)


def read(tools: Tools, run: TableRun, part: Range, table: Table, small: bool = False) -> ChunkFile:
    """Read one chunk and have it registered; returns when the record is durable. `small`: of a table of few bytes."""
    known = registered(_logged(tools, run), part, table)
    if known is not None:
        return known
    task = chunk_task_of(tools, run, part, table, tools.source.reader())
    client = CaptureClient(tools.socket)
    try:
        client.begin_chunks((run.snapshot_id, run.table_id, part.ordinal))
        begun = time.monotonic()
        file = tools.executors.read(task, small)
        # Dying here leaves a file that nobody knows: a clean-up of the folder takes it, the chunk is read again.
        seam("snapshot.before-register")
        register(client, run, part, task, file)
        seam("snapshot.after-register")
        log_chunk(task, part, file, time.monotonic() - begun)
        return file
    finally:
        client.close()  # a chunk that is not registered no longer holds the log back


def registered(logged: SnapshotTable, part: Range, table: Table) -> ChunkFile | None:
    """The chunk as the journal has it; None: it does not have it yet."""
    known = next((c for c in logged.chunks if c.chunk == part.ordinal), None)
    if known is None:
        return None
    if (known.lower, known.upper) != (part.lower, part.upper):
        raise Retry(f"chunk {part.ordinal} of {table.name} is registered with another range", BEGIN_AGAIN)
    return ChunkFile(known.path, known.rows, known.size, "", known.high, ())


def chunk_task_of(tools: Tools, run: TableRun, part: Range, table: Table, reader: ChunkReader) -> ChunkTask:
    schema = _version(tools.journal.state.tables[run.table_id], table)
    writer = tools.writers(run.table_id, schema)
    if writer is None:
        raise TargetNotOpen(f"the target of {table.name} is not open yet")
    keys = None if part.keys is None else _keys(tools, table, writer, part.keys)
    requested = KeyRange(part.lower, part.upper) if keys is None else KeyList(keys)
    return ChunkTask(reader, table, requested, run.where, writer, run.snapshot_id, part.ordinal)


def log_chunk(task: ChunkTask, part: Range, file: ChunkFile, seconds: float) -> None:
    extra = {"table": task.table.name, "snapshot": task.snapshot_id, "chunk": part.ordinal}
    log.info("chunk %d, %s: %d rows in %.1f s", part.ordinal, part, file.all_rows, seconds, extra=extra)


def _keys(tools: Tools, table: Table, writer: ChunkWriter, planned: Sequence[Key]) -> tuple[Key, ...]:
    """The keys of the plan that the target can hold. Translated once more: a key's type may have changed since."""
    with tools.source.session() as session:
        normal = session.keys(table).normal_keys(planned)
    return writer.possible(normal)


def canonical_keys(tools: Tools, log_table: TableLog, requested: Sequence[Key]) -> tuple[Key, ...]:
    """The canonical keys for a plan: `planner.CanonicalKeys`."""
    try:
        with tools.source.session() as session:
            return session.keys(look_up(tools, session, log_table)).normal_keys(requested)
    except TableStop as error:
        raise InvalidManifest(error.message, error.fix) from error


def register(client: CaptureClient, run: TableRun, part: Range, task: ChunkTask, file: ChunkFile) -> None:
    writer = task.writer
    chunk = ChunkRegistered(
        snapshot_id=run.snapshot_id,
        table_id=run.table_id,
        chunk=part.ordinal,
        lower=part.lower,
        upper=part.upper,
        keys=task.part.keys if isinstance(task.part, KeyList) else None,
        path=file.path,
        rows=file.rows,
        size=file.size,
        schema_version=writer.schema.version,
        replay_point=Seq(0),
        high=file.high,
        layout=writer.form,
        nulled=file.nulled,
    )
    further = (
        chunk.model_copy(
            update={"chunk": part.ordinal + n, "path": f.path, "rows": f.rows, "size": f.size, "nulled": ()}
        )
        for n, f in enumerate(file.further, 1)
    )
    client.register_chunk(chunk, file.snapshot, file.columns, tuple(further))


def record_finish(tools: Tools, client: CaptureClient, run: TableRun) -> None:
    event = finish_of(_logged(tools, run), run)
    if event is not None:
        client.append([event], added_with(run))


def finish_of(logged: SnapshotTable, run: TableRun) -> SnapshotTableFinished | None:
    """The record of the table's end; None: the journal has it."""
    if logged.finished is not None:
        return None
    fault, error = run.fault, None
    if fault is not None:
        where = fault.where or "driver"
        error = ReadFailure(message=f"{fault.name}: {fault.message}", fix=fault.fix, where=where)
    return SnapshotTableFinished(
        snapshot_id=run.snapshot_id,
        table_id=run.table_id,
        chunks=logged.chunks_done,
        complete=run.complete and error is None,
        error=error,
    )


def added_with(run: TableRun) -> Mapping[int, RecordNumber]:
    """A table may come back for this very snapshot while it is given up: then nobody else would read it."""
    return {} if run.given_up is None else {run.table_id: run.given_up}


def _logged(tools: Tools, run: TableRun) -> SnapshotTable:
    return logged_in(tools.journal.refresh(), run)


def logged_in(state: LogState, run: TableRun) -> SnapshotTable:
    """The part of the state that is about the run."""
    snapshot = state.snapshots.get(run.snapshot_id)
    if snapshot is None or snapshot.ended is not None:
        raise Retry(f"snapshot {run.snapshot_id} has ended")
    return snapshot.tables[run.table_id]


def _version(log_table: TableLog, table: Table) -> TableSchema:
    """The schema version of the journal that has the columns which the catalog shows now."""
    for logged in reversed(log_table.schemas):
        if table.shows(logged.table):
            return logged.table
    raise Retry(f"the definition of {table.name} has changed and capture has not recorded it yet")
