"""The statements of Debezium's documentation, inserted into the signal table of real servers."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support import mysql_shop
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.resources import replicator as document_of
from support.versions import turns
from tailrace import sources
from tailrace.changelog.records.terms import Position
from tailrace.changelog.state import SnapshotState
from tailrace.contract.resources import SourceSpec
from tailrace.driver.asking.signal_acts import PREFIX, SignalNotices
from tailrace.driver.asking.signal_table import TableSignals, open_signals
from tailrace.errors import SourceRefused

SIGNALS = "schema1.debezium_signal"
TABLES = (
    "CREATE TABLE schema1.table1 (id int PRIMARY KEY, color varchar(20), quantity int)",
    "CREATE TABLE schema1.table2 (id int PRIMARY KEY, color varchar(20), quantity int)",
    *(f"INSERT INTO schema1.table{t} VALUES (1, 'blue', 5), (2, 'red', 50), (3, 'blue', 500)" for t in (1, 2)),
)
DEBEZIUMS = f"CREATE TABLE {SIGNALS} (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL)"
COPIED = {"table1", "table2", "My.Table"}
COLLECTIONS = '"data-collections": ["schema1.table1", "schema1.table2"]'
SEVERAL = (
    '"additional-conditions": [{"data-collection": "schema1.table1", "filter": "color=\'\'blue\'\' AND quantity>10"},'
    ' {"data-collection": "SCHEMA1.table2", "filter": "id > 1"}]'
)
SELECTS = (
    '"additional-conditions": [{"data-collection": "schema1.table1",'
    ' "filter": "SELECT * FROM [schema1].[table1] WHERE id > 1 ORDER BY quantity DESC"},'
    ' {"data-collection": "schema1.table2", "filter": "SELECT * FROM schema1.table2"}]'
)
STATEMENTS: tuple[tuple[str, dict[str, int]], ...] = (
    (f'{{{COLLECTIONS}, "type": "incremental"}}', {"table1": 3, "table2": 3}),
    (f'{{{COLLECTIONS}, "type": "incremental", {SEVERAL}}}', {"table1": 1, "table2": 2}),
    (f'{{"type": "BLOCKING", {COLLECTIONS}, {SELECTS}}}', {"table1": 2, "table2": 3}),
    ('{"data-collections": ["schema1.table2"], "surrogate-key": "quantity"}', {"table2": 3}),
    ('{"data-collections": ["schema1.\\"My.Table\\""]}', {"My.Table": 1}),
)
"""Data of a signal as SQL has it, and the rows that are read of each table."""
FOUR_COLUMNS = "the signal table has 4 columns. Fix: Give it three: id, type, data, in this order."


@dataclass(frozen=True)
class Server:
    source: dict[str, Any]
    """`spec.source`."""
    run: Callable[[str], object]
    mariadb: bool = False

    def signal(self, name: str, kind: str, data: str = "") -> None:
        if self.source["type"] == "mysql":
            data = data.replace("\\", "\\\\")
        self.run(f"INSERT INTO {SIGNALS} VALUES ('{name}', '{kind}', '{data}')")


@pytest.fixture(params=turns(18, MYSQL, MARIADB_NEWEST, 14))
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    if isinstance(request.param, int):
        with PostgresServer(request.param) as postgres, closing(postgres.connect()) as connection:
            place = {"host": postgres.host, "port": postgres.port, "database": "postgres", "username": "postgres"}
            yield _with_tables(Server({"type": "postgresql", **place}, _runner(connection)), "SCHEMA")
    else:
        with MysqlServer(request.param) as mysql:
            yield _with_tables(Server(mysql_shop.spec(mysql), mysql.script, "maria" in mysql.name), "DATABASE")


def _runner(connection: psycopg.Connection) -> Callable[[str], object]:
    connection.autocommit = True
    return lambda statement: connection.execute(statement.encode())


def _with_tables(server: Server, place: str) -> Server:
    mark = "`" if server.source["type"] == "mysql" else '"'
    odd = f"schema1.{mark}My.Table{mark}"
    more = f"CREATE TABLE {odd} (id int PRIMARY KEY)", f"INSERT INTO {odd} VALUES (1)"
    for statement in (f"CREATE {place} schema1", *TABLES, *more):
        server.run(statement)
    return server


class Signalled:
    """A copy whose signals are carried out."""

    def __init__(self, server: Server, folder: Path, *include: str) -> None:
        source = {**server.source, "signalTable": SIGNALS}
        document = document_of(
            source=source,
            tables={"include": ["schema1.*", *include]},
            target={"type": "delta", "location": (folder / "lake").as_uri()},
            storage={"location": (folder / "log").as_uri()},
        )
        spec = SourceSpec.model_validate(source)
        self.copy, self._dialect = Pipeline(document, sources.open(spec, "test"), folder), sources.dialect(spec)

    def settled(self) -> None:
        """All that was written is read, and all signals are carried out."""
        table = TableSignals(self._dialect, SignalNotices())
        with self.copy.source.session() as session:
            end = Position(session.log_end())
        self.copy.until(lambda state: state.position >= end and state.tables)
        while open_signals(self.copy.state):
            table.step(self.copy.driver.control)
        with self.copy.source.session() as session:
            self.copy.settle(Position(session.log_end()))

    def asked(self, signal: str) -> dict[str, SnapshotState]:
        """The snapshots of a signal, by table."""
        state = self.copy.state
        mine = [s for i, s in state.snapshots.items() if i.startswith(PREFIX) and s.plan.request == signal]
        return {state.tables[s.plan.tables[0]].schema.table_name: s for s in mine}

    def rows(self, signal: str) -> dict[str, int]:
        return {n: sum(t.rows_done for t in s.tables.values()) for n, s in self.asked(signal).items()}

    def answers(self) -> dict[str | None, tuple[str, str]]:
        found = ((logged.signal, logged.answer) for logged in self.copy.state.signals.values())
        return {signal.id: (answer.outcome, answer.message) for signal, answer in found if answer is not None}

    @property
    def tables(self) -> set[str]:
        return {t.schema.table_name for t in self.copy.state.tables.values() if not t.removed}


def test_statements_of_debeziums_documentation_read_the_rows_they_name(server: Server, tmp_path: Path) -> None:
    here = Signalled(server, tmp_path)
    missing = here.copy.refused(SourceRefused, "the signal table schema1.debezium_signal does not exist")
    server.run(missing.fix.split("`", 1)[1].rpartition("`")[0])
    server.run(f"DROP TABLE {SIGNALS}")
    server.run(DEBEZIUMS)
    with here.copy.running():
        here.settled()
        for number, (data, _) in enumerate(STATEMENTS):
            server.signal(f"n{number}", "execute-snapshot", data)
        server.signal("5-open", "snapshot-window-open")  # as Debezium does beside us
        server.run(f"UPDATE {SIGNALS} SET type = 'snapshot-window-close' WHERE id = '5-open'")
        server.run(f"DELETE FROM {SIGNALS} WHERE id = '5-open'")
        server.signal("log-1", "log", '{"message": "Signal message at offset {}"}')
        here.settled()
        for number, (data, rows) in enumerate(STATEMENTS):
            assert here.rows(f"n{number}") == rows, data
            assert {s.ended and s.ended.outcome for s in here.asked(f"n{number}").values()} == {"completed"}
        assert here.answers() == {**{f"n{i}": ("done", "") for i in range(len(STATEMENTS))}, "log-1": ("done", "")}
        assert here.tables == COPIED
        names = [f"n{i}" for i in range(len(STATEMENTS))]
        assert [s.id for s in here.copy.driver.control.status().signals] == [*names, "log-1"]
    server.signal("all", "execute-snapshot", STATEMENTS[0][0])
    server.signal("end of all", "stop-snapshot", '{"type": "INCREMENTAL"}')
    for name in ("stopped", "unknown"):
        server.signal(name, "execute-snapshot" if name == "stopped" else "schema-changes", STATEMENTS[0][0])
    server.signal("paused", "pause-snapshot", "not read")
    server.signal("resumed", "resume-snapshot", "{}")
    server.signal("end", "stop-snapshot", '{"data-collections": ["schema1.table1"], "type": "incremental"}')
    with here.copy.running():  # they were written while no process ran
        here.settled()
        ends = {name: s.ended and s.ended.outcome for name, s in here.asked("stopped").items()}
        assert ends == {"table1": "stopped", "table2": "completed"}
        assert {s.ended and s.ended.outcome for s in here.asked("all").values()} == {"stopped"}
        assert not any(s.suspended for s in here.asked("stopped").values())
        assert here.answers()["unknown"][0] == "ignored" and here.answers()["end"] == ("done", "")
        assert here.rows("n0") == STATEMENTS[0][1]
        assert here.copy.lake.table("schema1", "table1").rows().num_rows == 3


def test_a_signal_table_that_changes_stops_nothing_and_its_columns_count_by_position(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.run(DEBEZIUMS)
    here = Signalled(server, tmp_path, SIGNALS)
    with here.copy.running():
        here.settled()
        assert here.tables == {*COPIED, "debezium_signal"}, "it is named in tables.include"
    here = Signalled(server, tmp_path / "other")
    (tmp_path / "other").mkdir()
    every = '{"data-collections": ["schema1.table1"]}'
    postgres = server.source["type"] == "postgresql"

    def insert(name: str, columns: str = "VALUES") -> None:
        server.run(f"INSERT INTO {SIGNALS} {columns} ('{name}', 'execute-snapshot', '{every}')")

    with here.copy.running():
        here.settled()
        server.run(f"ALTER TABLE {SIGNALS} RENAME COLUMN type TO what")
        insert("renamed")
        server.run(f"ALTER TABLE {SIGNALS} ADD COLUMN more int")
        insert("four", "(id, what, data) VALUES")
        server.run(f"ALTER TABLE {SIGNALS} DROP COLUMN more")
        json_type = "ALTER COLUMN data TYPE jsonb USING data::jsonb" if postgres else "MODIFY data json"
        server.run(f"ALTER TABLE {SIGNALS} {json_type}")
        insert("json")
        server.run(f"TRUNCATE TABLE {SIGNALS}")
        insert("emptied")
        here.settled()
        found = here.answers()
        assert found.pop(None) == ("ignored", FOUR_COLUMNS)
        assert found == dict.fromkeys(("renamed", "json", "emptied"), ("done", ""))
        server.run(f"DROP TABLE {SIGNALS}")
        here.copy.until(lambda _: "does not exist" in caplog.text, work=True)
        server.run(DEBEZIUMS)
        if postgres:  # a row before the table is in the publication is not in the log
            here.copy.until(lambda _: _published(server), work=True)
        insert("again")
        here.settled()
        assert here.rows("again") == {"table1": 3} and here.tables == COPIED


def _published(server: Server) -> bool:
    cursor: Any = server.run(
        "SELECT count(*) FROM pg_publication_tables WHERE tablename = 'debezium_signal'"
        " AND pubname IN (SELECT pubname FROM pg_publication_tables WHERE tablename = 'table1')"
    )
    return bool(cursor.fetchone()[0])


def test_what_keeps_signals_from_being_read_is_refused_with_the_statement_that_mends_it(
    server: Server, tmp_path: Path
) -> None:
    create = f"CREATE TABLE {SIGNALS} (id varchar(9), kind varchar(9)"
    if server.source["type"] == "postgresql":
        server.run(f"{create}, data text, more int)")
        refused(server, tmp_path, "has 4 columns instead of 3", mend=False)
        server.run(f"ALTER TABLE {SIGNALS} DROP COLUMN more")
        server.run(f"ALTER TABLE {SIGNALS} SET UNLOGGED")
        refused(server, tmp_path, "is not in the log")
        refused(server, tmp_path, "has no primary key")
        server.run('CREATE PUBLICATION given FOR TABLE schema1.table1, schema1.table2, schema1."My.Table"')
        given = replace(server, source={**server.source, "postgresql": {"publication": "given"}})
        refused(given, tmp_path, "is not in the publication given")
        server.run("CREATE ROLE poor LOGIN REPLICATION")
        server.run(
            "GRANT CREATE ON DATABASE postgres TO poor; CREATE ROLE owner; GRANT USAGE ON SCHEMA schema1 TO poor"
        )
        for table in ("table1", "table2", '"My.Table"'):
            server.run(f"ALTER TABLE schema1.{table} OWNER TO poor")
        server.run(f"ALTER TABLE {SIGNALS} OWNER TO owner")
        poor = replace(server, source={**server.source, "username": "poor"})
        refused(poor, tmp_path, r"only the owner of the signal table schema1.debezium_signal \(owner\)")
        here = Signalled(poor, tmp_path)
    else:
        server.run(f"{create}, data int)")
        refused(server, tmp_path, "column 'data' .* has the type int")
        server.run("CREATE USER reader IDENTIFIED BY ''")
        server.run("GRANT SELECT ON schema1.table1 TO reader")
        more = "SLAVE MONITOR" if server.mariadb else "XA_RECOVER_ADMIN"
        server.run(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT, {more} ON *.* TO reader")
        reader = replace(server, source={**server.source, "username": "reader"})
        refused(reader, tmp_path, "reader has no right on the signal table")
        here = Signalled(reader, tmp_path)
    with here.copy.running():
        server.signal("a", "log", '{"message": "x"}')
        here.settled()
        assert here.answers() == {"a": ("done", "")}


def refused(server: Server, folder: Path, why: str, *, mend: bool = True) -> None:
    """A first start creates nothing; the fix is followed."""
    error = Signalled(server, folder).copy.refused(SourceRefused, why)
    if mend:
        server.run(error.fix.split("`", 1)[1].partition("`; or")[0].split("`, with")[0].rstrip(".").rstrip("`"))
