"""What capture does at its start, and to the source: whom it refuses, what it leaves alone, what it finds changed."""

import shutil
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from support.capture import CaptureRun, check_invariants, made_slot, refused, source_rows, started
from support.pg_source import config_of
from support.postgres import PostgresServer
from support.resources import replicator as document_of
from support.waiting import until
from tailrace.changelog.paths import FIRST_START
from tailrace.changelog.records.terms import Position
from tailrace.contract.resources import Replicator
from tailrace.databases.postgresql.connect import connect
from tailrace.errors import PositionLost, Retry
from tailrace.sources.api import CreatedByOther, Patience
from tailrace.sources.postgresql.log.connection import LogConnection
from tailrace.sources.postgresql.names import Names
from tailrace.sources.postgresql.subscription import PgSubscription

TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text)"
SLOTS = "SELECT slot_name::text FROM pg_replication_slots"
PUBLISHED = "SELECT tablename::text FROM pg_publication_tables ORDER BY 1"


@pytest.mark.parametrize(
    "major", [pytest.param(14, marks=pytest.mark.postgres(14)), pytest.param(18, marks=pytest.mark.postgres(18))]
)
def test_a_standby_is_refused_and_after_its_promotion_the_position_is_lost(capture: CaptureRun, major: int) -> None:
    server = started(capture, TABLE)
    server.execute("INSERT INTO t VALUES (1, 'a')")
    capture.catch_up()
    assert capture.stop() == 0
    server.stop()
    (server.data_dir / "standby.signal").touch()
    server.start()
    records = len(capture.records())
    refused(capture, 10, "SourceRefused", "standby")
    made = server.execute(SLOTS)
    first = replace(capture, folder=capture.folder.with_name("first"), process=None)
    refused(first, 10, "SourceRefused", "standby")
    assert not (first.folder / "log").exists() and server.execute(SLOTS) == made
    server.execute("SELECT pg_promote()")
    refused(capture, 12, "PositionLost", "timeline 2", "created on 1")
    assert len(capture.records()) == records


def test_an_absent_slot_is_lost_and_a_taken_one_is_tried_again(postgres: PostgresServer) -> None:
    postgres.execute("CREATE PUBLICATION p FOR ALL TABLES")
    with pytest.raises(PositionLost, match="slot 'absent'"):
        LogConnection(config_of(postgres), "absent", "p", Position(1))
    postgres.execute("SELECT pg_create_logical_replication_slot('taken', 'pgoutput')")
    with closing(LogConnection(config_of(postgres), "taken", "p", Position(1))), pytest.raises(Retry):
        LogConnection(config_of(postgres), "taken", "p", Position(1))


@pytest.mark.postgres(14, wal_level="replica")
def test_a_source_that_is_not_fit_is_refused_before_anything_is_made(capture: CaptureRun) -> None:
    capture.server.execute(TABLE)
    refused(capture, 10, "SourceRefused", "wal_level is replica")
    assert "ALTER SYSTEM SET wal_level = 'logical'" in capture.fault()["fix"]
    assert capture.server.execute("SELECT pubname FROM pg_publication") == []
    assert list((capture.folder / "log").rglob("*.json")) == []


def test_a_namesake_with_another_change_log_has_a_slot_of_its_own(capture: CaptureRun, tmp_path: Path) -> None:
    server = started(capture, TABLE)
    other = CaptureRun(capture.fork_server, server, tmp_path / "other")
    other.start()
    try:
        server.execute("INSERT INTO t VALUES (1, 'a')")
        for run in (capture, other):
            run.catch_up()
            assert run.fold("public.t") == source_rows(server, "t")
        assert len(server.execute("SELECT slot_name FROM pg_replication_slots WHERE active")) == 2
    finally:
        other.kill()


def test_a_slot_of_our_name_without_its_change_log_is_left_alone(capture: CaptureRun) -> None:
    """Its change log may only have been moved: to drop the slot would lose that log's position."""
    server = started(capture, TABLE)
    capture.catch_up()
    assert capture.stop() == 0
    log, away = capture.folder / "log", capture.folder / "away"
    log.rename(away)
    refused(capture, 10, "SourceRefused", made_slot(capture), "holds no change log")
    shutil.rmtree(log, ignore_errors=True)
    away.rename(log)
    capture.start()
    server.execute("INSERT INTO t VALUES (2, 'b')")
    capture.catch_up()
    assert capture.fold("public.t") == source_rows(server, "t")


