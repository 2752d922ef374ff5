"""The extreme values of every type of MySQL and MariaDB, as they are, as text and as keys: the same by log and by
chunk, and every key in one chunk."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mysql_packages import RELEASES
from support.mysql import MysqlServer
from support.mysql_log import LogRun, by_chunk, exactly, keys_in_chunks
from support.mysql_values import MEMBERS, ONLY_VALUES, VALUES
from support.versions import turns
from tailrace.contract.resources import TableOptions

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
