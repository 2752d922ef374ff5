"""Capture on a real server: what the change log tells equals what the source holds."""

import random
import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from support.capture import CaptureRun, check_invariants, lsn, source_rows
from support.postgres import PostgresServer
from support.waiting import until
from tailrace.changelog.records.snapshots import SnapshotPlanned

SEAMS = ("capture.after-segments", "capture.before-ack", "journal.before-create", "journal.after-create")
TABLE = """
CREATE TABLE t (id int PRIMARY KEY, v int, name text, big text, amount numeric(12, 3), at timestamptz);
ALTER TABLE t ALTER big SET STORAGE EXTERNAL
"""
MakeRun = Callable[..., CaptureRun]


def compare(run: CaptureRun, table: str = "public.t") -> None:
    run.catch_up()
    check_invariants(run)
    assert run.fold(table) == source_rows(run.server, table)


@pytest.mark.parametrize(
    "major", [pytest.param(14, marks=pytest.mark.postgres(14)), pytest.param(18, marks=pytest.mark.postgres(18))]
)
def test_every_kind_of_change_comes_out_of_the_log_as_the_source_has_it(capture: CaptureRun, major: int) -> None:
    server = capture.server
    server.execute(TABLE)
    capture.start()
    until(lambda: capture.events("table-added"), "table added")
    server.execute(
        "INSERT INTO t SELECT g, g, 'n' || g, repeat('x', 9000) || g, g / 7.0, now() FROM generate_series(1, 50) g"
    )
    server.execute("UPDATE t SET v = v + 1 WHERE id % 3 = 0")
    server.execute("UPDATE t SET id = id + 1000 WHERE id % 5 = 0")
    server.execute("UPDATE t SET big = 'small' WHERE id = 1005; DELETE FROM t WHERE id < 4")
    compare(capture)
    moves = [r for r in capture.rows("public.t") if r["_op"] == "M"]
    assert len(moves) == 10
    assert all(r["_unchanged"] == [3] and r["_old_key"]["id"] == r["id"] - 1000 for r in moves)
    server.execute("TRUNCATE t; INSERT INTO t VALUES (7, NULL, NULL, NULL, NULL, NULL)")
    compare(capture)
    assert len(capture.events("truncated")) == 1
    assert capture.stop() == 0


@pytest.mark.postgres(18)
def test_while_the_driver_asks_for_longer_records_there_are_fewer(capture: CaptureRun) -> None:
    server = capture.server
    server.execute("CREATE TABLE t (id int PRIMARY KEY)")
    capture.spec = {"apply": {"freshness": "200ms"}}
    capture.start()
    until(lambda: capture.events("table-added"), "table added")
    capture.catch_up()
    with capture.client() as client:
        before, begun = client.state().record, time.monotonic()
        for number in range(30):
            server.execute(f"INSERT INTO t VALUES ({number})")
            client.state(client.state().record, 0.05, record_seconds=1.0)
        made, took = client.state().record - before, time.monotonic() - begun
        assert made <= took + 2, "30 transactions, each 0.05 s after the other, and a record a second"
        for number in range(30, 40):
            server.execute(f"INSERT INTO t VALUES ({number})")
    capture.catch_up()
    assert len(capture.rows("public.t")) == 40


@pytest.mark.postgres(18)
def test_full_replica_identity_takes_unchanged_values_from_the_old_row(capture: CaptureRun) -> None:
    server = capture.server
    server.execute(TABLE + "; ALTER TABLE t REPLICA IDENTITY FULL")
    capture.start()
    until(lambda: capture.events("table-added"), "table added")
    server.execute("INSERT INTO t SELECT g, g, 'n', repeat('x', 9000) || g, 1, now() FROM generate_series(1, 10) g")
    server.execute("UPDATE t SET v = 0; UPDATE t SET id = -id WHERE id > 5; DELETE FROM t WHERE id = 1")
    compare(capture)
    assert all(r["_unchanged"] is None for r in capture.rows("public.t"))


@pytest.mark.postgres(14, logical_decoding_work_mem="64kB")
def test_streamed_transactions_with_aborted_savepoints_bring_only_what_was_committed(capture: CaptureRun) -> None:
    server = capture.server
    server.execute(TABLE)
    capture.start()
    until(lambda: capture.events("table-added"), "table added")
    insert = "INSERT INTO t SELECT g, 0, 'n', repeat('y', 100), 1, now() FROM generate_series(%s::int, %s::int) g"
    with server.connect(autocommit=False) as one, server.connect(autocommit=False) as two:
        for round_ in range(6):
            base = round_ * 1000
            one.execute(insert, (base, base + 300))
            one.execute("SAVEPOINT s")
            one.execute(insert, (base + 301, base + 600))
            one.execute("SAVEPOINT inner_one")
            one.execute("UPDATE t SET v = v + 1 WHERE id >= %s", (base,))
            one.execute("ROLLBACK TO SAVEPOINT s" if round_ % 2 else "RELEASE SAVEPOINT s")
            two.execute(insert, (100_000 + base, 100_000 + base + 400))
            server.execute("INSERT INTO t VALUES (%s, 1, 'plain', NULL, 1, now())", (-1 - round_,))
        two.rollback()
        one.execute(
            "DO $$ BEGIN FOR i IN 1..200 LOOP BEGIN UPDATE t SET v = v + 10 WHERE id = i;"
            " IF i % 2 = 0 THEN RAISE EXCEPTION 'undo'; END IF; EXCEPTION WHEN others THEN NULL; END; END LOOP; END $$"
        )
        one.commit()
    compare(capture)
    assert len(source_rows(server, "t")) > 1000