def test_a_given_slot_is_not_taken_from_another_replicator_that_reads_it(capture: CaptureRun, tmp_path: Path) -> None:
    server = capture.server
    server.execute(TABLE)
    server.execute("CREATE PUBLICATION given FOR TABLE t")
    server.execute("SELECT pg_create_logical_replication_slot('given', 'pgoutput')")
    capture.source = {"postgresql": {"slot": "given", "publication": "given"}}
    started(capture, "SELECT 1")
    reader = server.execute("SELECT active_pid FROM pg_replication_slots")
    other = CaptureRun(capture.fork_server, server, tmp_path / "other", source=capture.source)
    refused(other, 10, "SourceRefused", "'given' is in use by backend")
    assert server.execute("SELECT active_pid FROM pg_replication_slots") == reader, "its connection lives"
    capture.kill()
    capture.start()
    server.execute("INSERT INTO t VALUES (1, 'a')")
    capture.catch_up()
    assert capture.fold("public.t") == source_rows(server, "t"), "its own predecessor's connection is ended"


def test_a_slot_that_another_replicator_made_is_not_taken_by_a_copied_manifest(
    capture: CaptureRun, tmp_path: Path
) -> None:
    """That one may be suspended: it would find its position gone."""
    server = started(capture, TABLE)
    name = made_slot(capture)
    assert capture.stop() == 0
    before = server.execute("SELECT confirmed_flush_lsn FROM pg_replication_slots")
    copied = CaptureRun(capture.fork_server, server, tmp_path / "copied", source={"postgresql": {"slot": name}})
    refused(copied, 10, "SourceRefused", f"slot {name!r} has the name of a slot that Tailrace makes for another")
    assert server.execute("SELECT confirmed_flush_lsn FROM pg_replication_slots") == before
    server.execute("INSERT INTO t VALUES (1, 'a')")
    capture.start()
    capture.catch_up()
    assert capture.fold("public.t") == source_rows(server, "t")


def replicator_in(folder: Path) -> Replicator:
    """As that of a `CaptureRun` in this folder, as far as its names go."""
    return Replicator.model_validate(document_of(storage={"location": (folder / "log").as_uri()}))


def test_with_a_slot_given_the_publication_of_a_namesake_is_left_alone(capture: CaptureRun) -> None:
    """Its tables would be taken out of it."""
    server = capture.server
    server.execute(TABLE)
    name = Names.of(replicator_in(capture.folder)).publication
    server.execute(f"CREATE PUBLICATION {name}")
    server.execute("SELECT pg_create_logical_replication_slot('given', 'pgoutput')")
    capture.source = {"postgresql": {"slot": "given"}}
    refused(capture, 10, "SourceRefused", f"publication '{name}' exists")
    assert server.execute(PUBLISHED) == []
    server.execute(f"DROP PUBLICATION {name}")
    started(capture, "SELECT 1")
    until(lambda: server.execute(PUBLISHED) == [("t",)], "its own publication is made")


def test_a_slot_that_a_namesake_makes_first_is_not_ours(postgres: PostgresServer, tmp_path: Path) -> None:
    """Between the look for it and its making."""
    replicator = replicator_in(tmp_path)
    with closing(connect(config_of(postgres))) as connection:
        ours = PgSubscription(config_of(postgres), connection, replicator, "the folder")
        patience = Patience(lambda _: None, threading.Event())
        origin = ours.prepare("0a" * 16, None, patience)
        slot = Names.of(replicator).slot
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        with pytest.raises(CreatedByOther, match="holds no change log"):
            ours.begin(origin, patience)
        assert postgres.execute(SLOTS) == [(slot,)]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_an_end_while_the_slot_is_being_made_leaves_no_slot(capture: CaptureRun, end: str) -> None:
    """Nobody would own it, and the source would keep its log for ever."""
    server = capture.server
    server.execute(TABLE)
    maker = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'tailrace slot %'"
    with server.connect(autocommit=False) as other:
        other.execute("INSERT INTO t VALUES (1, 'a')")
        capture.start(wait=False)
        until(lambda: server.execute(maker), "the slot is being made")
        if end == "kill":
            capture.kill()
        else:
            assert capture.stop() == 0
        until(lambda: not server.execute(maker), "its maker has gone")
        other.rollback()
    assert server.execute(SLOTS) == []
    assert (capture.folder / "log" / FIRST_START).exists(), "a slot that was done at that moment would be known as ours"


