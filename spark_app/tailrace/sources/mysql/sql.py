"""Pieces of SQL: literals, and conditions on keys. The server does every comparison, by the key's own collation.

Sessions run with NO_BACKSLASH_ESCAPES: a quote is all that is doubled.
"""

import struct
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from tailrace.changelog.keys import Key
from tailrace.errors import ReadRefused
from tailrace.sources.mysql.model import MysqlColumn, MysqlTable, quoted


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def listed(values: Sequence[str]) -> str:
    return "(" + ", ".join(text(v) for v in values) + ")"


def column(name: str) -> str:
    """Qualified: a bare name could mean an output column."""
    return f"t.{quoted(name)}"


def key_names(table: MysqlTable) -> str:
    return ", ".join(column(c.name) for c in table.key_columns)


def key_order(table: MysqlTable, descending: bool = False) -> str:
    return ", ".join(column(c.name) + (" DESC" if descending else "") for c in table.key_columns)


def in_range(table: MysqlTable, lower: Key | None, upper: Key | None) -> str:
    """Condition for keys in (lower, upper]; None: open."""
    parts = []
    if lower is not None:
        parts.append(_beyond(table, lower, ">", ">"))
    if upper is not None:
        parts.append(_beyond(table, upper, "<", "<="))
    return " AND ".join(parts) or "TRUE"


def in_list(table: MysqlTable, keys: Sequence[Key]) -> str:
    """Condition for the keys given."""
    return "(" + " OR ".join(f"({equal(table, key)})" for key in keys) + ")" if keys else "FALSE"


def equal(table: MysqlTable, key: Key) -> str:
    pairs = zip(table.key_columns, _literals(table, key), strict=True)
    return " AND ".join(f"{column(c.name)} = {value}" for c, value in pairs)


def _beyond(table: MysqlTable, key: Key, strict: str, last: str) -> str:
    """The whole key, spelled out column by column: the optimizer makes ranges of an index out of it, which it does not
    of a comparison of rows."""
    names, literals = [column(c.name) for c in table.key_columns], _literals(table, key)
    condition = f"{names[-1]} {last} {literals[-1]}"
    for name, value in zip(names[-2::-1], literals[-2::-1], strict=True):
        condition = f"({name} {strict} {value} OR ({name} = {value} AND {condition}))"
    if len(names) == 1:
        return condition
    # The first column's bound alone: what the index can start from.
    return f"{names[0]} {strict}= {literals[0]} AND {condition}"


def _literals(table: MysqlTable, key: Key) -> list[str]:
    if len(key) != len(table.key_columns):
        given = f"the key of {table.name} has {len(table.key_columns)} columns, not {len(key)}"
        raise ReadRefused(table.name, given, "Write a value for each column of the key, in its order.")
    return [literal(c, value) for c, value in zip(table.key_columns, key, strict=True)]


def literal(of: MysqlColumn, value: str) -> str:
    """A key column's canonical text (`changelog.keys`) as the server compares it with the column."""
    match of.type.name:
        case "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year" | "decimal":
            return _number(value)
        case "bit":
            return {"true": "1", "false": "0"}.get(value) or _number(value)
        case "float" | "double":
            return _float(of.type.name, value)
        case "enum" | "set":
            return _labelled(of, value)
        case "datetime" | "timestamp":
            return text(value.removesuffix("Z").removesuffix("+00:00").replace("T", " "))
        case _:
            return "x" + text(value.removeprefix("\\x")) if of.native == "binary" else text(value)


def _number(value: str) -> str:
    """Bare and without an exponent, so that the comparison is exact; no number is left to the server to refuse."""
    try:
        number = Decimal(value)
    except InvalidOperation:
        return text(value)
    return f"{number:f}" if number.is_finite() else text(value)


def _float(kind: str, value: str) -> str:
    """Spelled as the double that the server compares with: 0.1 in four bytes is 0.10000000149011612 there."""
    number = float(value)
    if kind == "float":
        number = struct.unpack("f", struct.pack("f", number))[0]
    return repr(number) if "e" in repr(number) else f"{number!r}e0"


def _labelled(of: MysqlColumn, value: str) -> str:
    """A label as its number: that is the order of labels in an index, while a comparison with text would use the
    text."""
    known = {label: i for i, label in enumerate(of.type.labels)}
    if of.type.name == "enum":
        return str(known[value] + 1) if value in known else "0"
    return str(sum(1 << known[label] for label in value.split(",") if label in known))
