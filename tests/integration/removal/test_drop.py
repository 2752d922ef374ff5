"""`tailrace drop` on a real server: what this Replicator's change log made goes, everything else stays and is named."""

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.journals import Journal, table_schema
from support.origins import origin as make_origin
from support.pg_source import config_of
from support.postgres import PostgresServer
from tailrace.changelog import first_start
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.packed import BLOCK
from tailrace.changelog.paths import DROPPED, RENEWAL, record_path
from tailrace.changelog.records import (
    Applied,
    EpochStarted,
    Event,
    Origin,
    Position,
    TableAdded,
    TableRemoved,
    Transactions,
)
from tailrace.changelog.writer import JournalWriter
from tailrace.cli.main import main
from tailrace.contract.ownership import made_name
from tailrace.contract.resources import LogStorage
from tailrace.removal import data as drop_data
from tailrace.removal import drop as run_drop
from tailrace.sources.postgresql import objects as slots
from tailrace.sources.postgresql import removal
from tailrace.sources.postgresql.connect import Connection, connect
from tailrace.sources.postgresql.names import DATABASE, SYSTEM
from tailrace.storage.store import Storage

UID, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
MADE, NAMESAKE = made_name("web-shop", UID), made_name("web-shop", OTHER)
OWNER = f"team/web-shop@{UID}"


def manifest(
    folder: Path, server: PostgresServer, uid: str | None = UID, name: str = "web-shop", **change: Any
) -> Path:
    plain = {"type": "postgresql", "host": server.host, "port": server.port, "database": "postgres"}
    spec: dict[str, Any] = {
        "source": {**plain, "username": "postgres", **change.get("source", {})},
        "tables": {"include": ["public.*"]},
        "target": {"type": "delta", "location": f"file://{folder}/lake", **change.get("target", {})},
        "storage": {"location": f"file://{folder}/log", **change.get("storage", {})},
    }
    meta = {"name": name, "namespace": change.get("namespace", "team"), "uid": uid}
    document = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "Replicator", "metadata": meta, "spec": spec}
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{uid}.yaml"
    path.write_text(json.dumps(document))
    return path


def drop(path: Path, *more: str) -> int:
    return main(["drop", "-f", str(path), "--run-dir", str(path.parent / "run"), *more])


def storage_of(folder: Path) -> Storage:
    return Storage.open(LogStorage(location=f"file://{folder}"))


def origin_here(admin: Connection, name: str = MADE, owner: str = OWNER, **change: Any) -> Origin:
    """Of a change log that made slot and publication of this name in this source."""
    server = slots.identify(admin)
    origin = make_origin("log", owner, name, server.system_identifier)
    return origin.model_copy(update={"identity": origin.identity | {DATABASE: "postgres"}, **change})


def journal(folder: Path, admin: Connection, *events: Event, **origin: Any) -> None:
    """A change log that says what it made in this source."""
    entries = Journal(Random(0))
    first = entries.origin()
    records = [first.model_copy(update={"events": (origin_here(admin, **origin),)})]
    records += [entries.plain(events=(event,)) for event in events]
    for record in records:
        storage_of(folder).create(record_path(record.number), record.model_dump_json().encode())


def make(server: PostgresServer, admin: Connection, *names: str) -> None:
    for name in names:
        slots.create_slot(config_of(server), name)
        admin.execute(f"CREATE PUBLICATION {name}".encode())


def there(admin: Connection) -> tuple[set[str], set[str]]:
    """Slots and publications."""
    found = [admin.execute(q).fetchall() for q in (
        "SELECT slot_name FROM pg_replication_slots", "SELECT pubname FROM pg_publication")]  # fmt: skip
    return {r[0] for r in found[0]}, {r[0] for r in found[1]}


def test_what_this_change_log_made_is_dropped_and_again_is_no_error(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(tmp_path, postgres)
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, MADE, "of_somebody_else")
        journal(tmp_path / "log", admin)
        assert drop(path) == 0
        assert there(admin) == ({"of_somebody_else"}, {"of_somebody_else"})
        assert f"slot {MADE}: dropped" in capsys.readouterr().out
        assert drop(path) == 0
        assert f"slot {MADE}: there is none" in capsys.readouterr().out
    assert JournalReader.open(storage_of(tmp_path / "log")).state.released, "whoever starts next may go on with the log"


