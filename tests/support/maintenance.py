"""Random maintenance of a lake table beside random changes of its rows, and what must hold after each step.

A `Walk` changes one table as apply does and cleans it up as apply does, at random, and remembers of every version
which rows it has and which files it is made of. After each step every version that is kept has all its files, and a
reader that shares no code with the writer reads its rows; after a clean-up nothing else is left. Time is not waited
for: a clean-up is told to forget what was replaced before some version of the walk.
"""

import logging
import math
import os
import random
import re
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable
from pyroaring import BitMap64
from pyspark.sql import SparkSession
from typing_extensions import override

from support.iceberg import folder_catalog, local
from support.lake import table_schema
from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.contract.resources import StorageLocation
from tailrace.errors import Retry
from tailrace.seams import SeamFailure
from tailrace.storage.store import Storage
from tailrace.targets.lake.delta.cleanup import files_of
from tailrace.targets.lake.delta.table import DeltaTable
from tailrace.targets.lake.files import write as files
from tailrace.targets.lake.files.compact import CompactionLimits, compact
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.files.locate import locate
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.kept import KeptChunks, name_of
from tailrace.targets.lake.model import NewFile, TableCommit

LOG = "log-1"
FILE_ROWS = 12
PAUSE = 0.003
"""Storage and Iceberg count milliseconds."""
Rows = dict[int, tuple[Any, ...]]


class Brittle(Storage):
    """Fails in the midst of deleting when it is told to: some files are gone, some are not."""

    rng: random.Random | None = None

    @override
    def delete_many(self, paths: Sequence[str]) -> None:
        if self.rng is None:
            return super().delete_many(paths)
        super().delete_many([path for path in paths if self.rng.random() < 0.5])
        raise self.rng.choice([Retry("deleting failed"), SeamFailure("died while deleting")])


@dataclass(frozen=True)
class Version:
    id: int
    """The format's own number."""
    rows: Rows
    columns: tuple[str, ...]
    files: frozenset[str]
    """Names of data, vector and side files."""
    since: float
    """A time at which it was current: nothing is written until a little later."""
    record: int


