"""Columns of copies in the emulators of BigQuery and Snowflake that are changed without a look at the rows, and those
for which the rows are written again."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.bigquery import BigQueryDatabase
from support.conforming import Table
from support.snowflake import SnowflakeDatabase
from support.versions import turns
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.errors import Retry
from tailrace.targets.bigquery.rest import BigQueryClient
from tailrace.targets.snowflake.session import SnowflakeSession
from tailrace.targets.sql.columns import evolve

Copies = BigQueryDatabase | SnowflakeDatabase


@pytest.fixture(params=turns("bigquery", "snowflake"))
def copies(request: pytest.FixtureRequest, tmp_path: Path) -> Copies:
    (tmp_path / "log").mkdir()
    server = request.getfixturevalue(request.param)
    if request.param == "bigquery":
        return BigQueryDatabase(tmp_path, server, server.new_dataset())
    return SnowflakeDatabase(tmp_path, server, server.new_schema())


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that were sent since it was emptied."""
    found: list[str] = []
    change, execute = BigQueryClient.change, SnowflakeSession._execute

    def changed(self: BigQueryClient, statement: str, *more: Any, **named: Any) -> dict[str, Any]:
        found.append(statement)
        return change(self, statement, *more, **named)

    def executed(self: SnowflakeSession, statement: str, values: Sequence[object] = ()) -> int:
        found.append(statement)
        return execute(self, statement, values)

    monkeypatch.setattr(BigQueryClient, "change", changed)
    monkeypatch.setattr(SnowflakeSession, "_execute", executed)
    return found


class Evolving:
    """A copy with one row, and the schema that its columns have."""

    def __init__(self, copies: Copies, first: TableSchema) -> None:
        self._copies, self.schema = copies, first
        Table(copies, first)
        self._target = (
            copies.server.target(copies.dataset)
            if isinstance(copies, BigQueryDatabase)
            else copies.server.target(copies.schema)
        )

    @property
    def place(self) -> tuple[str, str]:
        copies = self._copies
        return (copies.dataset if isinstance(copies, BigQueryDatabase) else copies.schema), self.schema.table_name

    def fill(self, **values: str) -> None:
        with self._session() as session:
            names = ", ".join(map(session.quote, values))
            session.run(f"INSERT INTO {session._table(self.place)} ({names}) SELECT {', '.join(values.values())}")

    def to(self, *columns: Column) -> None:
        after = self.schema.model_copy(update={"version": self.schema.version + 1, "columns": columns})
        with self._session() as session:
            evolve(session, self.place, self.schema, after, lambda: None)
        self.schema = after

    def held(self) -> dict[str, Any]:
        (row,) = self._copies.rows(self.schema)
        return row

    def _session(self) -> Any:
        return closing(self._target._session())  # type: ignore[attr-defined]  # of a warehouse


def column(id_: int, name: str, type_: str = "string", key: int | None = None) -> Column:
    return Column(name=name, id=id_, source_type=type_, type=type_, key=key)


KEY = column(1, "id", "int64", 0)


@pytest.fixture
def copy(copies: Copies, sent: list[str]) -> Iterator[Evolving]:
    columns = (KEY, column(2, "a"), column(3, "n", "int64"), column(4, "größe", "decimal(9,2)"))
    made = Evolving(copies, TableSchema(table_id=7, schema_name="s", table_name="t", version=1, columns=columns))
    made.fill(id="1", a="'x'", n="42", größe="1.25")
    sent.clear()
    yield made


def was_read(sent: list[str]) -> bool:
    """Some statement has written the copy's rows again."""
    return any("CREATE OR REPLACE TABLE" in one or one.startswith("INSERT INTO ") for one in sent)


def test_columns_that_come_go_and_get_names_or_more_digits_leave_the_rows_alone(
    copy: Evolving, sent: list[str]
) -> None:
    number, size = column(3, "n", "int64"), column(4, "größe", "decimal(9,2)")
    copy.to(KEY, column(2, "a"), number, size, column(5, "b"), column(6, "d", "date"))
    assert copy.held() == {"id": 1, "a": "x", "n": 42, "größe": 1.25, "b": None, "d": None}
    copy.fill(id="2", b="'y'")
    sent.clear()
    copy.to(KEY, column(2, "title"), number, size, column(5, "b"), column(6, "d", "date"))
    assert {row["title"] for row in copy._copies.rows(copy.schema)} == {"x", None}
    copy.to(KEY, column(2, "title"), number, size, column(5, "b"))
    copy.to(KEY, column(2, "title"), size, column(5, "b"))
    copy.to(KEY, column(2, "head"), size, column(5, "c"))
    copy.to(KEY, column(2, "head"), size, column(5, "c"), column(7, "e"))
    rows = sorted(copy._copies.rows(copy.schema), key=lambda row: int(row["id"]))
    assert rows == [
        {"id": 1, "head": "x", "größe": 1.25, "c": None, "e": None},
        {"id": 2, "head": None, "größe": None, "c": "y", "e": None},
    ]
    copy.to(KEY, column(2, "head"), column(4, "größe", "decimal(12,2)"), column(5, "c"), column(7, "e"))
    assert sent and not was_read(sent)


def test_a_number_gets_more_digits_without_a_look_at_the_rows(copy: Evolving, sent: list[str]) -> None:
    copy.to(KEY, column(2, "a"), column(3, "n", "decimal(22,0)"), column(4, "größe", "decimal(20,2)"))
    assert sent and not was_read(sent)
    copy.fill(id="2", n="CAST('9999999999999999999999' AS NUMERIC(22,0))", größe="CAST('1234567.25' AS NUMERIC(20,2))")
    rows = sorted(copy._copies.rows(copy.schema), key=lambda row: int(row["id"]))
    assert [(int(row["n"]), float(row["größe"])) for row in rows] == [(42, 1.25), (9999999999999999999999, 1234567.25)]


def test_another_type_has_the_rows_written_again(copy: Evolving, sent: list[str]) -> None:
    copy.to(KEY, column(2, "a"), column(3, "n"), column(4, "größe", "decimal(9,2)"))
    assert copy.held() == {"id": 1, "a": "x", "n": "42", "größe": 1.25} and was_read(sent)


def test_a_name_that_was_given_before_is_given_again(copy: Evolving, sent: list[str]) -> None:
    """BigQuery keeps the name of a column that was dropped: the rows are written again then."""
    size = column(4, "größe", "decimal(9,2)")
    copy.to(KEY, column(2, "a"), size)
    again = (KEY, column(2, "a"), size, column(9, "m"), column(8, "n"))
    if isinstance(copy._copies, BigQueryDatabase):
        with pytest.raises(Retry, match="was recently deleted"):
            copy.to(*again)
        assert not was_read(sent)
        copy.to(*again)
        assert was_read(sent)
    else:
        copy.to(*again)
        assert not was_read(sent)
    assert copy.held() == {"id": 1, "a": "x", "größe": 1.25, "m": None, "n": None}
    sent.clear()
    copy.to(KEY, column(2, "a"), size, column(8, "n"))
    assert copy.held() == {"id": 1, "a": "x", "größe": 1.25, "n": None} and not was_read(sent)
