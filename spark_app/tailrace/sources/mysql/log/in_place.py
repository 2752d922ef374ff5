"""Columns that an ALTER TABLE … MODIFY made wider: every value stays what it is, so no row is read again.

Pure; asked by `catalog_poll` behind the statement. The proof has two sides that must agree: the statement's text, and
the catalog at a place behind which the log has nothing (docs/decisions/0076-wider-columns-stay.md).
"""

from collections.abc import Mapping
from dataclasses import replace

from tailrace.changelog.records.terms import TableSchema
from tailrace.selection.filters import filter_columns
from tailrace.sources.mysql.log.statements import NewType
from tailrace.sources.mysql.model import MysqlColumn, MysqlTable
from tailrace.sources.mysql.types import ColumnType

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_LENGTHS = ("varchar", "varbinary")


def only_wider(schema: TableSchema, before: MysqlTable, now: MysqlTable, stated: Mapping[str, NewType]) -> bool:
    """True if the statement certainly changed nothing but columns that hold more values now. A generated column may
    have other values for it."""
    then, there = ({c.name: c for c in table.columns} for table in (before, now))
    held = {c.name for c in schema.key_columns} | filter_columns(schema)
    if not stated or then.keys() != there.keys() or any(c.generated for c in there.values()):
        return False
    return all(
        name not in held and then[name].copied and _is_wider(then[name], column) and _is(stated[name], column.type)
        if name in stated
        else _plain(then[name].type) == _plain(column.type)
        for name, column in there.items()
    ) and stated.keys() <= there.keys()  # fmt: skip


def _plain(type: ColumnType) -> ColumnType:
    return replace(type, logged=())


def _is_wider(before: MysqlColumn, now: MysqlColumn) -> bool:
    if before.form != now.form or before.mask != now.mask or before.nullable > now.nullable:
        return False
    old, new = before.type, now.type
    if old.name in _INTEGERS and new.name in _INTEGERS:
        same = old.unsigned == new.unsigned and not (old.zerofill or new.zerofill)
        return same and _INTEGERS.index(old.name) < _INTEGERS.index(new.name)
    if old.name != new.name or old.charset != new.charset:
        return False
    if new.name == "enum":
        known = _plain(old).labels
        sure = "?" not in "".join(known)  # it may stand for another character
        return sure and known == new.labels[: len(known)] and len(known) < len(new.labels)
    return new.name in _LENGTHS and (old.length or 0) < (new.length or 0)


def _is(stated: NewType, type: ColumnType) -> bool:
    """The catalog shows what the statement says: not what the table was before it."""
    if type.name == "enum":
        return stated == NewType("enum", len(type.labels))
    if type.name in _LENGTHS:
        return stated == NewType(type.name, int(type.text[len(type.name) + 1 : -1]))
    return stated == NewType(f"u{type.name}" if type.unsigned else type.name)
