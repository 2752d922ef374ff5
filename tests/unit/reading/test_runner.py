"""The snapshot runner over a real journal: what it begins, in which order and how much of it at once."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.journals import table_schema
from support.snapshot_rounds import PARALLELISM, Begin, turn_until
from tailrace.changelog import triggers
from tailrace.changelog.records.snapshots import ChunkCompared, ComparisonResult, SnapshotTableFinished
from tailrace.changelog.records.tables import SchemaChanged
from tailrace.changelog.records.terms import Position, RecordNumber, Seq
from tailrace.contract.settings import VerifySpec
from tailrace.reading import steps, turns, verification
from tailrace.reading.steps import Tools
from tailrace.reading.task import ChunkFile
from tailrace.reading.together import MOST
from tailrace.snapshot.chunks import CutNext, TableRun
from tailrace.snapshot.ranges import Range


def test_of_many_tables_a_few_are_begun_at_once_and_all_end(begin: Begin) -> None:
    runner, around = begin(*[10] * 60)
    around.running_xid = 11

    def over() -> bool:
        known = around.state.snapshots
        return len(known) > 0 and all(s.ended is not None for s in known.values())

    turn_until(runner, around, over)
    runner.stop()
    plans = [events for events in around.appended if events[0].kind == "snapshot-planned"]
    assert [len(events) for events in plans] == [60], "one record plans them all"
    assert around.most_reads == PARALLELISM
    assert around.most_open <= 3 * MOST, "tables begun and not ended"
    assert around.looks == ["10"], "one look at the edge counts for all tables"


def test_of_many_tables_a_round_looks_at_those_that_can_continue(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "FEW", 8)
    monkeypatch.setattr(turns, "LOOK_SECONDS", 1e9)  # nothing depends on the looks at all of them
    count = 120
    runner, around = begin(*[10] * count)
    around.running_xid = 11
    looked = Counter[str]()
    counted = [(runner, name) for name in ("_begin_work", "_start_next", "_urgency")]
    for place, name in (*counted, (triggers, "pending")):
        monkeypatch.setattr(place, name, _counted(looked, name, getattr(place, name)))

    def over() -> bool:
        known = around.state.snapshots
        return len(known) > 0 and all(s.ended is not None for s in known.values())

    turn_until(runner, around, over)
    runner.stop()
    rounds, most = looked["_begin_work"], runner._most_ready + 2 * MOST
    assert around.most_reads == PARALLELISM and around.now < 1000 + count / 2, "nobody has waited"
    assert looked["_start_next"] < rounds * most and looked["_urgency"] < rounds * most
    assert looked["pending"] < 8 * count, "a record is looked at for the tables that it changes"
    before = looked.copy()
    for _ in range(20):
        runner.step(0)
    before["_begin_work"] += 20
    assert looked == before, "an idle round looks at no table"


def test_a_table_whose_target_is_opened_later_is_read_at_once(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "FEW", 8)
    monkeypatch.setattr(turns, "LOOK_SECONDS", 1e9)  # nothing depends on the looks at all of them
    runner, around = begin(*[10] * 40)
    around.running_xid = 11
    rounds = Counter[str]()
    monkeypatch.setattr(runner, "_begin_work", _counted(rounds, "all", runner._begin_work))
    runner._tools = replace(runner._tools, opened=lambda _: rounds["all"] > 200)

    def over() -> bool:
        known = around.state.snapshots
        return len(known) > 0 and all(s.ended is not None for s in known.values())

    turn_until(runner, around, over)
    runner.stop()
    assert 200 < rounds["all"] < 400


def _counted(looked: Counter[str], name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*given: Any, **more: Any) -> Any:
        looked[name] += 1
        return act(*given, **more)

    return counted


def test_a_small_table_does_not_wait_for_the_end_of_a_large_one(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, around = begin(10, 10)
    around.running_xid = 11

    def cut(tools: Tools, table: object, work: CutNext, rows: int) -> tuple[str] | None:
        """The large one has no end."""
        return (str(int(work.lower[0]) + 1 if work.lower is not None else 100),) if table == 1 else None

    monkeypatch.setattr(steps, "find_cut", cut)
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))
    runner.stop()
    ended = [s.plan.tables for s in around.state.snapshots.values() if s.ended is not None]
    assert ended == [(2,)]


def test_a_transaction_that_is_in_the_way_is_looked_at_once_a_second_and_not_by_each_table(begin: Begin) -> None:
    runner, around = begin(*[10] * 30, 5)
    around.running_xid = 7
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))
    ended = [s.plan.tables for s in around.state.snapshots.values() if s.ended is not None]
    assert ended == [(31,)], "the older edge has passed"
    assert [runner.waiting_for] == ["transaction 7"]
    before = len(around.looks)
    later = around.now + 10
    turn_until(runner, around, lambda: around.now >= later, 0.1)
    assert 9 <= len(around.looks) - before <= 11
    around.running_xid = 11
    turn_until(runner, around, lambda: all(s.ended is not None for s in around.refresh().snapshots.values()))
    assert [runner.waiting_for] == [None]
    runner.stop()


def test_a_table_whose_edge_moves_reads_nothing_until_older_transactions_are_over(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each chunk would be refused at its registration, and the snapshot would be given up after `retry.time`."""
    runner, around = begin(10)
    around.running_xid = 11
    read: list[int] = []

    def cut(tools: Tools, table: object, work: CutNext, rows: int) -> tuple[str] | None:
        return None if work.lower is not None and work.lower[0] >= "6" else (str(int((work.lower or "0")[0]) + 1),)

    def reading(tools: Tools, run: TableRun, part: Range, table: object, small: bool = False) -> ChunkFile:
        read.append(part.ordinal)
        if len(read) == 2:  # the catalog has shown a rewrite
            version = table_schema(1).model_copy(update={"version": 2})
            around.append([SchemaChanged(table=version, seq=Seq(0), reread=False, edge="20")])
        return around.read(tools, run, part, table)

    monkeypatch.setattr(steps, "find_cut", cut)
    monkeypatch.setattr(steps, "read", reading)
    turn_until(runner, around, lambda: runner.waiting_for is not None)
    before = len(read)
    with caplog.at_level("INFO", "tailrace"):
        later = around.now + 10
        turn_until(runner, around, lambda: around.now >= later)
    assert (len(read), runner.waiting_for) == (before, "transaction 11")
    assert all(s.ended is None for s in around.state.snapshots.values())
    around.running_xid = 21
    turn_until(runner, around, lambda: all(s.ended is not None for s in around.refresh().snapshots.values()))
    runner.stop()
    assert runner.waiting_for is None and len(read) == len(set(read))
    assert {s.ended.outcome for s in around.state.snapshots.values() if s.ended is not None} == {"completed"}


