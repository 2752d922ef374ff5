"""Writes chunks as Parquet files in the target's layout, into the table's own folder, to be adopted as they are.

Made by `LakeTable`, used on executors by `reading.task`.
"""

import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from tailrace.changelog.keys import fitting
from tailrace.changelog.records.terms import Key, TableSchema
from tailrace.errors import TailraceError
from tailrace.targets.api import WrittenChunk
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.files.write import chunk_path, write_file


@dataclass(frozen=True)
class LakeChunkWriter:
    """See `targets.api.ChunkWriter`."""

    layout: Layout
    location: str
    """The table's folder, absolute URI."""
    lake: FileAccess

    @property
    def schema(self) -> TableSchema:
        return self.layout.schema

    @property
    def form(self) -> str:
        return self.layout.digest

    @property
    def wire(self) -> None:
        """Files are made of values."""

    def possible(self, keys: Sequence[Key]) -> tuple[Key, ...]:
        return fitting(keys, [self.layout.fields[name].type for name in self.layout.key])

    def write(self, snapshot_id: str, chunk: int, rows: Iterable[pa.Table]) -> WrittenChunk | None:
        path = chunk_path(self.location, snapshot_id, chunk, uuid.uuid4())
        written = write_file(self.lake, path, self.layout, rows)
        return None if written is None else WrittenChunk(path, written.file.rows, written.file.size)

    def discard(self, paths: Sequence[str]) -> None:
        with suppress(TailraceError):
            self.lake.delete_many(paths)
