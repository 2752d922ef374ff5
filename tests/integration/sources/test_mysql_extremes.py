"""The extreme values of every type of MySQL and MariaDB, as they are, as text and as keys: the same by log and by
chunk, and every key in one chunk."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mysql_packages import RELEASES
from support.mysql import MysqlServer
from support.mysql_log import LogRun, by_chunk, exactly, keys_in_chunks
from support.versions import turns
from tailrace.contract.resources import TableOptions

SIZES = [(1, 0), (1, 1), (9, 9), (18, 0), (18, 18), (18, 9), (19, 18), (30, 30), (38, 0), (38, 30), (39, 0), (65, 30)]


def decimals(precision: int, scale: int) -> list[str]:
    least = f"0.{'0' * (scale - 1)}1" if scale else "1"
    most = f"{'9' * (precision - scale) or '0'}.{'9' * scale}".rstrip(".")
    return ["0", "-0.0", least, f"-{least}", most, f"-{most}", "0.000001", "-0.0000001", "0.00000012"]


MEMBERS = ",".join(f"'m{i}'" for i in range(63))
VALUES: dict[str, list[str]] = {
    "tinyint": ["-128", "127", "0"],
    "tinyint unsigned zerofill": ["0", "255"],
    "mediumint": ["-8388608", "8388607", "-1"],
    "mediumint unsigned zerofill": ["16777215", "0"],
    "int zerofill": ["4294967295", "42"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "bigint unsigned zerofill": ["18446744073709551615", "9223372036854775808", "0"],
    "bit": ["b'0'", "b'1'"],
    "bit(9)": ["0", "511"],
    "bit(63)": ["0", "9223372036854775807"],
    "bit(64)": ["9223372036854775808", "18446744073709551615", "0"],
    "year": ["0", "1901", "2155"],
    "float": ["0", "-0e0", "1.17549435e-38", "-3.40282346e38", "1e-45", "0.1", "16777217", "1e10", "1e-7"],
    "float(7,3) zerofill": ["9999.999", "0.001"],
    "double": ["0", "-0e0", "2.2250738585072014e-308", "1.7976931348623157e308", "5e-324", "0.1", "1e22", "-1e-7"],
    **{f"decimal({p},{s})": decimals(p, s) for p, s in SIZES},
    **{f"decimal({p},{s}) zerofill": ["0", "0.0000001", "1.5", "10"] for p, s in SIZES},
    "date": ["'1000-01-01'", "'9999-12-31'"],
    "datetime": ["'1000-01-01'", "'9999-12-31 23:59:59'"],
    "datetime(1)": ["'0001-01-01 00:00:00.1'", "'9999-12-31 23:59:59.9'"],
    "datetime(6)": ["'0001-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'"],
    "timestamp NULL": ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"],
    "timestamp(5) NULL": ["'1970-01-01 00:00:01.00001'", "'2038-01-19 03:14:07.99999'"],
    "time": ["'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'", "'100:00:00'"],
    **{
        f"time({n})": [f"'-838:59:58.{'9' * n}'", f"'838:59:58.{'9' * n}'", f"'-00:00:00.{'0' * (n - 1)}1'"]
        for n in range(1, 7)
    },
    "char(5)": ["''", "'a '", "' a'", "'\\t'", "'a\\0'"],
    "char(5) CHARACTER SET latin1": ["'a '", "'é'"],
    "char(3) CHARACTER SET utf16": ["'a '", "''"],
    "char(4) CHARACTER SET binary": ["'a '", "x'0000'", "''", "x'ff'"],
    "varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin": ["'a  '", "''", "'\\0'", "'😀'"],
    "varbinary(9)": ["x'00'", "x'0000'", "''", "'a '"],
    "binary(4)": ["x'00'", "x'41'", "x'20202020'"],
    "binary(255)": ["x'01'", "''"],
    "text": ["''", "'a '"],
    "text CHARACTER SET ucs2": ["'a '", "''"],
    "blob": ["x'00ff'", "''"],
    "enum('a','b ','é','0','1')": ["'a'", "'b'", "'é'", "'0'", "1", "0"],
    "enum('x','z') CHARACTER SET latin1": ["'x'", "'nonsense'"],
    f"set({MEMBERS})": ["9223372036854775807", "4611686018427387904", "1", "0"],
    "json": ["'1.0'", "'1e2'", "'-0'", "'[1.10]'", "'18446744073709551616'", "'0.00000001'", "'null'", "'\"\"'"],
}
ONLY_VALUES: dict[str, list[str]] = {
    "enum('','a')": ["''", "'a'", "'nonsense'"],
    "set('q','','r')": ["''", "1", "2", "3", "4", "5", "6", "7"],
    f"set({MEMBERS},'m63')": ["18446744073709551615", "9223372036854775808", "0"],
}
"""Not of keys."""
SERVERS_OWN_TEXT = ("decimal", "date", "timestamp", "time", "char", "varchar", "text", "enum", "set", "year", "bigint")
FEW = ("decimal(9,9)", "decimal(18,9)", "decimal(38,30)", "decimal(65,30)", "time(2)", "time(5)")
NO_KEYS = ("text", "blob", "json")
KEYS = [kind for kind in VALUES if kind.startswith(FEW) or not kind.startswith((*NO_KEYS, "decimal", "time("))]
OTHER_AS_TEXT = [kind for kind in KEYS if not kind.startswith(("char", "varchar", "enum", "set", "time"))]


@pytest.fixture(scope="module", params=turns(*RELEASES))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param, sql_mode="ALLOW_INVALID_DATES", default_time_zone="+05:00") as running:
        running.script("CREATE DATABASE d")
        yield running


def written(server: MysqlServer, *statements: str) -> None:
    server.script("SET time_zone = '+00:00'", *statements, charset="utf8mb4")


def as_text(table: str, columns: Sequence[str]) -> dict[str, object]:
    return {"match": table, "asText": list(columns)}


def test_they_are_the_same_as_they_are_and_as_the_servers_text(server: MysqlServer, tmp_path: Path) -> None:
    kinds = VALUES | ONLY_VALUES
    columns = {f"c{i}": kind for i, kind in enumerate(kinds)}
    made = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    rows = [[v[i] if i < len(v) else "NULL" for v in kinds.values()] for i in range(max(map(len, kinds.values())))]
    inserted = ", ".join(f"({i}, {', '.join(row)})" for i, row in enumerate(rows))
    for table in ("d.t", "d.x"):
        written(server, f"CREATE TABLE {table} (id int PRIMARY KEY, {made})")
    options = as_text("d.x", list(columns))
    with LogRun(server, tmp_path, options=[options]) as run:
        written(server, f"INSERT INTO d.t VALUES {inserted}", f"INSERT INTO d.x VALUES {inserted}")
        run.catch_up()
        assert run.table("d.t").stopped is None and run.table("d.x").stopped is None
        plain, texts = run.rows("d.t"), run.rows("d.x")
    assert exactly(plain) == exactly(by_chunk(server, "d.t"))
    assert exactly(texts) == exactly(by_chunk(server, "d.x", TableOptions.model_validate(options)))
    others = ("zerofill", "SET binary", "year")
    own = [n for n, kind in columns.items() if kind.startswith(SERVERS_OWN_TEXT) and not kind.endswith(others)]
    spelled = ", ".join(f"CAST({name} AS char CHARACTER SET utf8mb4)" for name in own)
    session = {"init_command": "SET time_zone = '+00:00'", "charset": "utf8mb4"}
    asked = server.execute(f"SELECT {spelled} FROM d.x ORDER BY id", **session)
    assert [[row[name] for name in own] for row in texts] == [list(row) for row in asked]


def test_every_column_of_a_wide_table_is_the_same(server: MysqlServer, tmp_path: Path) -> None:
    """Around the counts at which the protocol and the log write them otherwise (251), and of the widest table that
    InnoDB has."""
    kinds = ("int", "varchar(2) CHARACTER SET latin1", "bit(3)", "smallint unsigned")
    values = ("-7", "'w'", "5", "65535")
    made = {count: [f"c{i} {kinds[i % 4]}" for i in range(count)] for count in (249, 250, 251, 1016)}
    for count, columns in made.items():
        server.script(f"CREATE TABLE d.w{count} (id int PRIMARY KEY, {', '.join(columns)}) ROW_FORMAT=DYNAMIC")
    with LogRun(server, tmp_path) as run:
        for count in made:
            row = ", ".join("NULL" if i % 5 == 3 else values[i % 4] for i in range(count))
            server.script(f"INSERT INTO d.w{count} VALUES (1, {row}), (2, {row}), (3, {row})")
            server.script(
                f"UPDATE d.w{count} SET c{count - 1} = 1 WHERE id = 2", f"DELETE FROM d.w{count} WHERE id = 3"
            )
        run.catch_up()
        for count in made:
            rows = run.rows(f"d.w{count}")
            assert [len(row) for row in rows] == [count + 1] * 2
            assert exactly(rows) == exactly(by_chunk(server, f"d.w{count}"))


def test_as_keys_they_are_the_same_and_in_one_chunk_each(server: MysqlServer, tmp_path: Path) -> None:
    options = [as_text(f"d.y{i}", ["v"]) for i in range(len(OTHER_AS_TEXT))]
    tables = [
        (f"d.{name}{i}", kind) for name, kinds in (("k", KEYS), ("y", OTHER_AS_TEXT)) for i, kind in enumerate(kinds)
    ]
    made = [(name, kind.removesuffix(" NULL")) for name, kind in tables]
    written(server, *(f"CREATE TABLE {name} (v {kind} NOT NULL PRIMARY KEY, w int)" for name, kind in made))
    with LogRun(server, tmp_path, options=options) as run:
        rows = [(name, ", ".join(f"({v}, 1)" for v in VALUES[kind])) for name, kind in tables]
        written(server, *(f"INSERT IGNORE INTO {name} VALUES {listed}" for name, listed in rows))
        written(server, *(f"UPDATE {name} SET w = 2" for name, _ in tables))
        run.catch_up()
        for name, kind in tables:
            asked = TableOptions.model_validate(as_text(name, ["v"])) if ".y" in name else None
            assert run.table(name).stopped is None, kind
            by_log, read = exactly(run.rows(name)), exactly(by_chunk(server, name, asked))
            assert sorted(by_log) == sorted(read), kind
            assert len(keys_in_chunks(server, name, asked)) == len(read), kind


UNFIT = ("enum('','a')", "set('q','','r')", f"set({MEMBERS},'m63')", "enum('?','a')", "varchar(9) CHARACTER SET sjis")


def test_keys_whose_text_or_order_would_be_ambiguous_are_refused(server: MysqlServer, tmp_path: Path) -> None:
    written(server, *(f"CREATE TABLE d.u{i} (v {kind} NOT NULL PRIMARY KEY)" for i, kind in enumerate(UNFIT)))
    with LogRun(server, tmp_path, include="d.u*") as run:
        for i, kind in enumerate(UNFIT):
            stopped = run.table(f"d.u{i}").stopped
            assert stopped is not None and f"in the key of d.u{i}" in stopped.message, kind


@pytest.mark.parametrize("name", turns(*(name for name in RELEASES if name.startswith("mariadb"))))
def test_columns_that_the_log_of_mariadb_has_in_forms_of_its_own_are_refused_before_they_are_read(
    name: str, tmp_path: Path
) -> None:
    with MysqlServer(name) as server:
        server.script(
            "CREATE DATABASE d",
            "SET GLOBAL mysql56_temporal_format = OFF",
            "CREATE TABLE d.old (id int PRIMARY KEY, a time, v timestamp(6), b datetime)",
            "CREATE TABLE d.packed (id int PRIMARY KEY, v varchar(500) COMPRESSED)",
            "CREATE TABLE d.year (id int PRIMARY KEY, v year(2))",
        )
        with LogRun(server, tmp_path) as run:
            fixes = {}
            for table in ("old", "packed", "year"):
                stopped = run.table(f"d.{table}").stopped
                assert stopped is not None and stopped.error == "ReadRefused"
                fixes[table] = stopped.fix
        assert "`d`.`packed` MODIFY" in fixes["packed"] and "options[].columns" in fixes["year"]
        server.script(*fixes["old"].removeprefix("Run ").partition(";")[0].split(", then "))
        with LogRun(server, tmp_path / "again") as run:
            assert run.table("d.old").stopped is None
