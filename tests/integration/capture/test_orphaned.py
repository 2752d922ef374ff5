"""A capture whose driver was killed for good: it ends by itself, and nothing is lost."""

import time

from support.capture import CaptureRun, check_invariants, source_rows
from support.waiting import until


def slot_active(run: CaptureRun) -> bool:
    return bool(run.server.execute("SELECT bool_or(active) FROM pg_replication_slots")[0][0])


def test_a_capture_without_a_driver_ends_cleanly_and_goes_on_when_one_comes(capture: CaptureRun) -> None:
    """It wrote segments that nobody trimmed, until the disk was full."""
    capture.arguments = ("--without-driver", "4")
    server = capture.server
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    capture.start()
    until(lambda: capture.events("table-added"), "table added")
    for number in range(12):  # for longer than it would stay alone
        with capture.client() as driver:
            driver.state()
        server.execute("INSERT INTO t VALUES (%s, 'seen')", (number,))
        time.sleep(0.5)
    assert capture.process is not None
    assert capture.process.poll() is None, "a driver that asks now and then keeps it"
    assert capture.wait(20) == 0
    assert "no driver has asked" in capture.tail()
    until(lambda: not slot_active(capture), "the slot is free")
    server.execute("INSERT INTO t SELECT g, 'missed' FROM generate_series(100, 110) g")
    capture.arguments = ()
    capture.start()
    capture.catch_up()
    check_invariants(capture)
    assert capture.fold("public.t") == source_rows(server, "public.t")
    assert capture.stop() == 0
