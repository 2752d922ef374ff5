"""The rows that are copied: those that the row filter lets pass, with the values of masked columns replaced.

`of_log` serves the recorder, before a segment is written, `of_chunk` the chunk task, before a chunk is: no other rows
are written anywhere.

A row of the log of a filtered table is written as what the target must make of it, whatever the target holds: `I`, the
row as it is now; `D`, no row. An update says neither by itself, for the row it changes may not have matched, so that
the target lacks it: one that matches becomes `I`, one that does not becomes `D`. What the log did not carry stays
unknown in an `I`: the key becomes a hole and is read again, and the filter decides over what is read. So does a row
whose filter column the log did not carry. (A `U` without a row writes nothing: docs/dev/design.md#the-apply-rule.)

Of a table without a key each operation has a whole row: `I` and `M` one more, `D` one less. So the filter decides over
each by itself, and no operation becomes another.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tailrace.changelog.records import Segment
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.changelog.segments import DELETE, INSERT, MOVE, OLD_KEY, OP, UNCHANGED, UPDATE
from tailrace.changelog.types import arrow_type
from tailrace.selection.binding import bound
from tailrace.selection.conditions import Comparison, Condition, IsNull, IsTrue, Joined, Membership, Not
from tailrace.selection.filters import filter_columns
from tailrace.selection.masking import masked

Mask = NDArray[np.bool_]
_COMPARE: Final[Mapping[str, Callable[..., pa.Array]]] = {
    "=": pc.equal, "<>": pc.not_equal,
    "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip


@dataclass(frozen=True)
class LogRows:
    rows: pa.Table
    counts: Mapping[str, int] | None = None
    """The segment's, where its rows do not show them: what happened in the source to rows that are copied."""

    def counted(self, segment: Segment) -> Segment:
        return segment if self.counts is None else segment.model_copy(update=self.counts)


def of_log(rows: pa.Table, schema: TableSchema) -> LogRows:
    """`rows`: of `changelog.segments.segment_schema`."""
    counts = None
    if schema.where is not None and schema.keyless:
        rows = rows.filter(passing(rows, schema.where, schema.columns))
    elif schema.where is not None:
        rows, counts = _filtered(rows, passing(rows, schema.where, schema.columns), schema)
    return LogRows(masked(rows, schema.columns), counts)


def keeps_all(schema: TableSchema) -> bool:
    """True if `of_chunk` leaves all rows as they are."""
    return schema.where is None and all(column.mask is None for column in schema.columns)


def of_chunk(rows: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    kept = rows if schema.where is None else rows.filter(passing(rows, schema.where, schema.columns))
    return masked(kept, schema.columns)


def passing(rows: pa.Table | pa.RecordBatch, where: str, columns: Iterable[Column]) -> pa.Array | pa.ChunkedArray:
    """True for each row for which the condition is TRUE; never NULL."""
    kept = tuple(columns)
    types = {column.name: arrow_type(column.type) for column in kept}
    return pc.fill_null(_truth(bound(where, kept), rows, types), False)


def _truth(
    condition: Condition, rows: pa.Table | pa.RecordBatch, types: Mapping[str, pa.DataType]
) -> pa.Array | pa.ChunkedArray:
    match condition:
        case Not(inner):
            return pc.invert(_truth(inner, rows, types))
        case Joined(word, parts):
            join = pc.and_kleene if word == "AND" else pc.or_kleene
            return reduce(join, (_truth(part, rows, types) for part in parts))
        case _:
            # Arrow's own look-up would take the last column for one that is missing.
            return _of_column(condition, rows.column(rows.schema.names.index(condition.column)), types)


def _of_column(
    condition: Comparison | Membership | IsNull | IsTrue,
    values: pa.Array | pa.ChunkedArray,
    types: Mapping[str, pa.DataType],
) -> pa.Array | pa.ChunkedArray:
    match condition:
        case IsNull():
            return pc.is_null(values)
        case IsTrue():
            return values
        case Membership(column, members):
            found = pc.is_in(values, value_set=pa.array(members, types[column]))
            return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))
        case Comparison(column, operator, value):
            return _COMPARE[operator](values, pa.scalar(value, types[column]))


def _filtered(rows: pa.Table, matching: pa.ChunkedArray, schema: TableSchema) -> tuple[pa.Table, dict[str, int]]:
    """The rows and the counts of `LogRows`. A row that left the filter counts as deleted."""
    op = np.asarray(rows[OP].to_pylist(), dtype="U1")
    undecided = _undecided(rows, schema)
    passes = np.asarray(matching) | undecided
    now = np.where((op == UPDATE) & ~passes, DELETE, np.where((op == UPDATE) | ((op == MOVE) & undecided), INSERT, op))
    kept = passes | (now == DELETE)
    written = rows.set_column(rows.schema.names.index(OP), rows.schema.field(OP), pa.array(now))
    moved = (op == MOVE) & passes
    counts = {
        "inserts": int(((op == INSERT) & passes).sum()),
        "updates": int(((op == UPDATE) & passes).sum() + moved.sum()),
        # A segment may begin with the M whose D closed the one before it.
        "deletes": max(0, int((now == DELETE).sum() - moved.sum())),
    }
    return _keys_only(_without(written, OLD_KEY, now != MOVE), schema, now == DELETE).filter(pa.array(kept)), counts


def _undecided(rows: pa.Table, schema: TableSchema) -> Mask:
    """Rows that do not carry a column of the filter."""
    names = filter_columns(schema)
    places = [place for place, column in enumerate(schema.columns) if column.name in names]
    found: Mask = np.zeros(rows.num_rows, np.bool_)
    lists = rows[UNCHANGED].combine_chunks()
    lacking = np.isin(np.asarray(pc.list_flatten(lists)), places)
    found[np.asarray(pc.list_parent_indices(lists)).astype(np.int64)[lacking]] = True
    return found


def _keys_only(rows: pa.Table, schema: TableSchema, where: Mask) -> pa.Table:
    """Deletes without values: with REPLICA IDENTITY FULL they have those of rows that never matched."""
    if where.any():
        for name in (UNCHANGED, *(c.name for c in schema.columns if c.key is None)):
            rows = _without(rows, name, where)
    return rows


def _without(rows: pa.Table, name: str, where: Mask) -> pa.Table:
    place = rows.schema.names.index(name)
    field = rows.schema.field(place)
    values = pc.if_else(pa.array(where), pa.scalar(None, field.type), rows.column(place))
    return rows.set_column(place, field, values)
