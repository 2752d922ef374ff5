"""Values that a server changes while it answers a SELECT, and not in its log: read whole, or they stop their table."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mysql_packages import RELEASES
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_log import LogRun
from support.versions import turns
from tailrace.changelog.keys import Key
from tailrace.databases.mysql.connect import connect, execute
from tailrace.errors import ReadRefused, ValueUnsupported
from tailrace.sources.api import KeyList, KeyRange
from tailrace.sources.mysql import catalog, chunks
from tailrace.sources.mysql.model import MysqlTable
from tailrace.sources.mysql.source_config import SourceConfig

MIB = 1 << 20
WHOLE = KeyRange(None, None)


@pytest.fixture(scope="module", params=turns("mysql-8.0", MYSQL))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param, max_allowed_packet=64 * MIB) as running:
        running.script("CREATE DATABASE d")
        yield running


@pytest.fixture
def packets(server: MysqlServer) -> Iterator[MysqlServer]:
    """The server; its limit is as at first when the test has ended."""
    yield server
    allow(server, 64 * MIB)


def allow(server: MysqlServer, size: int) -> None:
    server.script(f"SET GLOBAL max_allowed_packet = {size}")


def config(server: MysqlServer) -> SourceConfig:
    return SourceConfig(server.host, server.port, None, "root", "test")


def made(server: MysqlServer, columns: str, *values: str) -> MysqlTable:
    """The table d.t with these columns and rows."""
    rows = (f"INSERT INTO d.t VALUES {value}" for value in values)
    server.script("DROP TABLE IF EXISTS d.t", f"CREATE TABLE d.t ({columns})", *rows)
    with closing(connect(config(server))) as connection:
        found = catalog.table_by_name(connection, "d", "t", None)
    assert found is not None
    return found


def read(
    server: MysqlServer, table: MysqlTable, part: KeyRange | KeyList = WHOLE, where: str | None = None
) -> list[dict[str, Any]]:
    batches: list[pa.RecordBatch] = []
    chunks.read_chunk(config(server), table, part, where, batches.append)
    return [row for batch in batches for row in batch.to_pylist()]


LONG = "(2, JSON_OBJECT('a', REPEAT('x', 3000000)))"
ESCAPED = "(2, JSON_OBJECT('html', REPEAT('<a href=\"x\">\\n', 290000)))"
"""Fits into a packet of 4 MiB; its text, with escapes, does not."""


@pytest.mark.parametrize(("value", "limit"), [(LONG, MIB), (ESCAPED, 4 * MIB)], ids=["lowered", "escapes"])
@pytest.mark.parametrize("part", [WHOLE, KeyList((Key(("2",)),))], ids=["range", "keys"])
def test_a_json_whose_text_is_longer_than_a_packet_stops_its_table_by_name(
    packets: MysqlServer, value: str, limit: int, part: KeyRange | KeyList
) -> None:
    allow(packets, max(limit, 4 * MIB))
    table = made(packets, "id int PRIMARY KEY, j json", "(1, '{}')", value, "(3, NULL)")
    allow(packets, limit)
    with pytest.raises(ValueUnsupported) as stopped:
        read(packets, table, part)
    assert "column 'j' of d.t" in stopped.value.message and "max_allowed_packet" in stopped.value.message
    assert "SET GLOBAL max_allowed_packet" in str(stopped.value)
    allow(packets, 64 * MIB)  # what the message asks for
    rows = read(packets, table, part)
    texts = [row["j"] for row in rows if row["id"] == 2]
    assert len(texts) == 1 and len(texts[0]) > limit
    if part is WHOLE:
        assert [row["j"] for row in rows if row["id"] != 2] == ["{}", None]


def test_the_log_has_such_a_json_whole_and_a_chunk_with_room_reads_the_same(
    packets: MysqlServer, tmp_path: Path
) -> None:
    allow(packets, 4 * MIB)
    table = made(packets, "id int PRIMARY KEY, j json", "(1, '[]')")
    with LogRun(packets, tmp_path) as run:
        packets.script(f"INSERT INTO d.t VALUES {ESCAPED}")
        run.catch_up()
        logged = [row for row in run.rows("d.t") if row["id"] == 2]
    allow(packets, 64 * MIB)
    assert [row for row in read(packets, table) if row["id"] == 2] == logged
    assert len(logged[0]["j"]) > 4 * MIB


def test_a_warning_that_is_not_known_to_be_harmless_refuses_the_chunk(server: MysqlServer) -> None:
    table = made(server, "id int PRIMARY KEY, v text", "(1, 'a')", "(2, 'b')")
    with pytest.raises(ReadRefused) as refused:
        read(server, table, where="REPEAT(v, 100000000) IS NULL")
    assert "1301" in refused.value.message and "d.t" in refused.value.message


@pytest.mark.parametrize("where", ["v = 0", "1 / (id - 1) IS NULL OR id = 2", "STR_TO_DATE(v, '%Y') IS NULL"])
def test_a_warning_about_an_expression_of_the_user_refuses_nothing(server: MysqlServer, where: str) -> None:
    table = made(server, "id int PRIMARY KEY, v text", "(1, 'a')", "(2, 'b')")
    assert [row["id"] for row in read(server, table, where=where)] == [1, 2]


def test_a_server_that_keeps_no_warnings_is_not_taken_to_have_had_none(server: MysqlServer) -> None:
    table = made(server, "id int PRIMARY KEY, v text", "(1, 'a')")
    before = server.execute("SELECT @@GLOBAL.max_error_count")[0][0]
    server.script("SET GLOBAL max_error_count = 0")
    try:
        with pytest.raises(ReadRefused):
            read(server, table, where="REPEAT(v, 100000000) IS NULL")
    finally:
        server.script(f"SET GLOBAL max_error_count = {before}")


@pytest.mark.parametrize("name", turns(MYSQL, MARIADB_NEWEST))
def test_a_server_whose_sessions_do_not_commit_by_themselves_is_not_held_up(name: str) -> None:
    """With `autocommit = 0` a session that only looks keeps a transaction, and with it a lock on every table that it
    has looked at."""
    with MysqlServer(name, autocommit=0, init_connect="") as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY)")
        with closing(connect(config(server))) as connection:
            assert execute(connection, "SELECT @@autocommit") == [(1,)]
            assert catalog.table_by_name(connection, "d", "t", None) is not None
            execute(connection, "SELECT * FROM d.t")
            open_ones = server.execute("SELECT COUNT(*) FROM information_schema.innodb_trx")
            assert open_ones == [(0,)]
            server.script("SET lock_wait_timeout = 2", "ALTER TABLE d.t ADD COLUMN v int")


LARGE = [
    "longtext CHARACTER SET utf8mb4",
    "longtext CHARACTER SET latin1",
    "longtext CHARACTER SET utf16",
    "longtext CHARACTER SET ucs2",
    "longtext CHARACTER SET gbk",
    "longblob",
]


@pytest.mark.parametrize("name", RELEASES)
def test_texts_and_bytes_that_are_longer_than_a_packet_arrive_whole(name: str) -> None:
    """By a chunk whose session has a smaller packet than the one that wrote them."""
    with MysqlServer(name, max_allowed_packet=64 * MIB) as server:
        server.script("CREATE DATABASE d")
        names = [f"c{i}" for i in range(len(LARGE))]
        columns = ", ".join(f"{name} {type}" for name, type in zip(names, LARGE, strict=True))
        values = ", ".join("REPEAT('abc', 1000000)" for _ in LARGE)
        table = made(server, f"id int PRIMARY KEY, {columns}", f"(1, {values})")
        allow(server, MIB)
        (row,) = read(server, table)
        for column in names:
            found = row[column]
            assert (found if isinstance(found, str) else found.decode()) == "abc" * 1_000_000, column
