"""Columns that `options[].columns` leaves out while their rows go past, and that are wanted before a look at the
catalog has shown them: nothing else tells them from new ones."""

from typing import Any

import pytest

from support.capture import CaptureRun, started
from support.postgres import PostgresServer
from support.waiting import until

TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')"
RARELY = {"poll": 1000.0, "rarest_poll": 1000.0}
ONLY_V = [{"match": "public.t", "columns": ["v"]}]
ALL: list[Any] = []


def again(capture: CaptureRun, options: list[Any]) -> None:
    """Capture starts over with other options, and looks at the catalog as often as it does."""
    capture.close()
    capture.timing = {}
    capture.spec = {**capture.spec, "options": options}
    capture.start()


def changed(capture: CaptureRun) -> list[dict[str, Any]]:
    """The last schema version, once it has the column `w`."""

    def has_w() -> list[dict[str, Any]]:
        found = capture.events("schema-changed")[-1:]
        return [e for e in found if "w" in {c["name"] for c in e["table"]["columns"]}]

    found: list[dict[str, Any]] = until(has_w, f"w is copied\n{capture.tail()}")
    return found


def write(capture: CaptureRun, server: PostgresServer, statement: str) -> None:
    server.execute(statement)
    capture.catch_up()


@pytest.mark.parametrize("policy", ["Evolve", "EvolveAdditive"])
def test_a_column_that_came_and_was_left_out_is_read_once_it_is_wanted(capture: CaptureRun, policy: str) -> None:
    capture.spec, capture.timing = {"options": ONLY_V, "onSchemaChange": policy}, RARELY
    server = started(capture, TABLE)
    write(capture, server, "ALTER TABLE t ADD COLUMN w int; UPDATE t SET w = 5")
    again(capture, ALL)
    write(capture, server, "UPDATE t SET v = 'b'")
    (event,) = changed(capture)
    assert event["reread"] and event["edge"]


def test_nor_is_it_taken_for_a_new_one_after_two_changes_of_the_options(capture: CaptureRun) -> None:
    """Of the first of them no look was acted on: rows are read, and the process dies."""
    capture.timing = RARELY
    server = started(capture, TABLE)
    capture.kill()
    server.execute("ALTER TABLE t ADD COLUMN w int; UPDATE t SET w = 5")
    capture.spec = {"options": ONLY_V}
    while not capture.rows("public.t"):  # the first record may have none of them
        capture.start(seams="capture.before-ack=kill", wait=False)
        capture.wait()
    again(capture, ALL)
    (event,) = changed(capture)
    assert event["reread"] and event["edge"]


@pytest.mark.parametrize("policy", ["Evolve", "EvolveAdditive"])
def test_a_table_that_the_first_rows_after_a_change_of_the_options_stop_is_stopped(
    capture: CaptureRun, policy: str
) -> None:
    """What was left out is recorded together with them, and before the stop."""
    capture.spec, capture.timing = {"options": ONLY_V, "onSchemaChange": policy}, RARELY
    server = started(capture, TABLE)
    capture.stop()
    server.execute("ALTER TABLE t DROP COLUMN v, ADD COLUMN w int; INSERT INTO t VALUES (2, 5)")
    again(capture, ALL)
    until(lambda: capture.events("table-stopped"), "the table is stopped")
    capture.catch_up()


def test_once_a_look_has_shown_them_new_columns_are_new_again(capture: CaptureRun) -> None:
    capture.spec, capture.timing = {"options": ONLY_V}, RARELY
    server = started(capture, TABLE)
    again(capture, ALL)
    capture.look()
    capture.catch_up()
    write(capture, server, "ALTER TABLE t ADD COLUMN w int; UPDATE t SET w = 5")
    (event,) = changed(capture)
    assert not event["reread"]
