"""`tailrace release`: nothing is dropped, and whoever starts next with the change log owns it."""

from pathlib import Path
from typing import Any

import pytest

from support.dropping import OTHER, OWNER, UID, applied_tables, delta_table, files, journal, release, storage_of
from support.dropping import manifest as manifest_of
from support.origins import origin
from support.scripted import ScriptedSource
from support.scripted_database import Database
from tailrace import sources
from tailrace.changelog import first_start
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records import EpochStarted
from tailrace.changelog.state import LogState
from tailrace.changelog.writer import JournalWriter
from tailrace.errors import Fenced
from tailrace.removal import drop as run_drop

READ = {"log": 5}


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    """It is read by the change log."""
    database = Database(readers=dict(READ))
    monkeypatch.setattr(sources, "open", lambda *_: ScriptedSource(database))
    return database


def manifest(folder: Path, uid: str | None = UID, **change: Any) -> Path:
    return manifest_of(folder, {"host": "scripted"}, uid, **change)


def state_of(folder: Path) -> LogState:
    return JournalReader.open(storage_of(folder / "log")).state


def test_nothing_goes_and_who_still_writes_is_fenced(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A driver that nobody can reach may run on somewhere; so may one of a Replicator that is stopped. Neither source
    nor target is asked: both may be away for good."""
    journal(tmp_path / "log", origin("log", OWNER), *applied_tables())
    delta_table(tmp_path, "t1", "log")
    before = files(tmp_path)
    running = JournalWriter.claim(storage_of(tmp_path / "log"), "running", started=EpochStarted(owner=OWNER))
    position = running.state.position
    assert release(manifest(tmp_path)) == 0
    assert database.readers == READ and before <= files(tmp_path)
    assert f"change log file://{tmp_path}/log: released" in capsys.readouterr().out
    assert state_of(tmp_path).released and state_of(tmp_path).position == position
    with pytest.raises(Fenced):
        running.append(position)


def test_to_release_twice_is_to_release_once(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Job of an operator that was killed in between does it again."""
    journal(tmp_path / "log", origin("log", OWNER))
    assert release(manifest(tmp_path)) == 0
    epoch = state_of(tmp_path).epoch
    assert release(manifest(tmp_path)) == 0
    assert state_of(tmp_path).epoch == epoch
    assert capsys.readouterr().out.count(": released") == 2


def test_of_another_one_s_change_log_nothing_is_released(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal(tmp_path / "log", origin("log", OWNER))
    before = state_of(tmp_path)
    assert release(manifest(tmp_path, OTHER)) == 0
    assert state_of(tmp_path).epoch == before.epoch and not state_of(tmp_path).released
    assert f"change log file://{tmp_path}/log: kept: the change log at" in capsys.readouterr().out


def test_a_log_that_another_takes_over_while_it_is_released_stays_the_other_one_s(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    adopter, storage = f"team/web-shop@{OTHER}", storage_of(tmp_path / "log")

    def adopt(_: str) -> None:
        JournalWriter.claim(storage, "adopter", started=EpochStarted(owner=adopter))

    monkeypatch.setattr(run_drop, "seam", adopt)
    journal(tmp_path / "log", origin("log", OWNER))
    assert release(manifest(tmp_path)) == 0
    assert (state_of(tmp_path).owner, state_of(tmp_path).released) == (adopter, False)
    out = capsys.readouterr().out
    assert f"kept: the change log at {storage.root} belongs to {adopter}" in out and ": released" not in out


def test_without_a_change_log_nothing_can_be_continued_and_what_a_first_start_made_goes(
    database: Database, tmp_path: Path
) -> None:
    first_start.write(storage_of(tmp_path / "log"), origin("log", OWNER, "half_made"))
    assert release(manifest(tmp_path)) == 0
    assert database.readers == {} and first_start.read(storage_of(tmp_path / "log")) is None
