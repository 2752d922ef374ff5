"""A change log that others follow is not deleted under them: its deletion names them before anything is touched."""

import time
from pathlib import Path

import pytest

from support.dropping import OWNER, applied_tables, delta_table, drop, files, journal, manifest, release, storage_of
from support.followed import write_aged
from support.origins import origin
from support.scripted import ScriptedSource
from support.scripted_database import Database
from tailrace import sources
from tailrace.changelog.followers import LEASE_AGE, FollowerLease, lease_path, remove_lease
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.contract.manifest import load
from tailrace.errors import SourceRefused
from tailrace.removal import drop as run_drop

LOSES = "shop-again follows the change log at"
WAITS = "change log of shop-again, which follows this one: kept: it gets no changes until"


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    database = Database(readers={"log": 5})
    monkeypatch.setattr(sources, "open", lambda *_: ScriptedSource(database))
    return database


def followed(folder: Path, age: int = 0) -> Path:
    """A change log with one follower, whose lease has this age (microseconds); the owner's manifest."""
    journal(folder / "log", origin("log", OWNER), *applied_tables())
    delta_table(folder, "t1", "log")
    written = int(time.time() * 1_000_000) - age
    lease = FollowerLease(log_id="other", name="shop-again", record=RecordNumber(1), seq=Seq(1), written_at=written)
    write_aged(storage_of(folder / "log"), lease)
    return manifest(folder, {"host": "scripted"})


def test_a_log_that_is_followed_is_not_deleted_until_its_followers_are(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, storage = followed(tmp_path), storage_of(tmp_path / "log")
    before = files(tmp_path / "log") | files(tmp_path / "lake")
    assert drop(path, "--data") == SourceRefused.exit_code
    said = capsys.readouterr().err
    assert LOSES in said and storage.uri(lease_path("other")) in said
    assert database.readers == {"log": 5}
    assert before == files(tmp_path / "log") | files(tmp_path / "lake"), "nothing was touched"
    remove_lease(storage, "other")
    assert drop(path, "--data") == 0
    assert database.readers == {} and not files(tmp_path / "log") and not files(tmp_path / "lake")


def test_a_lease_that_cannot_be_read_keeps_the_log_too(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, storage = followed(tmp_path), storage_of(tmp_path / "log")
    storage.put(lease_path("other"), b"{")
    assert drop(path, "--data") == SourceRefused.exit_code
    uri = storage.uri(lease_path("other"))
    assert f"the follower of the unreadable lease {uri} follows the change log" in capsys.readouterr().err
    assert database.readers == {"log": 5} and files(tmp_path / "lake")
    assert drop(path) == 0
    assert f"change log of the follower of the unreadable lease {uri}" in capsys.readouterr().out


def test_a_lease_that_no_longer_counts_hinders_nothing(database: Database, tmp_path: Path) -> None:
    assert drop(followed(tmp_path, age=LEASE_AGE + 1_000_000), "--data") == 0
    assert not files(tmp_path / "log")


def test_a_log_that_stays_is_left_to_its_followers_and_they_are_named_first(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = followed(tmp_path)
    assert release(path) == 0
    assert capsys.readouterr().out.startswith(WAITS)
    assert database.readers == {"log": 5}
    assert drop(path) == 0
    assert capsys.readouterr().out.startswith(WAITS)
    assert database.readers == {} and storage_of(tmp_path / "log").exists(lease_path("other"))


def test_a_namespace_that_ends_drops_what_is_in_the_source_and_leaves_the_log_to_its_followers(
    database: Database, tmp_path: Path
) -> None:
    replicator = load(followed(tmp_path)).replicator(None)
    before = files(tmp_path / "lake")
    steps = list(run_drop.leave(replicator, None, tmp_path / "run", "Delete", hurried=True))
    assert str(steps[0]).startswith(WAITS)
    assert database.readers == {} and files(tmp_path / "lake") == before
    assert storage_of(tmp_path / "log").exists(lease_path("other"))
