"""The journal's knowledge of a captured table's definition, kept in its fingerprint, so that a restart knows what the
process before it knew: rows that were logged before a change of the table are read as the table was then, and a column
that a statement added is not taken for one that came without.

Called by `catalog_poll`, which records it with each look that matters, and by the stream when it takes the tables over.
"""

import json
from collections.abc import Collection
from dataclasses import astuple

from tailrace.changelog.records.tables import Parts
from tailrace.changelog.records.terms import Column, Position, TableSchema
from tailrace.errors import CorruptLog
from tailrace.sources.mysql.cascades import Cascade
from tailrace.sources.mysql.model import MysqlColumn, MysqlTable
from tailrace.sources.mysql.types import ColumnType, Form, logical

_TYPE, _ANNOUNCED, _CASCADE, _LOOKED = "type", "announced", "cascade", "looked"


def parts_of(table: MysqlTable) -> Parts:
    return {_TYPE: {c.name: json.dumps(astuple(c.type)[:-1]) for c in table.columns}}


def with_announced(parts: Parts, columns: Collection[str]) -> Parts:
    """`columns`: that statements in the log added, and no version has yet."""
    kept = {kind: items for kind, items in parts.items() if kind != _ANNOUNCED}
    return {**kept, _ANNOUNCED: dict.fromkeys(sorted(columns), "")} if columns else kept


def announced(parts: Parts) -> set[str]:
    return set(parts.get(_ANNOUNCED, ()))


def with_looked(parts: Parts, until: Position) -> Parts:
    """`until`: `tables.Captured.looked`."""
    kept = {kind: items for kind, items in parts.items() if kind != _LOOKED}
    return {**kept, _LOOKED: {"until": str(until)}} if until else kept


def looked(parts: Parts) -> Position:
    text = parts.get(_LOOKED, {}).get("until", "0")
    if not text.isdecimal():
        raise CorruptLog("a position in the fingerprint of a table in the change log cannot be read")
    return Position(int(text))


def with_cascades(parts: Parts, found: Collection[Cascade]) -> Parts:
    """`found`: the table's foreign keys by which changes of captured tables reach it below the log."""
    kept = {kind: items for kind, items in parts.items() if kind != _CASCADE}
    texts = sorted(json.dumps([c.parent, c.columns, c.rule, c.child_columns]) for c in found)
    return {**kept, _CASCADE: dict.fromkeys(texts, "")} if texts else kept


def cascades_in_parts(table: str, parts: Parts) -> frozenset[Cascade]:
    found = [json.loads(text) for text in parts.get(_CASCADE, ())]
    return frozenset(
        Cascade(table, (schema, name), tuple(columns), rule, tuple(names[0]) if names else ())
        for (schema, name), columns, rule, *names in found
    )


def remembered(schema: TableSchema, parts: Parts, nulls: bool) -> MysqlTable | None:
    """The table as it was when the fingerprint was recorded, as far as rows in the log need it. None: the fingerprint
    does not have all columns of the version, which rows have brought since. `nulls`: `Form.sets_null` of its columns,
    which is what the options say now."""
    known = {c.name: c for c in schema.columns}
    types = {name: _type(schema.name, text) for name, text in parts.get(_TYPE, {}).items()}
    if not known.keys() <= types.keys():
        return None
    columns = tuple(_column(name, type, known.get(name), nulls) for name, type in types.items())
    return MysqlTable(schema.schema_name, schema.table_name, columns, key_index="", schema=schema, stop=None)


def _type(table: str, text: str) -> ColumnType:
    try:
        return ColumnType(*json.loads(text))
    except (ValueError, TypeError):
        raise CorruptLog(f"the fingerprint of {table} in the change log cannot be read") from None


def _column(name: str, type: ColumnType, known: Column | None, nulls: bool) -> MysqlColumn:
    copied_as = "" if known is None else known.type
    return MysqlColumn(
        name=name,
        type=type,
        form=Form(copied_as, type.fraction, nulls and (known is None or known.key is None)),
        native=logical(type),
        nullable=known is None or known.nullable,
        key=None if known is None else known.key,
        generated=False,
        copied=known is not None,
        mask=None if known is None else known.mask,
    )
