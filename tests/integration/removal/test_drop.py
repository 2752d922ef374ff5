"""`tailrace drop` on a real server: what this Replicator's change log made goes, everything else stays and is named.
(Whose change log it is, and the data: `tests/unit/removal`.)
"""

import json
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.dropping import OTHER, OWNER, UID, drop, journal, storage_of
from support.dropping import manifest as manifest_of
from support.killed import killed_at
from support.origins import origin as make_origin
from support.pg_source import config_of
from support.postgres import PostgresServer
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.paths import record_path
from tailrace.changelog.records import EpochStarted, Origin
from tailrace.changelog.records.terms import Position
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.ownership import made_name
from tailrace.databases.postgresql.connect import Connection, connect
from tailrace.sources.postgresql import objects as slots
from tailrace.sources.postgresql import removal
from tailrace.sources.postgresql.log.connection import LogConnection, release_slot
from tailrace.sources.postgresql.names import DATABASE, SYSTEM

MADE, NAMESAKE = made_name("web-shop", UID), made_name("web-shop", OTHER)


def manifest(folder: Path, server: PostgresServer, uid: str | None = UID, **change: Any) -> Path:
    place = {"host": server.host, "port": server.port}
    return manifest_of(folder, place | change.pop("source", {}), uid, **change)


def origin_here(admin: Connection, name: str = MADE, owner: str = OWNER, **change: Any) -> Origin:
    """Of a change log that made slot and publication of this name in this source."""
    server = slots.identify(admin)
    origin = make_origin("log", owner, name, server.system_identifier)
    return origin.model_copy(update={"identity": origin.identity | {DATABASE: "postgres"}, **change})


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
        journal(tmp_path / "log", origin_here(admin))
        assert drop(path) == 0
        assert there(admin) == ({"of_somebody_else"}, {"of_somebody_else"})
        assert f"slot {MADE}: dropped" in capsys.readouterr().out
        assert drop(path) == 0
        assert f"slot {MADE}: there is none" in capsys.readouterr().out
    assert JournalReader.open(storage_of(tmp_path / "log")).state.released, "whoever starts next may go on with the log"


def test_killed_before_the_log_is_released_it_is_dropped_by_the_next(postgres: PostgresServer, tmp_path: Path) -> None:
    path = manifest(tmp_path, postgres)
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, MADE)
        journal(tmp_path / "log", origin_here(admin))
        killed_at("drop.before-release", lambda: drop(path))
        assert there(admin) == (set(), set())
        assert not JournalReader.open(storage_of(tmp_path / "log")).state.released
        assert drop(path) == 0
    assert JournalReader.open(storage_of(tmp_path / "log")).state.released


def test_a_namesake_that_was_refused_drops_nothing_of_the_healthy_one(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = manifest(tmp_path / "other", postgres, None, namespace="other")
    with connect(config_of(postgres)) as admin:
        its_name = made_name("web-shop", f"file://{tmp_path}/other/log")
        make(postgres, admin, its_name)
        journal(tmp_path / "log", origin_here(admin, name=its_name))
        assert drop(refused, "--data") == 0
        assert there(admin) == ({its_name}, {its_name})
    out = capsys.readouterr().out
    assert f"slot {its_name}: kept: there is no change log at" in out
    assert f"publication {its_name}: kept" in out


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
        journal(tmp_path / "log", origin_here(admin))
        assert drop(path) == 0
        assert there(admin) == ({MADE}, {MADE})
    why = f"kept: the change log at file://{tmp_path}/log belongs to team/web-shop@{OTHER}"
    out = capsys.readouterr().out
    assert f"slot {MADE}: {why}" in out and f"publication {MADE}: {why}" in out


def test_who_takes_a_log_over_after_the_first_look_goes_on_reading_it(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its log connection has the name that our own dead process's would have, and is not ended."""
    path, log = manifest(tmp_path, postgres), storage_of(tmp_path / "log")
    streams: list[LogConnection] = []

    def taken_over(*arguments: Any) -> None:
        JournalWriter.claim(log, "other", started=EpochStarted(owner=f"team/web-shop@{OTHER}"))
        streams.append(LogConnection(config_of(postgres).named("tailrace capture log"), MADE, MADE, Position(0)))
        release_slot(*arguments)

    monkeypatch.setattr(removal, "release_slot", taken_over)
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, MADE)
        journal(tmp_path / "log", origin_here(admin))
        assert drop(path) == 0
        assert there(admin) == ({MADE}, {MADE})
    (stream,) = streams
    with closing(stream):
        stream.acknowledge()
        time.sleep(0.3)
        stream.read(lambda data: None, lambda position: None, 1 << 20, 0.1)  # `Retry` if it was ended
    why = f"kept: the change log at file://{tmp_path}/log belongs to team/web-shop@{OTHER}"
    assert f"slot {MADE}: {why}" in capsys.readouterr().out


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
        journal(log, origin_here(admin, owner=f"team/web-shop@{OTHER}"))
        log.rename(tmp_path / "aside")
        log.write_text("no folder: the storage refuses")

        ours, sleep = threading.current_thread(), time.sleep

        def comes_back(seconds: float) -> None:
            if threading.current_thread() is not ours:  # everybody's `time.sleep` is replaced
                sleep(seconds)
            elif log.is_file():
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
        journal(tmp_path / "log", origin_here(admin, identity=elsewhere))
        assert drop(manifest(tmp_path, postgres)) == 0
        assert there(admin) == ({MADE}, {MADE})
    assert f"slot {MADE}: kept: it was made in system 7" in capsys.readouterr().out


def test_a_slot_and_a_publication_that_were_given_are_kept(postgres: PostgresServer, tmp_path: Path) -> None:
    path = manifest(tmp_path, postgres, source={"postgresql": {"slot": "given", "publication": "given"}})
    with connect(config_of(postgres)) as admin:
        make(postgres, admin, "given")
        journal(tmp_path / "log", origin_here(admin, name="given", made=()))
        assert drop(path) == 0
        assert there(admin) == ({"given"}, {"given"})


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
        journal(tmp_path / "log", origin_here(admin, name="tailrace_web_shop"))
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
        journal(tmp_path / "log", origin_here(admin))
        monkeypatch.setattr("tailrace.cli.commands.time.sleep", lambda _: admin.execute(
            "DO $$ BEGIN CREATE ROLE late SUPERUSER LOGIN; EXCEPTION WHEN duplicate_object THEN END $$"
        ))  # fmt: skip
        assert drop(path, "--wait", "30s") == 0
    said = json.loads(words.read_text())["drop"]
    assert (said["owner"], said["complete"], said["kept"]) == (OWNER, True, [])
    assert said["dropped"] == [f"replication slot {MADE}", f"publication {MADE}"]
