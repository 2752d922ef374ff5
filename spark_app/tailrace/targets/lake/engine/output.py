"""Write the rows of one part of a batch, some megabytes at a time, whatever they hold.

Called by `engine.build`. Most values come from the log's rows, which are in memory (the pool). Where an update left
columns unchanged, they are read from the row underneath, file by file in order of positions and only while they are
written: they may be a thousand times as large as what the log carries.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog.parquet_batches import BATCH_BYTES, BATCH_ROWS
from tailrace.fold.decide import OutputRows
from tailrace.fold.key_columns import Ints, cast
from tailrace.fold.newest import FROM_BASE
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.files.locate import read_rows
from tailrace.targets.lake.files.write import write_files
from tailrace.targets.lake.model import NewFile

WIDE_BYTES = 1 << 30
"""A column of more bytes gets 64-bit offsets: with 32 bits an array ends at 2 GiB."""


@dataclass(frozen=True)
class Base:
    """Rows of one file underneath keys: rising positions, and the keys' numbers."""

    path: str
    positions: Ints
    keys: Ints


def write_rows(
    work: PartInput, rows: OutputRows, base: Sequence[Base], pool: Sequence[pa.Table]
) -> tuple[NewFile, ...]:
    """Rows without anything underneath in their order, the others in the order of their files."""
    output = _Output(work, rows, pool)
    tables = (table for source in (output.whole(), *map(output.over, base)) for table in source)
    return tuple(result.file for result in write_files(work.lake, work.location, work.layout, tables))


class _Output:
    def __init__(self, work: PartInput, rows: OutputRows, pool: Sequence[pa.Table]) -> None:
        self._work, self._rows = work, rows
        self._kinds = [work.layout.fields[name].type for name in work.fold.names]
        self._pool = [joined_pool(pool, place, kind) for place, kind in enumerate(self._kinds)]
        self._over = rows.over
        size = sum(column.nbytes // max(1, len(column)) for column in self._pool)
        self._step = max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, size)))

    def whole(self) -> Iterator[pa.Table]:
        rows = self._rows.filter(np.flatnonzero(~self._over))
        for start in range(0, len(rows.key), self._step):
            values = (column[start : start + self._step] for column in rows.values)
            columns = [self._picked(place, column) for place, column in enumerate(values)]
            yield pa.table(columns, names=self._work.fold.names)

    def over(self, base: Base) -> Iterator[pa.Table]:
        """The rows over those of one file."""
        row_of = np.full(int(max(base.keys.max(), self._rows.key.max(initial=0))) + 1, -1, np.int64)
        at = np.flatnonzero(self._over)
        row_of[self._rows.key[at]] = at
        wanted = row_of[base.keys] >= 0  # what a finished snapshot replaced is not written
        positions, chosen = base.positions[wanted], row_of[base.keys[wanted]]
        lacking = [name for name, column in zip(self._work.fold.names, self._rows.values, strict=True)
                   if (column[chosen] == FROM_BASE).any()]  # fmt: skip
        # The key is in every file; an older file may lack all the others. What is not lacking is not even decoded.
        read = list(dict.fromkeys([*self._work.layout.key, *lacking]))
        for before, base_rows in read_rows(self._work.lake, base.path, positions, self._work.layout, read):
            some = chosen[before : before + base_rows.num_rows]
            for start in range(0, len(some), self._step):
                part = base_rows.slice(start, self._step)
                yield self._joined_with(part, some[start : start + self._step], lacking)

    def _joined_with(self, base_rows: pa.Table, some: Ints, lacking: Sequence[str]) -> pa.Table:
        columns = []
        for place, name in enumerate(self._work.fold.names):
            values = self._rows.values[place][some]
            column = self._picked(place, values)
            if name in lacking:
                below = base_rows.column(name).combine_chunks().cast(self._kinds[place])
                column = pc.if_else(pa.array(values == FROM_BASE), below, column)
            columns.append(column)
        return pa.table(columns, names=self._work.fold.names)

    def _picked(self, place: int, values: Ints) -> pa.Array:
        """Pool rows of a column; null where the value is underneath."""
        missing: npt.NDArray[np.bool_] = values == FROM_BASE
        rows = pa.array(values, mask=missing) if missing.any() else pa.array(values)
        return cast(self._pool[place].take(rows), self._kinds[place])


def joined_pool(pool: Sequence[pa.Table], place: int, kind: pa.DataType) -> pa.Array:
    """A column of the pool as one array."""
    chunks = [chunk for table in pool for chunk in table.column(place).chunks]
    if sum(chunk.nbytes for chunk in chunks) > WIDE_BYTES:
        kind = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind, kind)
    if len(chunks) == 1:
        return cast(chunks[0], kind)
    return pa.concat_arrays([cast(chunk, kind) for chunk in chunks]) if chunks else pa.array([], kind)
