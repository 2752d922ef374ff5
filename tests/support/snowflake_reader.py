"""Tables in Snowflake's emulator as its client reads them, without Tailrace's code."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from snowflake.connector import errors

from support.snowflake import SnowflakeService
from tailrace.targets.snowflake.session import OWN

_TYPES = {
    "BOOLEAN": pa.bool_(),
    "FLOAT": pa.float64(),
    "VARCHAR": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIME(6)": pa.time64("us"),
    "TIMESTAMP_NTZ(6)": pa.timestamp("us"),
    "TIMESTAMP_LTZ(6)": pa.timestamp("us", "UTC"),
}
_NUMBER = re.compile(r"NUMBER\((\d+),(\d+)\)")


@dataclass(frozen=True)
class SnowflakeCopies:
    """The schema of one Replicator."""

    service: SnowflakeService
    schema: str
    more: Mapping[str, object] = field(default_factory=dict)
    """Fields of the target's block."""

    @classmethod
    def of(cls, service: SnowflakeService, **more: object) -> "SnowflakeCopies":
        """A schema that is not there yet."""
        return cls(service, service.new_schema(), more)

    @property
    def target(self) -> dict[str, Any]:
        """`spec.target`."""
        return self.service.spec(self.schema, **self.more).model_dump(mode="json", by_alias=True, exclude_none=True)

    def kinds(self, table: str) -> dict[str, str]:
        """Types of the columns, as the table's comment has them."""
        said = self._said(table)
        return {} if said is None else {name: kind for name, kind, _ in said["columns"]}

    def key(self, table: str) -> list[str]:
        """As the table's comment tells: nothing enforces it."""
        said = self._said(table) or {"columns": [], "key": []}
        by_id = {id_: name for name, _, id_ in said["columns"]}
        return [by_id[id_] for id_ in said["key"]]

    def _said(self, table: str) -> dict[str, Any] | None:
        """A table's comment; None: it is not there."""
        names, rows = self.service.named(f"SHOW TABLES IN SCHEMA {self._quoted(self.schema)}")
        shown = [dict(zip(map(str.lower, names), row, strict=True)) for row in rows]
        comments = {str(one["name"]): str(one["comment"]) for one in shown}
        said: dict[str, Any] | None = json.loads(comments[table]) if table in comments else None
        return said and {**said, "columns": [[name.replace('""', '"'), *more] for name, *more in said["columns"]]}

    def read(self, table: str) -> pa.Table:
        """All rows. `FileNotFoundError`: there is no such table."""
        kinds = self.kinds(table)
        if not kinds:
            raise FileNotFoundError(f"there is no copy {table}")
        named = ", ".join(map(_quote, kinds))
        try:
            rows = self.service.query(f"SELECT {named} FROM {self.place(table)}")
        except errors.ProgrammingError as error:  # it was just put in another's place
            raise FileNotFoundError(str(error)) from error
        columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
        arrays = [_array(values, kind) for values, kind in zip(columns, kinds.values(), strict=True)]
        return pa.table(arrays, names=list(kinds))

    def place(self, table: str, own: bool = False) -> str:
        """`own`: a table of Tailrace's own."""
        return f"{self._quoted(self.schema + OWN if own else self.schema)}.{_quote(table)}"

    def drop(self) -> None:
        """Drop the schema, and Tailrace's own beside it."""
        for schema in (self.schema, self.schema + OWN):
            self.service.query(f"DROP SCHEMA IF EXISTS {self._quoted(schema)}")

    def _quoted(self, schema: str) -> str:
        return f"{_quote(self.service.database.upper())}.{_quote(schema)}"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _array(values: Sequence[Any], kind: str) -> pa.Array:
    number = _NUMBER.fullmatch(kind)
    if number is not None:
        whole = number[2] == "0" and int(number[1]) < 19
        return pa.array(values, pa.int64() if whole else pa.decimal128(int(number[1]), int(number[2])))
    if kind == "BINARY":
        values = [None if value is None else bytes(value) for value in values]
    return pa.array(values, _TYPES[kind])
