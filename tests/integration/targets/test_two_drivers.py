"""Two drivers open one new copy at once in a warehouse, where no key forbids two records of it: the old one, which does
not know yet that it was overtaken, and the new one, whose copy stays whole."""

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from support.bigquery import BigQueryDatabase, BigQueryService
from support.conforming import LogOf, Subject, Table
from support.random_log import first_schema
from support.snowflake import SnowflakeDatabase, SnowflakeService
from support.versions import turns
from support.warehouse import Several, begun
from tailrace.errors import Fenced, Retry, TailraceError
from tailrace.targets.api import TableFailed, UnitBatch
from tailrace.targets.snowflake.session import SnowflakeSession
from tailrace.targets.sql import state
from tailrace.targets.sql.session import TargetSession
from tailrace.targets.sql.state import StoredCopy
from tailrace.targets.sql.unit import SqlUnit


@pytest.fixture(params=turns("bigquery", "snowflake"))
def copies(request: pytest.FixtureRequest, tmp_path: Path) -> BigQueryDatabase | SnowflakeDatabase:
    (tmp_path / "log").mkdir()
    if request.param == "bigquery":
        bigquery: BigQueryService = request.getfixturevalue("bigquery")
        return BigQueryDatabase(tmp_path, bigquery, bigquery.new_dataset())
    snowflake: SnowflakeService = request.getfixturevalue("snowflake")
    return SnowflakeDatabase(tmp_path, snowflake, snowflake.new_schema())


@dataclass
class Meanwhile:
    """The question whether a driver was overtaken: while it waits for the answer, something else happens."""

    work: Callable[[], object]
    overtaken: bool
    asked: int = 0

    def __call__(self) -> None:
        self.asked += 1
        if self.asked == 1:
            self.work()
        if self.overtaken:
            raise Fenced("another driver owns the change log", "")


def records(table: Table) -> list[tuple[Any, ...]]:
    assert isinstance(table.unit, SqlUnit)
    with table.unit.sessions.session() as session:
        return session.rows(f"SELECT relation, hidden FROM {state.SCHEMA}.tables")


def require_whole(copies: Subject, log: LogOf, table: Table) -> None:
    """The new driver, and each one after it, moves the copy, of which there is one record."""
    for _ in range(2):
        log.grow_by_changes(9)
        table.follow(log)
        assert table.applied.applied_record == log.record and copies.rows(table.schema)
        table.restart()
    assert len(records(table)) == 1


@pytest.mark.parametrize("when", ["before its record", "after it has asked"])
def test_a_driver_that_was_overtaken_while_it_made_a_copy_leaves_the_newer_one_whole(
    copies: Subject, tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer: list[tuple[LogOf, Table]] = []

    def overtake() -> None:
        newer.append(begun(copies, tmp_path))
        log, table = newer[0]
        log.grow_by_changes(9)
        table.follow(log)

    def add_late(session: TargetSession, copy: StoredCopy) -> None:
        monkeypatch.setattr(state, "add", add)
        overtake()
        add(session, copy)

    add, is_late = state.add, when == "before its record"
    if is_late:
        monkeypatch.setattr(state, "add", add_late)
    admit = Meanwhile((lambda: None) if is_late else overtake, overtaken=when != "after it has asked")
    with pytest.raises((Fenced, TableFailed)):
        Table(copies, first_schema(composite=False), admit=admit)
    ((log, table),) = newer
    require_whole(copies, log, table)


def test_a_record_whose_table_is_about_to_be_made_is_left_to_the_newer_driver(copies: Subject, tmp_path: Path) -> None:
    """The old one sees it without its table, as if another program had dropped that."""
    schema = first_schema(composite=False)

    def old() -> None:
        with pytest.raises(Fenced):
            Table(copies, schema, admit=Meanwhile(lambda: None, overtaken=True))

    admit = Meanwhile(old, overtaken=False)
    with suppress(TableFailed):  # in Snowflake the old one has dropped what was beside the place
        Table(copies, schema, admit=admit)
    assert admit.asked
    log, newer = begun(copies, tmp_path)
    require_whole(copies, log, newer)


def test_of_two_drivers_that_commit_first_one_moves_the_tables(copies: Subject, tmp_path: Path) -> None:
    """Each has changes of another table, so that no state tells them of each other."""
    several = Several(copies, tmp_path, 2)
    old = several.unit
    several.open()
    batch = several.grow()
    first, second = ({id_: batch.slices[id_]} for id_ in sorted(batch.slices))
    meanwhile = Meanwhile(lambda: old.apply(UnitBatch(batch.record, frozenset(first), first)), overtaken=False)
    several.unit.units.run = replace(several.unit.units.run, admit=meanwhile)
    with pytest.raises(Retry, match="another driver has"):
        several.unit.apply(UnitBatch(batch.record, frozenset(second), second))
    for _ in range(2):
        several.open()
        several.unit.apply(several.grow())
    one, other = several.rows()
    assert one and one == other


def test_a_definition_of_a_copy_that_arrives_late_puts_nothing_in_the_newer_one_s_place(
    tmp_path: Path, snowflake: SnowflakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Snowflake, where nothing tells whether a statement will arrive (in BigQuery: `test_bigquery_rewrites`)."""
    (tmp_path / "log").mkdir()
    copies, late = SnowflakeDatabase(tmp_path, snowflake, snowflake.new_schema()), list[str]()
    schema = first_schema(composite=False)

    def lost(self: SnowflakeSession, statement: str, values: Any = ()) -> int:
        late.append(statement)
        raise Retry("the driver was killed")

    with monkeypatch.context() as patched, pytest.raises((Retry, TableFailed)):
        admit = Meanwhile(lambda: patched.setattr(SnowflakeSession, "_execute", lost), overtaken=False)
        Table(copies, schema, admit=admit)
    (definition,) = late

    def arrive() -> None:
        with closing(SnowflakeSession(snowflake.config(copies.schema))) as session, pytest.raises(TailraceError):
            session._execute(definition)

    Table(copies, schema, admit=Meanwhile(arrive, overtaken=False))
    log, newer = begun(copies, tmp_path)
    require_whole(copies, log, newer)
    assert copies.server.tables(copies.schema) == [schema.table_name]
