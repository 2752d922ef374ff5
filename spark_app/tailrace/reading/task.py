"""The work for one chunk: read it from the source and write it where the target wants it.

The snapshot runner sends it to an executor, or has the driver do it (`reading.executors`); everything it needs travels
in `ChunkTask`, everything it found comes back in `ChunkFile`.
"""

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import pyarrow as pa

from tailrace.changelog.records.terms import Nulled, Position
from tailrace.databases.wire import WireRefused, WireRows
from tailrace.errors import Retry, TailraceError, privacy
from tailrace.selection.rows import keeps_all, of_chunk
from tailrace.sources.api import ChunkRead, ChunkReader, KeyList, KeyRange, Table
from tailrace.targets.api import ChunkWriter, WrittenChunk

log = logging.getLogger(__name__)

WAITING_BATCHES = 4
"""Batches read ahead of the writer."""
FILE_BYTES = 256 << 20
"""Bytes of rows in memory, about: a table without a key is one chunk however large it is, and a file is built in
memory."""

Rows = TypeVar("Rows")
Read = Callable[[Callable[[Rows], None]], ChunkRead]
"""Reads a chunk and hands its rows over as they arrive."""


@dataclass(frozen=True)
class ChunkTask:
    reader: ChunkReader
    table: Table
    part: KeyRange | KeyList
    where: str | None
    writer: ChunkWriter
    snapshot_id: str
    ordinal: int


@dataclass(frozen=True)
class ChunkFile:
    path: str | None
    """None: no row was found, nothing was written."""
    rows: int
    size: int
    snapshot: str
    high: Position
    columns: tuple[str, ...]
    nulled: Nulled = ()
    further: tuple[WrittenChunk, ...] = ()
    """The other files of a table without a key."""
    waited: float = 0.0
    """Seconds for which it waited for Spark, whose start says nothing of how long such rows take."""
    bytes_in_memory: int = 0
    """The table's rows, where all were read before they were written."""

    @property
    def all_rows(self) -> int:
        return self.rows + sum(file.rows for file in self.further)

    @property
    def all_bytes(self) -> int:
        return self.size + sum(file.size for file in self.further)


@dataclass
class _Feed(Generic[Rows]):
    """Rows on their way from the reading thread to the writer."""

    batches: "queue.Queue[Rows | None]" = field(default_factory=lambda: queue.Queue(WAITING_BATCHES))
    abandoned: threading.Event = field(default_factory=threading.Event)
    result: ChunkRead | None = None
    error: BaseException | None = None

    def put(self, batch: Rows | None) -> None:
        while True:
            try:
                self.batches.put(batch, timeout=0.5)
                return
            except queue.Full:
                if self.abandoned.is_set():
                    raise Retry("the chunk's file could not be written") from None

    def rows(self) -> Iterator[Rows]:
        """Ends when the read ended well; raises what the read raised, so that no file is made of half a chunk."""
        while (batch := self.batches.get()) is not None:
            yield batch
        if self.error is not None:
            raise self.error


class TooMuch(Exception):
    """The rows have more bytes than allowed."""


def perform(task: ChunkTask, most: int | None = None) -> ChunkFile:
    """Read and write side by side: rows are compressed while the next ones arrive. `TooMuch` where they have more than
    `most` bytes; so few are read to their end first, which takes no thread."""
    if most is not None:
        return _perform_held(task, most)
    return as_sent(task) or _side_by_side(
        lambda put: task.reader.read(task.table, task.part, task.where, _kept(task, put)),
        lambda batches: _written(task, (pa.Table.from_batches([batch]) for batch in batches)),
    )


def as_sent(task: ChunkTask, most: int | None = None) -> ChunkFile | None:
    """The chunk, if source and target can do without its values, of which only the key is looked at; None: they
    cannot. `TooMuch` where the batches that are read ahead might have more than `most` bytes."""
    schema, writer = task.table.schema, task.writer.wire
    if writer is None or schema.keyless or not keeps_all(schema):
        return None
    reader = task.reader.wire(task.table, writer.form)
    if reader is None:
        return None

    def write(rows: Iterator[WireRows]) -> list[WrittenChunk]:
        file = writer.write(task.snapshot_id, task.ordinal, rows)
        return [] if file is None else [file]

    try:
        return _side_by_side(lambda put: reader.read(task.part, task.where, _bounded(put, most)), write)
    except WireRefused:
        log.warning(
            "the target refused the source's binary rows; reading them as values", extra={"table": task.table.name}
        )
        return None


