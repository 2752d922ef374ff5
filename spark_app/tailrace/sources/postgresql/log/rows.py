"""Puts the parts of one table and schema version into sequence order and decodes them: the rows of a segment.

Called by `decode.Decoder`. Columns: those of `changelog.segments.segment_schema`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tailrace.changelog.records.terms import Column, TableSchema, with_nulled
from tailrace.changelog.segments import DELETE, segment_schema
from tailrace.changelog.types import arrow_type
from tailrace.sources.api import TableRows
from tailrace.sources.log.decode import first_failing
from tailrace.sources.postgresql import codec
from tailrace.sources.postgresql.log.blocks import FlatBlock
from tailrace.sources.postgresql.log.walk import Part

Indexes = NDArray[np.int64]


@dataclass(frozen=True)
class _Ordered:
    """The parts one after the other, and how to bring them into sequence order."""

    parts: list[Part]
    index: Indexes
    seq: Indexes
    order: Indexes | None
    """None: they are in order."""

    @staticmethod
    def of(parts: list[Part], firsts: Indexes) -> "_Ordered":
        index = np.concatenate([p.index for p in parts])
        seq = np.concatenate([firsts[p.index] + p.offset for p in parts])
        if len(parts) == 1:
            return _Ordered(parts, index, seq, None)
        order = np.argsort(seq, kind="stable")
        return _Ordered(parts, index[order], seq[order], order)

    def column(self, place: int) -> pa.LargeBinaryArray:
        return self.sorted([p.values[place] for p in self.parts])

    def sorted(self, arrays: list[pa.Array]) -> pa.Array:
        if self.order is None:
            return arrays[0]
        return pa.concat_arrays(arrays).take(pa.array(self.order))

    def numpy(self, arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
        joined = np.concatenate(arrays)
        return joined if self.order is None else joined[self.order]


def assemble(
    flat: FlatBlock, schema: TableSchema, parts: list[Part], firsts: Indexes, sets_null: bool = False
) -> TableRows:
    """Raises as `codec.decode` does; `first_undecodable` finds the place. `sets_null`: only for values of the key."""
    ordered = _Ordered.of(parts, firsts)
    operations = ordered.numpy([np.full(len(p.index), p.op) for p in parts])
    arrays: list[pa.Array] = [
        pa.array(ordered.seq),
        pa.array(operations, type=pa.string()),
        pa.array(flat.commit_ts[ordered.index]).view(pa.timestamp("us", tz="UTC")),
        _unchanged(ordered, len(schema.columns)),
        *([] if schema.keyless else [_old_key(ordered, schema)]),
    ]
    nulled: list[tuple[str, int]] = []
    for place, column in enumerate(schema.columns):
        raw = ordered.column(place)
        typed = _decode(schema, column, raw, sets_null)
        if typed.null_count != raw.null_count:
            lost = pc.and_(pc.and_(typed.is_null(), raw.is_valid()), pc.not_equal(arrays[1], DELETE))
            nulled.append((column.name, pc.sum(lost, min_count=0).as_py()))
        arrays.append(typed)
    rows = pa.Table.from_arrays(arrays, schema=segment_schema(schema))
    return TableRows(schema, rows, with_nulled((), nulled))


def first_undecodable(schema: TableSchema, parts: list[Part], firsts: Indexes, sets_null: bool = False) -> int:
    """The message with the first value, in sequence order, that has no exact representation."""
    ordered = _Ordered.of(parts, firsts)
    columns = [(c, ordered.column(i)) for i, c in enumerate(schema.columns)]

    def decode(part: slice) -> None:
        for column, values in columns:
            _decode(schema, column, values[part], sets_null)

    return int(ordered.index[first_failing(len(ordered.seq), decode)])


def _decode(schema: TableSchema, column: Column, values: pa.LargeBinaryArray, sets_null: bool = False) -> pa.Array:
    key = column.key is not None
    return codec.decode(values, column.type, schema.name, column.name, key=key, sets_null=sets_null)


def _unchanged(ordered: _Ordered, columns: int) -> pa.Array:
    """Per row the places (from 0, in the schema's order) of the columns that the log did not carry."""
    rows = len(ordered.seq)
    places = [i for i in range(columns) if any(p.unchanged[i] is not None for p in ordered.parts)]
    if not places:
        return pa.nulls(rows, pa.list_(pa.int16()))
    matrix = np.empty((rows, len(places)), dtype=np.bool_)
    for at, place in enumerate(places):
        masks = [
            m if (m := p.unchanged[place]) is not None else np.zeros(len(p.index), np.bool_) for p in ordered.parts
        ]
        matrix[:, at] = ordered.numpy(masks)
    counts = matrix.sum(axis=1)
    offsets = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    values = np.array(places, dtype=np.int16)[np.nonzero(matrix)[1]]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=pa.array(counts == 0))


def _old_key(ordered: _Ordered, schema: TableSchema) -> pa.Array:
    keys = schema.key_columns
    fields = [pa.field(c.name, arrow_type(c.type)) for c in keys]
    rows = len(ordered.seq)
    if all(p.old_key is None for p in ordered.parts):
        return pa.nulls(rows, pa.struct(fields))
    arrays = []
    for at, column in enumerate(keys):
        pieces = [
            pa.nulls(len(p.index), pa.large_binary()) if p.old_key is None else p.old_key[at] for p in ordered.parts
        ]
        arrays.append(_decode(schema, column, ordered.sorted(pieces)))
    absent = ordered.numpy([np.full(len(p.index), p.old_key is None) for p in ordered.parts])
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(absent))