class Walk(ABC):
    """One table with a random life. `steps` counts what was done by kind."""

    def __init__(self, spark: SparkSession, folder: Path, seed: int) -> None:
        self.spark, self.rng = spark, random.Random(seed)
        self.schema = table_schema([("id", "int64"), ("v", "string")], ["id"])
        self.storage = self._storage(folder)
        self.rows: Rows = {}
        self.chunks: dict[str, tuple[NewFile, Rows]] = {}
        """Registered and not adopted."""
        self.adopted: set[str] = set()
        """Adopted from a snapshot that has not ended: they stay whatever becomes of the versions."""
        self.kept: list[Version] = []
        self.cuts: dict[str, Version] = {}
        """Versions that are kept by name, however old they are."""
        self.number = 0
        self.steps: dict[str, int] = {}
        self.found_lists: set[str] = set()
        """Lists of holes that were there when the table was opened last."""
        self.open()
        self.remember()

    # ---- the format's part ----

    @abstractmethod
    def _storage(self, folder: Path) -> Storage: ...

    @abstractmethod
    def _make(self) -> DeltaTable | IcebergTable: ...

    @abstractmethod
    def _version(self) -> tuple[int, set[str]]:
        """The current version, and the paths of its vector files and side files."""

    @abstractmethod
    def read(self, version: Version) -> Rows:
        """By an implementation that is not ours."""

    @abstractmethod
    def expire(self, older_than: float, chunks: KeptChunks) -> None: ...

    @abstractmethod
    def checkpoint(self) -> None: ...

    @abstractmethod
    def size(self) -> "Size": ...

    def lists_in_log(self) -> set[str]:
        """Lists of holes that nobody needs, and that stay until the log no longer names them."""
        return set()

    @abstractmethod
    def check_log(self, older_than: float) -> None:
        """Nothing of the log (manifests, snapshots) is left that only forgotten versions need."""

    @abstractmethod
    def half_written(self, name: uuid.UUID) -> Sequence[str]:
        """Paths in the table's folder that the format writes under, until a file is whole."""

    # ---- steps ----

    def run(self, steps: int, *only: str) -> None:
        for _ in range(steps):
            self.step(only)
        self.clean()

    def step(self, only: Sequence[str] = ()) -> None:
        weights = {
            self.change: 9, self.mark: 5, self.read_chunk: 2, self.adopt: 2, self.compact: 3, self.clean: 3,
            self.clean_and_die: 1, self.widen: 1, self.die: 0.6, self.empty: 0.3, self.open: 0.6,
            self.write_checkpoint: 0.8, self.end_snapshot: 1, self.cut: 1, self.cut_late: 0.6, self.drop_cut: 0.8,
        }  # fmt: skip
        kinds = [kind for kind in weights if not only or kind.__name__ in only]
        (kind,) = self.rng.choices(kinds, [weights[kind] for kind in kinds])
        self.steps[kind.__name__] = self.steps.get(kind.__name__, 0) + 1
        kind()
        self.check(self.kept if self.rng.random() < 0.2 else [self.kept[0], self.kept[-1]])

    def open(self) -> None:
        self.table = self._make()
        self.table.ensure(self.schema, LOG)
        self.found_lists = {name for name in self.on_disk() if name.startswith("holes-")}

    def change(self) -> None:
        fresh = self.rng.sample(range(400), self.rng.randrange(4, 30))
        self.commit(self.values(fresh), self.some_keys(self.rng.randrange(6)))

    def mark(self) -> None:
        """Deletes alone, all over the table: one vector file with the vectors of many data files."""
        self.commit({}, self.some_keys(self.rng.randrange(1, 12)))

    def read_chunk(self) -> None:
        rows = self.values(self.rng.sample(range(400, 600), 20))
        (new,) = self.write(rows, chunk=True)
        self.chunks[new.path] = (new, rows)

    def adopt(self) -> None:
        if self.chunks:
            path = self.rng.choice(sorted(self.chunks))
            new, rows = self.chunks[path]
            self._commit([new], self.marks(list(rows)))
            self.rows |= {key: self.filled(row) for key, row in rows.items()}
            del self.chunks[path]
            self.adopted.add(path)
            self.remember()

    def end_snapshot(self) -> None:
        self.adopted.clear()

    def compact(self) -> None:
        limits = CompactionLimits(
            small_bytes=1 << 20,
            min_files=self.rng.choice([3, 8]),
            largest_share=self.rng.choice([1.0, math.inf]),
            vector_share=self.rng.choice([0.01, 2.0]),
            tiny_bytes=self.rng.choice([0, 64 << 10]),
            max_bytes=self.rng.choice([3000, 1 << 20]),
        )
        if compact(self.table, self.storage, self.layout, self.table.refresh(), limits):
            self.remember()

    def cut(self) -> None:
        """As apply does when it comes to one."""
        found = self.table.version_at(RecordNumber(self.number))
        if self.kept[-1].id == 0:  # an Iceberg table without rows has no version that a tag could be of
            self.remember()
        assert found is not None and found.number == self.kept[-1].id
        self.cuts[f"c{sum(self.steps.values())}"] = self.kept[-1]
        self.keep()

    def cut_late(self) -> None:
        """Of a version that was passed: who was to name it was killed."""
        wanted = self.rng.choice(self.kept)
        found = self.table.version_at(RecordNumber(wanted.record)) if wanted.id else None
        if found is not None:
            (version,) = (version for version in self.kept if version.id == found.number)
            assert (version.record, version.rows) == (wanted.record, wanted.rows)
            self.cuts[f"c{sum(self.steps.values())}"] = version
            self.keep()

    def drop_cut(self) -> None:
        if self.cuts:
            del self.cuts[self.rng.choice(sorted(self.cuts))]
            self.keep()

    def keep(self) -> None:
        self.table.keep({name: version.id for name, version in self.cuts.items()})

    def widen(self) -> None:
        columns = [(column.name, column.type) for column in self.schema.columns]
        wider = table_schema([*columns, (f"w{len(columns)}", "string")], ["id"], version=self.schema.version + 1)
        if len(columns) < 5:
            before, self.schema = self.schema, wider
            try:
                self._commit([], {}, evolve=wider)
            except BaseException:
                self.schema = before
                raise
            self.rows = {key: self.filled(row) for key, row in self.rows.items()}
            self.remember()

    def empty(self) -> None:
        self._commit([], {}, clear=True)
        self.rows = {}
        self.remember()

    def die(self) -> None:
        """Files are written, their commit never happens; some have not even got their names."""
        self.write(self.values([1, 2, 3]))
        folder, name = local(self.table.location), uuid.uuid4()
        for path in (f"data/.tailrace-tmp-{name.hex}", f"data/.{name}.parquet.crc", *self.half_written(name)):
            (folder / path).write_bytes(b"half")
        self.open()

    def write_checkpoint(self) -> None:
        self.checkpoint()

    def clean(self) -> None:
        """Forget all that was replaced before some version was current."""
        keep = self.rng.randrange(max(1, len(self.kept) - 8), len(self.kept) + 1) - 1
        since = self.kept[keep].since
        self.kept = self.kept[keep:]
        self.keep()
        self.expire(since, self.needed_chunks())
        self.table.sweep(since, self.needed_chunks(), 0.0)
        self.check(self.kept)
        self.check_gone(since)

    def clean_and_die(self) -> None:
        self.kept = self.kept[-4:]
        self.keep()
        with self.brittle(), suppress(SeamFailure):
            self.expire(self.kept[0].since, self.needed_chunks())
            self.table.sweep(self.kept[0].since, self.needed_chunks(), 0.0)
        self.open()

    @contextmanager
    def brittle(self) -> Iterator[None]:
        assert isinstance(self.storage, Brittle)
        self.storage.rng = self.rng
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
            self.storage.rng = None

    # ---- what must hold ----

    def check(self, versions: Sequence[Version]) -> None:
        there = self.on_disk()
        for version in (*self.cuts.values(), *self.kept):
            lost = set(version.files - there.keys())
            assert not lost, f"{self.steps}: version {version.id} of {[v.id for v in self.kept]} needs {lost}"
        lost = {name_of(path) for path in (*self.chunks, *self.adopted)} - there.keys()
        assert not lost, f"chunk files that the change log needs: {lost}"
        of_cuts = self.rng.sample(sorted(self.cuts), min(len(self.cuts), 2))
        for version in (*versions, *map(self.cuts.__getitem__, of_cuts)):
            assert self.read(version) == version.rows, f"{self.steps}: version {version.id}"

    def check_gone(self, older_than: float) -> None:
        needed = {name for version in (*self.cuts.values(), *self.kept) for name in version.files}
        kept = self.needed_chunks()
        left = {n for n, at in self.on_disk().items() if at < older_than and n not in needed and not kept.keeps(n)}
        left -= self.lists_in_log()
        assert not left, f"{self.steps}: nobody needs {left}"
        assert not (unnamed := self.unnamed(older_than)), f"{self.steps}: killed writers left {unnamed}"
        self.check_log(older_than)

    def on_disk(self) -> dict[str, float]:
        """Data, vector and side files with their times."""
        folder = local(self.table.location)
        found = (path for path in folder.rglob("*") if path.suffix in (".parquet", ".bin", ".puffin", ".json"))
        return {p.name: p.stat().st_mtime for p in found if p.parent.name not in ("_delta_log", "metadata")}

    def unnamed(self, older_than: float) -> set[str]:
        """Files that never got their name, and checksums without their file."""
        hidden = (p for p in local(self.table.location).rglob("*") if p.name.startswith(".") or p.suffix == ".temp")
        return {
            p.name
            for p in hidden
            if p.stat().st_mtime < older_than and not (p.suffix == ".crc" and p.with_name(p.name[1:-4]).exists())
        }

    # ---- rows and files ----

    @property
    def layout(self) -> Layout:
        arrow = self.table.arrow_schema(self.schema)
        assert isinstance(arrow, pa.Schema)
        return Layout(self.schema, arrow)

    def needed_chunks(self) -> KeptChunks:
        return KeptChunks(frozenset(map(name_of, self.chunks)), bool(self.adopted))

    def values(self, keys: Sequence[int]) -> Rows:
        wide = len(self.schema.columns) - 1
        return {key: tuple(f"{self.rng.randrange(10**9)}" for _ in range(wide)) for key in keys}

    def filled(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return row + (None,) * (len(self.schema.columns) - 1 - len(row))

    def some_keys(self, count: int) -> list[int]:
        return self.rng.sample(sorted(self.rows), min(count, len(self.rows)))

    def write(self, rows: Rows, chunk: bool = False) -> list[NewFile]:
        """Many small files: keys that are neighbours lie in one."""
        keys, out = sorted(rows), []
        for start in range(0, len(keys), FILE_ROWS if not chunk else len(keys)):
            some = keys[start : start + FILE_ROWS] if not chunk else keys
            columns = zip(*((key, *rows[key]) for key in some), strict=True)
            table = pa.table(dict(zip([c.name for c in self.schema.columns], map(list, columns), strict=True)))
            path = files.chunk_path(self.table.location, "s", start, uuid.uuid4()) if chunk else None
            made = files.write_file(
                self.storage, path or files.data_path(self.table.location, uuid.uuid4()), self.layout, [table]
            )
            assert made is not None
            out.append(made.file)
        return out

    def marks(self, keys: Sequence[int]) -> dict[str, BitMap64]:
        have = {file.path: file for file in self.table.files()}
        found = locate(self.storage, list(have.values()), self.layout, pa.table({"id": pa.array(keys, pa.int64())}))
        return {path: have[path].dead | BitMap64(rows.positions) for path, rows in found.items()}

    def commit(self, upserts: Rows, deletes: Sequence[int]) -> None:
        self._commit(self.write(upserts) if upserts else [], self.marks([*upserts, *deletes]))
        self.rows |= upserts
        for key in set(deletes) - upserts.keys():
            self.rows.pop(key, None)
        self.remember()

    def _commit(self, add: Sequence[NewFile], marks: Mapping[str, BitMap64], **more: Any) -> None:
        self.number += 1
        long = self.rng.random() < 0.2
        holes = frozenset((str(number), "ä" * 40) for number in range(1200 if long else 1))
        state = AppliedState(
            LOG, Seq(self.number * 10), RecordNumber(self.number), holes, self.schema.version, self.schema.table_id
        )
        time.sleep(PAUSE)
        self.table.commit(TableCommit(state, add, marks, **more))

    def remember(self) -> None:
        number, others = self._version()
        names = {name_of(path) for path in (*others, *(file.path for file in self.table.files()))}
        time.sleep(PAUSE)
        columns = tuple(column.name for column in self.schema.columns)
        self.kept.append(Version(number, dict(self.rows), columns, frozenset(names), time.time(), self.number))
        time.sleep(PAUSE)


class DeltaWalk(Walk):
    @override
    def half_written(self, name: uuid.UUID) -> Sequence[str]:
        return f"_delta_log/.{7:020d}.json.{name}.tmp", f"_delta_log/..{9:020d}.checkpoint.parquet.{name}.tmp.crc"

    @override
    def _storage(self, folder: Path) -> Storage:
        self.location = f"file://{folder}/t{uuid.uuid4().hex[:8]}"
        return Brittle.open(StorageLocation(location=f"file://{folder}"))

    @override
    def _make(self) -> DeltaTable:
        return DeltaTable(lambda: self.spark, self.storage, self.location)

    @override
    def _version(self) -> tuple[int, set[str]]:
        assert isinstance(self.table, DeltaTable)
        known = self.table._version
        found = {path for file in known.live.values() for path in files_of(file.add, self.location)}
        return known.snapshot.version, found | ({known.stored.holes_file} if known.stored.holes_file else set())

    @override
    def read(self, version: Version) -> Rows:
        table = deltalake.DeltaTable(self.location, version=version.id)
        names = ", ".join(version.columns)
        found = pa.table(deltalake.QueryBuilder().register("t", table).execute(f"SELECT {names} FROM t").read_all())
        rows = list(zip(*(found[name].to_pylist() for name in version.columns), strict=True))
        assert len({row[0] for row in rows}) == len(rows), "a key stands twice"
        return {row[0]: row[1:] for row in rows}

    @override
    def expire(self, older_than: float, chunks: KeptChunks) -> None:
        self.table.expire(older_than, chunks)

    @override
    def checkpoint(self) -> None:
        assert isinstance(self.table, DeltaTable)
        self.table.write_checkpoint()

    @override
    def lists_in_log(self) -> set[str]:
        """A table that was opened since does not know when former versions gave up theirs."""
        log = (local(self.location) / "_delta_log").glob("*.json")
        return {name for path in log for name in re.findall(r"holes-[\w-]+\.json", path.read_text())} & self.found_lists

    @override
    def check_log(self, older_than: float) -> None:
        names = sorted(path.name for path in (local(self.location) / "_delta_log").iterdir())
        points = [int(name[:20]) for name in names if name.endswith(".checkpoint.parquet")]
        before = [number for number in points if number <= self.kept[0].id]
        of_cuts = {version.id for version in self.cuts.values()}
        numbers = {int(name[:20]) for name in names if name.endswith(".json") and name[:20].isdigit()}
        first = min(number for number in numbers if number not in of_cuts or number >= max(before, default=0))
        assert of_cuts <= numbers
        assert first == max(before, default=0), f"{self.steps}: the log begins at {first}, checkpoints {points}"

    @override
    def size(self) -> "Size":
        log = [path for path in (local(self.location) / "_delta_log").iterdir() if path.suffix != ".crc"]
        points = sorted(path for path in log if path.name.endswith(".checkpoint.parquet"))
        last = pq.ParquetFile(points[-1]).read(columns=["remove.path"])
        removed = last["remove"].combine_chunks().drop_null() if "remove" in last.column_names else []
        return Size(len(log), len(self.on_disk()), len(removed), len(self.table.files()))


class IcebergWalk(Walk):
    @override
    def half_written(self, name: uuid.UUID) -> Sequence[str]:
        return f"metadata/{name}-version-hint.temp", f"metadata/.{name}.metadata.json.crc"

    @override
    def _storage(self, folder: Path) -> Storage:
        self.catalog, self.namespace = folder_catalog(self.spark), f"m{uuid.uuid4().hex[:8]}"
        return Brittle.open(StorageLocation(location=self.catalog.location))

    @override
    def _make(self) -> IcebergTable:
        return IcebergTable(self.catalog, self.storage, self.namespace, "t")

    @override
    def _version(self) -> tuple[int, set[str]]:
        assert isinstance(self.table, IcebergTable)
        known = self.table._known()
        found = {tracked.vector.path for tracked in known.files.values() if tracked.vector is not None}
        found |= {known.stored.holes_file} if known.stored.holes_file else set()
        return known.snapshot or 0, found

    @override
    def read(self, version: Version) -> Rows:
        if not version.id:
            return {}
        table = self._static()
        snapshot = table.snapshot_by_id(version.id)
        assert snapshot is not None, f"{self.steps}: version {version.id} is gone"
        found = table.scan(snapshot_id=version.id).to_arrow().to_pylist()
        assert len({row["id"] for row in found}) == len(found), "a key stands twice"
        return {row["id"]: tuple(row[name] for name in version.columns[1:]) for row in found}

    def _static(self) -> StaticTable:
        found = local(f"{self.table.location}/metadata").glob("v*.metadata.json")
        return StaticTable.from_metadata(str(max(found, key=lambda path: int(path.name[1:].split(".")[0]))))

    @override
    def expire(self, older_than: float, chunks: KeptChunks) -> None:
        assert isinstance(self.table, IcebergTable)
        self.table.expire(older_than, chunks, 1)

    @override
    def checkpoint(self) -> None:
        """Iceberg writes its whole state with each commit."""

    @override
    def check_log(self, older_than: float) -> None:
        table = self._static()
        kept = (*self.cuts.values(), *self.kept)
        assert {s.snapshot_id for s in table.snapshots()} == {version.id for version in kept if version.id}
        named = {name.removeprefix("cut_"): ref.snapshot_id for name, ref in table.metadata.refs.items()}
        assert {**named, "main": 0} == {**{name: version.id for name, version in self.cuts.items()}, "main": 0}
        needed = {
            name_of(path)
            for snapshot in table.snapshots()
            for path in (snapshot.manifest_list, *(m.manifest_path for m in snapshot.manifests(table.io)))
        }
        found = local(f"{self.table.location}/metadata").glob("*.avro")
        left = {path.name for path in found if path.stat().st_mtime < older_than} - needed
        assert not left, f"{self.steps}: no version reaches {left}"

    @override
    def size(self) -> "Size":
        log = [path for path in local(f"{self.table.location}/metadata").iterdir() if path.suffix != ".crc"]
        return Size(len(log), len(self.on_disk()), len(list(self._static().snapshots())), len(self.table.files()))


@dataclass(frozen=True)
class Size:
    """What a table has come to consist of."""

    log: int
    """Objects in `_delta_log` or `metadata`."""
    data: int
    """Data, vector and side files."""
    tombstones: int
    """Removed files that Delta's last checkpoint names; snapshots that Iceberg's metadata names."""
    live: int
    """Data files of the current version."""


def grow(walk: Walk, commits: int, kept: int, tidy: int = 20) -> Size:
    """Many small commits on the same keys; each `tidy` of them, compact and forget as apply does, all but the versions
    that were current since `kept` commits ago."""
    for number in range(1, commits + 1):
        walk.commit(walk.values(walk.rng.sample(range(300), 12)), walk.some_keys(6))
        if number % tidy == 0:
            walk.compact()
            walk.kept = walk.kept[-kept:]
            walk.expire(walk.kept[0].since, walk.needed_chunks())
    walk.check([walk.kept[0], walk.kept[-1]])
    return walk.size()


class AgedDelta(DeltaTable):
    """Its checkpoints are written an hour later than its commits are made, but for a few seconds: they leave out what
    was removed more than these seconds ago."""

    LATE = 3600.0 - 3.0

    @override
    def write_checkpoint(self) -> None:
        late, self._clock = self._clock, time.time
        try:
            super().write_checkpoint()
        finally:
            self._clock = late


class AgedDeltaWalk(DeltaWalk):
    LATE = AgedDelta.LATE

    @override
    def _make(self) -> DeltaTable:
        return AgedDelta(lambda: self.spark, self.storage, self.location, clock=lambda: time.time() - self.LATE)

    @override
    def expire(self, older_than: float, chunks: KeptChunks) -> None:
        for path in (local(self.location) / "_delta_log").iterdir():
            at = path.stat().st_mtime
            if at > time.time() - self.LATE / 2:
                os.utime(path, (at - self.LATE, at - self.LATE))
        self.table.expire(older_than - self.LATE, chunks)
