"""The rows of the log that a row filter lets pass, before the recorder writes them.

A row of a filtered table is written as what the target must make of it, whatever the target holds: `I`, the row as it
is now; `D`, no row. An update says neither by itself, for the row it changes may not have matched, so that the target
lacks it: one that matches becomes `I`, one that does not becomes `D`. What the log did not carry stays unknown in an
`I`: the key becomes a hole and is read again, and the filter decides over what is read. So does a row whose filter
column the log did not carry. (A `U` without a row writes nothing: docs/dev/design.md#the-apply-rule.)

Of a table without a key each operation has a whole row: `I` and `M` one more, `D` one less. So the filter decides over
each by itself, and no operation becomes another.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tailrace.changelog.records import Segment, TableSchema
from tailrace.changelog.segments import DELETE, INSERT, MOVE, OLD_KEY, OP, UNCHANGED, UPDATE
from tailrace.conditions import passing
from tailrace.sources.row_filters import filter_columns

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class FilteredRows:
    rows: pa.Table
    inserts: int
    updates: int
    deletes: int

    def counted(self, segment: Segment) -> Segment:
        """The segment with counts of what happened in the source to rows that are copied; one that left the filter
        counts as deleted."""
        counts = {"inserts": self.inserts, "updates": self.updates, "deletes": self.deletes}
        return segment.model_copy(update=counts)


def filtered(rows: pa.Table, schema: TableSchema) -> FilteredRows | None:
    """Rows of `changelog.segments.segment_schema`; None: the table has no filter."""
    if schema.where is None:
        return None
    if schema.keyless:
        return _of_whole_rows(rows.filter(passing(rows, schema.where, schema.columns)))
    op = np.asarray(rows[OP].to_pylist(), dtype="U1")
    undecided = _undecided(rows, schema)
    passes = np.asarray(passing(rows, schema.where, schema.columns)) | undecided
    now = np.where((op == UPDATE) & ~passes, DELETE, np.where((op == UPDATE) | ((op == MOVE) & undecided), INSERT, op))
    kept = passes | (now == DELETE)
    written = rows.set_column(rows.schema.names.index(OP), rows.schema.field(OP), pa.array(now))
    moved = (op == MOVE) & passes
    return FilteredRows(
        _keys_only(_without(written, OLD_KEY, now != MOVE), schema, now == DELETE).filter(pa.array(kept)),
        inserts=int(((op == INSERT) & passes).sum()),
        updates=int(((op == UPDATE) & passes).sum() + moved.sum()),
        # A segment may begin with the M whose D closed the one before it.
        deletes=max(0, int((now == DELETE).sum() - moved.sum())),
    )


def _of_whole_rows(kept: pa.Table) -> FilteredRows:
    op = np.asarray(kept[OP].to_pylist(), dtype="U1")
    inserts, updates, deletes = (int((op == one).sum()) for one in (INSERT, MOVE, DELETE))
    return FilteredRows(kept, inserts, updates, max(0, deletes - updates))


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