def test_a_start_killed_while_its_slot_is_being_made_begins_again_at_once(capture: CaptureRun) -> None:
    server = capture.server
    server.execute(TABLE)
    with server.connect(autocommit=False) as other:
        other.execute("INSERT INTO t VALUES (1, 'a')")
        capture.start(wait=False)
        until(lambda: server.execute(SLOTS), "the slot is being made")
        capture.kill()
        capture.start(wait=False)
        time.sleep(1)
        other.rollback()
    until(lambda: capture.events("table-added"), f"it has begun\n{capture.tail()}")


@pytest.mark.postgres(18)
def test_a_table_that_we_may_not_publish_stops_alone_until_we_may(capture: CaptureRun) -> None:
    server = capture.server
    server.execute("CREATE ROLE poor LOGIN REPLICATION; GRANT CREATE ON DATABASE postgres TO poor")
    server.execute(TABLE + "; CREATE TABLE foreign_one (id int PRIMARY KEY); ALTER TABLE t OWNER TO poor")
    server.execute("CREATE ROLE shop_owner; ALTER TABLE foreign_one OWNER TO shop_owner")
    capture.source = {"username": "poor"}
    capture.start()
    stop = until(lambda: capture.events("table-stopped"), "the other's table stops")[0]
    said, _, other = stop["fix"].partition("; or ")
    statement = said.removeprefix("Run `").removesuffix("`")
    assert (stop["error"], statement) == ("ReadRefused", 'GRANT "shop_owner" TO "poor"')
    assert "source.postgresql.publication" in other
    server.execute("INSERT INTO t VALUES (1, 'a'); CREATE TABLE later (id int PRIMARY KEY)")
    until(lambda: len(capture.events("table-stopped")) == 2, "one that comes later stops too")
    last = capture.events("table-stopped")[1]
    assert "GRANT" not in last["fix"] and "source.postgresql.publication" in last["fix"], "its owner is a superuser"
    server.execute(statement)
    until(lambda: ("foreign_one",) in server.execute(PUBLISHED), "it is taken in")
    server.execute("INSERT INTO foreign_one VALUES (7)")
    capture.catch_up()
    assert [r["id"] for r in capture.rows("public.foreign_one")] == [7]
    assert [r["id"] for r in capture.rows("public.t")] == [1]


GENERATED = "(id int PRIMARY KEY, v int, g int GENERATED ALWAYS AS (v * 2) {kind})"
WHOLE_IDENTITIES = {
    "stored_one": "CREATE TABLE {t} " + GENERATED.format(kind="STORED") + "; ALTER TABLE {t} REPLICA IDENTITY FULL",
    "virtual_one": "CREATE TABLE {t} " + GENERATED.format(kind="VIRTUAL") + "; ALTER TABLE {t} REPLICA IDENTITY FULL",
    "a_leaf": "CREATE TABLE {t} " + GENERATED.format(kind="STORED") + " PARTITION BY RANGE (id);"
    " CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (0) TO (100); ALTER TABLE {t}_1 REPLICA IDENTITY FULL",
}  # fmt: skip


def goes_on(server: PostgresServer, table: str) -> None:
    """The application's updates and deletes."""
    server.execute(f"INSERT INTO {table} (id, v) VALUES (1, 1), (2, 2)")
    server.execute(f"UPDATE {table} SET v = v + 1")
    server.execute(f"DELETE FROM {table} WHERE id = 2")


