"""Foreign keys whose effects on the child table the storage engine carries out below the log.

Used by `facts`, and by `log.foreign_keys`, which has the child tables read again. They are read out of SHOW CREATE
TABLE: MariaDB's information_schema does not show them to a user who may only read the table.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pymysql
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tailrace.databases.mysql import faults
from tailrace.databases.mysql.connect import Connection, execute
from tailrace.sources.mysql.model import MysqlTable, quoted

_RULES = tuple(f"ON {what} {how}" for what in ("UPDATE", "DELETE") for how in ("CASCADE", "SET NULL"))
"""Not SET DEFAULT: InnoDB refuses the parent's change, as with NO ACTION."""
_BEGINS, _CHECK, _END = "  CONSTRAINT `", "` CHECK (", ")"
"""A constraint in a definition, one that is no foreign key, and the end of all of them."""


@dataclass(frozen=True)
class Cascade:
    """A foreign key whose effects on the child table are not in the log."""

    child: str
    parent: tuple[str, str]
    """Schema and name."""
    columns: tuple[str, ...]
    """The parent's, which it references."""
    rule: str
    child_columns: tuple[str, ...] = ()
    """The child's, which refer to these. Empty: a change log of an older version does not name them."""


@dataclass(frozen=True)
class UnknownCascades:
    """A table whose foreign keys are not known, so that it may have such ones."""

    child: str
    denied: bool
    """The right to see them is missing; False: the server's words for one of them were not understood."""


def cascades(connection: Connection, tables: Sequence[MysqlTable]) -> tuple[Cascade | UnknownCascades, ...]:
    return tuple(found for table in tables for found in _of(connection, table))


def _of(connection: Connection, table: MysqlTable) -> Iterator[Cascade | UnknownCascades]:
    yield from cascades_of(connection, (table.schema_name, table.table_name)) or ()


def cascades_of(connection: Connection, place: tuple[str, str]) -> tuple[Cascade | UnknownCascades, ...] | None:
    """Those of one table, by its schema and name. None: it is gone, or locked now."""
    schema, name = place
    child = f"{schema}.{name}"
    try:
        text = str(execute(connection, f"SHOW CREATE TABLE {quoted(schema)}.{quoted(name)}")[0][1])
    except pymysql.MySQLError as error:
        kind = faults.kind(error)
        if kind == "right":
            return (UnknownCascades(child, denied=True),)
        if kind in ("gone", "locked"):
            return None
        raise
    return tuple(cascades_in((child, text), schema))


def cascades_in(definition: tuple[str, str], schema: str) -> Iterator[Cascade | UnknownCascades]:
    """`definition`: the table's name, and what SHOW CREATE TABLE says of it. `schema`: the table's, for parents without
    one."""
    child, text = definition
    for lines in _constraints(text):
        parsed = _parsed(lines)
        if parsed is None:
            if _CHECK not in lines[0]:
                yield UnknownCascades(child, denied=False)
            continue
        reference = parsed.find(exp.Reference)
        parent = None if reference is None else reference.find(exp.Table)
        if reference is not None and parent is not None:
            options = [str(option).upper() for option in reference.args.get("options") or ()]
            rule = " ".join(option for option in _RULES if option in options)
            if rule:
                columns = tuple(column.name for column in reference.this.expressions)
                own = parsed.find(exp.ForeignKey)
                names = () if own is None else tuple(column.name for column in own.expressions)
                yield Cascade(child, (parent.db or schema, parent.name), columns, rule, names)


def _constraints(text: str) -> list[list[str]]:
    """The lines of each: names may have ends of lines."""
    found: list[list[str]] = []
    inside = False
    for line in text.split("\n"):
        if line.startswith(_BEGINS):
            found.append([])
        inside = line.startswith(_BEGINS) or (inside and not line.startswith(_END))
        if inside:
            found[-1].append(line)
    return found


def _parsed(lines: Sequence[str]) -> exp.Expr | None:
    """None: it cannot be read. What follows the constraint's last line is not part of it."""
    for behind in range(1, len(lines) + 1):
        constraint = "\n".join(lines[:behind]).strip().removesuffix(",")
        with suppress(SqlglotError):
            parsed = sqlglot.parse_one(f"ALTER TABLE t ADD {constraint}", read="mysql")
            return None if isinstance(parsed, exp.Command) else parsed
    return None
