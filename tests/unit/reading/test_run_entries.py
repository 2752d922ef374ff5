"""The tables that are being read, as the journal has them: also where an id is used by one snapshot after another."""

from dataclasses import replace

import pytest

from tailrace.changelog.logged import SnapshotTable
from tailrace.changelog.records.snapshots import SnapshotEnded, SnapshotPlanned
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.state import SnapshotState
from tailrace.contract.resources import SnapshotSpec
from tailrace.reading.run_entries import RunEntries
from tailrace.reading.turns import TableTurns
from tailrace.snapshot.chunks import Phase
from tailrace.snapshot.ranges import Range

KEY = ("s", 1)


def snapshot(record: int, ended: bool = False, started: bool = False) -> SnapshotState:
    return SnapshotState(
        plan=SnapshotPlanned(snapshot_id="s", request="r", tables=(1,)),
        record=RecordNumber(record),
        tables={1: SnapshotTable(table_id=1, started=started, max_key=("9",) if started else None)},
        ended=SnapshotEnded(snapshot_id="s", outcome="stopped") if ended else None,
    )


@pytest.fixture
def entries() -> RunEntries:
    made = RunEntries(TableTurns(), SnapshotSpec)
    made.follow({"s": snapshot(5, started=True)})
    return made


@pytest.mark.parametrize("seen", ["gone", "ended", "neither"])
def test_a_snapshot_begins_from_the_journal_though_another_one_had_its_id(entries: RunEntries, seen: str) -> None:
    """Also where its predecessor's end came and went between two looks."""
    before = entries.known[KEY]
    if seen != "neither":
        entries.follow({} if seen == "gone" else {"s": snapshot(5, ended=True, started=True)})
        assert entries.known == {}
    entries.follow({"s": snapshot(9)})
    assert entries.known[KEY] is not before and entries.known[KEY].run.phase is Phase.EDGE
    assert not entries.is_over(KEY)


@pytest.mark.parametrize("seen", ["gone", "ended", "neither"])
@pytest.mark.parametrize("under_way", ["chunk", "step"])
def test_the_second_one_waits_for_what_is_under_way_of_the_first(
    entries: RunEntries, under_way: str, seen: str
) -> None:
    """Whose end would else be taken for one of the second."""
    before = entries.known[KEY]
    if under_way == "chunk":
        before.run = replace(before.run, reading={0: Range(0, None, None)})
    else:
        before.busy = True
    if seen != "neither":
        entries.follow({} if seen == "gone" else {"s": snapshot(5, ended=True, started=True)})
    for _ in range(2):
        entries.follow({"s": snapshot(9)})
        assert entries.known[KEY] is before and entries.is_over(KEY)
    before.run, before.busy = replace(before.run, reading={}), False
    entries.follow({"s": snapshot(9)})
    assert entries.known[KEY] is not before and not entries.is_over(KEY)