def test_a_namesake_that_was_refused_drops_nothing_of_the_healthy_one(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = manifest(tmp_path / "other", postgres, None, namespace="other")
    with connect(config_of(postgres)) as admin:
        its_name = made_name("web-shop", f"file://{tmp_path}/other/log")
        make(postgres, admin, its_name)
        journal(tmp_path / "log", admin, name=its_name)
        assert drop(refused, "--data") == 0
        assert there(admin) == ({its_name}, {its_name})
    out = capsys.readouterr().out
    assert f"slot {its_name}: kept: there is no change log at" in out
    assert f"publication {its_name}: kept" in out


@pytest.mark.parametrize("uid", [OTHER, None])
def test_a_copied_manifest_drops_nothing_of_the_original_and_deletes_none_of_its_data(
    postgres: PostgresServer, tmp_path: Path, uid: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = manifest(tmp_path, postgres, uid, namespace="other")
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, MADE)
        journal(tmp_path / "log", admin, *applied_tables())
        delta_table(tmp_path, "t1", "log")
        before = files(tmp_path)
        assert drop(copy, "--data") == 0
        assert there(admin) == ({MADE}, {MADE})
    assert files(tmp_path) == before
    why = f"kept: the change log at file://{tmp_path}/log belongs to {OWNER}"
    out = capsys.readouterr().out
    assert all(f"{what}: {why}" in out for what in (f"slot {MADE}", f"change log file://{tmp_path}/log"))


def test_a_log_that_another_takes_over_while_it_is_dropped_stays_the_other_one_s(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly between the last look at the log and its release."""
    path, adopter = manifest(tmp_path, postgres), f"team/web-shop@{OTHER}"
    storage = storage_of(tmp_path / "log")
    writers: list[JournalWriter] = []

    def adopt(name: str) -> None:
        if name == "drop.before-release":
            writers.append(JournalWriter.claim(storage, "adopter", started=EpochStarted(owner=adopter)))

    monkeypatch.setattr(run_drop, "seam", adopt, raising=False)
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, MADE)
        journal(tmp_path / "log", admin)
        assert drop(path) == 0
    (writer,) = writers
    state = JournalReader.open(storage).state
    assert (state.owner, state.released, state.nonce) == (adopter, False, "adopter")
    writer.append(state.position)
    assert f"kept: the change log at {storage.root} belongs to {adopter}" in capsys.readouterr().out


def test_a_log_that_another_takes_over_while_its_slot_is_let_go_of_keeps_slot_and_publication(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, log = manifest(tmp_path, postgres), storage_of(tmp_path / "log")

    def taken_over(*_: object) -> None:
        started = EpochStarted(owner=f"team/web-shop@{OTHER}")
        JournalWriter.claim(log, "other", lambda state: None, started=started)

    monkeypatch.setattr(removal, "release_slot", taken_over)
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, MADE)
        journal(tmp_path / "log", admin)
        assert drop(path) == 0
        assert there(admin) == ({MADE}, {MADE})
    why = f"kept: the change log at file://{tmp_path}/log belongs to team/web-shop@{OTHER}"
    out = capsys.readouterr().out
    assert f"slot {MADE}: {why}" in out and f"publication {MADE}: {why}" in out


def test_who_took_a_log_over_drops_it_and_its_former_owner_does_not(postgres: PostgresServer, tmp_path: Path) -> None:
    adopter = manifest(tmp_path, postgres, OTHER, storage={"adopt": OWNER})
    former = manifest(tmp_path, postgres)
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, MADE)
        journal(tmp_path / "log", admin, owner=f"team/web-shop@{OTHER}")
        assert drop(former) == 0
        assert there(admin) == ({MADE}, {MADE})
        assert drop(adopter) == 0
        assert there(admin) == (set(), set())


@pytest.mark.parametrize("data", [(), ("--data",)])
def test_naming_another_in_adopt_without_ever_having_started_drops_nothing_of_it(
    postgres: PostgresServer, tmp_path: Path, data: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its start was refused, or it never had one: the healthy owner goes on."""
    asker = manifest(tmp_path, postgres, OTHER, storage={"adopt": OWNER})
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, MADE)
        journal(tmp_path / "log", admin, *applied_tables())
        delta_table(tmp_path, "t1", "log")
        before = files(tmp_path)
        assert drop(asker, *data) == 0
        assert there(admin) == ({MADE}, {MADE})
    assert files(tmp_path) == before, "nor is the owner fenced"
    assert f"slot {MADE}: kept: the change log at file://{tmp_path}/log belongs to {OWNER}" in capsys.readouterr().out


def test_a_first_start_of_another_that_is_named_in_adopt_is_left_alone(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    note = make_origin("l", OWNER, "half_made")
    first_start.write(storage_of(tmp_path / "log"), note)
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, "half_made")
        assert drop(manifest(tmp_path, postgres, OTHER, storage={"adopt": OWNER}), "--data") == 0
        assert there(admin)[0] == {"half_made"}
    assert first_start.read(storage_of(tmp_path / "log")) == note


@pytest.mark.parametrize("wait", ["0s", "30s"])
def test_a_storage_that_does_not_answer_proves_no_name(
    postgres: PostgresServer,
    tmp_path: Path,
    wait: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another has taken the log over meanwhile, and reads the slot, which bears the former owner's uid in its name."""
    path, log = manifest(tmp_path, postgres), tmp_path / "log"
    monkeypatch.setattr("tailrace.cli.commands.DROP_PAUSE", 0.1)
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, MADE)
        journal(log, admin, owner=f"team/web-shop@{OTHER}")
        log.rename(tmp_path / "aside")
        log.write_text("no folder: the storage refuses")

        def comes_back(_: float) -> None:
            if log.is_file():
                log.unlink()
                (tmp_path / "aside").rename(log)

        monkeypatch.setattr("tailrace.cli.commands.time.sleep", comes_back)
        assert (drop(path, "--wait", wait) == 0) == (wait == "30s")
        assert there(admin) == ({MADE}, {MADE})
    said = capsys.readouterr()
    assert f"slot {MADE}: kept: the change log cannot be read" in said.out, "what stays is named"
    assert ("belongs to" in said.out) == (wait == "30s")


def test_a_slot_made_in_another_source_is_not_looked_for_by_its_name_in_this_one(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, MADE)
        elsewhere = origin_here(admin).identity | {SYSTEM: "7"}
        journal(tmp_path / "log", admin, identity=elsewhere)
        assert drop(manifest(tmp_path, postgres)) == 0
        assert there(admin) == ({MADE}, {MADE})
    assert f"slot {MADE}: kept: it was made in system 7" in capsys.readouterr().out


def test_a_slot_and_a_publication_that_were_given_are_kept(postgres: PostgresServer, tmp_path: Path) -> None:
    path = manifest(tmp_path, postgres, source={"postgresql": {"slot": "given", "publication": "given"}})
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, "given")
        journal(tmp_path / "log", admin, name="given", made=())
        assert drop(path) == 0
        assert there(admin) == ({"given"}, {"given"})


