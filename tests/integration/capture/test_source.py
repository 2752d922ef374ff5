"""Capture and its source: positions that are lost, tables that come, change and go, chunks, idle sources."""

import time
from typing import Any

import pytest

from support import states
from support.capture import CaptureRun, check_invariants, lsn, made_slot, refused, source_rows, started
from support.postgres import PostgresServer
from support.transaction_ids import move_transaction_counter
from support.waiting import until
from tailrace.capture.requests import ChunkTooOld
from tailrace.changelog.records.snapshots import ChunkRegistered, SnapshotPlanned, SnapshotTableStarted
from tailrace.changelog.records.tables import Applied
from tailrace.changelog.records.terms import Seq
from tailrace.errors import Retry

TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text)"


@pytest.mark.postgres(18)
def test_a_slot_that_is_missing_made_anew_or_moved_is_a_lost_position(capture: CaptureRun) -> None:
    server = started(capture, TABLE)
    server.execute("INSERT INTO t VALUES (1, 'a')")
    capture.catch_up()
    assert capture.stop() == 0
    records = len(capture.records())
    slot = made_slot(capture)
    server.drop_slot(slot)
    refused(capture, 12, "PositionLost", slot, "missing")
    server.execute("INSERT INTO t VALUES (2, 'never in the log')")
    server.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    refused(capture, 12, "PositionLost", "after the journal's position")
    assert all(not r["segments"] for r in capture.records()[records:])


@pytest.mark.postgres(14)
def test_a_slot_that_somebody_else_moved_forward_is_a_lost_position(capture: CaptureRun) -> None:
    server = started(capture, TABLE)
    capture.catch_up()
    assert capture.stop() == 0
    server.execute("INSERT INTO t VALUES (1, 'a')")
    server.execute(f"SELECT pg_replication_slot_advance('{made_slot(capture)}', pg_current_wal_lsn())")
    refused(capture, 12, "PositionLost", "advanced it")


@pytest.mark.postgres(18)
def test_a_start_killed_after_its_slot_was_made_begins_again(capture: CaptureRun) -> None:
    capture.server.execute(TABLE)
    for seam in ("capture.after-publication", "capture.after-slot", "capture.after-origin"):
        capture.start(seams=f"{seam}=kill", wait=False)
        assert capture.wait() == -9
    capture.start()
    until(lambda: capture.events("table-added"), "table added")
    capture.server.execute("INSERT INTO t VALUES (1, 'a')")
    capture.catch_up()
    check_invariants(capture)
    assert capture.fold("public.t") == source_rows(capture.server, "t")


@pytest.mark.postgres(18)
def test_an_open_transaction_in_the_slots_way_is_named(capture: CaptureRun) -> None:
    capture.server.execute(TABLE)
    with capture.server.connect(autocommit=False, application_name="in the way") as other:
        other.execute("INSERT INTO t VALUES (1, 'a')")
        capture.start(wait=False)

        def waits() -> bool:
            if not (capture.folder / "c.sock").exists():
                return False
            with capture.client() as client:
                return "'in the way'" in (client.state().waiting_for or "")

        until(waits, "the status names the transaction")
        other.rollback()
    until(lambda: capture.events("table-added"), "table added")


def test_an_idle_source_is_acknowledged_only_after_a_heartbeat_record(capture: CaptureRun) -> None:
    server = started(capture, TABLE + "; CREATE SCHEMA other; CREATE TABLE other.busy (a text)")
    before = capture.records()[-1]["position"]
    server.execute("INSERT INTO other.busy SELECT repeat('x', 100) FROM generate_series(1, 2000)")
    end = lsn(server.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0])
    confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots"
    until(lambda: lsn(server.execute(confirmed)[0][0]) >= end, "the source may forget the neighbour's log")
    assert lsn(server.execute(confirmed)[0][0]) <= capture.records()[-1]["position"]
    beats = [r for r in capture.records() if any(e["kind"] == "heartbeat" for e in r["events"])]
    assert beats and beats[-1]["position"] >= end > before
    assert all(r["last_seq"] == r["first_seq"] - 1 for r in beats)


