"""Writes chunks of tables whose copies have more columns (`changelog.history`), through the writer of any target.

Made by `apply.unit_worker`, used on executors by `reading.task`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tailrace.changelog.history import DELETED, IS_CURRENT, VALID_FROM, added, named
from tailrace.changelog.keys import fitting
from tailrace.changelog.records.terms import Key, TableSchema
from tailrace.changelog.types import arrow_type
from tailrace.targets.api import ChunkWriter, WrittenChunk


@dataclass(frozen=True)
class HistoryChunkWriter:
    """See `targets.api.ChunkWriter`."""

    schema: TableSchema
    """The source's."""
    writer: ChunkWriter
    """The target's, for the table as it has it."""
    now: Callable[[], float] = time.time
    """The clock of the process that reads: a version that a chunk brings is valid from then on."""

    @property
    def form(self) -> str:
        return self.writer.form

    @property
    def wire(self) -> None:
        """Rows have no room for the added columns as they are sent."""

    def possible(self, keys: Sequence[Key]) -> tuple[Key, ...]:
        return fitting(keys, [arrow_type(column.type) for column in self.schema.key_columns])

    def write(self, snapshot_id: str, chunk: int, rows: Iterable[pa.Table]) -> WrittenChunk | None:
        return self.writer.write(snapshot_id, chunk, _with_room(self.schema, rows, round(self.now() * 1_000_000)))

    def discard(self, paths: Sequence[str]) -> None:
        self.writer.discard(paths)


def _with_room(schema: TableSchema, rows: Iterable[pa.Table], now: int) -> Iterator[pa.Table]:
    """The rows with the added columns, which are filled when the chunk is applied; but a row that was read is there,
    so it is not deleted, and valid from `now` on (microseconds since the Unix epoch)."""
    moment = pa.scalar(now, pa.timestamp("us", "UTC"))
    filled = {DELETED: pa.scalar(False), VALID_FROM: moment, IS_CURRENT: pa.scalar(True)}
    known = {named(schema, name): value for name, value in filled.items()}
    columns = added(schema)
    names = [column.name for column in columns]
    for part in rows:
        room = [
            pa.repeat(known[name], part.num_rows) if name in known else pa.nulls(part.num_rows, arrow_type(column.type))
            for name, column in zip(names, columns, strict=True)
        ]
        yield pa.table([*part.columns, *room], names=[*part.column_names, *names])