@pytest.mark.parametrize("owner", [OWNER, f"other/web-shop@{OTHER}"])
def test_a_first_start_that_died_before_record_0_is_cleaned_up_by_its_owner_only(
    postgres: PostgresServer, tmp_path: Path, owner: str
) -> None:
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, "half_made")
        first_start.write(storage_of(tmp_path / "log"), origin_here(admin, "half_made", owner))
        assert drop(manifest(tmp_path, postgres)) == 0
        assert there(admin)[0] == (set() if owner == OWNER else {"half_made"})
    assert (first_start.read(storage_of(tmp_path / "log")) is None) == (owner == OWNER)


def test_without_a_change_log_only_what_bears_this_objects_uid_goes(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody deleted the bucket first. Outside Kubernetes there is no uid, and a name proves nothing."""
    plain = manifest(tmp_path, postgres, None)
    by_place = made_name("web-shop", f"file://{tmp_path}/log")
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, MADE, NAMESAKE, by_place)
        assert drop(manifest(tmp_path, postgres)) == 0
        assert there(admin) == ({NAMESAKE, by_place}, {NAMESAKE, by_place})
        assert drop(plain) == 0
        assert there(admin) == ({NAMESAKE, by_place}, {NAMESAKE, by_place})
    assert f"slot {by_place}: kept: there is no change log at" in capsys.readouterr().out


def test_a_storage_that_cannot_be_read_keeps_everything_that_it_alone_could_prove(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    path = manifest(tmp_path, postgres)
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, "tailrace_web_shop", MADE)
        journal(tmp_path / "log", admin, name="tailrace_web_shop")
        storage_of(tmp_path / "log").put(record_path(0), b"not json")
        assert drop(path, "--data") == 1
        assert there(admin) == ({"tailrace_web_shop", MADE}, {"tailrace_web_shop", MADE})


def test_a_source_that_refuses_the_password_is_told_by_its_exit_code(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(tmp_path, postgres, source={"username": "nobody"})
    assert drop(path) == 11
    assert "AuthenticationFailed" in capsys.readouterr().err


def test_it_keeps_trying_for_as_long_as_it_is_told_and_leaves_its_last_words(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, words = manifest(tmp_path, postgres, source={"username": "late"}), tmp_path / "words"
    monkeypatch.setattr("tailrace.cli.commands.DROP_PAUSE", 0.2)
    monkeypatch.setenv("TAILRACE_TERMINATION_MESSAGE", str(words))
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, MADE)
        journal(tmp_path / "log", admin)
        monkeypatch.setattr("tailrace.cli.commands.time.sleep", lambda _: admin.execute(
            "DO $$ BEGIN CREATE ROLE late SUPERUSER LOGIN; EXCEPTION WHEN duplicate_object THEN END $$"
        ))  # fmt: skip
        assert drop(path, "--wait", "30s") == 0
    said = json.loads(words.read_text())["drop"]
    assert (said["owner"], said["complete"], said["kept"]) == (OWNER, True, [])
    assert said["dropped"] == [f"replication slot {MADE}", f"publication {MADE}"]


# ---- with --data ----


def applied_tables() -> tuple[Event, ...]:
    """t1 and t3 were applied, t2 was not, as far as the journal says."""
    added = tuple(TableAdded(table=table_schema(i), edge=5) for i in (1, 2, 3))
    return *added, *(Applied(table_id=i, applied_seq=0, applied_record=1) for i in (1, 3))


def delta_table(folder: Path, table: str, log_id: str | None) -> None:
    place = folder / "lake" / "public" / table
    (place / "_delta_log").mkdir(parents=True)
    (place / "part.parquet").write_bytes(b"x")
    if log_id is not None:
        domain = {"domain": "tailrace.applied", "configuration": json.dumps({"logId": log_id}), "removed": False}
        lines = [{"commitInfo": {}}, {"domainMetadata": domain}]
        commit = "\n".join(json.dumps(line) for line in lines)
        (place / "_delta_log" / f"{0:020d}.json").write_text(commit)


def files(folder: Path) -> set[Path]:
    return {p for p in folder.rglob("*") if p.is_file() and p.suffix in (".json", ".parquet")}


@pytest.mark.parametrize("storage", ["log", "lake/_log"])
def test_with_data_the_tables_that_carry_this_logs_id_and_the_change_log_go_and_nothing_else(
    postgres: PostgresServer, tmp_path: Path, storage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(tmp_path, postgres, storage={"location": f"file://{tmp_path}/{storage}"})
    with connect(config_of(postgres)) as admin:
        journal(tmp_path / storage, admin, *applied_tables())
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


def test_with_data_empty_folders_of_tables_and_change_log_go_and_those_around_them_stay(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    path = manifest(tmp_path, postgres)
    with connect(config_of(postgres)) as admin:
        journal(tmp_path / "log", admin, *applied_tables())
    delta_table(tmp_path, "t1", "log")
    (tmp_path / "beside").mkdir()
    assert drop(path, "--data") == 0
    assert not (tmp_path / "lake").exists() and not (tmp_path / "log").exists()
    assert (tmp_path / "beside").is_dir()
    assert drop(path, "--data") == 0


@pytest.mark.parametrize("point", ["t1/", "t1/_delta_log/", "t1/part", record_path(0), record_path(1)])
def test_a_deletion_that_died_half_way_is_completed_by_the_next_one(
    postgres: PostgresServer, tmp_path: Path, point: str
) -> None:
    """A journal without its records proves nothing any more: the note does. A table's state goes last."""
    path = manifest(tmp_path, postgres)
    with connect(config_of(postgres)) as admin:
        journal(tmp_path / "log", admin, *applied_tables())
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
    postgres: PostgresServer, tmp_path: Path, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The deletion died behind its tables, and Spark has made one of its own there since."""
    path = manifest(tmp_path, postgres, target={"type": format})
    with connect(config_of(postgres)) as admin:
        journal(tmp_path / "log", admin, *applied_tables())
    note = drop_data.Proven(owner=OWNER, log_id="log", tables=(("public", "t1"), ("public", "t3")))
    storage_of(tmp_path / "log").put(DROPPED, note.model_dump_json().encode())
    place = tmp_path / "lake/public/t1"
    state = {"delta": "_delta_log/00000000000000000000.json", "iceberg": "metadata/v1.metadata.json"}[format]
    (place / state).parent.mkdir(parents=True)
    (place / state).write_text(json.dumps({"metaData": {"id": "theirs"}, "properties": {}}))
    (place / "part.parquet").write_bytes(b"x")
    assert drop(path, "--data") == 0
    assert {p.name for p in files(tmp_path / "lake")} == {"part.parquet", Path(state).name}
    out = capsys.readouterr().out
    assert "t1: kept: it carries no change log's state" in out and "t3" not in out
    assert not files(tmp_path / "log")


def test_every_prefix_of_the_deletion_is_completed_by_the_next_one(postgres: PostgresServer, tmp_path: Path) -> None:
    """A log that changed hands, with two roll-ups and parts: whatever is left of it names the former owner, has a gap
    or names parts that are gone."""
    path, log = manifest(tmp_path, postgres), tmp_path / "log"
    with connect(config_of(postgres)) as admin:
        journal(log, admin, *applied_tables()[:3], owner="team/former@1")
    one = JournalWriter.claim(storage_of(log), "n", started=EpochStarted(owner=OWNER))
    for number in range(1, 2 * BLOCK + 1):
        one.append(
            Position(one.state.position + 1), number, transactions=Transactions(ids=(number,), first_seqs=(number,))
        )
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
            again = manifest(copy, postgres)
            shutil.copytree(tmp_path / "lake", copy / "lake")
            assert drop(again, "--data") == 0, f"after {number + 1} deletions"
            assert not files(copy / "log") | files(copy / "lake"), f"after {number + 1} deletions"


def test_the_note_of_a_deletion_says_nothing_about_another_log(postgres: PostgresServer, tmp_path: Path) -> None:
    note = drop_data.Proven(owner=OWNER, log_id="of yore", tables=(("public", "t2"), ("public", "t3")))
    storage_of(tmp_path / "log").put(DROPPED, note.model_dump_json().encode())
    with connect(config_of(postgres)) as admin:
        journal(tmp_path / "log", admin, *applied_tables())
    for table, log_id in (("t1", "log"), ("t2", None), ("t3", "of another log")):
        delta_table(tmp_path, table, log_id)
    assert drop(manifest(tmp_path, postgres), "--data") == 0
    assert {p.parent.name for p in files(tmp_path) if p.name == "part.parquet"} == {"t2", "t3"}
    assert not storage_of(tmp_path / "log").exists(DROPPED)


def test_a_table_of_the_note_that_another_log_writes_by_now_is_kept(postgres: PostgresServer, tmp_path: Path) -> None:
    """Nor is what lies there without any state: of ours that goes last."""
    note = drop_data.Proven(owner=OWNER, log_id="log", tables=(("public", "t1"), ("public", "t2"), ("public", "t3")))
    storage_of(tmp_path / "log").put(DROPPED, note.model_dump_json().encode())
    for table, log_id in (("t1", "log"), ("t2", None), ("t3", "of another log")):
        delta_table(tmp_path, table, log_id)
    assert drop(manifest(tmp_path, postgres), "--data") == 0
    assert {p.parent.name for p in files(tmp_path) if p.name == "part.parquet"} == {"t2", "t3"}


def test_targets_of_renamed_tables_and_of_generations_that_are_still_to_be_applied_go_too(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """t1 was renamed, t2 is being read again, t3 was written but the journal does not say so yet."""
    renamed = table_schema(1, 2).model_copy(update={"table_name": "renamed"})
    events: list[Event] = [TableAdded(table=table_schema(i), edge=5) for i in (1, 2, 3)]
    events += [Applied(table_id=i, applied_seq=0, applied_record=1) for i in (1, 2)]
    events += [TableRemoved(table_id=i, reason="") for i in (1, 2)]
    events += [TableAdded(table=renamed, edge=5), TableAdded(table=table_schema(2, 2), edge=5)]
    with connect(config_of(postgres)) as admin:
        journal(tmp_path / "log", admin, *events)
    for table in ("t1", "renamed", "t2", "t3"):
        delta_table(tmp_path, table, "log")
    assert drop(manifest(tmp_path, postgres), "--data") == 0
    assert not files(tmp_path)
