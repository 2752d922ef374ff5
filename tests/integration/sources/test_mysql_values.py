"""A value of MySQL or MariaDB comes out equal, bit for bit, by the log and by a chunk: every type, random values."""

import datetime as dt
import json
import math
import struct
import uuid
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mysql_packages import RELEASES
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_log import LogRun, by_chunk, exactly
from support.versions import turns
from tailrace.contract.resources import TableOptions

QUICK = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
LATIN = st.text(st.characters(codec="cp1252"), max_size=20)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TIMES = st.timedeltas(dt.timedelta(hours=-838), dt.timedelta(hours=838))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tinyint": st.integers(-128, 127),
    "tinyint unsigned": st.integers(0, 255),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "smallint unsigned zerofill": st.integers(0, 2**16 - 1),
    "mediumint": st.integers(-(2**23), 2**23 - 1),
    "mediumint unsigned": st.integers(0, 2**24 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "int unsigned": st.integers(0, 2**32 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "bigint unsigned": st.integers(0, 2**64 - 1),
    "bit": st.integers(0, 1),
    "bit(9)": st.integers(0, 511),
    "bit(64)": st.integers(0, 2**64 - 1),
    "year": st.integers(1901, 2155),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "decimal(5,2)": st.decimals(-999, 999, places=2),
    "decimal(18,0)": st.integers(-(10**18) + 1, 10**18 - 1),
    "decimal(38,10)": st.decimals(Decimal(-(10**20)), Decimal(10**20), places=10),
    "decimal(65,30)": st.decimals(Decimal(-(10**30)), Decimal(10**30), places=30),
    "date": st.dates(dt.date(1000, 1, 1)),
    "datetime": st.datetimes(dt.datetime(1000, 1, 1)).map(lambda t: t.replace(microsecond=0)),
    "datetime(6)": st.datetimes(dt.datetime(1000, 1, 1)),
    "timestamp(3) NULL": st.datetimes(dt.datetime(1971, 1, 1), dt.datetime(2037, 1, 1)),
    "time": TIMES.map(lambda t: dt.timedelta(seconds=t // dt.timedelta(seconds=1))),
    "time(6)": TIMES,
    "char(20)": TEXT,
    "char(255)": TEXT,
    "varchar(20)": TEXT,
    "varchar(20) CHARACTER SET latin1": LATIN,
    "varchar(20) CHARACTER SET utf16": TEXT,
    "varchar(20) CHARACTER SET utf8mb3": st.text(
        st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=9
    ),
    "tinytext": TEXT,
    "mediumtext": TEXT,
    "longtext": st.integers(0, 70_000).map(lambda n: "x" * n),
    "binary(8)": st.binary(max_size=8),
    "varbinary(300)": st.binary(max_size=300),
    "blob": st.binary(max_size=300),
    "enum('a','b''c','d,e','é')": st.sampled_from(["a", "b'c", "d,e", "é"]),
    "set('p','q','r')": st.sets(st.sampled_from("pqr")).map(lambda s: ",".join(sorted(s))),
}
COLUMNS = ", ".join(f"c{i} {kind}" for i, kind in enumerate(VALUES))
ROWS = st.lists(st.tuples(*(st.none() | values for values in VALUES.values())), min_size=1, max_size=4)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module", params=turns(*RELEASES))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param, max_allowed_packet="64M", default_time_zone="+05:00") as running:
        running.script("CREATE DATABASE d", f"CREATE TABLE d.t (id int AUTO_INCREMENT PRIMARY KEY, {COLUMNS})")
        yield running


@pytest.fixture
def run(server: MysqlServer, tmp_path: Path) -> Iterator[LogRun]:
    server.script("TRUNCATE d.t")
    with LogRun(server, tmp_path) as begun:
        yield begun


def written(server: MysqlServer, rows: list[tuple[Any, ...]], table: str = "d.t") -> None:
    places = ", ".join(["NULL", *["%s"] * len(rows[0])])
    with closing(server.connect(init_command="SET time_zone = '+00:00'")) as connection, connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {table} VALUES ({places})", rows)


@QUICK
@given(rows=ROWS)
def test_values_of_every_type_are_the_same_by_log_and_by_chunk(
    server: MysqlServer, run: LogRun, rows: list[tuple[Any, ...]]
) -> None:
    written(server, rows)
    run.catch_up()
    assert run.table("d.t").stopped is None
    assert exactly(run.rows("d.t")) == exactly(by_chunk(server, "d.t"))


def test_an_update_and_a_delete_carry_all_values(server: MysqlServer, run: LogRun) -> None:
    written(server, [tuple([None] * len(VALUES))] * 3)
    server.script("UPDATE d.t SET c6 = id, c28 = 'é' WHERE id > 1", "UPDATE d.t SET id = 77 WHERE id = 2")
    server.script("DELETE FROM d.t WHERE id = 1")
    run.catch_up()
    assert exactly(run.rows("d.t")) == exactly(by_chunk(server, "d.t"))
    assert [row["_op"] for row in run.changes("d.t")[-4:]] == ["U", "D", "M", "D"]


@QUICK
@given(documents=st.lists(JSON, min_size=1, max_size=10))
def test_json_has_the_servers_text(mysql_json: tuple[MysqlServer, LogRun], documents: list[Any]) -> None:
    server, run = mysql_json
    written(server, [(json.dumps(document),) for document in documents], "d.j")
    run.catch_up()
    assert exactly(run.rows("d.j")) == exactly(by_chunk(server, "d.j"))


@pytest.fixture(scope="module")
def mysql_json(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MysqlServer, LogRun]]:
    with MysqlServer(MYSQL) as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.j (id int AUTO_INCREMENT PRIMARY KEY, v json)")
        with LogRun(server, tmp_path_factory.mktemp("json")) as run:
            yield server, run


def test_json_that_only_sql_makes_has_the_servers_text(mysql_json: tuple[MysqlServer, LogRun]) -> None:
    """Decimals, dates, times and bytes have no form in JSON text; the server's binary form has."""
    server, run = mysql_json
    values = ("CAST(-1.50 AS DECIMAL(20,3))", "DATE'2024-02-29'", "TIME'-30:00:01.5'", "TIMESTAMP'2024-02-29 01:02:03'")
    others = ("x'00ff'", "1e16", "1e-5", "1e20", "0.1", "-0e0", "123456789012345678", "NULL", "1.5e300", "1e15")
    made = ", ".join((*values, *others))
    server.script(f"INSERT INTO d.j VALUES (NULL, JSON_ARRAY({made})), (NULL, JSON_OBJECT('b', 1, 'aa', '\\t\"'))")
    run.catch_up()
    assert exactly(run.rows("d.j")) == exactly(by_chunk(server, "d.j"))


def test_doubles_in_json_have_the_servers_text(mysql_json: tuple[MysqlServer, LogRun]) -> None:
    """Of every size, and many at the sizes from which on the server writes an exponent."""
    server, run = mysql_json
    random = Random(19)
    bits = [struct.unpack("<d", random.randbytes(8))[0] for _ in range(5000)]
    near = [random.choice((1, -1)) * random.random() * 10 ** random.randint(12, 18) for _ in range(10_000)]
    round_ones = [float(f"{random.randint(1, 99_999)}e{random.randint(-320, 303)}") for _ in range(5000)]
    doubles = [value for value in (*bits, *near, *round_ones) if math.isfinite(value)]
    written(server, [(json.dumps(doubles),)], "d.j")
    run.catch_up()
    assert exactly(run.rows("d.j")) == exactly(by_chunk(server, "d.j"))


@pytest.mark.parametrize("name", turns(MYSQL, MARIADB_NEWEST))
def test_shapes_vectors_and_generated_columns_are_the_same(name: str, tmp_path: Path) -> None:
    vector = "STRING_TO_VECTOR" if name == MYSQL else "VEC_FromText"
    own = "VECTOR(2)" if name == MYSQL else "VECTOR(2) NOT NULL DEFAULT x'0000000000000000', u uuid, i inet6, f inet4"
    with MysqlServer(name) as server:
        server.script(
            "CREATE DATABASE d",
            f"CREATE TABLE d.t (id int PRIMARY KEY, p geometry, s int AS (id + 1) STORED, g int AS (id * 2), v {own},"
            " a varchar(9) CHARACTER SET latin1, b text CHARACTER SET utf16, c varchar(9) CHARACTER SET cp1251)",
        )
        with LogRun(server, tmp_path) as run:
            row = f"1, ST_GeomFromText('POINT(1 2)'), {vector}('[1,2.5]'), 'é', '😀', 'я'"
            server.script(f"INSERT INTO d.t (id, p, v, a, b, c) VALUES ({row})", charset="utf8mb4")
            if name != MYSQL:
                server.script(
                    "UPDATE d.t SET u = '123e4567-e89b-12d3-a456-426655440000', i = '::ffff:1.2.3.4', f = '9.8.7.6'"
                )
            run.catch_up()
            assert exactly(run.rows("d.t")) == exactly(by_chunk(server, "d.t"))
            server.script("UPDATE d.t SET p = NULL", "UPDATE d.t SET id = 2")
            run.catch_up()
            assert exactly(run.rows("d.t")) == exactly(by_chunk(server, "d.t"))
            server.execute("DELETE FROM d.t")
            run.catch_up()
            assert not run.rows("d.t")


@pytest.mark.parametrize("name", [MARIADB_NEWEST])
def test_addresses_are_spelled_as_the_server_spells_them(name: str, tmp_path: Path) -> None:
    """Every pattern of zero groups, and of those with the last 32 bits of an IPv4 address."""
    groups = ["0", "1", "ffff"]
    addresses = [":".join("1" if zeros >> i & 1 else "0" for i in range(8)) for zeros in range(256)]
    addresses += [f"0:0:0:0:{a}:{b}:{c}:{d}" for a in groups for b in groups for c in groups for d in groups]
    with MysqlServer(name) as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY, i inet6)")
        with LogRun(server, tmp_path) as run:
            server.script("INSERT INTO d.t VALUES " + ", ".join(f"({i}, '{a}')" for i, a in enumerate(addresses)))
            run.catch_up()
            assert exactly(run.rows("d.t")) == exactly(by_chunk(server, "d.t"))


@pytest.mark.parametrize("name", turns(MYSQL, MARIADB_NEWEST))
def test_labels_that_the_catalog_does_not_show_are_labels(name: str, tmp_path: Path) -> None:
    """It has `?` for each character beyond U+FFFF."""
    columns = "e enum('😀', 'a', '?', '😁') CHARACTER SET utf8mb4, s set('x😀', 'y?') CHARACTER SET utf16"
    with MysqlServer(name) as server:
        server.script(
            "CREATE DATABASE d",
            f"CREATE TABLE d.t (id int PRIMARY KEY, {columns})",
            "CREATE TABLE d.k (e enum('😀', 'a') CHARACTER SET utf8mb4 PRIMARY KEY)",
            charset="utf8mb4",
        )
        with LogRun(server, tmp_path) as run:
            rows = "(1, '😀', 'x😀'), (2, 'a', 'x😀,y?'), (3, '?', ''), (4, '😁', NULL)"
            server.script(f"INSERT INTO d.t VALUES {rows}", charset="utf8mb4")
            run.catch_up()
            assert run.table("d.t").stopped is None
            assert exactly(run.rows("d.t")) == exactly(by_chunk(server, "d.t"))
            stopped = run.table("d.k").stopped
            assert stopped is not None and "a label with `?`" in stopped.message


@pytest.mark.parametrize("name", turns(MYSQL, MARIADB_NEWEST))
def test_a_label_that_reads_like_a_type_is_a_label(name: str, tmp_path: Path) -> None:
    with MysqlServer(name) as server:
        server.script(
            "CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY, e enum('x unsigned', 'b'), s set('y unsigned'))"
        )
        with LogRun(server, tmp_path) as run:
            server.script("INSERT INTO d.t VALUES (1, 'x unsigned', 'y unsigned'), (2, 'b', '')")
            run.catch_up()
            assert exactly(run.rows("d.t")) == exactly(by_chunk(server, "d.t"))


@pytest.mark.parametrize("name", turns(MYSQL, MARIADB_NEWEST))
def test_numbers_become_the_decimals_and_doubles_of_the_options(name: str, tmp_path: Path) -> None:
    random = Random(7)
    columns = {"d": "decimal(65,30)", "e": "decimal(12,2) unsigned zerofill", "i": "bigint", "u": "bigint unsigned"}
    wanted = {
        "d": ("double", "decimal(38,30)"),
        "e": ("double", "decimal(20,8)"),
        "i": ("double", "decimal(10,0)"),
        "u": ("double", "decimal(20,0)"),
    }
    made = ", ".join(f"{c}{i} {kind}" for c, kind in columns.items() for i in range(2))
    given = {f"{c}{i}": kind for c, kinds in wanted.items() for i, kind in enumerate(kinds)}
    options = {"match": "d.t", "as": given, "onUnsupported": "SetNull"}

    def values() -> list[Any]:
        scale = random.choice([0, 8, 20, 35])
        d = Decimal(random.randrange(-(10**65), 10**65)).scaleb(-30) / 10**scale
        e, i, u = Decimal(random.randrange(10**12)) / 100, random.randrange(-(2**63), 2**63), random.randrange(2**64)
        return [d, d, e, e, i >> scale, i >> scale, u, u]

    rows = [values() for _ in range(200)]
    rows += [[Decimal("1e-30")] * 2 + [Decimal(0)] * 2 + [-1, -1, 0, 0], [None] * 8]
    with MysqlServer(name) as server:
        server.script("CREATE DATABASE d", f"CREATE TABLE d.t (id int AUTO_INCREMENT PRIMARY KEY, {made})")
        for part in (rows[::2], rows[1::2]):  # a restart knows the table from the journal
            with LogRun(server, tmp_path, options=[options]) as run:
                written(server, [tuple(row) for row in part])
                run.catch_up()
                assert run.table("d.t").stopped is None
                found = run.rows("d.t")
        assert exactly(found) == exactly(by_chunk(server, "d.t", TableOptions.model_validate(options)))
        stored = server.execute("SELECT d0, e0, i0, u0 FROM d.t ORDER BY id")
    for row, exact in zip(found, stored, strict=True):
        for column, value in zip("deiu", exact, strict=True):
            assert row[f"{column}0"] == (None if value is None else float(value))
            assert row[f"{column}1"] in (value, None)
    assert sum(row["d1"] is not None for row in found) > 40
    assert all(row["e1"] == value for row, (_, value, _, _) in zip(found, stored, strict=True))


@pytest.mark.parametrize("name", turns(MYSQL, MARIADB_NEWEST))
def test_times_of_a_day_and_uuids_become_the_types_of_the_options(name: str, tmp_path: Path) -> None:
    random = Random(11)
    maria = name == MARIADB_NEWEST
    options = {"match": "d.t", "as": {"a": "time", "b": "time"} | ({"u": "binary"} if maria else {})}
    kinds = "a time, b time(6)" + (", u uuid" if maria else "")
    hour = dt.timedelta(hours=1)
    edges = [dt.timedelta(0), 24 * hour, 24 * hour - dt.timedelta(microseconds=1), -dt.timedelta(seconds=1), 838 * hour]

    def values() -> list[Any]:
        at = random.choice([*edges, random.randrange(24 * 3600 * 10**6) * dt.timedelta(microseconds=1)])
        raw = random.randbytes(random.choice([1, 9, 16])).ljust(16, b"\0")
        return [at - at % dt.timedelta(seconds=1), at, *([str(uuid.UUID(bytes=raw, version=4))] if maria else [])]

    rows = [values() for _ in range(200)] + [[None] * len(values())]
    with MysqlServer(name) as server:
        server.script("CREATE DATABASE d", f"CREATE TABLE d.t (id int AUTO_INCREMENT PRIMARY KEY, {kinds})")
        with LogRun(server, tmp_path, options=[options]) as run:
            written(server, [tuple(row) for row in rows])
            run.catch_up()
            assert run.table("d.t").stopped is None
            found = run.rows("d.t")
        assert exactly(found) == exactly(by_chunk(server, "d.t", TableOptions.model_validate(options)))
    for row, (a, b, *others) in zip(found, rows, strict=True):
        assert (row["a"], row["b"]) == (of_day(a), of_day(b))
        assert not others or row["u"] == (others[0] and uuid.UUID(others[0]).bytes)


def of_day(length: dt.timedelta | None) -> dt.time | None:
    inside = length is not None and dt.timedelta(0) <= length < dt.timedelta(days=1)
    return (dt.datetime.min + length).time() if length is not None and inside else None
