"""Values of every type of PostgreSQL, MySQL and MariaDB, copied into a warehouse by chunks and by the log, and compared
with the source's own text; those that a type of the copy does not have are NULL, and counted by column."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from demo.compare import plain
from support.database_copies import place_of, settle
from support.mysql import MysqlServer
from support.mysql_values import ONLY_VALUES
from support.mysql_values import VALUES as MYSQL_VALUES
from support.pg_values import TYPES, VALUES
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.warehouse import copying
from tailrace.contract.resources import TargetSpec

UNFIT = {
    "numeric(10,2)": ["NaN"],
    "date": ["infinity", "-infinity", "0044-03-15 BC", "5874897-12-31"],
    "timestamp": ["infinity", "-infinity", "4713-01-01 00:00:00 BC", "294276-12-31 23:59:59.999999"],
    "timestamptz": ["infinity", "-infinity", "0044-03-15 00:00:00+00 BC", "294276-12-31 23:59:59.999999+00"],
}
"""Values that the type of the copy does not have."""
ZERO = {"date": ["'0000-00-00'"], "datetime(6)": ["'2021-02-31 23:00:00.5'"]}
"""The same of MySQL."""
OF_A_WAY = 500
"""The ids of the rows that come by one way begin at a multiple of it."""
Read = Callable[[], pa.Table]
"""Reads the copy."""
Has = Callable[[str], bool]
"""Whether the emulator has columns for a type of the source."""
Between = Sequence[Callable[[], None]]
"""After the chunks and the first changes: what is done before each further way."""


def any_type(kind: str) -> bool:
    return True


def require_postgresql(
    postgres: PostgresServer,
    spec: TargetSpec,
    read: Read,
    folder: Path,
    *,
    has: Has = any_type,
    between: Between = (),
) -> None:
    kinds = {kind: values + UNFIT.get(kind, []) for kind, values in VALUES.items() if has(kind)}
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds))
    postgres.execute(f"{TYPES}; CREATE SCHEMA shop; CREATE TABLE shop.everything (id int PRIMARY KEY, {columns})")
    rows, marks = _rows_of(kinds, None), ", ".join(["%s"] * (len(kinds) + 1))

    def insert(way: int) -> None:
        with postgres.connect() as connection:
            for number, row in enumerate(rows):
                values = [way * OF_A_WAY + number, *row]
                connection.execute(f"INSERT INTO shop.everything VALUES ({marks})".encode(), values)

    counted, ways = _copied(copying(postgres.source(), spec, folder), insert, between), 2 + len(between)
    copy = read()
    assert copy.num_rows == ways * len(rows)
    for number, kind in enumerate(kinds):
        name = f"c{number}"
        source = _texts(postgres, name)
        type_, found = _column(copy, name)
        texts = {id_: None if text in UNFIT.get(kind, ()) else text for id_, text in source}
        assert found == {id_: _of_postgresql(text, kind, type_) for id_, text in texts.items()}, kind
        assert counted.pop(name, 0) == ways * len(UNFIT.get(kind, ())), kind
    assert not counted


def _texts(postgres: PostgresServer, name: str) -> list[tuple[int, str | None]]:
    """A column's texts by id, which do not depend on where names are looked for."""
    text = f"CASE WHEN {name} IS NOT NULL THEN pg_catalog.format('%s', {name}) END"
    with postgres.connect() as connection:
        connection.execute("SET search_path = ''")
        return connection.execute(f"SELECT id, {text} FROM shop.everything".encode()).fetchall()


def require_mysql(
    server: MysqlServer, spec: TargetSpec, read: Read, folder: Path, *, has: Has = any_type, between: Between = ()
) -> None:
    """`server`: with ALLOW_INVALID_DATES."""
    given = {kind: MYSQL_VALUES.get(kind, []) + ONLY_VALUES.get(kind, []) for kind in [*MYSQL_VALUES, *ONLY_VALUES]}
    kinds = {kind: values + ZERO.get(kind, []) for kind, values in given.items() if has(kind)}
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds))
    rows, session = _rows_of(kinds, "DEFAULT"), {"init_command": "SET time_zone = '+00:00'", "charset": "utf8mb4"}
    server.script("CREATE DATABASE shop", f"CREATE TABLE shop.everything (id int PRIMARY KEY, {columns})")

    def insert(way: int) -> None:
        listed = ", ".join(f"({way * OF_A_WAY + n}, {', '.join(row)})" for n, row in enumerate(rows))
        insertion = f"INSERT INTO shop.everything VALUES {listed}"
        server.script("SET time_zone = '+00:00'", insertion, charset="utf8mb4")

    counted, ways = _copied(copying(place_of(server), spec, folder), insert, between), 2 + len(between)
    copy = read()
    assert copy.num_rows == ways * len(rows)
    for number, (kind, values) in enumerate(kinds.items()):
        name, zeros = f"c{number}", len(ZERO.get(kind, ()))
        forms = f"CAST({name} AS char CHARACTER SET utf8mb4), HEX({name}), {name} * 1e0"
        source = server.execute(f"SELECT id, {forms} FROM shop.everything", **session)
        type_, found = _column(copy, name)
        unfit = range(len(values) - zeros, len(values))
        expected = {id_: None if id_ % OF_A_WAY in unfit else _of_mysql(value, kind, type_) for id_, *value in source}
        assert found == expected, kind
        assert counted.pop(name, 0) == ways * zeros, kind
    assert not counted


def _copied(copy: Pipeline, insert: Callable[[int], None], between: Between) -> dict[str, int]:
    """Values that became NULL, by column."""
    insert(0)
    with copy.running():
        settle(copy)
        insert(1)
        settle(copy)
        for way, change in enumerate(between, 2):
            change()
            insert(way)
            settle(copy)
        (table,) = copy.driver.control.status().tables
        return {one.column: one.values for one in table.nulled}


def _rows_of(kinds: Mapping[str, Sequence[str]], none: str | None) -> list[list[Any]]:
    count = max(map(len, kinds.values()))
    return [[values[n] if n < len(values) else none for values in kinds.values()] for n in range(count)]


def _column(copy: pa.Table, name: str) -> tuple[pa.DataType, dict[int, object]]:
    """Type and values of a column, by id."""
    pairs = zip(copy["id"].to_pylist(), copy[name].to_pylist(), strict=True)
    return copy[name].type, {int(id_): plain(value) for id_, value in pairs}


def _of_text(text: str, kind: pa.DataType) -> object:
    """What a server's text of a value says, as a value of this type."""
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if kind.tz and moment.tzinfo is None else moment
    if pa.types.is_floating(kind):
        return float(text)
    return Decimal(text) if pa.types.is_decimal(kind) or pa.types.is_integer(kind) else text


def _of_postgresql(text: str | None, kind: str, type_: pa.DataType) -> object:
    if text is None:
        return None
    if pa.types.is_boolean(type_):
        return text == "t"
    if pa.types.is_binary(type_):
        return bytes.fromhex(text[2:])
    return plain(float(np.float32(text)) if kind == "float4" else _of_text(text, type_))


def _of_mysql(value: Sequence[Any], kind: str, type_: pa.DataType) -> object:
    text, digits, number = value
    if digits is None:
        return None
    if kind.startswith("bit"):
        return bool(int(digits, 16)) if pa.types.is_boolean(type_) else int(digits, 16)
    if pa.types.is_binary(type_):
        return bytes.fromhex(digits)
    if pa.types.is_floating(type_):
        return plain(float(number))
    if kind.endswith("zerofill") and type_ == pa.string():
        return re.sub(r"^0+(?=\d)", "", text)
    return plain(_of_text(text, type_))
