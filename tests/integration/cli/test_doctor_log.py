"""`tailrace doctor` refuses the change log that a start would refuse, in the same words; else it is ready."""

import pytest

from support.capture import CaptureRun, made_slot, refused, started
from support.postgres import PostgresServer
from tailrace.capture.renewal import Renewal
from tailrace.cli import main as cli
from tailrace.cli.console.local import LocalReplicator
from tailrace.contract.manifest import load
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage

TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text)"


def doctor(run: CaptureRun, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Of the manifest that the last start used."""
    code = cli.main(["doctor", "-f", str(run.folder / "replicator.yaml")])
    return code, capsys.readouterr().out


def stopped(run: CaptureRun) -> PostgresServer:
    """Its change log exists, nobody writes it."""
    server = started(run, TABLE)
    server.execute("INSERT INTO t VALUES (1, 'a')")
    run.catch_up()
    assert run.stop() == 0
    return server


def check_same(run: CaptureRun, capsys: pytest.CaptureFixture[str], code: int, name: str, words: str) -> None:
    """Start and doctor say one thing."""
    refused(run, code, name, words)
    fault = run.fault()
    found, text = doctor(run, capsys)
    assert found == code and text.endswith("not ready\n"), text
    assert f"fail change log: {name}: {fault['message']}\n     fix: {fault['fix']}\n" in text, text


def test_a_running_or_stopped_capture_is_ready(capture: CaptureRun, capsys: pytest.CaptureFixture[str]) -> None:
    started(capture, TABLE)
    for _ in range(5):
        capture.server.execute("SELECT pg_logical_emit_message(true, 'test', '')")
        code, text = doctor(capture, capsys)
        assert (code, text.endswith("\nready\n")) == (0, True), text
    assert capture.stop() == 0
    assert doctor(capture, capsys)[0] == 0


def test_a_pattern_without_a_table_is_told_once_and_by_name(
    capture: CaptureRun, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(capture)
    manifest = capture.folder / "replicator.yaml"
    manifest.write_text(manifest.read_text().replace("public.*", "pubic.*"))
    code, text = doctor(capture, capsys)
    assert code == 10 and text.count("no table matches") == 1, text
    assert "fail tables: no table matches pubic.*\n     fix: Correct the patterns; they are written" in text


def test_a_column_that_the_target_s_readers_cannot_have_is_told_with_its_other_name(
    capture: CaptureRun, capsys: pytest.CaptureFixture[str]
) -> None:
    capture.spec = {"target": {"type": "iceberg", "location": (capture.folder / "lake").as_uri()}}
    capture.server.execute('CREATE TABLE twins (id int PRIMARY KEY, a text, "A" text)')
    started(capture, "CREATE TABLE t (id int PRIMARY KEY, _row_id text)")
    code, text = doctor(capture, capsys)
    assert code == 0, text
    assert "warn public.t: the target calls column '_row_id' '_row_id_1'" in text, text
    assert "warn public.twins: the target calls column 'A' 'A_1'" in text, text
    manifest = capture.folder / "replicator.yaml"
    report = LocalReplicator(load(manifest).replicator(), manifest).assessment("")  # as the console asks for it
    assert report.ready and [t.table for t in report.tables] == ["public.t", "public.twins"]
    assert [(c.column, c.becomes, c.support) for c in report.tables[0].columns] == [
        ("id", "int32", "YES"),
        ("_row_id", "string", "YES"),
    ]
    assert next(x.message for x in report.lines if (x.subject, x.level) == ("public.t", "warn")) in text


def test_a_pattern_without_a_table_may_lack_a_right(capture: CaptureRun, capsys: pytest.CaptureFixture[str]) -> None:
    """MySQL and MariaDB show only tables on which the user has one."""
    capture.spec = {"tables": {"include": ["public.*", "sales.orders"]}}
    started(capture, "CREATE TABLE t (id int PRIMARY KEY)")
    code, text = doctor(capture, capsys)
    assert code == 0, text
    line = "warn patterns: tables.include: pattern sales.orders matches no table yet\n     fix: "
    assert "grant the right on them" in text.partition(line)[2].partition("\n")[0], text


def test_another_database_than_the_change_log_s(capture: CaptureRun, capsys: pytest.CaptureFixture[str]) -> None:
    stopped(capture).execute("CREATE DATABASE other")
    with capture.server.connect("other") as other:
        other.execute(TABLE)
    capture.source = {"database": "other"}
    check_same(capture, capsys, 10, "SourceRefused", "belongs to database 'postgres'")


def test_a_slot_that_is_missing_and_that_a_resync_makes_again(
    capture: CaptureRun, capsys: pytest.CaptureFixture[str]
) -> None:
    server = stopped(capture)
    server.drop_slot(made_slot(capture))
    check_same(capture, capsys, 12, "PositionLost", "is missing")
    Renewal(id="again", request="again").write(
        Storage.open(StorageLocation(location=(capture.folder / "log").as_uri()))
    )
    code, text = doctor(capture, capsys)
    assert code == 0 and "warn change log: the next start" in text, text


def test_a_publication_that_is_missing(capture: CaptureRun, capsys: pytest.CaptureFixture[str]) -> None:
    server = stopped(capture)
    with server.connect() as connection:
        ((name,),) = connection.execute("SELECT pubname FROM pg_publication").fetchall()
    server.execute(f"DROP PUBLICATION {name}")
    check_same(capture, capsys, 12, "PositionLost", "is missing")


def test_a_slot_of_our_name_without_its_change_log(capture: CaptureRun, capsys: pytest.CaptureFixture[str]) -> None:
    stopped(capture)
    (capture.folder / "log").rename(capture.folder / "away")
    check_same(capture, capsys, 10, "SourceRefused", "holds no change log that reads it")
