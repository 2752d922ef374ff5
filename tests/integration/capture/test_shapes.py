"""Sources of other shapes: names that are given, partitions, prepared transactions, a log that the server has lost."""

import pytest

from support.capture import CaptureRun, check_invariants, refused, source_rows, started
from support.waiting import until

TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text)"


@pytest.mark.parametrize(
    "major", [pytest.param(14, marks=pytest.mark.postgres(14)), pytest.param(18, marks=pytest.mark.postgres(18))]
)
def test_a_slot_and_a_publication_that_are_given_are_used_as_they_are(capture: CaptureRun, major: int) -> None:
    server = capture.server
    server.execute(TABLE + "; CREATE TABLE u (id int PRIMARY KEY); CREATE PUBLICATION mine FOR TABLE t")
    server.execute("SELECT pg_create_logical_replication_slot('mine', 'pgoutput')")
    capture.source = {"postgresql": {"slot": "mine", "publication": "mine"}}
    capture.start()
    stop = until(lambda: capture.events("table-stopped"), "what is not published stops")[0]
    assert (stop["error"], "public.u" in stop["message"]) == ("ReadRefused", True)
    server.execute("INSERT INTO t VALUES (1, 'a')")
    assert server.execute("SELECT slot_name::text FROM pg_replication_slots") == [("mine",)]
    assert server.execute("SELECT pubname::text FROM pg_publication") == [("mine",)]
    server.execute(stop["fix"].split("`")[1])
    until(lambda: len(capture.events("table-added")) == 3, "what is published then is taken in")
    server.execute("INSERT INTO u VALUES (2)")
    capture.catch_up()
    check_invariants(capture)
    assert capture.fold("public.t") == source_rows(server, "t")
    assert [r["id"] for r in capture.rows("public.u")] == [2]


def test_a_given_slot_that_is_not_there_is_named_with_the_statement_that_makes_it(capture: CaptureRun) -> None:
    capture.server.execute(TABLE)
    capture.source = {"postgresql": {"slot": "mine"}}
    refused(capture, 10, "SourceRefused", "slot mine", "does not exist")
    assert "pg_create_logical_replication_slot('mine', 'pgoutput')" in capture.fault()["fix"]


def test_rows_of_partitions_come_as_rows_of_their_root(capture: CaptureRun) -> None:
    server = started(
        capture,
        "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
        " CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);"
        " CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)",
    )
    server.execute(
        "INSERT INTO p VALUES (1, 'a'), (11, 'b'); UPDATE p SET id = 12 WHERE id = 1; DELETE FROM p2 WHERE id = 11"
    )
    capture.catch_up()
    check_invariants(capture)
    assert [e["table"]["table_name"] for e in capture.events("table-added")] == ["p"]
    assert capture.fold("public.p") == source_rows(server, "p")
    server.execute("TRUNCATE p; INSERT INTO p VALUES (3, 'c')")
    capture.catch_up()
    assert capture.fold("public.p") == source_rows(server, "p")


@pytest.mark.postgres(18, max_prepared_transactions=5, logical_decoding_work_mem="64kB")
def test_a_prepared_transaction_comes_when_it_is_committed_also_after_a_kill(capture: CaptureRun) -> None:
    server = started(capture, TABLE)
    for number, name in enumerate(("kept", "undone")):
        with server.connect() as connection:
            first = number * 10_000
            connection.execute("BEGIN")
            connection.execute(
                "INSERT INTO t SELECT g, repeat('x', 50) FROM generate_series(%s::int, %s::int) g",
                (first, first + 3000),
            )
            connection.execute(f"PREPARE TRANSACTION '{name}'".encode())
    server.execute("INSERT INTO t VALUES (-1, 'between')")
    capture.catch_up()
    assert [r["id"] for r in capture.rows("public.t")] == [-1]
    capture.kill()
    server.execute("ROLLBACK PREPARED 'undone'")
    server.execute("COMMIT PREPARED 'kept'")
    capture.start()
    capture.catch_up()
    check_invariants(capture)
    assert capture.fold("public.t") == source_rows(server, "t")
    assert len(capture.rows("public.t")) == 3002


@pytest.mark.postgres(18, max_slot_wal_keep_size="1MB", min_wal_size="32MB", max_wal_size="48MB")
def test_a_slot_whose_log_the_server_has_removed_is_a_lost_position(capture: CaptureRun) -> None:
    server = started(capture, TABLE)
    capture.catch_up()
    assert capture.stop() == 0
    for _ in range(4):
        server.execute("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 8 * 1024 * 1024))")
        server.execute("SELECT pg_switch_wal()")
    server.execute("CHECKPOINT")
    assert server.execute("SELECT wal_status FROM pg_replication_slots") == [("lost",)]
    refused(capture, 12, "PositionLost", "lost its log")
