"""Walks the tuples of one table's row messages by column and applies the rules of operations.

Called by `decode.Decoder`. Out come parts: rows of one operation with their raw column values. An update whose key
changed is two parts, D under the old key and M under the new one, adjacent in sequence. So is every update of a table
without a key: D with the whole old row, M with the whole new one.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tailrace.changelog.records.terms import TableSchema
from tailrace.errors import SourceRefused
from tailrace.sources.postgresql import columnar
from tailrace.sources.postgresql.log import pgoutput
from tailrace.sources.postgresql.log.blocks import FlatBlock, big_endian_16

Indexes = NDArray[np.int64]
Mask = NDArray[np.bool_]
HEADER = 5
"""Kind and relation id; then the tuple's tag, the number of columns (two bytes) and the columns."""
TUPLE = 3
"""Tag and number of columns."""
TAGS = (pgoutput.NEW, pgoutput.KEY, pgoutput.OLD)


@dataclass(frozen=True)
class Form:
    """How the rows of one Relation message become rows of one schema version."""

    schema: TableSchema
    wire: tuple[int, ...]
    """The place in the message's tuples of each column of the schema."""
    wire_columns: int
    """Columns in the message's tuples."""
    sets_null: bool = False
    """True if values that a type cannot hold become NULL."""


@dataclass(frozen=True)
class Part:
    """Rows of one operation; all columns in the schema's order."""

    op: str
    index: Indexes
    """Message of each row."""
    offset: int
    """Added to the message's first sequence: 1 for the second row of a key change."""
    values: list[pa.LargeBinaryArray]
    unchanged: list[Mask | None]
    """Per column: rows for which the log did not carry it."""
    old_key: list[pa.LargeBinaryArray] | None = None
    """M only: values of the key columns, in key order."""
    named: bool = True
    """The messages say which row they are about, as far as that is the same for all of them."""


@dataclass(frozen=True)
class _Tuple:
    values: list[pa.LargeBinaryArray]
    unchanged: list[Mask | None]


def walk(flat: FlatBlock, form: Form, rows: Indexes) -> list[Part]:
    kinds = flat.kinds[rows]
    tags = flat.buffer[flat.starts[rows] + HEADER]
    if len(rows) == 1 and kinds[0] in pgoutput.ROWS and tags[0] in TAGS:
        return _group(flat, form, rows, int(kinds[0]), int(tags[0]))
    parts: list[Part] = []
    for kind in pgoutput.ROWS:
        for tag in TAGS:
            group = rows[(kinds == kind) & (tags == tag)]
            if len(group):
                parts += _group(flat, form, group, kind, tag)
    if sum(len(p.index) for p in parts if p.offset == 0) != len(rows):
        raise pgoutput.UnknownMessage(f"a row of {form.schema.name} with an unknown kind of tuple")
    return parts


def _group(flat: FlatBlock, form: Form, rows: Indexes, kind: int, tag: int) -> list[Part]:
    schema = form.schema
    first, ends = _tuple(flat, form, flat.starts[rows] + HEADER)
    if kind == pgoutput.UPDATE and tag != pgoutput.NEW:
        _check(schema, (ends + TUPLE <= flat.ends[rows]).all())
    else:
        _check(schema, (ends == flat.ends[rows]).all())
    match kind, tag:
        case (pgoutput.INSERT, pgoutput.NEW):
            return [Part("I", rows, 0, first.values, first.unchanged)]
        case (pgoutput.UPDATE, pgoutput.NEW):
            return [Part("U", rows, 0, first.values, first.unchanged, named=not schema.keyless)]
        case (pgoutput.DELETE, pgoutput.KEY | pgoutput.OLD):
            named = not schema.keyless or tag == pgoutput.OLD
            return [Part("D", rows, 0, first.values, [None] * len(first.values), named=named)]
        case (pgoutput.UPDATE, _):
            if not (flat.buffer[ends] == pgoutput.NEW).all():
                raise pgoutput.UnknownMessage(f"an update of {schema.name} without a new row")
            second, ends = _tuple(flat, form, ends)
            _check(schema, (ends == flat.ends[rows]).all())
            return _update(schema, rows, first, second, tag == pgoutput.OLD)
        case _:
            raise pgoutput.UnknownMessage(f"a change {chr(kind)!r} of {schema.name} with a tuple {chr(tag)!r}")


