"""Indexes of large data files' keys on the driver's disk, which a restart finds again.

`locate` asks for the rows of a file's keys here, and hands in how the file's keys are read if there is no index yet.
Keys of one word are kept as that word, of others 128 bits of a digest with a secret of the folder: as good as equal,
whoever chose the keys. An index is written aside and renamed, and what a search reads of it is verified
(`key_buckets`): one that is damaged is made again. Of a data file that the table no longer has it goes, and together
they have a bound; beyond it, or on a disk without room, files are searched without.
"""

import hashlib
import json
import logging
import mmap
import os
import shutil
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import IO

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.fold.key_words import key_words
from tailrace.fold.row_digests import digests
from tailrace.targets.lake.files.index import NO_ROWS, Matches, WantedKeys
from tailrace.targets.lake.files.key_buckets import Damaged, Digests, Hashes, Section, mixed

log = logging.getLogger(__name__)

LEAST_ROWS = 64 * 1024
"""Smaller data files are not worth a file: their keys are read again after a restart."""
SECTION_ROWS = 1 << 20
"""Some 60 bytes of memory for each while an index is made, whatever the size of the data file."""
MOST_ROWS = 1 << 32
OPEN = 256
"""Indexes that stay mapped: each is an open file."""
IDLE_SECONDS = 3600.0
"""Indexes of a table that was written to since then make no room for those of others: they would all be made again and
again."""
AT_ONCE = 8 * 1024
"""Keys that are searched for in one step: its arrays fit into the processor's cache."""
SPARE = 0.1
"""Share of the disk that is left free."""
MAGIC, END = b"tr-keys1", 16
"""The last bytes of an index: length and CRC of its contents' description, then the form's name."""

ReadKeys = Callable[[], Iterable[tuple[int, Sequence[pa.Array]]]]
"""Yields the canonical key columns of some rows of a data file at a time, with the number of the first."""


@dataclass(frozen=True)
class OpenIndex:
    """An open index of one data file."""

    wide: bool
    sections: Sequence[Section]

    def find(self, wanted: Digests) -> Matches:
        """The rows of keys, as `Section.find`."""
        pieces = [wanted] if len(wanted.first) <= AT_ONCE else wanted.pieces(AT_ONCE)
        found = [section.find(piece) for section in self.sections for piece in pieces]
        if len(found) == 1:
            return found[0]
        rows, which = zip(NO_ROWS, *found, strict=True)
        return np.concatenate(rows), np.concatenate(which)


class SoughtKeys:
    """Keys that one file after another is asked for: their digests are made when the first one is."""

    def __init__(self, wanted: WantedKeys, salt: str) -> None:
        self.wanted, self._salt = wanted, salt

    @cached_property
    def digests(self) -> Digests:
        return Digests.sorted(*digested(self.wanted.columns, self._salt, 0))

    def chosen(self, numbers: npt.NDArray[np.int64]) -> Digests:
        """The digests of the keys with these numbers."""
        if len(numbers) == len(self.digests.rows):
            return self.digests
        among = np.zeros(len(self.wanted.numbers), np.bool_)
        among[numbers] = True
        return self.digests.only(among[self.digests.rows])


Digested = tuple[Hashes, Hashes | None, npt.NDArray[np.int64]]
"""The fields of `Digests`, in the order of the rows."""


def digested(columns: Sequence[pa.Array], salt: str, start: int) -> Digested:
    """The digests of keys (canonical), of which the first is row `start`; those with a null are none."""
    keyed, second = key_words(columns, hashed=False), None
    if keyed.exact:
        first: Hashes = mixed(keyed.words.view(np.uint64) ^ np.uint64(int(salt, 16)))
    else:
        first, second = (half.view(np.uint64) for half in digests(columns, salt))
    rows = np.arange(start, start + len(first))
    if keyed.valid is not None:
        first, rows = first[keyed.valid], rows[keyed.valid]
        second = None if second is None else second[keyed.valid]
    return first, second, rows


