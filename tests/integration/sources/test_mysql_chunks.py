"""Chunks of MySQL and MariaDB: every row once whatever the key, every value exactly, every refusal by its name."""

import datetime as dt
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mysql_packages import RELEASES
from support.mysql import MysqlServer
from support.versions import turns
from tailrace.changelog import keys
from tailrace.changelog.keys import Key
from tailrace.changelog.types import arrow_type
from tailrace.databases.mysql.connect import PROBES, Connection, connect, execute, server_of
from tailrace.errors import AuthenticationFailed, Locked, NoKey, ReadRefused, Retry, SourceRefused, TableGone
from tailrace.sources.api import ChunkRead, KeyList, KeyRange
from tailrace.sources.mysql import catalog, chunks
from tailrace.sources.mysql.model import MysqlTable
from tailrace.sources.mysql.source_config import SourceConfig

UTC = dt.UTC
WHOLE = KeyRange(None, None)


@pytest.fixture(scope="module", params=turns(*RELEASES))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param, max_allowed_packet="64M") as running:
        running.script("CREATE DATABASE d", "SET GLOBAL time_zone = '+05:00'", "SET GLOBAL sql_mode = ''")
        yield running


def config(server: MysqlServer, user: str = "root", **options: Any) -> SourceConfig:
    return SourceConfig(server.host, server.port, None, user, "test", **options)


def made(server: MysqlServer, columns: str, *values: str) -> MysqlTable:
    """The table d.t with these columns and rows."""
    server.script(
        "SET NAMES utf8mb4",
        "SET time_zone = '+00:00'",
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        "DROP TABLE IF EXISTS d.t",
        f"CREATE TABLE d.t ({columns})",
        *(f"INSERT INTO d.t VALUES {v}" for v in values),
    )
    with closing(connect(config(server))) as connection:
        found = catalog.table_by_name(connection, "d", "t", None)
    assert found is not None
    return found


def read(
    server: MysqlServer, table: MysqlTable, part: KeyRange | KeyList = WHOLE, where: str | None = None
) -> tuple[list[dict[str, Any]], ChunkRead]:
    batches: list[pa.RecordBatch] = []
    read = chunks.read_chunk(config(server), table, part, where, batches.append)
    return [row for batch in batches for row in batch.to_pylist()], read


