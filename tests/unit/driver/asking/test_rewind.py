"""The refusals of a rewind that the change log alone decides; those of the target's: `tests/proof/test_rewind.py`."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.journals import Journal, table_schema
from support.resources import replicator as document_of
from support.scripted_database import Change
from support.scripted_runs import Copy, filled
from tailrace.batch.applied import AppliedState
from tailrace.changelog.logged import LoggedCut
from tailrace.changelog.records.cuts import CutMade
from tailrace.changelog.records.tables import TableAdded, Truncated
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.state import LogState, fold
from tailrace.cli import main as cli
from tailrace.contract.resources import Replicator
from tailrace.driver.asking import rewind
from tailrace.driver.asking.rewind import WantedCut
from tailrace.driver.process.run_dir import RunFolder
from tailrace.errors import InvalidManifest, RewindRefused
from tailrace.places import Places

DATABASE = {"type": "postgresql", "host": "copy", "database": "shop", "username": "tailrace"}


def state_with(*cuts: str) -> LogState:
    """Tables 1 and 2, with changes before each cut, and one more table after all of them."""
    journal = Journal(Random(1))
    state = fold(LogState(), journal.origin())
    state = fold(state, journal.plain(events=tuple(TableAdded(table=table_schema(i), edge="5") for i in (1, 2))))
    for name in cuts:
        state = fold(state, journal.plain(rows=5))
        state = fold(state, journal.plain(events=(CutMade(name=name),)))
    return fold(state, journal.plain(events=(TableAdded(table=table_schema(3), edge="5"),)))


def complete(cut: LoggedCut, **changes: Any) -> LoggedCut:
    return cut.model_copy(update={"awaited": frozenset(), "versions": {1: 11, 2: 12}, "without": {}} | changes)


def refused(call: Any, said: str) -> None:
    with pytest.raises(RewindRefused, match=said) as raised:
        call()
    assert raised.value.fix


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        (WantedCut(cut="noon"), r"there is no cut 'noon'"),
        (WantedCut(record=1), r"there is no cut at record 1"),
        (WantedCut(time=datetime(1969, 1, 1, tzinfo=UTC)), r"there is no cut at or before 1969-01-01"),
    ],
    ids=["name", "record", "time"],
)
def test_a_moment_without_a_cut_is_refused(moment: WantedCut, said: str) -> None:
    refused(lambda: rewind.choose(state_with("a", "b"), moment), said)
    refused(lambda: rewind.choose(state_with(), moment), "there is no cut")


def test_a_time_is_the_last_cut_up_to_it() -> None:
    state = state_with("a", "b")
    first, second = state.cuts.values()
    assert first.commit_time is not None and second.commit_time is not None
    for at, cut in ((second.commit_time, second), (second.commit_time - 1, first), (first.commit_time, first)):
        assert rewind.choose(state, WantedCut(time=datetime.fromtimestamp(at / 1e6, UTC))) is cut
    assert rewind.choose(state, WantedCut(record=first.record)) is first


@pytest.mark.parametrize(
    ("changes", "pattern", "said"),
    [
        ({}, "*.t9", r"no captured table matches \*\.t9"),
        ({}, "*.*", r"public\.t3 cannot go back to cut a: it was added, or started over, later"),
        ({"awaited": frozenset({2})}, "*.t2", "had not come to the cut when the driver was stopped"),
        ({"versions": {1: 11}, "without": {2: "rows were withheld"}}, "*.t2", "cut a: rows were withheld"),
        ({"versions": {1: 11}}, "*.t2", "it has no version of it"),
        ({"versions": {1: 11, 2: None}}, "*.t2", "it has no version of it"),
    ],
    ids=["no such table", "added later", "awaited", "without", "unknown", "no versions"],
)
def test_a_table_that_is_not_in_the_cut_is_refused(changes: Mapping[str, Any], pattern: str, said: str) -> None:
    state = state_with("a")
    cut = complete(state.cuts["a"], **changes)
    refused(lambda: rewind.versions_at(state, cut, [pattern]), said)
    assert [(table.table_id, version) for table, version in rewind.versions_at(state, cut, ["*.t1"])] == [(1, 11)]


def test_a_refusal_names_the_tables_that_can_go_back() -> None:
    state = state_with("a")
    cut = complete(state.cuts["a"], awaited=frozenset({2}))
    with pytest.raises(RewindRefused) as raised:
        rewind.versions_at(state, cut, ["*.*"])
    assert "public.t2 cannot go back" in raised.value.message and "public.t3 cannot go back" in raised.value.message
    assert "`--tables public.t1`" in raised.value.fix
    with pytest.raises(RewindRefused) as raised:
        rewind.versions_at(state, cut, ["*.t2"])
    assert "--tables" not in raised.value.fix


class Former:
    def __init__(self, former: AppliedState) -> None:
        self.former = former
        self.present = replace(former, applied_record=RecordNumber(former.applied_record + 5))

    def restore(self) -> None:
        raise AssertionError("it is only examined")


WHOLE = AppliedState("log", Seq(5), RecordNumber(3), table_id=1)


@pytest.mark.parametrize(
    ("changes", "former", "said"),
    [
        ({"trimmed_through": 6}, WHOLE, "changes up to sequence 6 are no longer in the log"),
        ({"trimmed_record": 4}, WHOLE, r"rows of a snapshot were applied after it \(record 4\)"),
        ({}, replace(WHOLE, gap=RecordNumber(2)), "not all of its rows were whole then"),
        ({}, replace(WHOLE, holes=frozenset({("1",)})), "not all of its rows were whole then"),
    ],
    ids=["changes", "chunks", "gap", "holes"],
)
def test_what_the_log_no_longer_replays_is_refused(changes: Mapping[str, Any], former: AppliedState, said: str) -> None:
    state = state_with("a")
    table, cut = state.tables[1], state.cuts["a"]
    rewind.require_replay(table, cut, Former(WHOLE), 0)
    refused(lambda: rewind.require_replay(table.model_copy(update=changes), cut, Former(former), 0), said)


def test_changes_that_the_next_start_would_remove_are_refused() -> None:
    journal = Journal(Random(1))
    state = fold(LogState(), journal.origin())
    state = fold(state, journal.plain(events=(TableAdded(table=table_schema(1), edge="5"), CutMade(name="a"))))
    emptied = journal.plain(rows=9, events=(Truncated(table_id=1, seq=Seq(9), transaction="9"),))
    state = fold(state, emptied)
    table, cut, found = state.tables[1], state.cuts["a"], Former(WHOLE)
    rewind.require_replay(table, cut, found, emptied.written_at)
    said = r"older than spec\.retention\.time"
    refused(lambda: rewind.require_replay(table, cut, found, emptied.written_at + 1), said)
    rewind.require_replay(table, cut, Former(replace(WHOLE, applied_seq=Seq(9))), emptied.written_at + 1)


@pytest.mark.parametrize("applied", [(3, 5, True), (2, 5, False), (4, 5, False), (4, 6, False)])
def test_a_table_is_there_only_with_what_the_version_has(applied: tuple[int, int, bool]) -> None:
    """One that went back further is not."""
    record, seq, there = applied
    found = Former(WHOLE)
    found.present = replace(WHOLE, applied_record=RecordNumber(record), applied_seq=Seq(seq))
    assert rewind.is_there(found) is there


def places(folder: Path, **spec: Any) -> tuple[Replicator, Places]:
    document = document_of("shop", storage={"location": f"file://{folder}/log"}, **spec)
    found = Replicator.model_validate(document)
    return found, Places(found.spec)


def no_session() -> Any:
    raise AssertionError("no session is needed to refuse")


def test_a_database_and_a_folder_without_a_log_are_refused(tmp_path: Path) -> None:
    wanted = WantedCut(cut="a")
    given = places(tmp_path, target=DATABASE)
    refused(lambda: list(rewind.rewind(*given, no_session, wanted, ["*.*"])), "the target is a database")
    given = places(tmp_path, target={"type": "delta", "location": f"file://{tmp_path}/lake"})
    with pytest.raises(InvalidManifest, match="there is no change log at"):
        list(rewind.rewind(*given, no_session, wanted, ["*.*"]))
    assert list(tmp_path.iterdir()) == [], "nothing was made"


def test_a_driver_that_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = tmp_path / "shop.json"
    replicator, _ = places(tmp_path, target={"type": "delta", "location": f"file://{tmp_path}/lake"})
    manifest.write_text(replicator.model_dump_json(by_alias=True, exclude_none=True))
    running = RunFolder(tmp_path / "run")
    running.take()
    given = ["rewind", "-f", str(manifest), "--run-dir", str(running.path), "--to-cut", "a"]
    assert cli.main(given) != 0
    assert "AlreadyRunning" in capsys.readouterr().err
    running.release()
    assert cli.main([*given[:-2], "--to-time", "yesterday"]) != 0
    assert "yesterday" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--stop-at", "noon"), "--stop-at noon is no cut, record or time"),
        (("--stop-at=-1",), "--stop-at -1 is no cut, record or time"),
        (("--stop-at", "2026-11-28T12:00:00"), "--stop-at 2026-11-28T12:00:00 is no cut, record or time"),
        (("--stop-at", "2026-11-28T12:00:00Z"), "does not tell: it holds no commits"),
        (("--stop-at", "9", "--once"), "--stop-at with --once would never end"),
    ],
    ids=str,
)
def test_a_record_to_stay_at_is_known_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], said: str
) -> None:
    manifest = tmp_path / "shop.json"
    replicator, _ = places(tmp_path, target={"type": "delta", "location": f"file://{tmp_path}/lake"})
    manifest.write_text(replicator.model_dump_json(by_alias=True, exclude_none=True))
    try:
        code = cli.main(["run", "-f", str(manifest), "--run-dir", str(tmp_path / "run"), *given])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code != 0 and said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [manifest]


def test_a_table_that_holds_more_than_the_record_stays_as_it_is(tmp_path: Path) -> None:
    copy = Copy(filled("orders", "items"), tmp_path)
    with copy.running():
        copy.level()
        early = copy.state.number
        copy.equal()
    held = [copy.rows(1), copy.rows(2)]
    copy.stop_at = early
    copy.database.commit(Change("D", 1, 3), Change("U", 2, 4, "later"))
    with copy.running():
        copy.until(lambda state: state.position >= copy.database.end, work=True)
        for _ in range(20):
            copy.turn()
        assert [copy.rows(1), copy.rows(2)] == held and copy.driver.faults() == {}
        assert copy.driver.applier.through == early
    copy.stop_at = None
    with copy.running():
        copy.equal()
    assert held != [copy.rows(1), copy.rows(2)]


def test_a_table_that_starts_over_meanwhile_is_seen_as_it_was_until_the_target_continues(tmp_path: Path) -> None:
    copy = Copy(filled("orders", "items"), tmp_path)
    with copy.running():
        copy.level()
        copy.stop_at = copy.state.number
    held = [copy.rows(1), copy.rows(2)]
    copy.database.commit(Change("D", 1, 3), Change("U", 2, 4, "later"))
    with copy.running():
        name = copy.ask("main.orders", resync=True)
        copy.until(lambda state: any(table.resync == name for table in state.tables.values()), work=True)
        for _ in range(30):
            copy.turn()
        assert [copy.rows(1), copy.rows(2)] == held and copy.driver.faults() == {}
    copy.stop_at = None
    with copy.running():
        copy.equal()
    assert [copy.rows(1), copy.rows(2)] != held
