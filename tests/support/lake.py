"""Lake tests' helpers: a local file access and short ways to make schemas and tables."""

import math
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.storage.local import aged
from tailrace.storage.store import AlreadyExists, NotFound
from tailrace.targets.lake.files.compact import CompactionLimits

EAGER = CompactionLimits(min_files=2, largest_share=math.inf, tiny_bytes=0)
"""Two files are joined, whatever their sizes."""


class LocalFiles:
    """File access by `file://` URIs, plain."""

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.memory_map(str(self._file(path)))

    def create(self, path: str, data: bytes) -> None:
        file = self._file(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with file.open("xb") as out:
                out.write(data)
        except FileExistsError:
            raise AlreadyExists(path) from None

    def put(self, path: str, data: bytes) -> None:
        self._file(path).parent.mkdir(parents=True, exist_ok=True)
        self._file(path).write_bytes(data)

    def get(self, path: str) -> bytes:
        try:
            return self._file(path).read_bytes()
        except FileNotFoundError:
            raise NotFound(path) from None

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

    def _file(self, path: str) -> Path:
        return Path(path.removeprefix("file://"))


def table_schema(
    columns: Sequence[tuple[str, str]], key: Sequence[str], version: int = 1, name: str = "t", table_id: int = 16384
) -> TableSchema:
    """`columns`: (name, logical type)."""
    places = {column: place for place, column in enumerate(key)}
    made = tuple(
        Column(name=column, id=number, source_type=kind, type=kind, key=places.get(column))
        for number, (column, kind) in enumerate(columns, start=1)
    )
    return TableSchema(table_id=table_id, schema_name="public", table_name=name, version=version, columns=made)


def new_location(folder: Path) -> str:
    return f"file://{folder}/t{uuid.uuid4().hex[:8]}"
