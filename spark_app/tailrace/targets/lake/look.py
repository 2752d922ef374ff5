"""A lake's table as it is at one moment, to be compared with its source: a version's files, and the state in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import TableSlice
from tailrace.changelog import keys
from tailrace.changelog.records.terms import Key, TableSchema
from tailrace.errors import Retry, foreign
from tailrace.fold.comparison import Compared
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import typed
from tailrace.targets.api import ChunkLost, FoundRows
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.files.locate import find_rows
from tailrace.targets.lake.model import DataFile

Compare = Callable[[PartInput], Compared]
"""`engine.compare.compare`, here or elsewhere."""


@dataclass(frozen=True)
class LakeLook:
    """See `targets.api.Look`."""

    applied: AppliedState
    files: tuple[DataFile, ...]
    layout: Layout
    log: FileAccess
    lake: FileAccess
    location: str
    run: Compare

    @property
    def schema(self) -> TableSchema:
        return self.layout.schema

    def find(self, columns: Sequence[str], values: Sequence[Key], take: Sequence[str], most: int) -> FoundRows:
        wanted = typed(keys.columns(values, kinds := [self.layout.types[name] for name in columns]), kinds)
        none = pa.schema([pa.field(name, self.layout.types[name]) for name in take]).empty_table()
        rows: list[pa.Table] = []
        try:
            for found in find_rows(self.lake, self.files, self.layout, dict(zip(columns, wanted, strict=True)), take):
                rows.append(found)
                if sum(part.num_rows for part in rows) > most:
                    break
        except Exception as error:
            raise self._gone(error) or error from error
        return FoundRows(self.applied, pa.concat_tables([none, *rows]))

    def compare(self, expect: Callable[[AppliedState], TableSlice]) -> Compared:
        part = expect(self.applied)
        chunks = [*part.chunks, *(chunk for finish in part.finished for chunk in finish.chunks)]
        changed = tuple(c for c in chunks if c.path is not None and c.layout != self.layout.digest)
        if changed:
            raise ChunkLost("chunk files were written for another form of the target", "", changed)
        fold = FoldInput(part, self.layout.types, self.log)
        try:
            return self.run(PartInput(fold, self.layout, self.lake, self.location, self.files))
        except Exception as error:  # Spark's own, if a task met the missing file
            lost = tuple(chunk for chunk in chunks if chunk.path is not None and not self.lake.exists(chunk.path))
            if lost:
                raise ChunkLost(f"chunk files are gone: {', '.join(str(c.path) for c in lost)}", "", lost) from error
            raise self._gone(error) or error from error

    def _gone(self, error: Exception) -> Retry | None:
        """Set if it was met because compaction has replaced a file since."""
        gone = [file.path for file in self.files if foreign.names(error, file.path)]
        lost = gone and not self.lake.exists(gone[0])
        return Retry(f"{gone[0]} was replaced while it was looked at") if lost else None
