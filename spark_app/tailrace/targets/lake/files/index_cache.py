"""The LRU cache that keeps indexes of data files in memory, and knows of those on the disk. Used by `locate`."""

import threading
from collections import OrderedDict
from collections.abc import Iterable

from tailrace.targets.lake.files.index import FileIndex, WantedKeys
from tailrace.targets.lake.files.key_files import KeyFiles

MANY_FILES = 10_000
"""The number of files that are remembered as too large for an index."""


class IndexCache:
    """Least recently used out, bounded in bytes. A pass over more files than fit does not flush itself: an entry used
    since the last `begin` is never dropped for another one of the same pass."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.kept: KeyFiles | None = None
        """Indexes of large files; None: they are in memory, too."""
        self._too_large: OrderedDict[str, None] = OrderedDict()
        self._entries: OrderedDict[str, tuple[FileIndex, int]] = OrderedDict()
        self._names: dict[str, list[str]] = {}
        """The entries of each data file: by what it was indexed."""
        self._size = self._pinned = 0
        """Bytes of all entries, and of those of the present pass: these stand behind all others."""
        self._pass = 0
        self._unproven: set[str] = set()
        """Entries that were made without reading their files, which nothing has proven to be there since."""
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        return self._size

    @property
    def most(self) -> int:
        """Bytes of keys of which one index is made: several are made at the same time, each from a copy or two."""
        return self._limit // 4

    def too_large(self, path: str) -> bool:
        """True if the file was found to have more than that."""
        return path in self._too_large

    def note_too_large(self, path: str) -> None:
        with self._lock:
            self._too_large[path] = None
            if len(self._too_large) > MANY_FILES:
                self._too_large.popitem(last=False)

    def begin(self) -> None:
        """A new pass (one `locate`) starts."""
        with self._lock:
            self._pass += 1
            self._pinned = 0

    def get(self, path: str, wanted: WantedKeys | None = None) -> FileIndex | None:
        """`wanted`: the entry counts as used only if it meets these."""
        with self._lock:
            entry = self._entries.get(path)
            if entry is None:
                return None
            index, used = entry
            if wanted is not None and not index.meets(wanted):
                return index
            if used != self._pass:
                self._entries[path] = index, self._pass
                self._pinned += index.size
            self._entries.move_to_end(path)
            return index

    def admits(self, size: int) -> bool:
        """True if an entry of about this size would be kept; asked before the file is read."""
        return self._pinned + size <= self._limit

    def is_unproven(self, path: str) -> bool:
        """True if the entry was made without reading the file: `proven` says that it is still there."""
        return path in self._unproven

    def proven(self, path: str) -> None:
        with self._lock:
            self._unproven.discard(path)

    def note(self, path: str, index: FileIndex) -> None:
        """Keep the index, if it fits, of a file that was not read."""
        with self._lock:
            self._unproven.add(path)
        self.offer(path, index)
        with self._lock:
            if path not in self._entries:
                self._unproven.discard(path)

    def offer(self, path: str, index: FileIndex) -> FileIndex:
        """Keep the index if it fits; returns it either way."""
        size = index.size
        with self._lock:
            if path in self._entries or self._pinned + size > self._limit:
                return index
            while self._size + size > self._limit:
                self._drop(next(iter(self._entries)))
            self._entries[path] = index, self._pass
            self._names.setdefault(_file_of(path), []).append(path)
            self._size += size
            self._pinned += size
        return index

    def forget(self, files: Iterable[str]) -> None:
        """A table no longer has these data files. (An older version, which may still be read, is read as if anew.)"""
        with self._lock:
            for name in [name for file in files for name in self._names.get(file, ())]:
                self._drop(name)

    def _drop(self, path: str) -> None:
        index, used = self._entries.pop(path)
        self._size -= index.size
        self._pinned -= index.size if used == self._pass else 0
        self._unproven.discard(path)
        names = self._names[_file_of(path)]
        names.remove(path)
        if not names:
            del self._names[_file_of(path)]


def _file_of(path: str) -> str:
    """The data file of an entry, whose name has a line for what it was indexed by, too."""
    return path.partition("\n")[0]