class KeyFiles:
    """All indexes of one run directory; only one process uses it at a time."""

    def __init__(self, folder: Path, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`limit`: bytes of all of them, exceeded by one at most."""
        self._limit, self._size, self._clock = limit, 0, clock
        self._lock, self._making = threading.Lock(), threading.Lock()
        """Locks of what is known, and of making indexes: one at a time, which bounds the memory."""
        self._open: OrderedDict[Path, OpenIndex] = OrderedDict()
        self._proven: set[Path] = set()
        """Indexes of data files that are known to be there since this process began."""
        self._groups: dict[Path, dict[str, int]] = {}
        """Folders of indexes, one for each folder of data files: names and sizes."""
        self._used: OrderedDict[Path, float] = OrderedDict()
        """When each of them was last used, the least recently used first."""
        self.salt, self._folder = self._take(folder)

    def _take(self, folder: Path) -> tuple[str, Path]:
        """The secret and what is there by it; the folder is named after it, so neither can be without the other."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        there = [path for path in folder.iterdir() if len(path.name) == 16 and path.is_dir()]
        chosen = there[0] if len(there) == 1 else folder / token_hex(8)
        for path in folder.iterdir():
            if path != chosen:
                _remove(path)
        chosen.mkdir(exist_ok=True)
        for group in chosen.iterdir():
            self._groups[group], self._used[group] = {}, self._clock()
            for path in group.iterdir():
                if path.suffix == ".keys":
                    self._groups[group][path.name] = path.stat().st_size
                else:
                    path.unlink(missing_ok=True)  # whoever wrote it died
            self._size += sum(self._groups[group].values())
        return chosen.name, chosen

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self._size

    def seek(self, wanted: WantedKeys) -> SoughtKeys:
        return SoughtKeys(wanted, self.salt)

    def find(self, identity: str, wanted: Digests, read: ReadKeys) -> Matches | None:
        """The rows of keys; None: there is no room for an index of the file. `identity`: the data file's path, with
        the columns of the key and whatever else must be the same."""
        for _ in range(2):
            path = self._path(identity)
            try:
                index = self._index(path, identity) or self._make(path, identity, read)
                return None if index is None else index.find(wanted)
            except Damaged as damage:
                log.warning("an index of keys is damaged (%s) and is made again: %s", damage, path)
                self._drop(path)
        return None

    def unproven(self, identity: str) -> bool:
        """True if nothing has shown yet that the data file is still there."""
        return self._path(identity) not in self._proven

    def proven(self, identity: str) -> None:
        with self._lock:
            self._proven.add(self._path(identity))

    def keep_only(self, identities: Iterable[str]) -> None:
        """Indexes of other data files in the same folders go: the table no longer has those."""
        kept: dict[Path, set[str]] = {}
        for identity in identities:
            path = self._path(identity)
            kept.setdefault(path.parent, set()).add(path.name)
        for group, names in kept.items():
            with self._lock:
                known = self._groups.get(group)
                gone = [] if known is None else [name for name in known if name not in names]
                self._used[group] = self._clock()
                self._used.move_to_end(group)
            for name in gone:
                self._drop(group / name)

    def _path(self, identity: str) -> Path:
        folder = identity.partition("\n")[0].rpartition("/")[0]
        return self._folder / _digest(folder) / f"{_digest(identity)}.keys"

    def _index(self, path: Path, identity: str) -> OpenIndex | None:
        with self._lock:
            if path in self._open:
                self._open.move_to_end(path)
                return self._open[path]
            if path.name not in self._groups.get(path.parent, ()):
                return None
        try:
            index = _opened(path, identity)
        except OSError as error:
            raise Damaged(error.strerror or "it cannot be read") from error
        return self._kept_open(path, index)

    def _kept_open(self, path: Path, index: OpenIndex) -> OpenIndex:
        with self._lock:
            self._open[path] = index
            while len(self._open) > OPEN:
                self._open.popitem(last=False)
        return index

    def _make(self, path: Path, identity: str, read: ReadKeys) -> OpenIndex | None:
        with self._making:
            aside = path.with_suffix(f".{token_hex(4)}")
            try:
                if not self._room():
                    return None
                path.parent.mkdir(exist_ok=True)
                with aside.open("xb") as sink:
                    _write(sink, identity, self._sections(identity, read))
                aside.replace(path)
                size = path.stat().st_size
            except OSError as error:
                log.warning("no index of keys could be kept: %s", error)
                return None
            finally:
                with suppress(OSError):
                    aside.unlink(missing_ok=True)
            with self._lock:
                self._groups.setdefault(path.parent, {})[path.name] = size
                self._size += size
                self._proven.add(path)
            return self._kept_open(path, _opened(path, identity))

    def _sections(self, identity: str, read: ReadKeys) -> Iterator[Section]:
        seed, held, rows, number = _seed(identity), list[Digested](), 0, 0
        for start, columns in read():
            held.append(digested(columns, self.salt, start))
            rows += len(held[-1][0])
            if rows >= SECTION_ROWS:
                yield Section.made(seed + number, _joined(held))
                held, rows, number = [], 0, number + 1
        if rows:
            yield Section.made(seed + number, _joined(held))

    def _room(self) -> bool:
        """True if another index may be made; those of tables that were not written to for long make room."""
        while self._size >= self._limit:
            with self._lock:
                oldest = next(iter(self._used), None)
                if oldest is None or self._clock() - self._used[oldest] < IDLE_SECONDS:
                    return False
                names = list(self._groups.get(oldest, ()))
            for name in names:
                self._drop(oldest / name)
            with self._lock:
                self._groups.pop(oldest, None)
                self._used.pop(oldest, None)
            with suppress(OSError):
                oldest.rmdir()
        disk = shutil.disk_usage(self._folder)
        return disk.free > SPARE * disk.total

    def _drop(self, path: Path) -> None:
        with self._lock:
            self._open.pop(path, None)
            self._proven.discard(path)
            self._size -= self._groups.get(path.parent, {}).pop(path.name, 0)
        with suppress(OSError):
            path.unlink(missing_ok=True)


def key_files(folder: Path, limit: int) -> KeyFiles | None:
    """None: the disk refuses it, and files are searched without."""
    try:
        return KeyFiles(folder, limit)
    except OSError as error:
        log.warning("no indexes of keys are kept: %s", error)
        return None


def is_large(rows: int) -> bool:
    """True if a data file of so many rows gets an index."""
    return LEAST_ROWS <= rows < MOST_ROWS


def identity_of(path: str, rows: int, size: int, form: str) -> str:
    """The identity of a data file with its key. DuckDB makes the digests' texts: another version may make others."""
    return f"{path}\n{rows} {size} duckdb {duckdb.__version__}{form}"


def _joined(held: list[Digested]) -> Digests:
    first, second, rows = zip(*held, strict=True)
    seconds = [half for half in second if half is not None]
    return Digests.sorted(np.concatenate(first), np.concatenate(seconds) if seconds else None, np.concatenate(rows))


def _write(sink: IO[bytes], identity: str, sections: Iterable[Section]) -> None:
    described, wide = [], False
    for section in sections:
        described.append((sink.tell(), len(section.rows)))
        wide = section.second is not None
        sink.writelines(section.parts())
    told = {"identity": identity, "wide": wide, "sections": described, "size": sink.tell()}
    text = json.dumps(told).encode()
    sink.write(text + _ending(text))


def _ending(text: bytes) -> bytes:
    return len(text).to_bytes(4, "little") + zlib.crc32(text).to_bytes(4, "little") + MAGIC


def _opened(path: Path, identity: str) -> OpenIndex:
    """Maps the index. What it says about itself is verified here, its contents when they are searched."""
    with path.open("rb") as source:
        size = os.fstat(source.fileno()).st_size
        if size < END:
            raise Damaged("its length")
        mapped = memoryview(mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ))
    length = int.from_bytes(mapped[size - END : size - END + 4], "little")
    text = bytes(mapped[max(0, size - END - length) : size - END])
    if bytes(mapped[size - END :]) != _ending(text):
        raise Damaged("its end")
    told = json.loads(text)
    if told["identity"] != identity or told["size"] + len(text) + END != size:
        raise Damaged("what it says about itself")
    seed = _seed(identity)
    sections = [
        Section.read(seed + number, mapped[start:], count, told["wide"])
        for number, (start, count) in enumerate(told["sections"])
    ]
    return OpenIndex(told["wide"], sections)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _seed(identity: str) -> int:
    """Below 2^63: section numbers are added."""
    return int(_digest(identity)[:15], 16)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
