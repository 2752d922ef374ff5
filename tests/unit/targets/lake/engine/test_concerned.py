"""Chunk files that nothing else concerns are adopted unread; of others the rows that matter are found."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.folder_lake import FolderTable, NotedAccess, layout_of
from support.lake import table_schema
from support.states import chunk
from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import TableSlice
from tailrace.changelog.records import Segment
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.targets.lake.engine import concerned
from tailrace.targets.lake.engine.build import build
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.files.index_cache import IndexCache
from tailrace.targets.lake.files.write import write_file
from tailrace.targets.lake.model import DataFile, NewFile, TableCommit

SCHEMA = table_schema([("id", "int64"), ("v", "string")], ["id"])
LAYOUT = layout_of(SCHEMA)
APPLIED = AppliedState("log", Seq(0), RecordNumber(1), schema_version=1, table_id=SCHEMA.table_id)


class Table:
    """A table, chunks and a log that are made by their keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = FolderTable(folder, SCHEMA)
        self.chunks: list[ChunkRegistered] = []
        self.segments: list[Segment] = []
        self.access = NotedAccess(str(folder))

    def write(self, name: str, ids: Sequence[int]) -> NewFile:
        rows = pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(list(map(str, ids)), pa.string())})
        written = write_file(self.table.access, f"{self.table.location}/data/{name}.parquet", LAYOUT, [rows])
        assert written is not None
        return written.file

    def holds(self, name: str, ids: Sequence[int]) -> None:
        self.table.commit(TableCommit(self.table.applied, [self.write(name, ids)]))

    def chunk(self, ids: Sequence[int], keys: tuple[tuple[str, ...], ...] | None = None) -> str:
        number = len(self.chunks)
        file = self.write(f"chunk-{number}", ids) if ids else None
        path, rows, size = (file.path, file.rows, file.size) if file else (None, 0, 0)
        self.chunks.append(chunk(SCHEMA.table_id, number, path=path, rows=rows, size=size, keys=keys))
        return path or ""

    def logs(self, ids: Sequence[int]) -> None:
        count = len(ids)
        texts = pa.array(list(map(str, ids)), pa.string())
        rows = {"_seq": pa.array(range(1, count + 1), pa.int64()), "_op": pa.array(["U"] * count)}
        file = self.folder / "1.parquet"
        pq.write_table(pa.table(rows | {"id": pa.array(ids, pa.int64()), "v": texts}), file)
        self.segments.append(
            Segment(
                table_id=SCHEMA.table_id, schema_version=1, path=file.name, rows=count, size=file.stat().st_size,
                first_seq=Seq(1), last_seq=Seq(count),
            )
        )  # fmt: skip

    def work(self, **changes: object) -> PartInput:
        last = Seq(sum(segment.rows for segment in self.segments))
        part = TableSlice(
            APPLIED, SCHEMA.table_id, SCHEMA, {1: SCHEMA}, Seq(0), last, RecordNumber(2), False, tuple(self.segments),
            (), tuple(self.chunks), (), True,
        )  # fmt: skip
        return self.table.work(replace(part, **changes), self.access, layout=LAYOUT, lake=self.access)  # type: ignore[arg-type]  # fields of any type

    def found(self, **changes: object) -> Mapping[str, list[int]]:
        found = concerned.concerned_rows(self.work(**changes), IndexCache(1 << 20))
        for positions, keys in found.values():
            assert len(positions) == len(keys[0])
        return {path: keys[0].to_pylist() for path, (_, keys) in found.items()}


def test_a_chunk_that_nothing_concerns_is_adopted_by_its_footer(tmp_path: Path) -> None:
    made = Table(tmp_path)
    made.holds("earlier", range(0, 1000))
    paths = [made.chunk(range(start, start + 1000)) for start in (1000, 2000)]
    change = build(made.work())
    assert made.access.opened() == dict.fromkeys(paths, 1)
    assert ([file.path for file in change.add], dict(change.marks)) == (paths, {})
    assert not any(file.dead for file in change.add)


