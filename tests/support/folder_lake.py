"""A lake table without a format: Parquet files of a folder and vectors in memory, to test apply against the rule."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64
from typing_extensions import override

from support.lake import LocalFiles
from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import TableSlice
from tailrace.changelog.bundles import ObjectAccess
from tailrace.changelog.records.terms import TableSchema
from tailrace.fold.fold_input import FoldInput
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.files.layout import Layout, physical_field
from tailrace.targets.lake.files.locate import take_rows
from tailrace.targets.lake.model import DataFile, TableCommit


class FolderAccess(LocalFiles):
    """`FileAccess` on local files; relative paths are below `root`. Picklable."""

    def __init__(self, root: str) -> None:
        self.root = root

    @override
    def _file(self, path: str) -> Path:
        return Path(path.removeprefix("file://")) if "://" in path else Path(self.root) / path


class NotedAccess(FolderAccess):
    """Notes every opened file in `opened.txt`, from whatever process."""

    @override
    def open_input(self, path: str) -> pa.NativeFile:
        with (Path(self.root) / "opened.txt").open("a") as notes:
            notes.write(f"{path}\n")
        return super().open_input(path)

    def opened(self) -> Counter[str]:
        """How often each file was opened since this was asked last."""
        notes = Path(self.root) / "opened.txt"
        found = Counter(notes.read_text().splitlines()) if notes.exists() else Counter[str]()
        notes.unlink(missing_ok=True)
        return found


def layout_of(schema: TableSchema) -> Layout:
    """Physical names that are not the source's; a column keeps its own through renames."""
    fields = [physical_field(f"col_{c.id}", c.type, c.id) for c in schema.columns]
    return Layout(schema, pa.schema(fields))


class FolderTable:
    """What a committer does, without durability: takes over a commit and shows the live files."""

    def __init__(self, folder: Path, schema: TableSchema) -> None:
        self.location = f"file://{folder}"
        self.access = FolderAccess(str(folder))
        self.schema = schema
        self.applied = AppliedState("log", schema_version=schema.version, table_id=schema.table_id)
        self.live: dict[str, DataFile] = {}

    @property
    def files(self) -> tuple[DataFile, ...]:
        return tuple(self.live.values())

    def work(
        self,
        batch: TableSlice,
        log: ObjectAccess,
        *,
        layout: Layout | None = None,
        lake: FileAccess | None = None,
        files: tuple[DataFile, ...] | None = None,
    ) -> PartInput:
        """What the engine gets of a batch."""
        layout = layout or layout_of(batch.schema)
        there = self.files if files is None else files
        return PartInput(FoldInput(batch, layout.types, log), layout, lake or self.access, self.location, there)

    def commit(self, change: TableCommit) -> None:
        if change.clear:
            assert not change.marks
            self.live.clear()
        for path, dead in change.marks.items():
            assert self.live[path].dead < dead, "a mark without a new row"
            self.live[path] = replace(self.live[path], dead=dead)
        for new in change.add:
            assert new.path not in self.live and len(new.dead) < new.rows
            self.live[new.path] = DataFile(new.path, new.rows, new.size, new.dead, *self._bounds(new.path))
        self.schema = change.evolve or self.schema
        self.applied = change.applied

    def _bounds(self, path: str) -> tuple[dict[str, object], dict[str, object]]:
        """The keys' smallest and largest values, as a lake format keeps them of each file."""
        ends = dict[str, object](), dict[str, object]()
        layout = layout_of(self.schema)
        with pq.ParquetFile(self.access.open_input(path)) as opened:
            for name, stored in zip(layout.key, layout.physical(layout.key), strict=True):
                found = pc.min_max(opened.read([stored])[stored])
                ends[0][name], ends[1][name] = found["min"].as_py(), found["max"].as_py()
        return ends

    def rows(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for file in self.files:
            alive = np.array(sorted(BitMap64(range(file.rows)) - file.dead), np.int64)
            found += take_rows(self.access, file.path, alive, layout_of(self.schema)).to_pylist()
        return found