def test_tables_are_added_and_removed_and_columns_added_while_it_runs(capture: CaptureRun) -> None:
    server = started(capture, TABLE)
    server.execute("CREATE TABLE u (id int PRIMARY KEY, v text)")
    until(lambda: len(capture.events("table-added")) == 2, "u is added")
    server.execute("INSERT INTO u VALUES (1, 'a'); ALTER TABLE u ADD COLUMN w int; INSERT INTO u VALUES (2, 'b', 5)")
    server.execute("ALTER TABLE t ADD COLUMN x int DEFAULT 3")
    until(lambda: len(capture.events("schema-changed")) == 2, "both changes are seen")
    changed = {e["table"]["table_name"]: e for e in capture.events("schema-changed")}
    assert (changed["u"]["seq"], changed["u"]["reread"]) == (1, False)
    assert changed["t"]["reread"] is True
    server.execute("DROP TABLE u")
    until(lambda: capture.events("table-removed"), "u is removed")
    server.execute("INSERT INTO t VALUES (1, 'a', 4)")
    capture.catch_up()
    check_invariants(capture)
    assert [(r["id"], r.get("w")) for r in capture.rows("public.u")] == [(1, None), (2, 5)]
    assert capture.fold("public.t") == source_rows(server, "t")


def test_a_change_that_cannot_be_followed_stops_its_table_alone(capture: CaptureRun) -> None:
    capture.spec = {"options": [{"match": "public.d", "onUnsupported": "Fail"}], "onSchemaChange": "EvolveAdditive"}
    server = started(capture, TABLE + "; CREATE TABLE d (id int PRIMARY KEY, day date)")
    server.execute("INSERT INTO t VALUES (1, 'a'); ALTER TABLE t RENAME COLUMN v TO w; INSERT INTO t VALUES (2, 'b')")
    server.execute("INSERT INTO d VALUES (1, '2020-01-01'); INSERT INTO d VALUES (2, 'infinity'), (3, '2020-01-02')")
    server.execute("CREATE TABLE ok (id int PRIMARY KEY)")
    until(lambda: len(capture.events("table-stopped")) == 2, "both tables stop")
    until(lambda: len(capture.events("table-added")) == 3, "ok is added")
    server.execute("INSERT INTO ok VALUES (1)")
    capture.catch_up()
    check_invariants(capture)
    assert {e["error"] for e in capture.events("table-stopped")} == {"SchemaChangeUnsupported", "ValueUnsupported"}
    assert [r["id"] for r in capture.rows("public.t")] == [1]
    assert [r["id"] for r in capture.rows("public.d")] == [1]
    assert [r["id"] for r in capture.rows("public.ok")] == [1]


def chunk(table_id: int, high: int, number: int = 0, version: int = 1) -> ChunkRegistered:
    """What lies behind the table's largest key, 1, or in front of it. `version`: of the schema that it was read for."""
    end = ("1",)
    bounds = {"lower": end if number == 0 else None, "upper": None if number == 0 else end}
    return states.chunk(table_id, number, schema_version=version, replay_point=0, high=high, **bounds)


def read_chunk(server: PostgresServer) -> tuple[str, int]:
    """Snapshot and `high` of a chunk read now."""
    snapshot = server.execute("SELECT pg_current_snapshot()::text")[0][0]
    return snapshot, lsn(server.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0])


def test_a_chunk_is_replayed_from_the_first_transaction_that_it_did_not_see(capture: CaptureRun) -> None:
    server = started(capture, TABLE)
    table_id = capture.events("table-added")[0]["table"]["table_id"]
    server.execute("INSERT INTO t VALUES (1, 'a')")
    snapshot, _ = read_chunk(server)
    for n in range(2, 5):
        server.execute("INSERT INTO t VALUES (%s, 'later')", (n,))
    _, high = read_chunk(server)
    with capture.client() as client:
        client.begin_chunks(("s", table_id, 0))
        with pytest.raises(Retry, match="RecordRefused"):
            client.register_chunk(chunk(table_id, high), snapshot, ["id", "v"])
        plan = SnapshotPlanned(snapshot_id="s", tables=(table_id,))
        start = SnapshotTableStarted(snapshot_id="s", table_id=table_id, max_key=("1",), estimated_rows=4)
        client.append([plan, start])
        record, point = client.register_chunk(chunk(table_id, high), snapshot, ["id", "v"])
        assert point == 2
        assert capture.records()[record]["position"] >= high
        begin = time.monotonic()
        snapshot, high = read_chunk(server)
        _, point = client.register_chunk(chunk(table_id, high, 1), snapshot, ["id", "v"])
        assert point == 5
        assert time.monotonic() - begin < 5, "an idle server's chunk waits for its flush"
        with pytest.raises(ChunkTooOld):
            client.register_chunk(chunk(table_id, high, 2), snapshot, ["id", "nothing"])
        with pytest.raises(ChunkTooOld, match="no part of its snapshot: it does not begin where"):
            client.register_chunk(chunk(table_id, high, 2), snapshot, ["id", "v"])
        client.report_applied([Applied(table_id=table_id, applied_seq=Seq(4), applied_record=record)], [])
    server.execute("INSERT INTO t VALUES (9, 'x')")
    until(lambda: capture.events("applied"), "applied is recorded")
    found: list[dict[str, Any]] = capture.events("chunk-registered")
    assert [(e["replay_point"], e["schema_version"]) for e in found] == [(2, 1), (5, 1)]