@pytest.mark.postgres(18)
def test_a_table_that_the_server_would_not_let_be_updated_is_not_published(capture: CaptureRun) -> None:
    """Since version 18, with REPLICA IDENTITY FULL and a generated column that the publication does not bring."""
    server = capture.server
    for name, made in WHOLE_IDENTITIES.items():
        server.execute(made.format(t=name))
    started(capture, "CREATE TABLE plain " + GENERATED.format(kind="STORED"))
    stops = until(lambda: (len(e := capture.events("table-stopped")) == 3 and e) or None, "the others stop")
    for name in (*WHOLE_IDENTITIES, "plain"):
        goes_on(server, name)
    for stop in stops:
        assert stop["error"] == "ReadRefused" and "generated column 'g'" in stop["message"]
        server.execute(stop["fix"].split("`")[1])
    server.execute(
        "CREATE TABLE later " + GENERATED.format(kind="STORED") + "; ALTER TABLE plain REPLICA IDENTITY FULL"
    )
    captured = {(name,) for name in (*WHOLE_IDENTITIES, "later")}
    until(lambda: set(server.execute(PUBLISHED)) == captured, "what is mended comes in; what is spoiled leaves")
    for name in (*WHOLE_IDENTITIES, "plain", "later"):
        goes_on(server, name) if name == "later" else server.execute(f"UPDATE {name} SET v = 7")
    capture.catch_up()
    stops = until(lambda: capture.events("table-stopped")[3:], "the spoiled one stops")
    assert [stop["message"].split()[0] for stop in stops] == ['"public"."plain"']
    until(lambda: [r["v"] for r in capture.rows("public.a_leaf")][-1] == 7, "the mended one's change is recorded")


def test_what_is_excluded_leaves_the_publication_and_can_lose_its_key(capture: CaptureRun) -> None:
    """Published without a key, it could not be updated at the source any more."""
    server = started(capture, TABLE + "; CREATE TABLE u (id int PRIMARY KEY, v int)")
    assert server.execute(PUBLISHED) == [("t",), ("u",)]
    assert capture.stop() == 0
    capture.include = ("public.t",)
    capture.start()
    until(lambda: server.execute(PUBLISHED) == [("t",)], "u leaves the publication")
    server.execute("ALTER TABLE u DROP CONSTRAINT u_pkey; INSERT INTO u VALUES (1, 1); UPDATE u SET v = 2")


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ("ALTER TABLE p ALTER v TYPE text USING upper(v)", [(1, "A"), (11, "B")]),
        ("ALTER TABLE p DETACH PARTITION p2", [(1, "a")]),
        ("TRUNCATE p2", [(1, "a")]),
    ],
)
def test_rows_that_changed_without_row_events_during_a_stop_call_for_a_re_read(
    capture: CaptureRun, change: str, rows: list[tuple[int, str]]
) -> None:
    server = started(
        capture,
        "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
        " CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);"
        " CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)",
    )
    server.execute("INSERT INTO p VALUES (1, 'a'), (11, 'b')")
    capture.catch_up()
    assert capture.stop() == 0
    server.execute(change)
    assert server.execute("SELECT id, v FROM p ORDER BY id") == rows
    capture.start()
    until(lambda: [e for e in capture.events("schema-changed") if e["reread"]], "a re-read is called for")


def test_a_new_partition_is_read_again_only_if_it_brought_rows(capture: CaptureRun) -> None:
    server = started(
        capture,
        "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
        " CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
    )
    server.execute("INSERT INTO p VALUES (1, 'a')")
    capture.catch_up()
    server.execute("CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)")
    until(lambda: capture.events("table-fingerprint")[1:], "the new file is recorded")
    server.execute("INSERT INTO p VALUES (11, 'b')")
    capture.catch_up()
    assert capture.events("schema-changed") == []
    assert capture.fold("public.p") == source_rows(server, "p")
    server.execute("CREATE TABLE p3 (id int PRIMARY KEY, v text); INSERT INTO p3 VALUES (21, 'c')")
    server.execute("ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30)")
    until(lambda: [e for e in capture.events("schema-changed") if e["reread"]], "a re-read is called for")