def test_what_the_chunks_wait_for_is_told_once_in_the_log(begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    runner, around = begin(10, 10)
    around.running_xid = 7
    with caplog.at_level("INFO", "tailrace"):
        turn_until(runner, around, lambda: len(around.looks) >= 3)
    runner.stop()
    assert [r.getMessage() for r in caplog.records if "wait" in r.getMessage()] == ["chunks wait for transaction 7"]


def test_what_is_verified_in_the_background_is_read_one_chunk_at_a_time_and_no_faster_than_asked(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, around = begin(10, 10)
    around.running_xid = 11
    read, reads, asked = steps.read, list[tuple[int, float]](), VerifySpec(every="1m", max_rows_per_second=100)

    def cut(tools: Tools, table: object, work: CutNext, rows: int) -> tuple[str] | None:
        at = int(work.lower[0]) if work.lower is not None else 100
        return (str(at + 1),) if at < 105 else None

    def read_some(tools: Tools, run: TableRun, *of: Any) -> ChunkFile:
        read(tools, run, *of)
        if run.verify:
            reads.append((run.table_id, around.now))
        return ChunkFile(None, 300, 0, "", Position(1), ())

    def compare(tools: Tools, client: Any, run: TableRun, ordinal: int) -> None:
        some: dict[str, Any] = {"snapshot_id": run.snapshot_id, "table_id": run.table_id}
        around.append([ChunkCompared(**some, chunk=ordinal, at_record=RecordNumber(1), found=ComparisonResult())])

    def finish(tools: Tools, client: Any, run: TableRun) -> None:
        some: dict[str, Any] = {"snapshot_id": run.snapshot_id, "table_id": run.table_id}
        chunks = len(around.refresh().snapshots[run.snapshot_id].tables[run.table_id].chunks)
        around.append([SnapshotTableFinished(**some, chunks=chunks, complete=False, at_record=RecordNumber(1))])

    monkeypatch.setattr(steps, "find_cut", cut)
    monkeypatch.setattr(steps, "read", read_some)
    monkeypatch.setattr(verification, "compare_chunk", compare)
    monkeypatch.setattr(verification, "finish", finish)
    monkeypatch.setattr(runner._planning, "_clock", lambda: time.time() + around.now)
    for part in (runner, runner._planning):
        monkeypatch.setattr(part, "_background", lambda: asked)

    def over() -> bool:
        known = [s for s in around.refresh().snapshots.values() if s.plan.in_background]
        return len(known) > 1 and known[1].ended is not None

    turn_until(runner, around, over)
    runner.stop()
    assert [table for table, _ in reads] == [1] * 7 + [2] * 7
    for table in (1, 2):
        times = [at for name, at in reads if name == table]
        assert all(b - a >= 300 / 100 for a, b in itertools.pairwise(times)), times


def test_nothing_is_verified_in_the_background_while_the_target_is_suspended(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read a chunk, or looked the table up in the source, and waited then."""
    runner, around = begin(10)
    around.running_xid = 11
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))
    suspended = replace(runner._tools, opened=lambda table_id: False)
    open_again, runner._tools = runner._tools, suspended
    monkeypatch.setattr(runner._planning, "_clock", lambda: time.time() + 1e6)
    for part in (runner, runner._planning):
        monkeypatch.setattr(part, "_background", lambda: VerifySpec(every="1m"))

    def planned() -> bool:
        return any(s.plan.in_background for s in around.refresh().snapshots.values())

    since = around.now
    turn_until(runner, around, lambda: around.now > since + 60)
    assert not planned()
    runner._tools = open_again
    turn_until(runner, around, planned)
    runner.stop()