POINT = bytes(4) + b"\x01\x01\x00\x00\x00" + bytes(6) + b"\xf0\x3f" + bytes(7) + b"\x40"
TYPES: list[tuple[str, tuple[str, object], tuple[str, object]]] = [
    # column, an extreme value as SQL and as it is read, a small one
    ("t tinyint", ("-128", -128), ("0", 0)),
    ("tu tinyint unsigned", ("255", 255), ("0", 0)),
    ("m mediumint", ("-8388608", -8388608), ("0", 0)),
    ("b bigint", ("-9223372036854775808", -(2**63)), ("0", 0)),
    ("bu bigint unsigned zerofill", ("18446744073709551615", Decimal(2**64 - 1)), ("0", Decimal(0))),
    ("f float", ("0.1", pytest.approx(0.1, rel=1e-7)), ("0", 0.0)),
    ("g double", ("1e308", 1e308), ("-0e0", 0.0)),
    ("n decimal(38,10)", ("-1234567890.0000000001", Decimal("-1234567890.0000000001")), ("0", Decimal(0))),
    ("w decimal(65,30)", ("'-0.000000000000000000000000000001'",) * 2, ("0", "0.000000000000000000000000000000")),
    ("b1 bit", ("b'1'", True), ("0", False)),
    ("b9 bit(9)", ("b'100000001'", 257), ("0", 0)),
    ("b64 bit(64)", ("0xffffffffffffffff", Decimal(2**64 - 1)), ("0", Decimal(0))),
    ("y year", ("2155", 2155), ("1901", 1901)),
    ("d date", ("'9999-12-31'", dt.date(9999, 12, 31)), ("'0001-01-01'", dt.date(1, 1, 1))),
    ("tm time(6)", ("'-838:59:58.999999'",) * 2, ("'00:00:00.000001'",) * 2),
    (
        "dt datetime(6)",
        ("'1000-01-01 23:59:59.999999'", dt.datetime(1000, 1, 1, 23, 59, 59, 999999)),
        ("'2024-02-29'", dt.datetime(2024, 2, 29)),
    ),
    (
        "ts timestamp(3) NULL",
        ("'2038-01-19 03:14:07.999'", dt.datetime(2038, 1, 19, 3, 14, 7, 999000, UTC)),
        ("'1970-01-01 00:00:01'", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    ),
    ("c char(5)", ("'ab '", "ab"), ("''", "")),
    ("v varchar(9)", ("'é😀'", "é😀"), ("''", "")),
    ("vb varbinary(9)", ("x'00ff'", b"\x00\xff"), ("''", b"")),
    ("bn binary(4)", ("x'41'", b"A\0\0\0"), ("''", bytes(4))),
    ("tx mediumtext", ("''", ""), ("'a'", "a")),
    ("bl longblob", ("x''", b""), ("'b'", b"b")),
    ("e enum('x','it''s')", ("'it''s'", "it's"), ("''", "")),
    ("s set('p','q','r')", ("'p,r'", "p,r"), ("''", "")),
    ("j json", ("""'{"k": [1, null]}'""", '{"k": [1, null]}'), ("'[]'", "[]")),
    ("p point", ("ST_GeomFromText('POINT(1 2)')", POINT), ("NULL", None)),
]
NAMES = [column.partition(" ")[0] for column, _, _ in TYPES]


def of_every_type(server: MysqlServer, *values: str) -> tuple[dict[str, Any], ChunkRead]:
    """The only row of a table with a column of every type, as it is read."""
    columns = ", ".join(["id int PRIMARY KEY", *(column for column, _, _ in TYPES)])
    rows, chunk = read(server, made(server, columns, f"(1, {', '.join(values)})"))
    return rows[0], chunk


def test_extreme_values_of_every_type_are_exact(server: MysqlServer) -> None:
    row, _ = of_every_type(server, *(text for _, (text, _), _ in TYPES))
    assert row == {"id": 1} | {name: _text(value) for name, (_, (_, value), _) in zip(NAMES, TYPES, strict=True)}


def test_small_and_empty_values_of_every_type_are_exact(server: MysqlServer) -> None:
    row, _ = of_every_type(server, *(text for _, _, (text, _) in TYPES))
    assert row == {"id": 1} | {name: _text(value) for name, (_, _, (_, value)) in zip(NAMES, TYPES, strict=True)}


def _text(value: object) -> object:
    """Without the quotes of SQL, where both sides are written alike."""
    return value.strip("'") if isinstance(value, str) and value[:1] == value[-1:] == "'" else value


def test_null_of_every_type_is_null(server: MysqlServer) -> None:
    row, _ = of_every_type(server, *["NULL"] * len(TYPES))
    assert row == {"id": 1} | dict.fromkeys(NAMES)


def test_generated_columns_have_their_values_stored_or_not(server: MysqlServer) -> None:
    """Those of MySQL: MariaDB does not log them with every change, so that they are left out."""
    columns = "id int PRIMARY KEY, h int AS (id + 1) STORED, vg int AS (id + 2) VIRTUAL"
    rows, _ = read(server, made(server, columns, "(1, DEFAULT, DEFAULT)", "(2, DEFAULT, DEFAULT)"))
    if server.mariadb:
        assert rows == [{"id": 1}, {"id": 2}]
    else:
        assert rows == [{"id": 1, "h": 2, "vg": 3}, {"id": 2, "h": 3, "vg": 4}]


def test_a_chunk_says_what_was_read_and_on_what_kind_of_server(server: MysqlServer) -> None:
    _, chunk = of_every_type(server, *["NULL"] * len(TYPES))
    assert (chunk.rows, chunk.columns) == (1, ("id", *NAMES))
    assert chunk.snapshot.split(":")[0] == ("maria" if server.mariadb else "gtid")


@pytest.mark.parametrize("count", [249, 250, 251, 1016])
def test_every_column_of_a_wide_table_is_read(server: MysqlServer, count: int) -> None:
    names = [f"c{i}" for i in range(count)]
    table = made(server, "id int PRIMARY KEY, " + ", ".join(f"{name} int" for name in names))
    server.execute(f"INSERT INTO d.t VALUES (1, {', '.join(map(str, range(count)))})")
    rows, _ = read(server, table)
    assert rows == [{"id": 1} | {name: i for i, name in enumerate(names)}]


def test_a_row_of_several_packets_is_one_row_among_others(server: MysqlServer) -> None:
    table = made(server, "id int PRIMARY KEY, v longtext", *(f"({i}, 'x')" for i in range(5)))
    server.execute("UPDATE d.t SET v = REPEAT('ab', 17000000) WHERE id = 2")
    rows, _ = read(server, table)
    assert [(row["id"], len(row["v"])) for row in rows] == [(0, 1), (1, 1), (2, 34_000_000), (3, 1), (4, 1)]


def test_many_rows_come_in_blocks_without_a_gap(server: MysqlServer) -> None:
    table = made(server, "id int PRIMARY KEY, v varchar(300), n int")
    source = " CROSS JOIN ".join(f"(SELECT 0 x UNION SELECT {10**i}) a{i}" for i in range(5))
    total = "+".join(f"a{i}.x" for i in range(5))
    for factor in range(1, 6):
        server.execute(
            f"INSERT IGNORE INTO d.t SELECT {factor} * 1000000 + {total}, REPEAT('v', 300), NULL FROM {source}"
        )
    expected = [row[0] for row in server.execute("SELECT id FROM d.t ORDER BY id")]
    assert [row["id"] for row in read(server, table)[0]] == expected


def test_a_limit_that_the_server_gives_every_session_does_not_shorten_a_chunk(server: MysqlServer) -> None:
    table = made(server, "id int PRIMARY KEY", *(f"({i})" for i in range(20)))
    server.execute("SET GLOBAL sql_select_limit = 5")
    try:
        assert [row["id"] for row in read(server, table)[0]] == list(range(20))
    finally:
        server.execute("SET GLOBAL sql_select_limit = 18446744073709551615")


@pytest.mark.parametrize("kind", ["CHAIN", "RELEASE"])
def test_what_else_a_commit_does_by_the_server_s_settings_is_not_done(server: MysqlServer, kind: str) -> None:
    """Begin another transaction, or end the connection."""
    table = made(server, "id int PRIMARY KEY", "(1)")
    server.execute(f"SET GLOBAL completion_type = '{kind}'")
    try:
        assert [row["id"] for row in read(server, table)[0]] == [1]
        with closing(connect(config(server))) as connection:
            execute(connection, "COMMIT")
            assert execute(connection, "SELECT @@SESSION.completion_type") == [("NO_CHAIN",)]
    finally:
        server.execute("SET GLOBAL completion_type = NO_CHAIN")


def test_a_time_limit_that_the_server_gives_every_session_ends_neither_a_chunk_nor_a_look_at_the_catalog(
    server: MysqlServer,
) -> None:
    table = made(server, "id int PRIMARY KEY", *(f"({i})" for i in range(3)))
    # MariaDB's holds for every statement, also for those of the test's own sessions: not too short for a busy machine.
    name, limit = ("max_statement_time", 1) if server.mariadb else ("max_execution_time", 1)  # seconds, milliseconds
    server.execute(f"SET GLOBAL {name} = {limit}")
    try:
        with closing(connect(config(server))) as connection:
            assert catalog.table_by_name(connection, "d", "t", None) == table
            assert execute(connection, f"SELECT @@SESSION.{name}") == [(0,)]
        assert [row["id"] for row in read(server, table, where="SLEEP(0.5) = 0")[0]] == [0, 1, 2]
    finally:
        server.execute(f"SET GLOBAL {name} = 0")


def test_text_longer_than_the_packets_that_the_server_accepts_now_is_whole(server: MysqlServer) -> None:
    table = made(
        server, "id int PRIMARY KEY, v longtext CHARACTER SET latin1", "(1, REPEAT('é', 3000000))", "(2, NULL)"
    )
    server.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        (one, two), _ = read(server, table)
    finally:
        server.execute("SET GLOBAL max_allowed_packet = 67108864")
    assert one["v"] == "é" * 3_000_000 and two["v"] is None


@pytest.mark.parametrize("charset", ["cp932", "sjis", "ujis", "big5"])
def test_a_key_in_a_character_set_that_has_characters_twice_is_refused(server: MysqlServer, charset: str) -> None:
    columns = "id int PRIMARY KEY, v varchar(9) CHARACTER SET"
    assert made(server, f"{columns} {charset}").stop is None
    stop = made(server, f"v varchar(9) CHARACTER SET {charset} PRIMARY KEY").stop
    assert isinstance(stop, ReadRefused) and charset in stop.message and "'v'" in stop.message


LONG = ("id text CHARACTER SET latin1, PRIMARY KEY (id(2000))", "id blob, PRIMARY KEY (id(3000))")
"""An index with parts of values gives no order: the server sorts, by 1,024 bytes of each value unless told."""
KEYS = [
    ("id int, PRIMARY KEY (id)", ["-2147483648", "-1", "0", "7", "2147483647"]),
    (
        "id bigint unsigned, PRIMARY KEY (id)",
        ["0", "9223372036854775807", "9223372036854775808", "18446744073709551615"],
    ),
    ("id decimal(30,10), PRIMARY KEY (id)", ["-1", "0.0000000001", "0.0000000002", "12345678901234567890.5"]),
    ("id decimal(65,30), PRIMARY KEY (id)", ["-1", "0.000000000000000000000000000001", "2"]),
    ("id float, PRIMARY KEY (id)", ["-1.5", "0.1", "0.2", "16777216", "3e38"]),
    ("id double, PRIMARY KEY (id)", ["-1e-300", "0.1", "0.30000000000000004", "1e300"]),
    ("id bit(9), PRIMARY KEY (id)", ["0", "1", "256", "511"]),
    ("id year, PRIMARY KEY (id)", ["1901", "2000", "2155"]),
    ("id date, PRIMARY KEY (id)", ["'1000-01-01'", "'2024-02-29'", "'9999-12-31'"]),
    ("id datetime(6), PRIMARY KEY (id)", ["'2024-01-01'", "'2024-01-01 00:00:00.000001'", "'2024-01-01 00:00:01'"]),
    ("id timestamp(3), PRIMARY KEY (id)", ["'2024-01-01'", "'2024-01-01 00:00:00.001'", "'2038-01-01 00:00:01'"]),
    ("id time(6), PRIMARY KEY (id)", ["'-838:59:59'", "'-00:00:01.5'", "'00:00:00'", "'100:00:00'"]),
    ("id enum('zebra','ant','1'), PRIMARY KEY (id)", ["'zebra'", "'ant'", "'1'"]),
    ("id set('z','a','m'), PRIMARY KEY (id)", ["''", "'z'", "'a'", "'z,a'", "'m'", "'z,m'"]),
    ("id binary(3), PRIMARY KEY (id)", ["x'00'", "x'0001'", "x'ff'", "x'5c27'"]),
    ("id varbinary(9), PRIMARY KEY (id)", ["x''", "x'00'", "x'0000'", "x'ff'"]),
    (
        "id varchar(9) COLLATE utf8mb4_general_ci, PRIMARY KEY (id)",
        ["'B'", "'a'", "'C'", "'_'", "'é!'", "'Z'", r"'\\'", "''''"],
    ),
    ("id varchar(9) CHARACTER SET latin1, PRIMARY KEY (id)", ["'a'", "'Ä'", "'€'", "'z'"]),
    ("id char(9) CHARACTER SET gbk, PRIMARY KEY (id)", ["'a'", "'表'", "'日本'"]),
    ("id varchar(9) CHARACTER SET ucs2, PRIMARY KEY (id)", ["'a'", "'日本'", "'z'"]),
    ("id text, PRIMARY KEY (id(3))", ["'abcd'", "'abd'", "'b'"]),
    *((kind, [f"CONCAT(REPEAT('x', 1500), '{end}')" for end in "bdac"]) for kind in LONG),
    ("a varchar(1600) CHARACTER SET latin1, b int, PRIMARY KEY (a, b DESC)", ["REPEAT('x', 1500), 1", "'y', 2"]),
    ("id varchar(9) NOT NULL, UNIQUE KEY k (id) USING HASH", ["'b'", "'C'", "'a'"]),
    (
        "a int, id varchar(9), c tinyint, PRIMARY KEY (a, id, c)",
        ["1,'a',1", "1,'a',2", "1,'b',1", "2,'a',1", "2,'z',-1"],
    ),
    ("id int NOT NULL, o int, UNIQUE KEY u (o), UNIQUE KEY k (id)", ["3,1", "2,NULL", "1,NULL"]),
]


@pytest.mark.parametrize("name", turns(*(name for name in RELEASES if name.startswith("mariadb"))))
def test_an_index_of_hashes_over_longer_texts_than_the_server_sorts_is_no_key(name: str) -> None:
    with MysqlServer(name) as server:
        server.script("CREATE DATABASE d")
        stop = made(server, "id text NOT NULL, UNIQUE KEY k (id)").stop
        assert isinstance(stop, NoKey) and "can stand in" in stop.message
        assert made(server, "id text NOT NULL, o int NOT NULL, UNIQUE KEY k (id), UNIQUE KEY (o)").key_index == "o"


@pytest.mark.parametrize(("columns", "values"), KEYS, ids=[columns for columns, _ in KEYS])
def test_chunks_hold_every_key_once(server: MysqlServer, columns: str, values: list[str]) -> None:
    table = made(server, columns, *(f"({v})" for v in values))
    assert table.stop is None
    every = [key_of(table, row) for row in read(server, table)[0]]
    assert len(every) == len(values)
    with closing(connect(config(server))) as connection:
        keys = chunks.MysqlKeys(connection, table)
        assert keys.max_key() == every[-1]
        for size in (1, 2, 3):
            assert in_chunks(server, connection, table, size) == every
        assert keys.normal_keys(every) == tuple(every)
        assert keys.at_most(len(values)) and not keys.at_most(len(values) - 1)
    for key in every:
        assert [key_of(table, row) for row in read(server, table, KeyList((key,)))[0]] == [key]


def in_chunks(server: MysqlServer, connection: Connection, table: MysqlTable, size: int) -> list[Key]:
    """All keys, read chunk by chunk."""
    keys = chunks.MysqlKeys(connection, table)
    last = keys.max_key()
    assert last is not None
    found: list[Key] = []
    lower: Key | None = None
    while lower != last:
        upper = keys.boundary(lower, size, last) or last
        rows, _ = read(server, table, KeyRange(lower, upper))
        assert rows and (upper == last or len(rows) == size)
        found += [key_of(table, row) for row in rows]
        lower = upper
    return found


def key_of(table: MysqlTable, row: dict[str, Any]) -> Key:
    kinds = [(c.name, c.form.logical) for c in table.key_columns]
    return keys.keys([pa.array([row[name]], arrow_type(kind)) for name, kind in kinds])[0]


@pytest.mark.parametrize(
    ("charset", "text"),
    [
        ("latin1", "Ärger für 5 €"),
        ("latin2", "žluťoučký"),
        ("cp1251", "Привет"),
        ("koi8r", "Привет"),
        ("greek", "Καλημέρα"),
        ("gbk", "中文a"),
        ("big5", "中文a"),
        ("sjis", "日本語\\"),
        ("ujis", "日本語"),
        ("euckr", "한국어"),
        ("ucs2", "日本a"),
        ("utf16", "日本😀"),
        ("utf32", "😀a"),
        ("utf8mb3", "日本"),
    ],
)
def test_text_of_other_character_sets_is_the_same_text(server: MysqlServer, charset: str, text: str) -> None:
    table = made(server, f"id int PRIMARY KEY, v varchar(40) CHARACTER SET {charset}, w text CHARACTER SET {charset}")
    server.execute("INSERT INTO d.t VALUES (1, %s, %s), (2, NULL, ''), (3, 'plain', %s)", (text, text, text * 3))
    rows, _ = read(server, table)
    assert [(row["v"], row["w"]) for row in rows] == [(text, text), (None, ""), ("plain", text * 3)]


def test_a_connection_tells_a_machine_that_vanished_from_a_server_that_takes_long(server: MysqlServer) -> None:
    """Without it, capture and chunks wait 15 minutes for an answer."""
    with closing(connect(config(server))) as connection:
        asked = connection._sock  # type: ignore[attr-defined]  # no public name
        values = [asked.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in PROBES]
    assert values == [10, 5, 3, 30_000]


def test_a_condition_narrows_a_chunk_and_cannot_reach_beyond_it(server: MysqlServer) -> None:
    table = made(server, "id int PRIMARY KEY, v int", *(f"({i}, {i % 2})" for i in range(6)))
    rows, _ = read(server, table, KeyRange(("1",), ("4",)), "v = 1 -- odd")
    assert [row["id"] for row in rows] == [3]
    for bad in ("v = 1) OR (1 = 1", "nothing = 1", "v = 1 /*", "v = 1; SELECT 1"):
        with pytest.raises(ReadRefused):
            read(server, table, KeyRange(("1",), ("4",)), bad)


def test_a_table_that_changed_is_looked_up_again_and_one_that_is_gone_is_gone(server: MysqlServer) -> None:
    table = made(server, "id int PRIMARY KEY, v int", "(1, 1)")
    server.execute("ALTER TABLE d.t ADD COLUMN w int")
    with pytest.raises(Retry, match="definition of d"):
        read(server, table)
    server.execute("DROP TABLE d.t")
    with pytest.raises(TableGone):
        read(server, table)


def test_a_table_that_is_locked_is_waited_for(server: MysqlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(server, "id int PRIMARY KEY", "(1)")
    with closing(server.connect()) as holder, holder.cursor() as cursor:
        cursor.execute("LOCK TABLES d.t WRITE")
        with pytest.raises(Locked, match=r"d\.t"):
            read(server, table)


def test_rights_and_passwords_are_asked_for_by_name(server: MysqlServer, tmp_path: Path) -> None:
    table = made(server, "id int PRIMARY KEY", "(1)")
    password = tmp_path / "password"
    password.write_text("geheim ö\n", "utf-8")
    client = "REPLICATION CLIENT" if not server.mariadb else "BINLOG MONITOR"
    server.script(
        "SET NAMES utf8mb4",
        "DROP USER IF EXISTS reader",
        "CREATE USER reader IDENTIFIED BY 'geheim ö'",
        f"GRANT {client} ON *.* TO reader",
    )
    with pytest.raises(ReadRefused, match=r"GRANT SELECT ON `d`\.`t`"):
        chunks.read_chunk(reader(server, password), table, WHOLE, None, lambda _: None)
    server.execute("GRANT SELECT ON d.* TO reader")
    assert chunks.read_chunk(reader(server, password), table, WHOLE, None, lambda _: None).rows == 1
    with pytest.raises(AuthenticationFailed, match="'reader'"):
        connect(config(server, "reader"))
    with pytest.raises(AuthenticationFailed, match="cannot be read"):
        connect(config(server, "reader", password_file=str(tmp_path / "none")))


def reader(server: MysqlServer, password: Path) -> SourceConfig:
    return config(server, "reader", password_file=str(password))


@pytest.mark.parametrize("tls", ["disable", "prefer"])
def test_a_password_is_never_sent_in_clear(server: MysqlServer, tmp_path: Path, tls: str) -> None:
    password = tmp_path / "password"
    password.write_text("secret")
    server.script("DROP USER IF EXISTS sha", "CREATE USER sha IDENTIFIED BY 'secret'")
    connect(config(server, "sha", password_file=str(password), tls_mode=tls)).close()


def test_another_server_is_refused(server: MysqlServer) -> None:
    with closing(connect(config(server))) as connection:
        identity = server_of(connection).identity
    connect(config(server).bound_to(identity)).close()
    with pytest.raises(Retry, match="the change log is read from another"):
        connect(config(server).bound_to("another"))


def test_a_connection_that_waits_for_long_is_not_ended_by_the_server(server: MysqlServer) -> None:
    server.execute("SET GLOBAL wait_timeout = 1")
    try:
        with closing(connect(config(server))) as connection:
            time.sleep(2)
            assert execute(connection, "SELECT 1") == [(1,)]
    finally:
        server.execute("SET GLOBAL wait_timeout = DEFAULT")


def test_a_server_that_takes_no_more_connections_is_told_as_such(server: MysqlServer) -> None:
    server.script("DROP USER IF EXISTS crowd", "CREATE USER crowd WITH MAX_USER_CONNECTIONS 1", "FLUSH USER_RESOURCES")
    with (
        closing(connect(config(server, "crowd"))),
        pytest.raises(Retry, match=r"cannot connect .* 'crowd'.*max_user_connections") as caught,
    ):
        connect(config(server, "crowd"))
    assert "max_connections" in caught.value.fix


def test_a_server_that_is_not_there_is_tried_again() -> None:
    with pytest.raises(Retry, match=r"cannot connect to 127\.0\.0\.1:1 as 'root'"):
        connect(SourceConfig("127.0.0.1", 1, None, "root", "test"))


def test_a_certificate_that_nobody_signed_is_refused(server: MysqlServer) -> None:
    with pytest.raises(SourceRefused, match=r"certificate|TLS|SSL"):
        connect(config(server, tls_mode="verify-full"))


def test_an_index_that_the_server_does_not_use_is_no_key(server: MysqlServer) -> None:
    """A chunk could not be read along it."""
    hidden = "INVISIBLE" if server.name.startswith("mysql") else "IGNORED"
    columns = f"b int NOT NULL, a int NOT NULL, UNIQUE KEY zz (b), UNIQUE KEY aa (a) {hidden}"
    table = made(server, columns, "(2, 1), (1, 2)")
    assert (table.key_index, table.stop) == ("zz", None)
    assert [row["b"] for row in read(server, table)[0]] == [1, 2]
