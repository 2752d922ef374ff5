"""Ways back by resync, up to the change log: a stopped table, and a stream whose position is lost."""

from pathlib import Path

import pytest

from support.capture import CaptureRun, refused, source_rows, started
from support.postgres import PostgresServer
from support.waiting import until
from tailrace.capture.renewal import Renewal
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records.snapshots import SnapshotPlanned
from tailrace.changelog.state import LogState
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage

TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text)"


def storage(capture: CaptureRun) -> Storage:
    return Storage.open(StorageLocation(location=Path(capture.folder / "log").as_uri()))


def state(capture: CaptureRun) -> LogState:
    reader = JournalReader.open(storage(capture))
    while reader.poll():
        pass
    return reader.state


def test_a_resync_takes_a_stopped_table_in_again_as_it_is_now(capture: CaptureRun) -> None:
    server = started(capture, TABLE)
    server.execute("INSERT INTO t VALUES (1, 'a')")
    capture.catch_up()
    (table,) = state(capture).tables.values()
    server.execute("ALTER TABLE t DROP COLUMN v, ADD COLUMN w int")
    until(lambda: state(capture).tables[table.table_id].stopped, "the table stops")
    plan = SnapshotPlanned(snapshot_id="again", request="again", tables=(table.table_id,), resync=True)
    with capture.client() as client:
        record = client.append([plan])
    until(lambda: state(capture).tables[table.table_id].resync == "again", "the table is taken in again")
    again = state(capture).tables[table.table_id]
    assert again.stopped is None and [c.name for c in again.schema.columns] == ["id", "w"]
    assert again.generation > record > table.generation
    server.execute("INSERT INTO t VALUES (2, 7)")
    capture.catch_up()
    assert [s.segment.inserts for s in state(capture).tables[table.table_id].segments] == [1]
    capture.look()
    assert state(capture).tables[table.table_id].generation == again.generation, "asked once, done once"


@pytest.mark.parametrize("seam", ["", "capture.renewal-slot", "capture.renewal-record"])
def test_after_the_position_was_lost_the_stream_begins_anew_in_the_same_log(capture: CaptureRun, seam: str) -> None:
    server = started(capture, TABLE)
    server.execute("INSERT INTO t VALUES (1, 'a')")
    capture.catch_up()
    before = state(capture)
    assert capture.stop() == 0
    slot = server.execute("SELECT slot_name::text FROM pg_replication_slots")[0][0]
    server.drop_slot(slot)
    server.execute("INSERT INTO t VALUES (2, 'lost')")
    refused(capture, 12, "PositionLost", "is missing")
    Renewal(id="again", request="again").write(storage(capture))
    if seam:
        capture.start(seams=f"{seam}=kill", wait=False)
        capture.wait()
    capture.start()
    until(lambda: any(not t.removed for t in state(capture).tables.values()), "the table is taken in again")
    after = state(capture)
    assert after.renewed == "again" and Renewal.read(storage(capture)) is None
    (table,) = after.tables.values()
    assert table.generation > before.number and table.resync == "again" and not table.removed
    assert after.snapshots["again"].plan.tables == (table.table_id,), "one snapshot reads all"
    assert not after.transactions.starts, "old transaction ids decide nothing any more"
    server.execute("INSERT INTO t VALUES (3, 'c')")
    capture.catch_up()
    assert capture.stop() == 0
    capture.start()
    server.execute("UPDATE t SET v = 'd' WHERE id = 3")
    capture.catch_up()
    assert state(capture).tables[table.table_id].generation == table.generation, "the next start renews nothing"
    assert capture.fold("public.t")[(3,)] == source_rows(server, "t")[(3,)]


@pytest.mark.postgres(18, max_slot_wal_keep_size="1MB", wal_keep_size="0", max_wal_size="32MB")
def test_a_slot_whose_log_the_server_removed_is_replaced_by_a_resync(capture: CaptureRun) -> None:
    server = started(capture, TABLE)
    server.execute("INSERT INTO t VALUES (1, 'a')")
    capture.catch_up()
    before = state(capture)
    assert capture.stop() == 0
    lose_log(server)
    refused(capture, 12, "PositionLost", "has lost its log")
    assert "`tailrace resync -f <manifest> --all`" in capture.fault()["fix"]
    Renewal(id="again", request="again").write(storage(capture))
    capture.start()
    until(lambda: any(not t.removed for t in state(capture).tables.values()), "the table is added again")
    (table,) = state(capture).tables.values()
    assert state(capture).renewed == "again" and table.generation > before.number
    server.execute("INSERT INTO t VALUES (3, 'c')")
    capture.catch_up()
    assert capture.rows("public.t")[-1]["id"] == 3


@pytest.mark.postgres(18, max_slot_wal_keep_size="1MB", wal_keep_size="0", max_wal_size="32MB")
def test_a_given_slot_whose_log_the_server_removed_is_re_created_by_hand(capture: CaptureRun) -> None:
    server = capture.server
    make = "SELECT pg_create_logical_replication_slot('given', 'pgoutput')"
    server.execute(TABLE)
    server.execute(make)
    capture.source = {"postgresql": {"slot": "given"}}
    started(capture, "SELECT 1")
    capture.catch_up()
    assert capture.stop() == 0
    lose_log(server)
    Renewal(id="again", request="again").write(storage(capture))
    refused(capture, 10, "SourceRefused", "slot given needs")
    assert "pg_drop_replication_slot('given')" in capture.fault()["fix"] and make in capture.fault()["fix"]
    server.drop_slot("given")
    server.execute(make)
    capture.start()
    until(lambda: state(capture).renewed == "again", "the stream begins again")


def lose_log(server: PostgresServer) -> None:
    """Until the server has removed log that the slot needs."""

    def lost() -> bool:
        server.execute("SELECT pg_logical_emit_message(false, 'test', repeat('x', 1000)); SELECT pg_switch_wal()")
        server.execute("CHECKPOINT")
        return server.execute("SELECT wal_status FROM pg_replication_slots") == [("lost",)]

    until(lost, "the slot is lost")
