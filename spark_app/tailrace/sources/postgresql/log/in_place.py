"""Columns that are dropped, renamed or of another type are followed in place (`onSchemaChange: Evolve`), where their
numbers are proven.

Pure; asked by `tables`, for the catalog as a look shows it and for a Relation message. The catalog has the columns'
numbers. A message has none, but its columns stand in the order of these, and the catalog, which is asked later, bounds
which they are: what was there at the last look and is there now was there all the time, and a number that is gone never
comes back. Where that leaves one possibility, it is the proof; where it leaves more, the table starts over
(docs/decisions/0065-following-the-catalog.md).
"""

from collections.abc import Collection, Mapping, Sequence

from tailrace.changelog.history import retyped as retyped_in_history
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.selection.as_types import requested
from tailrace.selection.filters import filter_columns
from tailrace.selection.masks import mask_of
from tailrace.sources.postgresql.catalog import copied
from tailrace.sources.postgresql.log.differences import first_stop
from tailrace.sources.postgresql.model import PgTable, number, retyped


def has_all(names: Mapping[int, str], attributes: int | None, now: PgTable) -> bool:
    """True if the number in the log is known of every column that existed at the last look. `names`, `attributes`: as
    `tables.Captured` has them. Not where the publication leaves columns out: it may have had another list of them when
    a message was sent."""
    if attributes is None or not names:
        return False
    return not any(n <= attributes and n not in names for n in now.names)


def as_in_catalog(
    schema: TableSchema, now: PgTable, names: Mapping[int, str], attributes: int | None
) -> TableSchema | None:
    """The known columns as the catalog has them now; None: they differ by more than drops, renames and types, or a
    number came since the last look while another went. Rows in between may have come under the same names as before,
    and the log would have them under the wrong number."""
    dropped = any(number(column) not in now.names for column in schema.columns)
    if now.stop is not None or not has_all(names, attributes, now) or (dropped and now.attributes != attributes):
        return None
    moved = _moved(schema, now.names)
    moved = None if moved is None else with_types(moved, now, {c.attnum: c.source_type for c in now.columns})
    wanted = {number(column) for column in schema.columns}
    there = now.schema.model_copy(update={"columns": tuple(c for c in now.schema.columns if c.id in wanted)})
    return moved if moved is not None and first_stop(moved, there) is None else None


def with_types(schema: TableSchema, now: PgTable, types: Mapping[int, str]) -> TableSchema | None:
    """The version with the types that its columns have by now: `types`, by number, in the log or the catalog. None: one
    of the key or of the row filter has another, or one by which a history would lose values, or the catalog no longer
    shows how one in the log is copied. A value of the old type is no value of the new one, so a column with another
    logical type is another column; what it had, its rows are read again for. (Whether rows of the same logical type
    have been rewritten, the table's file says.)"""
    there, columns = {c.id: c for c in now.schema.columns}, list[Column]()
    held = {c.name for c in schema.key_columns} | filter_columns(schema)
    for column in schema.columns:
        found, sent = there.get(number(column)), types.get(number(column), column.source_type)
        if sent == column.source_type:
            columns.append(column)
        elif column.name in held or found is None or found.source_type != sent or not _fits(schema, column, found):
            return None
        else:
            columns.append(retyped(column, found.model_copy(update={"name": column.name})))
    return schema.model_copy(update={"columns": tuple(columns)})


def _fits(schema: TableSchema, column: Column, found: Column) -> bool:
    """True if the column can be followed as the catalog has it now."""
    return found.mask == column.mask and (schema.history is None or not retyped_in_history(column, found))


def as_sent(
    sent: Sequence[str], names: Mapping[int, str], attributes: int | None, now: PgTable
) -> dict[int, str] | None:
    """The name of each number in a Relation message, without columns that are newer than the last look; None: they are
    not proven. `names`, `attributes`: of the last look, and `has_all`."""
    if now.stop is not None:
        return None
    there = {**now.names, **now.stored}
    kept = sorted(n for n in names if n in there)
    gone, more = len(names) - len(kept), len(sent) - len(kept)
    if gone == 0 and more >= 0:
        return dict(zip(kept, sent, strict=False))  # new ones stand behind
    if now.attributes != attributes:
        return None  # what is there besides may be old or new
    if more == 0:
        return dict(zip(kept, sent, strict=True))
    return dict(zip(sorted(names), sent, strict=True)) if more == gone else None


def added_since(sent: Sequence[str], new: Collection[str], since: int, now: PgTable) -> dict[int, str] | None:
    """The columns of a message that came after number `since`, by number; None: the catalog cannot tell, because some
    that came have gone or have other names by now, and their values must be read again. Numbers are given in order, so
    those in the message are the first ones. Where none has stayed nothing is missed. `new`: names not known before."""
    young = [name for name in sent if name in new]
    there = {**now.names, **{n: name for n, name in now.stored.items() if name in sent}}
    left = {n: there[n] for n in sorted(there) if n > since}
    gone = any(n not in now.numbers for n in range(since + 1, now.attributes + 1))
    first = dict(list(left.items())[: len(young)])
    if not left or not young or (not gone and list(first.values()) == young):
        return first
    return None


def renamed(schema: TableSchema, names: Mapping[int, str], sent: Mapping[int, str], now: PgTable) -> TableSchema | None:
    """The known columns under the names of the message (`as_sent`), and those of them that came after `names`; None:
    the key is concerned, or the options, which know columns by their names: what is copied, and how, would be another
    thing than they say. A mask is never lost by a rename."""
    known, options = {number(column): column for column in schema.columns}, now.options
    for attnum, name in sent.items():
        column = known.get(attnum)
        if column is None:
            if copied(name, options) and attnum in now.names:
                return None
        elif column.key is None and (
            not copied(name, options)
            or requested(options, column.name) != requested(options, name)
            or column.mask != mask_of(options, name)
        ):
            return None
    return _moved(schema, {**{number(c): c.name for c in schema.columns if number(c) not in names}, **sent})


def _moved(schema: TableSchema, names: Mapping[int, str]) -> TableSchema | None:
    """The next version, with those of the columns that have a name here, under it; None: a column of the key or of the
    row filter has another."""
    held = {c.name for c in schema.key_columns} | filter_columns(schema)
    if any(column.name in held and names.get(number(column)) != column.name for column in schema.columns):
        return None
    columns = (c.model_copy(update={"name": names[number(c)]}) for c in schema.columns if number(c) in names)
    return schema.model_copy(update={"version": schema.version + 1, "columns": tuple(columns)})
