"""A slot that PostgreSQL itself cannot decode: told as a lost position, with its repair, not tried for ever."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.capture import CaptureRun, refused
from support.postgres import PostgresServer
from support.waiting import until
from tailrace.capture.renewal import Renewal
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage

WAITS = "SELECT transactionid::text FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"
STALLED = "SELECT backend_xid::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@contextmanager
def stalled_truncate(server: PostgresServer) -> Iterator[str]:
    """The xid of a TRUNCATE whose commit is in the log and waits for a standby that never answers."""

    def stall(names: str) -> None:
        server.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        server.execute("SELECT pg_reload_conf()")

    hangs = threading.Event()

    def truncate() -> None:
        while not hangs.is_set():  # the setting takes a moment; what commits before it does no harm
            server.execute("TRUNCATE t")

    thread = threading.Thread(target=truncate)
    stall("ghost")
    thread.start()
    try:
        xid = until(lambda: server.execute(STALLED), "a TRUNCATE hangs in its commit")[0][0]
        hangs.set()
        yield xid
    finally:
        hangs.set()
        stall("")
        thread.join(60)


@pytest.mark.parametrize(
    "major", [pytest.param(14, marks=pytest.mark.postgres(14)), pytest.param(18, marks=pytest.mark.postgres(18))]
)
def test_a_slot_made_beside_a_truncate_that_the_server_then_forgets_is_a_lost_position(
    capture: CaptureRun, major: int
) -> None:
    """A transaction that begins while the slot is made is decoded by a catalog of that moment. Of one whose commit is
    in the log, and which other sessions do not see yet, the server takes note neither as running nor as over."""
    server = capture.server
    server.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    server.execute("CREATE PUBLICATION given FOR TABLE t, u")
    with server.connect() as old, server.connect() as young:
        old.autocommit = young.autocommit = False
        held = str(old.execute("SELECT pg_current_xact_id()").fetchall()[0][0])
        making = threading.Thread(
            target=server.execute, args=("SELECT pg_create_logical_replication_slot('given', 'pgoutput')",)
        )
        making.start()
        until(lambda: (held,) in server.execute(WAITS), "the slot waits for the old transaction")
        with stalled_truncate(server) as xid:
            old.rollback()
            until(lambda: (xid,) in server.execute(WAITS), "the slot waits for the TRUNCATE")
            young.execute("INSERT INTO u VALUES (1)")
        making.join(60)
        young.execute("INSERT INTO t VALUES (1)")
        young.commit()
    capture.source = {"postgresql": {"slot": "given", "publication": "given"}}
    refused(capture, 12, "PositionLost", "cannot decode its log", "could not map file")
    repaired(capture)


def repaired(capture: CaptureRun) -> None:
    """As the error says: a resync alone begins with the same slot, which the manifest names."""
    fix, server = capture.fault()["fix"], capture.server
    first, _, then = fix.partition(". Run ")
    assert then.startswith("`tailrace resync -f <manifest> --all`"), fix
    for statement in first.partition(": ")[2].split("; "):
        server.execute(statement)
    Renewal(id="again", request="again").write(
        Storage.open(StorageLocation(location=(capture.folder / "log").as_uri()))
    )
    capture.start()
    server.execute("INSERT INTO t VALUES (2)")
    capture.catch_up()
    assert [row["id"] for row in capture.rows("public.t")] == [2]
