"""`tailrace drop` and whose change log it is: of another one's nothing goes, neither in the source nor of the data.

(What is dropped of a PostgreSQL: `tests/integration/removal`. With the data: `test_data_deleted.py`.)
"""

from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from support.dropping import OTHER, OWNER, UID, applied_tables, delta_table, drop, files, journal, storage_of
from support.dropping import manifest as manifest_of
from support.origins import origin
from support.scripted import READER, ScriptedSource
from support.scripted_database import Database
from tailrace import sources
from tailrace.changelog import first_start
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records import EpochStarted
from tailrace.changelog.writer import JournalWriter
from tailrace.removal import drop as run_drop
from tailrace.storage.store import Storage

READ = {"log": 5}


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    """It is read by the change log."""
    database = Database(readers=dict(READ))
    monkeypatch.setattr(sources, "open", lambda *_: ScriptedSource(database))
    return database


def manifest(folder: Path, uid: str | None = UID, **change: Any) -> Path:
    return manifest_of(folder, {"host": "scripted"}, uid, **change)


def of_another(folder: Path) -> str:
    return f"kept: the change log at file://{folder}/log belongs to {OWNER}"


@pytest.mark.parametrize("uid", [OTHER, None])
def test_a_copied_manifest_drops_nothing_of_the_original_and_deletes_none_of_its_data(
    database: Database, tmp_path: Path, uid: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    journal(tmp_path / "log", origin("log", OWNER), *applied_tables())
    delta_table(tmp_path, "t1", "log")
    copy = manifest(tmp_path, uid, namespace="other")
    before = files(tmp_path)
    assert drop(copy, "--data") == 0
    assert database.readers == READ and files(tmp_path) == before
    out = capsys.readouterr().out
    assert all(f"{what}: {of_another(tmp_path)}" in out for what in (READER, f"change log file://{tmp_path}/log"))


def test_a_log_that_another_takes_over_while_it_is_dropped_stays_the_other_one_s(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly between the last look at the log and its release."""
    path, adopter = manifest(tmp_path), f"team/web-shop@{OTHER}"
    storage = storage_of(tmp_path / "log")
    writers: list[JournalWriter] = []

    def adopt(name: str) -> None:
        if name == "drop.before-release":
            writers.append(JournalWriter.claim(storage, "adopter", started=EpochStarted(owner=adopter)))

    monkeypatch.setattr(run_drop, "seam", adopt, raising=False)
    journal(tmp_path / "log", origin("log", OWNER))
    assert drop(path) == 0
    (writer,) = writers
    state = JournalReader.open(storage).state
    assert (state.owner, state.released, state.nonce) == (adopter, False, "adopter")
    writer.append(state.position)
    assert f"kept: the change log at {storage.root} belongs to {adopter}" in capsys.readouterr().out


class TakenOver(dict[str, int]):
    """Another Replicator takes the change log over in the moment in which its reader in the source is dropped."""

    def __init__(self, log: Storage) -> None:
        super().__init__(READ)
        self._log = log

    @override
    def __delitem__(self, log_id: str) -> None:
        super().__delitem__(log_id)
        JournalWriter.claim(self._log, "adopter", started=EpochStarted(owner=f"team/web-shop@{OTHER}"))


def test_tables_and_change_log_stay_where_another_takes_the_log_over_while_its_source_is_dropped(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, log = manifest(tmp_path), storage_of(tmp_path / "log")
    journal(tmp_path / "log", origin("log", OWNER), *applied_tables())
    delta_table(tmp_path, "t1", "log")
    before = files(tmp_path)
    database.readers = TakenOver(log)
    assert drop(path, "--data") == 0
    assert before <= files(tmp_path)
    assert f"change log {log.root}: kept: the change log at {log.root} belongs to team/web-shop@{OTHER}" in (
        capsys.readouterr().out
    )


def test_who_took_a_log_over_drops_it_and_its_former_owner_does_not(database: Database, tmp_path: Path) -> None:
    adopter = manifest(tmp_path, OTHER, storage={"adopt": OWNER})
    former = manifest(tmp_path)
    journal(tmp_path / "log", origin("log", f"team/web-shop@{OTHER}"))
    assert drop(former) == 0
    assert database.readers == READ
    assert drop(adopter) == 0
    assert database.readers == {}


@pytest.mark.parametrize("data", [(), ("--data",)])
def test_naming_another_in_adopt_without_ever_having_started_drops_nothing_of_it(
    database: Database, tmp_path: Path, data: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its start was refused, or it never had one: the healthy owner goes on."""
    asker = manifest(tmp_path, OTHER, storage={"adopt": OWNER})
    journal(tmp_path / "log", origin("log", OWNER), *applied_tables())
    delta_table(tmp_path, "t1", "log")
    before = files(tmp_path)
    assert drop(asker, *data) == 0
    assert database.readers == READ
    assert files(tmp_path) == before, "nor is the owner fenced"
    assert f"{READER}: {of_another(tmp_path)}" in capsys.readouterr().out


def test_a_first_start_of_another_that_is_named_in_adopt_is_left_alone(database: Database, tmp_path: Path) -> None:
    note = origin("log", OWNER, "half_made")
    first_start.write(storage_of(tmp_path / "log"), note)
    assert drop(manifest(tmp_path, OTHER, storage={"adopt": OWNER}), "--data") == 0
    assert database.readers == READ
    assert first_start.read(storage_of(tmp_path / "log")) == note


@pytest.mark.parametrize("owner", [OWNER, f"other/web-shop@{OTHER}"])
def test_a_first_start_that_died_before_record_0_is_cleaned_up_by_its_owner_only(
    database: Database, tmp_path: Path, owner: str
) -> None:
    first_start.write(storage_of(tmp_path / "log"), origin("log", owner, "half_made"))
    assert drop(manifest(tmp_path)) == 0
    assert database.readers == ({} if owner == OWNER else READ)
    assert (first_start.read(storage_of(tmp_path / "log")) is None) == (owner == OWNER)
