"""The columns that a copy has beside the source's (`options[].history`). Pure.

To a target a copy with `Changes` is a table without a key that has more columns than the source's, one with
`SoftDelete` or `Versions` a table with the source's key and more columns: `stored`. With `Versions` a key has many
rows, one of which, at most, is open. Everything between the source and the worker of
the unit knows the source's table alone.
"""

import re
from functools import lru_cache

from tailrace.changelog.records.terms import Column, TableSchema

# Names under the usual prefix: those of a table are told by `named`.
OP, SEQ, COMMIT_TIME, UNCHANGED = "_op", "_seq", "_commit_time", "_unchanged"
ADDED = (
    Column(name=OP, id=-1, source_type="text", type="string"),
    Column(name=SEQ, id=-2, source_type="bigint", type="int64"),
    Column(name=COMMIT_TIME, id=-3, source_type="timestamp with time zone", type="timestamptz"),
    Column(name=UNCHANGED, id=-4, source_type="text", type="string"),
)
"""The columns behind the source's, whose ids are above 0, of a table with a row for each change."""
COMMIT_DAY = "_commit_day"
DAY = Column(name=COMMIT_DAY, id=-10, source_type="date", type="date")
"""The column behind those, of a table that is partitioned by days: the day of `COMMIT_TIME`, in UTC."""
DELETED, DELETED_AT = "_is_deleted", "_deleted_at"
MARKS = (
    Column(name=DELETED, id=-5, source_type="boolean", type="bool"),
    Column(name=DELETED_AT, id=-6, source_type="timestamp with time zone", type="timestamptz"),
)
"""The columns behind the source's of a table whose deleted rows stay, marked."""
VALID_FROM, VALID_TO, IS_CURRENT = "_valid_from", "_valid_to", "_is_current"
VALIDITY = (
    Column(name=VALID_FROM, id=-7, source_type="timestamp with time zone", type="timestamptz"),
    Column(name=VALID_TO, id=-8, source_type="timestamp with time zone", type="timestamptz"),
    Column(name=IS_CURRENT, id=-9, source_type="boolean", type="bool"),
)
"""The columns behind the source's of a table all of whose versions stay."""


def added(schema: TableSchema) -> tuple[Column, ...]:
    """The columns that the copy has beside the source's."""
    if schema.history is None:
        return ()
    changes = ADDED if schema.partition_by is None else (*ADDED, DAY)
    columns = {"SoftDelete": MARKS, "Versions": VALIDITY}.get(schema.history, changes)
    return tuple(column.model_copy(update={"name": named(schema, column.name)}) for column in columns)


def named(schema: TableSchema, name: str) -> str:
    """The name of an added column in the copy. `name`: one of the constants above."""
    return f"{schema.history_prefix}{name[1:]}"


def stored(schema: TableSchema) -> TableSchema:
    """The table as the target has it: the source's own, where the copy has its rows as they are."""
    return schema if schema.history is None or is_stored(schema) else _stored(schema)


@lru_cache(maxsize=1024)
def _stored(schema: TableSchema) -> TableSchema:
    if schema.history != "Changes":
        return schema.model_copy(update={"columns": (*schema.columns, *added(schema))})
    columns = [column.model_copy(update={"key": None, "nullable": True}) for column in schema.columns]
    return schema.model_copy(update={"columns": (*columns, *added(schema)), "keyless": True})


TAKEN_FIX = "Rename the column, leave it out (options[].columns), or set another options[].historyPrefix."


def taken_name(schema: TableSchema) -> str | None:
    """A column of the source that would clash with an added one: readers of a lake do not tell `_OP` from `_op`."""
    names = {column.name.lower() for column in added(schema)}
    return next((column.name for column in schema.columns if column.name.lower() in names), None)


_LENGTH = re.compile(r"\((\d+)\)")
_TIMES = ("datetime", "time", "timestamp")
"""Types that keep whole seconds if no number of digits is given; those that keep six have further words."""
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "integer", "bigint")


def is_kept(before: TableSchema, after: TableSchema) -> bool:
    """True if the copy has a history that is still wanted: only a resync may end it."""
    return before.history is not None and before.choice[1:] == after.choice[1:]


def retyped(before: Column, after: Column) -> bool:
    """True if a copy cannot be sure to keep the values that the source no longer has when the column gets this type:
    nobody can read them again."""
    one, other = before.source_type, after.source_type
    return one != other and not (before.type == after.type and _holds(one, other))


def _holds(before: str, after: str) -> bool:
    """True if each value of a type of the source is one of another, both copied as one type."""
    if before.startswith("enum("):
        return after.startswith(f"{before[:-1]},")
    kind, length = _LENGTH.sub("", before), _LENGTH.search(before)
    other, most = _LENGTH.sub("", after), _LENGTH.search(after)
    if kind.split()[0] in _INTEGERS and other.split()[0] in _INTEGERS:
        wider = _INTEGERS.index(kind.split()[0]) <= _INTEGERS.index(other.split()[0])
        return wider and kind.split()[1:] == other.split()[1:]
    if kind == other and kind in _TIMES:
        return int(length[1] if length else 0) <= int(most[1] if most else 0)
    if kind != other:
        return (kind, other) == ("character varying", "text")
    return most is None or (length is not None and int(length[1]) <= int(most[1]))


def is_stored(schema: TableSchema) -> bool:
    return any(column.id < 0 for column in schema.columns)


def is_marked(schema: TableSchema) -> bool:
    """True of the form, in the target, of a table whose deleted rows stay, marked."""
    return schema.history == "SoftDelete" and is_stored(schema)


def is_versioned(schema: TableSchema) -> bool:
    """True of the form, in the target, of a table all of whose versions stay."""
    return schema.history == "Versions" and is_stored(schema)


def logged(schema: TableSchema) -> TableSchema:
    """A result of `stored` without what it added: the columns that segments have."""
    return schema.model_copy(update={"columns": tuple(column for column in schema.columns if column.id > 0)})