def _bounded(put: Callable[[WireRows], None], most: int | None) -> Callable[[WireRows], None]:
    """A batch ends behind a row, however large that is."""

    def put_bounded(batch: WireRows) -> None:
        if most is not None and len(batch.data) > most // WAITING_BATCHES:
            raise TooMuch
        put(batch)

    return put_bounded


def _kept(task: ChunkTask, put: Callable[[pa.RecordBatch], None]) -> Callable[[pa.RecordBatch], None]:
    schema = task.table.schema

    def put_kept(batch: pa.RecordBatch) -> None:
        kept = of_chunk(batch, schema)  # that the source selects by the filter would save work, and changes no row
        if kept.num_rows:
            put(kept)

    return put_kept


def _side_by_side(read: Read[Rows], write: Callable[[Iterator[Rows]], list[WrittenChunk]]) -> ChunkFile:
    feed = _Feed[Rows]()
    reader = threading.Thread(target=_read, args=(read, feed), name="chunk-read", daemon=True)
    reader.start()
    try:
        written = write(feed.rows())
    finally:
        feed.abandoned.set()
        reader.join()
    assert feed.result is not None
    return _file(feed.result, written)


def _perform_held(task: ChunkTask, most: int) -> ChunkFile:
    size, tables = 0, list[pa.Table]()

    def put(batch: pa.RecordBatch) -> None:
        nonlocal size
        size += batch.nbytes
        if size > most:
            raise TooMuch
        if (kept := of_chunk(batch, task.table.schema)).num_rows:
            tables.append(pa.Table.from_batches([kept]))

    found = task.reader.read(task.table, task.part, task.where, put)
    return replace(_file(found, _written(task, iter(tables))), bytes_in_memory=size)


def _written(task: ChunkTask, tables: Iterator[pa.Table]) -> list[WrittenChunk]:
    written: list[WrittenChunk] = []
    try:
        for number, rows in enumerate(_portions(tables) if task.table.schema.keyless else (tables,)):
            file = task.writer.write(task.snapshot_id, task.ordinal + number, rows)
            written += [] if file is None else [file]
    except BaseException:
        # Nobody will hear of them, and no clean-up takes them while the snapshot that is tried again is open.
        if written:
            task.writer.discard([file.path for file in written])
        raise
    return written


def _file(found: ChunkRead, written: Sequence[WrittenChunk]) -> ChunkFile:
    if not written:
        return ChunkFile(None, 0, 0, found.snapshot, found.high, found.columns)
    first, *further = written
    reading = found.snapshot, found.high, found.columns, found.nulled
    return ChunkFile(first.path, first.rows, first.size, *reading, tuple(further))


def _portions(tables: Iterator[pa.Table]) -> Iterator[Iterator[pa.Table]]:
    """Divides the rows into portions of a file each; one is taken to its end before the next begins."""

    def stretch(first: pa.Table) -> Iterator[pa.Table]:
        size = first.nbytes
        yield first
        while size < FILE_BYTES and (more := next(tables, None)) is not None:
            size += more.nbytes
            yield more

    while (first := next(tables, None)) is not None:
        yield stretch(first)


def _read(read: Read[Rows], feed: _Feed[Rows]) -> None:
    try:
        feed.result = read(feed.put)
    except BaseException as error:  # raised again on the writer's thread
        feed.error = error
    finally:
        feed.put(None)


def on_executor(task: ChunkTask) -> ChunkFile | TailraceError:
    """`perform`, whose errors come back as values, so that they keep their names through Spark."""
    try:
        with privacy.withheld():
            return perform(task)
    except TailraceError as error:
        return error
