"""The values of every type of PostgreSQL in BigQuery's emulator: by chunks, by rows in a batch's
script and by load jobs, each compared with the source's own text."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from demo.compare import plain
from support.bigquery import BigQueryService
from support.bigquery_reader import BigQueryCopies
from support.database_copies import settle
from support.pg_values import TYPES, VALUES
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.warehouse import copying
from tailrace.changelog.types import MAX_PRECISION
from tailrace.targets.bigquery import session as bigquery_session

UNFIT = {
    "numeric(10,2)": ["NaN"],
    "date": ["infinity", "-infinity", "0044-03-15 BC", "5874897-12-31"],
    "timestamp": ["infinity", "-infinity", "4713-01-01 00:00:00 BC", "294276-12-31 23:59:59.999999"],
    "timestamptz": ["infinity", "-infinity", "0044-03-15 00:00:00+00 BC", "294276-12-31 23:59:59.999999+00"],
}
"""Values that the type of the copy does not have: NULL, and counted."""
OF_A_STEP = 500
"""The ids of the rows that come by one way begin at a multiple of it."""


def is_emulated(kind: str) -> bool:
    """False: its copy is BIGNUMERIC, and the emulator's interface creates no table with such a column."""
    found = re.match(r"(?:numeric|decimal)\((\d+),(\d+)\)", kind)
    if found is None or int(found[1]) > MAX_PRECISION:
        return True
    return int(found[2]) <= 9 and int(found[1]) - int(found[2]) <= 29


def rows_of(kinds: Mapping[str, Sequence[str]], none: str | None) -> list[list[Any]]:
    count = max(map(len, kinds.values()))
    return [[values[n] if n < len(values) else none for values in kinds.values()] for n in range(count)]


def of_text(text: str, kind: pa.DataType) -> object:
    """What a server's text of a value says, as a value of this type."""
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if kind.tz and moment.tzinfo is None else moment
    if pa.types.is_floating(kind):
        return float(text)
    return Decimal(text) if pa.types.is_decimal(kind) or pa.types.is_integer(kind) else text


def column(copies: BigQueryCopies, name: str) -> tuple[pa.DataType, dict[int, object]]:
    """Type and values of a column of the copy, by id."""
    found = copies.read("everything")
    pairs = zip(found["id"].to_pylist(), found[name].to_pylist(), strict=True)
    return found[name].type, {int(id_): plain(value) for id_, value in pairs}


def nulled(copy: Pipeline) -> dict[str, int]:
    (table,) = copy.driver.control.status().tables
    return {one.column: one.values for one in table.nulled}


@pytest.mark.timeout(300)
def test_every_type_of_postgresql(
    postgres: PostgresServer, bigquery: BigQueryService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {kind: values + UNFIT.get(kind, []) for kind, values in VALUES.items() if is_emulated(kind)}
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds))
    postgres.execute(f"{TYPES}; CREATE SCHEMA shop; CREATE TABLE shop.everything (id int PRIMARY KEY, {columns})")
    rows, marks = rows_of(kinds, None), ", ".join(["%s"] * (len(kinds) + 1))

    def insert(step: int) -> None:
        with postgres.connect() as connection:
            for number, row in enumerate(rows):
                values = [step * OF_A_STEP + number, *row]
                connection.execute(f"INSERT INTO shop.everything VALUES ({marks})".encode(), values)

    copies, ways = BigQueryCopies.of(bigquery), 3
    copy = copying(postgres.source(), bigquery.spec(copies.dataset), tmp_path)
    insert(0)
    with copy.running():
        settle(copy)
        insert(1)
        settle(copy)
        monkeypatch.setattr(bigquery_session, "LISTED_ROWS", 0)
        insert(2)
        settle(copy)
        counted = nulled(copy)
    asked = postgres.connect()
    asked.execute("SET search_path = pg_catalog; SET TimeZone = 'UTC'")
    for number, kind in enumerate(kinds):
        name = f"c{number}"
        text = f"CASE WHEN {name} IS NOT NULL THEN format('%s', {name}) END"
        source = asked.execute(f"SELECT id, {text} FROM shop.everything".encode()).fetchall()
        type_, found = column(copies, name)
        texts = {id_: None if text in UNFIT.get(kind, ()) else text for id_, text in source}
        assert found == {id_: _of_postgresql(text, kind, type_) for id_, text in texts.items()}, kind
        assert counted.get(name, 0) == ways * len(UNFIT.get(kind, ())), kind
    assert len(found) == ways * len(rows)
    asked.close()


def _of_postgresql(text: str | None, kind: str, type_: pa.DataType) -> object:
    if text is None:
        return None
    if pa.types.is_boolean(type_):
        return text == "t"
    if pa.types.is_binary(type_):
        return bytes.fromhex(text[2:])
    return plain(float(np.float32(text)) if kind == "float4" else of_text(text, type_))
