"""Keys and rows of chunk files and data files: a lake's answer to what the fold asks of chunks (`ChunkRows`)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.changelog.parquet_batches import BATCH_ROWS
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.fold.key_columns import Columns, Ints, typed
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.files.access import parquet
from tailrace.targets.lake.files.locate import read_rows


@dataclass(frozen=True)
class ChunkFiles:
    work: PartInput

    def keys(self, chunk: ChunkRegistered) -> Iterator[tuple[Ints, Columns]]:
        if chunk.path is None:
            return
        if chunk.path in self.work.concerned:
            yield self.work.concerned[chunk.path]
        else:
            for at, keys in key_batches(self.work, chunk.path):
                yield np.arange(at, at + len(keys[0]), dtype=np.int64), keys

    def rows(self, chunk: ChunkRegistered, positions: Ints) -> Iterator[pa.Table]:
        assert chunk.path is not None  # a row with a position is in a file
        return whole_rows(self.work, chunk.path, positions)


def key_batches(work: PartInput, path: str, size: int = BATCH_ROWS) -> Iterator[tuple[int, Columns]]:
    """The keys of a data or chunk file, with the position of each batch's first row."""
    with parquet(work.lake, path) as file:
        names, at = work.layout.physical(work.layout.key), 0
        for batch in file.iter_batches(size, columns=names):
            yield at, typed((batch.column(name) for name in names), work.fold.key_types)
            at += batch.num_rows


def whole_rows(work: PartInput, path: str, positions: Ints) -> Iterator[pa.Table]:
    """Rows of a file, under source names, at rising positions."""
    return (rows for _, rows in read_rows(work.lake, path, positions, work.layout, work.fold.names))
