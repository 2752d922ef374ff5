"""The few ways in which lake code touches storage, and the cache of footers.

`FileAccess` is the part of `tailrace.storage.store.Storage` that locating, writing and the committers need; paths are
absolute URIs. A chunk file that has gone missing shows as `tailrace.storage.store.NotFound`; its writer reads it again.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq


class FileAccess(Protocol):
    """Access to immutable files by absolute URI. A missing one raises `tailrace.storage.store.NotFound`."""

    def open_input(self, path: str) -> pa.NativeFile: ...

    def create(self, path: str, data: bytes) -> None: ...

    def put(self, path: str, data: bytes) -> None: ...

    def get(self, path: str) -> bytes: ...

    def size(self, path: str) -> int: ...

    def exists(self, path: str) -> bool: ...

    def delete(self, path: str) -> None: ...

    def delete_many(self, paths: Sequence[str]) -> None: ...

    def aged(self, folder: str) -> Iterator[tuple[str, float]]: ...


class FooterCache:
    """Parquet footers of immutable files, bounded by their bytes in the files (in memory they need some times that);
    the writer puts its own in, so that a commit reads none back."""

    def __init__(self, limit: int = 16 << 20) -> None:
        self._limit = limit
        self._size = 0
        self._footers: OrderedDict[str, tuple[pq.FileMetaData, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str) -> pq.FileMetaData | None:
        with self._lock:
            if path in self._footers:
                self._footers.move_to_end(path)
                return self._footers[path][0]
            return None

    def put(self, path: str, footer: pq.FileMetaData, size: int | None = None) -> None:
        """`size`: its bytes in the file, of a footer that was not read from there: such a one does not know."""
        size = int(footer.serialized_size) if size is None else size
        with self._lock:
            if path in self._footers:
                return
            self._footers[path] = footer, size
            self._size += size
            while self._size > self._limit:
                self._size -= self._footers.popitem(last=False)[1][1]

    def forget(self, paths: Iterable[str]) -> None:
        """A table no longer has these files."""
        with self._lock:
            for path in paths:
                if (found := self._footers.pop(path, None)) is not None:
                    self._size -= found[1]


def footer_size(end: bytes) -> int:
    """Bytes of a Parquet file's footer; `end`: the file's last eight."""
    return int.from_bytes(end[:4], "little")


FOOTERS = FooterCache()
"""One for the process: files are immutable and their names are never used twice."""


@contextmanager
def parquet(access: FileAccess, path: str) -> Iterator[pq.ParquetFile]:
    """A Parquet file for reading; its footer is read at most once."""
    footer = FOOTERS.get(path)
    source = access.open_input(path)
    with source, pq.ParquetFile(source, metadata=footer, coerce_int96_timestamp_unit="us") as file:
        if footer is None:
            FOOTERS.put(path, file.metadata)
        yield file


def footer_of(access: FileAccess, path: str) -> pq.FileMetaData:
    """The file's footer, cached; does not prove that the file still exists."""
    footer = FOOTERS.get(path)
    if footer is None:
        with parquet(access, path) as file:
            footer = file.metadata
    return footer


def read_range(access: FileAccess, path: str, offset: int, length: int) -> bytes:
    with access.open_input(path) as source:
        source.seek(offset)
        return bytes(source.read(length))