@pytest.mark.postgres(14)
def test_what_is_attached_between_a_killed_first_start_and_the_next_is_captured(capture: CaptureRun) -> None:
    capture.include = ("public.p",)
    capture.server.execute(
        "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
        " CREATE TABLE x (id int PRIMARY KEY, v text)"
    )
    capture.start("capture.after-origin=kill", wait=False)
    capture.wait()
    capture.server.execute("INSERT INTO x VALUES (1, 'a')")
    capture.server.execute("ALTER TABLE p ATTACH PARTITION x FOR VALUES FROM (0) TO (10)")
    capture.start()
    until(lambda: capture.events("table-added"), "the table is captured")
    capture.server.execute("INSERT INTO p VALUES (2, 'b')")
    # Only later rows: until it is asked anew, the server may keep this one back, which a chunk then brings.
    until(
        lambda: (2,) in capture.fold("public.p") or any(e["reread"] for e in capture.events("schema-changed")),
        "the row comes, or is to be read",
    )
    capture.server.execute("INSERT INTO p VALUES (3, 'c')")
    until(lambda: (3,) in capture.fold("public.p"), "later rows come")


def test_a_truncate_shortly_before_a_stop_calls_for_no_re_read(capture: CaptureRun) -> None:
    server = started(capture, TABLE)
    server.execute("INSERT INTO t VALUES (1, 'a'); TRUNCATE t")
    capture.catch_up()
    assert capture.stop() == 0
    capture.start()
    stored = until(lambda: capture.events("table-fingerprint")[1:], "its new files are recorded")
    assert len(stored) == 1
    assert capture.events("schema-changed") == []


def test_a_column_that_was_renamed_during_a_stop_has_its_rows_read_again(capture: CaptureRun) -> None:
    """Its values came under the old name, which nobody knows any more."""
    server = started(capture, TABLE)
    server.execute("INSERT INTO t VALUES (1, 'a')")
    capture.catch_up()
    assert capture.stop() == 0
    server.execute("ALTER TABLE t ADD w int; UPDATE t SET w = 5")
    server.execute("ALTER TABLE t RENAME w TO x")
    capture.start()
    until(lambda: [e for e in capture.events("schema-changed") if e["reread"]], "a re-read is called for")
    until(lambda: "x" in str(capture.events("schema-changed")[-1]["table"]["columns"]), "x is known")
    capture.catch_up()
    check_invariants(capture)
    assert capture.events("table-stopped") == []