def test_a_chunk_with_a_new_column_is_not_replayed_from_before_it(capture: CaptureRun) -> None:
    """Another table's commit stalls: in the log, not visible. The row from before the ALTER has no default in it."""
    server = started(capture, TABLE + "; CREATE TABLE u (id int PRIMARY KEY)")
    until(lambda: len(capture.events("table-added")) == 2, "both tables are added")
    stalled = server.execute("INSERT INTO u VALUES (1) RETURNING pg_current_xact_id()::text")[0][0]
    server.execute("INSERT INTO t VALUES (1, 'a'); ALTER TABLE t ADD COLUMN x int DEFAULT 3")
    until(lambda: capture.events("schema-changed"), "the column is seen")
    (table_id,) = {e["table"]["table_id"] for e in capture.events("schema-changed")}
    snapshot, high = read_chunk(server)
    snapshot = f"{stalled}:{snapshot.split(':')[1]}:{stalled}"
    with capture.client() as client:
        plan = SnapshotPlanned(snapshot_id="s", tables=(table_id,))
        start = SnapshotTableStarted(snapshot_id="s", table_id=table_id, max_key=("1",), estimated_rows=1)
        client.append([plan, start])
        client.begin_chunks(("s", table_id, 0))
        _, point = client.register_chunk(chunk(table_id, high, version=2), snapshot, ["id", "v", "x"])
    assert point == 3


@pytest.mark.postgres(18)
def test_a_chunk_that_was_read_before_a_re_read_was_called_for_is_refused(capture: CaptureRun) -> None:
    """Registered behind the re-read's chunks, it would bring back what those have replaced."""
    server = started(capture, TABLE + "; INSERT INTO t VALUES (1, 'a')")
    (table_id,) = {e["table"]["table_id"] for e in capture.events("table-added")}
    with capture.client() as client:
        plan = SnapshotPlanned(snapshot_id="s", tables=(table_id,))
        client.append(
            [plan, SnapshotTableStarted(snapshot_id="s", table_id=table_id, max_key=("1",), estimated_rows=1)]
        )
        client.begin_chunks(("s", table_id, 0))
        snapshot, high = read_chunk(server)
        server.execute("ALTER TABLE t ALTER v TYPE text USING v || ' silent'")
        (changed,) = until(lambda: capture.events("schema-changed"), "the rewrite is seen")
        assert changed["reread"]
        with pytest.raises(ChunkTooOld, match="read again"):
            client.register_chunk(chunk(table_id, high), snapshot, ["id", "v"])
        client.begin_chunks(("s", table_id, 0))
        snapshot, high = read_chunk(server)
        client.register_chunk(chunk(table_id, high, version=2), snapshot, ["id", "v"])


@pytest.mark.postgres(14)
def test_transaction_ids_stay_long_across_their_wraparound(capture: CaptureRun) -> None:
    server = capture.server
    move_transaction_counter(server, epoch=3, xid=2**32 - 40)
    started(capture, TABLE)
    expected = []
    with server.connect() as connection:
        for n in range(60):
            with connection.transaction():
                row = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
                assert row is not None
                expected.append(int(row[0]))
                connection.execute("INSERT INTO t VALUES (%s, 'a')", (n,))
    capture.catch_up()
    assert expected[0] < 4 << 32 < expected[-1]
    assert [x for r in capture.records() for x in r["transactions"]["numbers"]] == expected
