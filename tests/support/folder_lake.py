"""A lake table without a format: Parquet files of a folder and vectors in memory, to test apply against the rule."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from typing_extensions import override

from tailrace.batch.applied import AppliedState
from tailrace.changelog.records import TableSchema
from tailrace.storage.local import aged
from tailrace.storage.store import NotFound
from tailrace.targets.lake.files.layout import Layout, physical_field
from tailrace.targets.lake.files.locate import take_rows
from tailrace.targets.lake.model import DataFile, TableCommit


class FolderAccess:
    """`FileAccess` on local files; relative paths are below `root`. Picklable."""

    def __init__(self, root: str) -> None:
        self.root = root

    def _file(self, path: str) -> Path:
        return Path(path.removeprefix("file://")) if "://" in path else Path(self.root) / path

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.memory_map(str(self._file(path)))

    def create(self, path: str, data: bytes) -> None:
        self._file(path).parent.mkdir(parents=True, exist_ok=True)
        with self._file(path).open("xb") as file:
            file.write(data)

    def get(self, path: str) -> bytes:
        return self._file(path).read_bytes()

    def size(self, path: str) -> int:
        try:
            return self._file(path).stat().st_size
        except FileNotFoundError:
            raise NotFound(path) from None

    def exists(self, path: str) -> bool:
        return self._file(path).exists()

    def delete(self, path: str) -> None:
        self._file(path).unlink(missing_ok=True)

    def delete_many(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def aged(self, folder: str) -> Iterator[tuple[str, float]]:
        return ((f"{folder}/{path}", changed) for path, changed in aged(self._file(folder)))


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

    def commit(self, change: TableCommit) -> None:
        if change.clear:
            assert not change.marks
            self.live.clear()
        for path, dead in change.marks.items():
            assert self.live[path].dead < dead, "a mark without a new row"
            self.live[path] = replace(self.live[path], dead=dead)
        for new in change.add:
            assert new.path not in self.live and len(new.dead) < new.rows
            self.live[new.path] = DataFile(new.path, new.rows, new.size, new.dead)
        self.schema = change.evolve or self.schema
        self.applied = change.applied

    def rows(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for file in self.files:
            alive = np.array(sorted(BitMap64(range(file.rows)) - file.dead), np.int64)
            found += take_rows(self.access, file.path, alive, layout_of(self.schema)).to_pylist()
        return found
