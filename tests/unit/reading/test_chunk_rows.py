"""The sizes of chunks, in the snapshot runner's rounds: by what the earlier ones took, or as asked."""

from typing import Any

import pytest

from support.snapshot_rounds import Begin, turn_until
from tailrace.changelog.records.snapshots import SnapshotPlanned
from tailrace.changelog.records.terms import Position
from tailrace.reading import steps
from tailrace.reading.steps import Tools
from tailrace.reading.task import ChunkFile
from tailrace.snapshot import planner
from tailrace.snapshot.chunks import CutNext, TableRun
from tailrace.snapshot.ranges import Range


@pytest.mark.parametrize("kept", [0, 20, 1000])
def test_chunks_grow_by_the_rows_of_the_table_and_not_by_those_that_a_filter_keeps(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """`kept`: of a thousand. Below a quarter chunks shrank to eight rows, and the snapshot of a large table never
    ended."""
    runner, around = begin(10)
    around.running_xid, total, cuts, read = 11, 3_000_000, list[int](), steps.read

    def cut(tools: Tools, table: object, work: CutNext, rows: int) -> tuple[str] | None:
        cuts.append(rows)
        assert len(cuts) < 50
        end = (0 if work.lower is None else int(work.lower[0])) + rows
        return (str(end),) if end < total else None

    def read_filtered(tools: Tools, run: TableRun, part: Range, *of: Any) -> ChunkFile:
        read(tools, run, part, *of)
        lower = 0 if part.lower is None else int(part.lower[0])
        upper = lower if part.upper is None else total if part.upper == ("9",) else int(part.upper[0])
        found = (upper - lower) * kept // 1000
        return ChunkFile("f" if found else None, found, 25 * found, "", Position(1), ())

    monkeypatch.setattr(steps, "find_cut", cut)
    monkeypatch.setattr(steps, "read", read_filtered)
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))
    runner.stop()
    assert cuts[0] == planner.FIRST_CHUNK_ROWS and max(cuts) >= 320_000 and len(cuts) < 20, cuts


def test_chunks_that_wait_for_spark_grow_as_if_they_had_not(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, around = begin(10)
    around.running_xid, total, cuts, read = 11, 3_000_000, list[int](), steps.read
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))

    def cut(tools: Tools, table: object, work: CutNext, rows: int) -> tuple[str] | None:
        cuts.append(rows)
        assert len(cuts) < 50
        end = (0 if work.lower is None else int(work.lower[0])) + rows
        return (str(end),) if end < total else None

    def read_late(tools: Tools, run: TableRun, part: Range, *of: Any) -> ChunkFile:
        around.now += 60
        read(tools, run, part, *of)
        return ChunkFile("f", 20_000, 500_000, "", Position(1), (), waited=60.0)

    monkeypatch.setattr(steps, "find_cut", cut)
    monkeypatch.setattr(steps, "read", read_late)
    around.append([SnapshotPlanned(snapshot_id="r", reason="request", request="r", tables=(1,), parallelism=1)])
    turn_until(runner, around, lambda: all(s.ended is not None for s in around.refresh().snapshots.values()))
    runner.stop()
    assert cuts[0] == planner.FIRST_CHUNK_ROWS and max(cuts) >= 320_000, cuts


def test_a_filter_of_a_request_is_not_taken_for_the_end_of_the_table(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate is of the rows that match, and would say after the first chunk that hardly any are left."""
    runner, around = begin(10)
    around.running_xid, cuts = 11, list[int]()
    monkeypatch.setattr(planner, "shared_chunk_rows", lambda rows, left, readers: 7)

    def cut(tools: Tools, table: object, work: CutNext, rows: int) -> None:
        cuts.append(rows)

    monkeypatch.setattr(steps, "find_cut", cut)
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))
    assert cuts == [7]
    around.append([SnapshotPlanned(snapshot_id="r", reason="request", request="r", tables=(1,), where="a > 0")])
    turn_until(runner, around, lambda: all(s.ended is not None for s in around.refresh().snapshots.values()))
    runner.stop()
    assert cuts == [7, planner.FIRST_CHUNK_ROWS]


@pytest.mark.parametrize(("asked", "cut"), [(None, 1_000), (7, 7)])
def test_a_sample_is_cut_into_many_ranges_unless_their_size_was_asked_for(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, asked: int | None, cut: int
) -> None:
    runner, around = begin(10)
    around.running_xid = 11
    sizes = set[int]()

    def find_cut(tools: Tools, table: object, work: CutNext, rows: int) -> None:
        sizes.add(rows)

    plan = SnapshotPlanned(snapshot_id="s", request="s", tables=(1,), verify=True, sample=0.5, chunk_rows=asked)
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))
    monkeypatch.setattr(steps, "find_cut", find_cut)
    around.append([plan])
    turn_until(runner, around, lambda: bool(sizes))
    runner.stop()
    assert sizes == {cut}
