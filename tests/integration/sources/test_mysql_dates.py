"""Dates that do not exist (`0000-00-00`, `2024-02-31`): text where it is asked for, the same by log and by chunk; else
the table stops, by both with the same words."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mysql_packages import RELEASES
from support.mysql import MysqlServer
from support.mysql_log import LogRun, by_chunk, exactly, keys_in_chunks
from support.versions import turns
from tailrace.changelog.keys import Key
from tailrace.contract.resources import TableOptions
from tailrace.errors import ValueUnsupported

COLUMNS = {
    "a": "date",
    "b": "datetime",
    "c": "datetime(3)",
    "d": "datetime(6)",
    "e": "timestamp NULL",
    "f": "timestamp(2) NULL",
    "g": "timestamp(6) NULL",
}
DATES = ("0000-00-00", "2026-02-00", "2026-00-00", "0000-05-06", "0000-00-07", "2024-02-31", "9999-12-31", "0001-01-01")
CLOCKS = ("", " 00:00:00.5", " 23:59:59.123456")


@pytest.fixture(scope="module", params=turns(*RELEASES))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param, sql_mode="ALLOW_INVALID_DATES", default_time_zone="+05:00") as running:
        running.script("CREATE DATABASE d")
        yield running


def made(server: MysqlServer, columns: str) -> None:
    server.script("DROP TABLE IF EXISTS d.t", f"CREATE TABLE d.t ({columns})")


def test_as_text_they_are_the_servers_text_by_log_and_by_chunk(server: MysqlServer, tmp_path: Path) -> None:
    made(server, "id int AUTO_INCREMENT PRIMARY KEY, " + ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()))
    options = {"match": "d.t", "asText": list(COLUMNS)}
    with LogRun(server, tmp_path, options=[options]) as run:
        for clock in CLOCKS:
            rows = ", ".join(f"('{day}', {', '.join([repr(day + clock)] * 3)})" for day in DATES)
            server.script(f"INSERT INTO d.t (a, b, c, d) VALUES {rows}")
        server.script("INSERT INTO d.t (e, f, g) VALUES (0, 0, 0), ('2024-02-29', '2024-02-29 01:02:03.4', NULL)")
        run.catch_up()
        spelled = ", ".join(f"CAST({name} AS char)" for name in COLUMNS)
        utc = "SET time_zone = '+00:00'"
        asked = server.execute(f"SELECT {spelled} FROM d.t ORDER BY id", init_command=utc)
        assert [tuple(row[name] for name in COLUMNS) for row in run.rows("d.t")] == list(asked)
        assert exactly(run.rows("d.t")) == exactly(by_chunk(server, "d.t", TableOptions.model_validate(options)))


def test_where_they_may_not_become_null_log_and_chunk_stop_the_table_with_the_same_words(
    server: MysqlServer, tmp_path: Path
) -> None:
    strict = {"match": "d.*", "onUnsupported": "Fail"}
    server.script("DROP DATABASE d", "CREATE DATABASE d")
    zero, others = "0000-00-00", ("2026-02-00", "2024-02-31", "0000-05-06")
    wrong = [(kind, day) for kind in COLUMNS.values() for day in (zero, *others) if day == zero or kind[0] == "d"]
    for i, (kind, _) in enumerate(wrong):
        server.execute(f"CREATE TABLE d.t{i} (id int PRIMARY KEY, v {kind})")
    with LogRun(server, tmp_path, options=[strict]) as run:
        server.script(*(f"INSERT INTO d.t{i} VALUES (1, '2024-02-29'), (2, '{w}')" for i, (_, w) in enumerate(wrong)))
        run.catch_up()
        for i in range(len(wrong)):
            with pytest.raises(ValueUnsupported, match=r"as: \{v: text\}") as by_chunks:
                by_chunk(server, f"d.t{i}", TableOptions.model_validate(strict))
            stopped = run.table(f"d.t{i}").stopped
            assert stopped is not None and stopped.error == "ValueUnsupported"
            assert (stopped.message, stopped.fix) == (by_chunks.value.message, by_chunks.value.fix)


@pytest.mark.parametrize("kind", ["date", "datetime(6)"])
def test_in_a_key_they_are_text_and_the_chunks_hold_every_key_once(
    server: MysqlServer, tmp_path: Path, kind: str
) -> None:
    made(server, f"k {kind} PRIMARY KEY, v int")
    options = {"match": "d.t", "asText": ["k"]}
    with LogRun(server, tmp_path, options=[options]) as run:
        server.script(f"INSERT INTO d.t VALUES {', '.join(f'({day!r}, {i})' for i, day in enumerate(sorted(DATES)))}")
        server.script("UPDATE d.t SET k = '2024-02-30' WHERE k = '2024-02-31'", "DELETE FROM d.t WHERE k = 0")
        run.catch_up()
        by_log = exactly(run.rows("d.t"))
    asked = TableOptions.model_validate(options)
    assert by_log == exactly(by_chunk(server, "d.t", asked))
    assert keys_in_chunks(server, "d.t", asked) == server_order(server)


def server_order(server: MysqlServer) -> list[Key]:
    return [(str(day),) for (day,) in server.execute("SELECT CAST(k AS char) FROM d.t ORDER BY k")]