@pytest.mark.parametrize("seam", SEAMS)
@pytest.mark.parametrize("visit", [1, 3])
def test_killed_at_a_seam_it_goes_on_without_loss_or_repetition(capture: CaptureRun, seam: str, visit: int) -> None:
    server = capture.server
    server.execute(TABLE)
    capture.start()
    until(lambda: capture.events("table-added"), "table added")
    assert capture.stop() == 0
    capture.start(seams=f"{seam}=kill@{visit}", wait=False)
    written = write_until_dead(capture)
    assert capture.wait() == -9
    assert_not_ahead(capture)
    capture.start()
    compare(capture)
    assert len(capture.rows("public.t")) == written
    assert_not_ahead(capture)


def write_until_dead(run: CaptureRun) -> int:
    """Small transactions, each with one row, some 20 more after the process has died; how many rows."""
    assert run.process is not None
    rows = left = 20
    with run.server.connect() as connection:
        while left:
            left -= run.process.poll() is not None
            rows += 1
            connection.execute("INSERT INTO t (id, v) VALUES (%s, 0)", (rows,))
            connection.execute("SELECT pg_sleep(0.01)")
    return rows - 20


def assert_not_ahead(run: CaptureRun) -> None:
    """The source may forget only what a durable record holds."""
    confirmed = run.server.execute("SELECT confirmed_flush_lsn::text FROM pg_replication_slots")[0][0]
    assert lsn(confirmed) <= run.records()[-1]["position"]


def test_concurrent_writers_and_random_kills_leave_the_log_equal_to_the_source(capture: CaptureRun) -> None:
    server = capture.server
    server.execute(TABLE)
    capture.start()
    until(lambda: capture.events("table-added"), "table added")
    stop = threading.Event()
    threads = [threading.Thread(target=write, args=(server, seed, stop)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        stop.wait(1.2)
        capture.kill()
        assert_not_ahead(capture)
        capture.start()
    stop.set()
    for thread in threads:
        thread.join()
    compare(capture)


def write(server: PostgresServer, seed: int, stop: threading.Event) -> None:
    chance = random.Random(seed)
    with server.connect() as connection:
        while not stop.is_set():
            key = chance.randint(1, 40)
            try:
                change(connection, chance, key)
            except psycopg.errors.UniqueViolation:
                continue


def change(connection: "psycopg.Connection[object]", chance: random.Random, key: int) -> None:
    with connection.transaction():
        for _ in range(chance.randint(1, 3)):
            what = chance.random()
            if what < 0.4:
                connection.execute("UPDATE t SET v = v + 1 WHERE id = %s", (key,))
            elif what < 0.6:
                connection.execute("DELETE FROM t WHERE id = %s", (key,))
            elif what < 0.75:
                connection.execute("UPDATE t SET id = id + 20 WHERE id = %s", (key,))
            else:
                row = "(%s, 0, 'n', repeat('z', 3000) || %s::text, 1.5, now())"
                insert = f"INSERT INTO t VALUES {row} ON CONFLICT DO NOTHING"
                connection.execute(insert, (key, chance.random()))


BIG = """
INSERT INTO t (id, v, name, big) SELECT g, g, 'big', repeat(md5(g::text), 30) FROM generate_series(1, 100000) g;
UPDATE t SET v = -v WHERE id % 7 = 0;
DELETE FROM t WHERE id % 11 = 0
"""


def unnamed(run: CaptureRun) -> set[str]:
    """Segments of a transaction that is still being read: no record names them yet."""
    log = run.folder / "log"
    there = {str(path.relative_to(log)) for path in log.glob("segments/*/[0-9]*")}
    return there - {segment["path"] for record in run.records() for segment in record["segments"]}


@pytest.mark.postgres(18, logical_decoding_work_mem="1GB")  # not streamed: it is decoded as it comes
def test_a_transaction_of_many_blocks_is_one_in_the_log_beside_a_kill_requests_and_other_tables(
    capture: CaptureRun,
) -> None:
    server = capture.server
    server.execute(TABLE)
    server.execute("CREATE TABLE u (id int PRIMARY KEY)")
    capture.start()
    until(lambda: len(capture.events("table-added")) == 2, "tables added")
    server.execute("INSERT INTO t (id) VALUES (-1)")
    capture.catch_up()
    server.execute(f"BEGIN; {BIG}; COMMIT")
    until(lambda: len(unnamed(capture)) > 1, "blocks of the transaction are written")
    capture.kill()
    left = unnamed(capture)
    assert left, "it was killed in the midst of the transaction"
    capture.start(wait=False)
    server.execute("INSERT INTO u VALUES (1); ALTER TABLE u ADD COLUMN w int")
    (u,) = (e["table"]["table_id"] for e in capture.events("table-added") if e["table"]["table_name"] == "u")
    until(lambda: unnamed(capture) - left, "blocks are written again")
    asked = 0
    with capture.client() as client:
        while unnamed(capture) - left:
            client.append([SnapshotPlanned(snapshot_id=f"s{asked}", request=f"s{asked}", tables=(u,))])
            asked += 1
    assert asked > 1, "what is asked for is recorded before the transaction's end"
    server.execute("INSERT INTO u VALUES (2, 3)")
    compare(capture)
    assert {key: {"w": None} | row for key, row in capture.fold("public.u").items()} == source_rows(server, "u")
    holding = [r for r in capture.records() if any(s["rows"] > 5000 for s in r["segments"])]
    assert len(holding) == 1 and len(holding[0]["segments"]) > 2, "one record, of several blocks"
