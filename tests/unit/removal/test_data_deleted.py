"""`tailrace drop --data`: target tables and change log of this Replicator go, also after a death half way."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.dropping import OWNER, applied_tables, delta_table, drop, files, journal, storage_of
from support.dropping import manifest as manifest_of
from support.journals import table_schema
from support.origins import origin
from support.scripted import ScriptedSource
from support.scripted_database import Database
from support.transactions import numbered
from tailrace import sources
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.packed import BLOCK
from tailrace.changelog.paths import DROPPED, RENEWAL, SEGMENTS, record_path
from tailrace.changelog.records import EpochStarted, Event
from tailrace.changelog.records.tables import Applied, TableAdded, TableRemoved
from tailrace.changelog.records.terms import Position, RecordNumber, Seq
from tailrace.changelog.writer import JournalWriter
from tailrace.errors import StorageFull
from tailrace.removal import data as drop_data
from tailrace.storage.local import TEMPORARY
from tailrace.storage.store import Storage
from tailrace.targets.lake.removal import LakeRemoval


@pytest.fixture(autouse=True)
def source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "open", lambda *_: ScriptedSource(Database()))


def manifest(folder: Path, **change: Any) -> Path:
    return manifest_of(folder, {"host": "scripted"}, **change)


@pytest.mark.parametrize("storage", ["log", "./lake/_log"])
def test_with_data_the_tables_that_carry_this_logs_id_and_the_change_log_go_and_nothing_else(
    tmp_path: Path, storage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(tmp_path, storage={"location": f"file://{tmp_path}/{storage}"})
    journal(tmp_path / storage, origin("log", OWNER), *applied_tables())
    storage_of(tmp_path / storage).put(RENEWAL, b"{}")
    for table, log_id in (("t1", "log"), ("t2", None), ("t3", "of another log")):
        delta_table(tmp_path, table, log_id)
    assert drop(path) == 0
    assert (tmp_path / "lake/public/t1/part.parquet").exists(), "deletionPolicy Retain keeps the data"
    assert drop(path, "--data") == 0
    kept = {p.parent.name for p in files(tmp_path) if p.name == "part.parquet"}
    assert kept == {"t2", "t3"}
    assert not [p for p in (tmp_path / storage).rglob("*") if p.is_file()]
    out = capsys.readouterr().out
    assert "t3: kept: its state is of change log of another log, not of log" in out
    assert drop(path, "--data") == 0


def test_with_data_empty_folders_of_tables_and_change_log_go_and_those_around_them_stay(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    journal(tmp_path / "log", origin("log", OWNER), *applied_tables())
    delta_table(tmp_path, "t1", "log")
    (tmp_path / "beside").mkdir()
    assert drop(path, "--data") == 0
    assert not (tmp_path / "lake").exists() and not (tmp_path / "log").exists()
    assert (tmp_path / "beside").is_dir()
    assert drop(path, "--data") == 0


def test_what_killed_writers_left_among_tables_and_change_log_goes_with_them(tmp_path: Path) -> None:
    """Listings pass over files that never got their name; a folder that holds one stays."""
    path = manifest(tmp_path)
    journal(tmp_path / "log", origin("log", OWNER), *applied_tables())
    delta_table(tmp_path, "t1", "log")
    places = (
        "lake/public/t1/data",
        "lake/public/t1/_delta_log",
        "log/journal",
        "log/segments/t1",
        "lake/_tailrace_doctor",
    )
    for place in places:
        left = tmp_path / place / f"{TEMPORARY}0123456789abcdef"
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_bytes(b"half")
        os.utime(left, (1, 1))
    assert drop(path, "--data") == 0
    assert not (tmp_path / "lake").exists() and not (tmp_path / "log").exists()


@pytest.mark.parametrize("point", ["t1/", "t1/_delta_log/", "t1/part", record_path(0), record_path(1)])
def test_a_deletion_that_died_half_way_is_completed_by_the_next_one(tmp_path: Path, point: str) -> None:
    """A journal without its records proves nothing any more: the note does. A table's state goes last."""
    path = manifest(tmp_path)
    journal(tmp_path / "log", origin("log", OWNER), *applied_tables())
    for table in ("t1", "t3"):
        delta_table(tmp_path, table, "log")
        of_others = tmp_path / "lake/public" / table / "_delta_log" / f"{1:020d}.json"
        of_others.write_text(json.dumps({"commitInfo": {"operation": "OPTIMIZE"}}))
    with pytest.MonkeyPatch.context() as patch:
        real = Storage.delete

        def dies(storage: Storage, target: str) -> None:
            real(storage, target)
            if point in target:
                raise KeyboardInterrupt

        patch.setattr(Storage, "delete", dies)
        drop(path, "--data")
        assert files(tmp_path), "it died before it was done"
    assert drop(path, "--data") == 0
    assert not files(tmp_path)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_table_that_somebody_put_where_a_deleted_one_lay_is_kept_when_the_deletion_is_repeated(
    tmp_path: Path, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The deletion died behind its tables, and Spark has made one of its own there since."""
    path = manifest(tmp_path, target={"type": format})
    journal(tmp_path / "log", origin("log", OWNER), *applied_tables())
    note = drop_data.Proven(owner=OWNER, log_id="log", epoch=0, tables=(("public", "t1"), ("public", "t3")))
    storage_of(tmp_path / "log").put(DROPPED, note.model_dump_json().encode())
    place = tmp_path / "lake/public/t1"
    state = {"delta": "_delta_log/00000000000000000000.json", "iceberg": "metadata/v1.metadata.json"}[format]
    (place / state).parent.mkdir(parents=True)
    (place / state).write_text(json.dumps({"metaData": {"id": "theirs"}, "properties": {}}))
    (place / "part.parquet").write_bytes(b"x")
    assert drop(path, "--data") == 0
    assert {p.name for p in files(tmp_path / "lake")} == {"part.parquet", Path(state).name}
    out = capsys.readouterr().out
    assert "t1: kept: it carries no change log's state" in out and "public/t3" not in out
    assert not files(tmp_path / "log")


def test_every_prefix_of_the_deletion_is_completed_by_the_next_one(tmp_path: Path) -> None:
    """A log that changed hands, with two roll-ups and parts: whatever is left of it names the former owner, has a gap
    or names parts that are gone."""
    path, log = manifest(tmp_path), tmp_path / "log"
    journal(log, origin("log", "team/former@1"), *applied_tables()[:3])
    one = JournalWriter.claim(storage_of(log), "n", started=EpochStarted(owner=OWNER))
    for number in range(1, 2 * BLOCK + 1):
        one.append(Position(one.state.position + 1), Seq(number), transactions=numbered((number,), (number,)))
        if number % BLOCK == 0:
            assert one.finish()
    for event in applied_tables()[3:]:
        one.append(one.state.position, events=(event,))
    for table in ("t1", "t2", "t3"):
        delta_table(tmp_path, table, "log")
    deleted = list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "delete", lambda storage, target: deleted.append(storage.uri(target)))
        assert drop(path, "--data") == 0
    deleted = [uri for uri in dict.fromkeys(deleted) if "/log/journal/" in uri]
    assert len(deleted) == len(list((log / "journal").rglob("*.json"))) > 2 * BLOCK
    for number, uri in enumerate(deleted):
        Path(uri.removeprefix("file://")).unlink()
        if number < 8 or number % 100 == 0 or number > len(deleted) - 8:
            copy = tmp_path / str(number)
            shutil.copytree(log, copy / "log")
            again = manifest(copy)
            shutil.copytree(tmp_path / "lake", copy / "lake")
            assert drop(again, "--data") == 0, f"after {number + 1} deletions"
            assert not files(copy / "log") | files(copy / "lake"), f"after {number + 1} deletions"


@pytest.mark.parametrize("owner", [OWNER, "team/web-shop@another"])
@pytest.mark.parametrize("moment", ["before the note", "after the note", "t1 is gone"])
def test_a_start_amid_the_deletion_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], moment: str, owner: str
) -> None:
    """As a start does: first its epoch, then the note goes. What the start finds is to stay."""
    log = storage_of(tmp_path / "log")
    journal(tmp_path / "log", origin("log", OWNER), *applied_tables())
    for table in ("t1", "t3"):
        delta_table(tmp_path, table, "log")

    def begin() -> None:
        JournalWriter.claim(log, "adopter", started=EpochStarted(owner=owner))
        log.delete(DROPPED)

    def put(storage: Storage, path: str, data: bytes) -> None:
        if moment == "before the note":
            begin()
        write(storage, path, data)
        if moment == "after the note":
            begin()

    def dropped(tables: LakeRemoval, name: tuple[str, str]) -> None:
        drop_table(tables, name)
        begin()

    write, drop_table = Storage.put, LakeRemoval.drop
    monkeypatch.setattr(Storage, "put", put)
    if moment == "t1 is gone":
        monkeypatch.setattr(LakeRemoval, "drop", dropped)
    drop(manifest(tmp_path), "--data")
    left = {p.parent.name for p in files(tmp_path) if p.name == "part.parquet"}
    assert left == ({"t3"} if moment == "t1 is gone" else {"t1", "t3"})
    assert JournalReader.open(log).state.owner == owner
    out = capsys.readouterr().out
    assert f"change log {log.root}: kept: " in out


def test_the_note_of_a_deletion_says_nothing_about_another_log(tmp_path: Path) -> None:
    note = drop_data.Proven(owner=OWNER, log_id="of yore", epoch=0, tables=(("public", "t2"), ("public", "t3")))
    storage_of(tmp_path / "log").put(DROPPED, note.model_dump_json().encode())
    journal(tmp_path / "log", origin("log", OWNER), *applied_tables())
    for table, log_id in (("t1", "log"), ("t2", None), ("t3", "of another log")):
        delta_table(tmp_path, table, log_id)
    assert drop(manifest(tmp_path), "--data") == 0
    assert {p.parent.name for p in files(tmp_path) if p.name == "part.parquet"} == {"t2", "t3"}
    assert not storage_of(tmp_path / "log").exists(DROPPED)


def test_a_table_of_the_note_that_another_log_writes_by_now_is_kept(tmp_path: Path) -> None:
    """Nor is what lies there without any state: of ours that goes last."""
    note = drop_data.Proven(
        owner=OWNER, log_id="log", epoch=0, tables=(("public", "t1"), ("public", "t2"), ("public", "t3"))
    )
    storage_of(tmp_path / "log").put(DROPPED, note.model_dump_json().encode())
    for table, log_id in (("t1", "log"), ("t2", None), ("t3", "of another log")):
        delta_table(tmp_path, table, log_id)
    assert drop(manifest(tmp_path), "--data") == 0
    assert {p.parent.name for p in files(tmp_path) if p.name == "part.parquet"} == {"t2", "t3"}


def test_targets_of_renamed_tables_and_of_generations_that_are_still_to_be_applied_go_too(tmp_path: Path) -> None:
    """t1 was renamed, t2 is being read again, t3 was written but the journal does not say so yet."""
    renamed = table_schema(1, 2).model_copy(update={"table_name": "renamed"})
    events: list[Event] = [TableAdded(table=table_schema(i), edge="5") for i in (1, 2, 3)]
    events += [Applied(table_id=i, applied_seq=Seq(0), applied_record=RecordNumber(1)) for i in (1, 2)]
    events += [TableRemoved(table_id=i, reason="") for i in (1, 2)]
    events += [TableAdded(table=renamed, edge="5"), TableAdded(table=table_schema(2, 2), edge="5")]
    journal(tmp_path / "log", origin("log", OWNER), *events)
    for table in ("t1", "renamed", "t2", "t3"):
        delta_table(tmp_path, table, "log")
    assert drop(manifest(tmp_path), "--data") == 0
    assert not files(tmp_path)


def test_room_for_the_note_is_made_only_until_somebody_starts_with_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is deleted on a full disk makes room for a start as well."""
    storage = storage_of(tmp_path)
    for name in "abc":
        storage.put(f"{SEGMENTS}t/{name}.parquet", b"1")
    put, looks = Storage.put, [1, 1, 2]

    def full(self: Storage, path: str, data: bytes) -> None:
        if path == DROPPED:
            raise StorageFull("no room")
        put(self, path, data)

    def by_now() -> Any:
        return SimpleNamespace(log=SimpleNamespace(origin=origin("log"), epoch=looks.pop(0)))

    monkeypatch.setattr(Storage, "put", full)
    monkeypatch.setattr("tailrace.removal.claims.foreign", lambda known: None)
    note = drop_data.Proven(owner=OWNER, log_id="log", epoch=1, tables=())
    assert drop_data._put(note, storage, by_now) == drop_data.STARTED
    assert len(list(storage.list(SEGMENTS))) == 1