def test_a_synchronous_standby_that_does_not_answer_holds_capture_up_nowhere(capture: CaptureRun) -> None:
    server = started(capture, TABLE)
    server.execute("ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
    server.execute("SELECT pg_reload_conf()")
    try:
        with server.connect() as connection:
            connection.execute("SET synchronous_commit = local")
            connection.execute("CREATE TABLE u (id int PRIMARY KEY)")
            until(lambda: len(capture.events("table-added")) == 2, "u is added")
            connection.execute("ALTER TABLE u ADD v int")
            until(lambda: capture.events("schema-changed"), "the marker has come back")
    finally:
        with server.connect() as connection:
            connection.execute("SET synchronous_commit = local")
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")


def test_changes_of_two_tables_close_to_each_other_stop_neither(capture: CaptureRun) -> None:
    """A look at the catalog that is older than the second change must not judge it."""
    server = started(capture, "; ".join(f"CREATE TABLE t{n} (id int PRIMARY KEY)" for n in range(6)))
    stop = threading.Event()

    def migrate() -> None:
        with server.connect() as connection:
            for column in range(12):
                for n in range(6):
                    connection.execute(f"ALTER TABLE t{n} ADD c{column} int".encode())
                    connection.execute(f"INSERT INTO t{n} VALUES ({column})".encode())
                    if stop.wait(0.05):
                        return

    thread = threading.Thread(target=migrate)
    thread.start()
    thread.join(60)
    stop.set()
    capture.catch_up()
    capture.look()
    assert capture.events("table-stopped") == []
    for n in range(6):
        assert [r["id"] for r in capture.rows(f"public.t{n}")] == list(range(12))


def test_why_the_server_ended_the_stream_is_told(capture: CaptureRun) -> None:
    server = started(capture, TABLE)
    sender = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL"
    assert until(lambda: server.execute(sender), "the slot is in use") == [(True,)]
    assert capture.wait() == 1
    assert (capture.fault()["name"], "administrator command" in capture.fault()["message"]) == ("Retry", True)


def test_a_publication_that_is_dropped_is_a_lost_position(capture: CaptureRun) -> None:
    server = started(capture, TABLE)
    server.execute(f"DROP PUBLICATION {made_slot(capture)}")
    server.execute("INSERT INTO t VALUES (1, 'never seen')")
    assert capture.wait() == 12
    assert capture.fault()["name"] == "PositionLost"


def test_text_of_no_encoding_stops_its_table_alone_by_the_log_too(capture: CaptureRun) -> None:
    server = capture.server
    server.execute("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
    capture.source = {"database": "ascii"}
    capture.spec = {"options": [{"match": "*.*", "onUnsupported": "Fail"}]}
    with server.connect(dbname="ascii") as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        connection.execute("CREATE TABLE u (id int PRIMARY KEY, v text)")
        capture.start()
        until(lambda: len(capture.events("table-added")) == 2, "both tables are added")
        connection.execute("INSERT INTO t VALUES (1, convert_from('\\xff41', 'SQL_ASCII'))")
        connection.execute("INSERT INTO u VALUES (1, 'fine')")
        stop = until(lambda: capture.events("table-stopped"), f"t stops\n{capture.tail()}")[0]
        assert (stop["error"], "not UTF-8 (string #" in stop["message"]) == ("ValueUnsupported", True)
        until(lambda: capture.rows("public.u"), "u goes on")


def test_no_foreign_byte_ends_capture(capture: CaptureRun) -> None:
    """Names of schemas, tables, columns, types, enum labels and foreign messages that are not UTF-8."""
    server = capture.server
    server.execute("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
    capture.source, capture.include = {"database": "ascii"}, ("*.*",)
    odd = "convert_from('\\x41ff', 'SQL_ASCII')"
    tables = {
        "CREATE TABLE public.%I (id int PRIMARY KEY)": "public.A\\xff",
        "CREATE TABLE col (id int PRIMARY KEY, %I text)": "public.col",
        "CREATE SCHEMA %1$I CREATE TABLE t (id int PRIMARY KEY)": "A\\xff.t",
        "CREATE SCHEMA o; CREATE TYPE o.%1$I AS (a int);"
        "CREATE TABLE typed (id int PRIMARY KEY, v o.%1$I[])": "public.typed",
        "CREATE TYPE e AS ENUM (''a'', %L); CREATE TABLE labelled (id int PRIMARY KEY, v e)": "public.labelled",
    }

    def run(statement: str) -> None:
        with server.connect(dbname="ascii", client_encoding="LATIN1") as connection:  # takes any bytes back
            connection.execute(f"DO $$BEGIN EXECUTE format('{statement}', {odd}); END$$")

    with server.connect(dbname="ascii", client_encoding="UTF8") as connection:
        connection.execute('CREATE TABLE u (id int PRIMARY KEY); CREATE TABLE "ü" (id int PRIMARY KEY)')
        capture.start()
        for statement in tables:
            run(statement)
        for transactional in ("true", "false"):
            connection.execute(f"SELECT pg_logical_emit_message({transactional}, {odd}, {odd})")
        run("INSERT INTO public.%I VALUES (1)")

        def stops() -> set[str]:
            return {str(event["message"]).split(",")[0] for event in capture.events("table-stopped")}

        wanted = {f"the name of {name}" for name in tables.values()}
        until(lambda: stops() == wanted, f"each of them stops\n{capture.tail()}")
        connection.execute('INSERT INTO u VALUES (1); INSERT INTO "ü" VALUES (1)')
        until(lambda: capture.rows("public.u") and capture.rows("public.ü"), "the others go on")
        run("ALTER TABLE u RENAME id TO %I")
        connection.execute("INSERT INTO u VALUES (2)")
        connection.execute('INSERT INTO "ü" VALUES (2)')
        until(lambda: len(capture.rows("public.ü")) == 2, f"a rename stops u alone\n{capture.tail()}")
        assert capture.stop() == 0