def _check(schema: TableSchema, whole: np.bool_) -> None:
    """Checks that every row fills its message: a value must not reach into the next one."""
    if not whole:
        raise pgoutput.UnknownMessage(f"a row of {schema.name} that is not as long as its message")


def first_without_key(schema: TableSchema, parts: list[Part]) -> int | None:
    """The first message that does not say which row it is about: it was logged under another replica identity."""
    if schema.keyless:
        return min((int(part.index.min()) for part in parts if not part.named), default=None)
    places = [place for place, column in enumerate(schema.columns) if column.key is not None]
    columns = [(part.index, part.values[place]) for part in parts for place in places]
    found = [index[values.is_null().to_numpy(zero_copy_only=False)] for index, values in columns if values.null_count]
    return min((int(indexes.min()) for indexes in found), default=None)


def _tuple(flat: FlatBlock, form: Form, tags_at: Indexes) -> tuple[_Tuple, Indexes]:
    if not (big_endian_16(flat.buffer, tags_at + 1) == form.wire_columns).all():
        raise SourceRefused(
            f"a row of {form.schema.name} does not have the {form.wire_columns} columns that were announced",
            "Report this with the server's version; no change after this position was captured.",
        )
    columns, ends = columnar.split(flat.buffer, tags_at + 3, form.wire_columns, True)
    chosen = [columns[place] for place in form.wire]
    return _Tuple([c.values for c in chosen], [c.unchanged for c in chosen]), ends


def _update(schema: TableSchema, rows: Indexes, old: _Tuple, new: _Tuple, whole: bool) -> list[Part]:
    """An update that came with an old tuple: only the identity columns, or (`whole`) the whole row."""
    keys = [c.key for c in schema.columns]
    values, unchanged = list(new.values), list(new.unchanged)
    moved = np.full(len(rows), schema.keyless)
    for place, key in enumerate(keys):
        mask = unchanged[place]
        if mask is not None and (whole or key is not None):
            # The old tuple is complete where the new one only says "as before". A partition's is not if only its root
            # has REPLICA IDENTITY FULL; what is stored apart is never null.
            known = mask & old.values[place].is_valid().to_numpy(zero_copy_only=False)
            values[place] = pc.if_else(pa.array(known), old.values[place], values[place])
            unchanged[place] = mask & ~known
        if key is not None:
            differs = pc.fill_null(pc.not_equal(old.values[place], values[place]), True)
            moved |= differs.to_numpy(zero_copy_only=False)
    parts = []
    stays = np.flatnonzero(~moved)
    if len(stays):
        parts.append(Part("U", rows[stays], 0, _take(values, stays), _select(unchanged, stays)))
    goes = np.flatnonzero(moved)
    if len(goes):
        order = sorted((key, place) for place, key in enumerate(keys) if key is not None)
        old_key = _take([old.values[place] for _, place in order], goes)
        named = whole or not schema.keyless
        parts.append(Part("D", rows[goes], 0, _take(old.values, goes), [None] * len(keys), named=named))
        left = _select(unchanged, goes)
        named = not schema.keyless or not any(mask is not None for mask in left)
        parts.append(Part("M", rows[goes], 1, _take(values, goes), left, old_key, named))
    return parts


def _take(columns: list[pa.LargeBinaryArray], rows: Indexes) -> list[pa.LargeBinaryArray]:
    chosen = pa.array(rows)
    return [column.take(chosen) for column in columns]


def _select(masks: list[Mask | None], rows: Indexes) -> list[Mask | None]:
    chosen = [None if mask is None else mask[rows] for mask in masks]
    return [mask if mask is not None and mask.any() else None for mask in chosen]