def test_keys_of_the_log_of_holes_of_other_files_and_of_lists_concern_a_chunk(tmp_path: Path) -> None:
    made = Table(tmp_path)
    made.holds("far", range(5000, 6000))
    made.holds("near", [90, 150, 260])
    one, other = made.chunk(range(100, 200)), made.chunk(range(200, 300))
    made.chunk([], keys=(("210",), ("7",)))
    made.logs([111, 222, 999])
    applied = replace(APPLIED, holes=frozenset({("123",)}))
    assert made.found(applied=applied) == {one: [111, 123, 150], other: [210, 222, 260]}


@pytest.mark.parametrize("case", ["truncated", "overlapping", "much log", "much table"])
def test_a_chunk_counts_with_all_its_rows(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Table(tmp_path)
    first, second = made.chunk(range(100, 200)), made.chunk(range(150 if case == "overlapping" else 200, 300))
    apart = made.chunk(range(300, 400))
    made.logs([111, 222])
    made.holds("near", [300, 301, 302])
    if case.startswith("much"):
        monkeypatch.setattr(concerned, "MANY", 1 if case == "much log" else 2)
    unseen = {"truncates": (Seq(2),)} if case == "truncated" else {}
    wanted = {"truncated": {}, "much log": {}, "much table": {first: [111], second: [222]}}
    assert made.found(**unseen) == wanted.get(case, {apart: [300, 301, 302]})


COMPOSITE = table_schema([("tenant", "int64"), ("id", "int64")], ["tenant", "id"])


def test_ranges_of_one_reading_share_no_key_even_where_their_first_column_does(tmp_path: Path) -> None:
    """All chunks are of one tenant. A chunk of another reading, or of the same range, may have any key of it."""
    made = Table(tmp_path)

    def written(number: int, ids: range, **changes: object) -> ChunkRegistered:
        path = f"{made.table.location}/data/chunk-{number}.parquet"
        rows = pa.table({"tenant": pa.array([5] * len(ids), pa.int64()), "id": pa.array(ids, pa.int64())})
        file = write_file(made.table.access, path, layout_of(COMPOSITE), [rows])
        assert file is not None
        made_chunk = chunk(COMPOSITE.table_id, number, path=path, rows=len(ids), size=file.file.size)
        bounds = {"lower": ("5", str(ids.start - 1)), "upper": ("5", str(ids.stop - 1))}
        return made_chunk.model_copy(update=bounds | changes)

    def counted(here: list[ChunkRegistered], earlier: list[ChunkRegistered]) -> int:
        live = tuple(
            DataFile(str(one.path), one.rows, one.size, lower={"tenant": 5}, upper={"tenant": 5}) for one in earlier
        )
        part = replace(
            made.work().slice, schema=COMPOSITE, versions={1: COMPOSITE}, chunks=tuple(here), earlier=tuple(earlier)
        )
        layout = layout_of(COMPOSITE)
        work = made.table.work(part, made.access, layout=layout, lake=made.access, files=live)
        return len(concerned.concerned_rows(work, IndexCache(1 << 20)))

    first, second, third = (written(n, range(at, at + 100)) for n, at in enumerate((0, 100, 200)))
    again = written(3, range(200, 260), upper=third.upper)
    other = written(4, range(100, 200), snapshot_id="other")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(concerned, "MANY", 50)
        assert counted([second, third], [first]) == 2
        assert counted([second, third, again], [first]) == 1
        assert counted([second, other], [first]) == 0
        assert counted([third], [other]) == 0


def test_keys_that_statistics_say_nothing_of_count_with_all_their_rows(tmp_path: Path) -> None:
    made = Table(tmp_path)
    long = table_schema([("id", "string")], ["id"])
    rows = pa.table({"id": [letter * 5000 for letter in "ab"]})
    path = f"{made.table.location}/data/chunk-0.parquet"
    written = write_file(made.table.access, path, layout_of(long), [rows])
    assert written is not None
    made.chunks.append(chunk(long.table_id, 0, path=path, rows=2, size=written.file.size))
    part = replace(made.work().slice, schema=long, versions={1: long})
    work = made.table.work(part, made.access, layout=layout_of(long), lake=made.access)
    assert concerned.concerned_rows(work, IndexCache(1 << 20)) == {}
