"""A row whose text PostgreSQL cannot send, in the log and in a chunk: told by name, with the way out."""

import pytest

from support.capture import CaptureRun
from support.pg_source import chunk_of, config_of, table_of
from support.postgres import PostgresServer
from tailrace.capture.renewal import Renewal
from tailrace.contract.resources import StorageLocation
from tailrace.databases.postgresql.connect import connect
from tailrace.errors import RESYNC, ValueUnsupported
from tailrace.sources.api import KeyRange
from tailrace.storage.store import Storage

HALF = "repeat('x', {})::bytea"
"""Its text has two characters for each byte."""
VALUE = f"INSERT INTO t SELECT 1, {HALF.format(540 << 20)}, ''"
ROW = f"INSERT INTO t SELECT 1, v, v FROM (SELECT {HALF.format(300 << 20)} AS v OFFSET 0) AS one"
"""One value, and a row of two values, whose text passes 1 GB."""
LARGER = {VALUE: "UPDATE t SET b = a", ROW: "UPDATE t SET a = a || a; UPDATE t SET b = a"}
"""A row that passes it in binary form, too."""


@pytest.mark.parametrize(
    ("insert", "said"),
    [
        pytest.param(
            VALUE, "invalid memory alloc request size", marks=[pytest.mark.postgres(18), pytest.mark.turn(0, 2)]
        ),
        pytest.param(ROW, "out of memory", marks=[pytest.mark.postgres(14), pytest.mark.turn(1, 2)]),
    ],
)
def test_a_row_that_the_server_cannot_send_is_told_with_the_way_out(
    capture: CaptureRun, insert: str, said: str
) -> None:
    server = capture.server
    server.execute("CREATE TABLE t (id int PRIMARY KEY, a bytea, b bytea); CREATE TABLE u (id int PRIMARY KEY)")
    capture.start()
    capture.catch_up()
    server.execute(insert)
    server.execute(LARGER[insert])
    unreadable(server)
    assert capture.process is not None and capture.wait() == 12, capture.tail()
    fault = capture.fault()
    assert fault["name"] == "PositionLost", fault
    assert all(words in fault["message"] for words in ("a row cannot be read from the log", "the 1 GB", said)), fault
    fix = fault["fix"]
    assert fix.startswith("Shorten the value in the source") and "`tailrace resync -f <manifest> --all`" in fix
    server.execute("UPDATE t SET a = 'a', b = NULL")
    storage = Storage.open(StorageLocation(location=(capture.folder / "log").as_uri()))
    Renewal(id="again", request="again").write(storage)
    capture.start()
    server.execute("INSERT INTO u VALUES (1)")
    capture.catch_up()
    assert [row["id"] for row in capture.rows("public.u")] == [1]


def unreadable(server: PostgresServer) -> None:
    """A chunk stops this table alone."""
    config = config_of(server)
    with connect(config) as connection:
        table = table_of(connection, "public.t")
    with pytest.raises(ValueUnsupported, match=r"a row of public\.t cannot be read: .* the 1 GB") as told:
        chunk_of(config, table, KeyRange(None, None))
    assert told.value.table == "public.t" and told.value.fix.endswith(f"Then {RESYNC}.")
