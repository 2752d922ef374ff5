"""Whole rows as numbers: equal rows, and only they, have the same digest.

For tables without a key, whose rows are told apart by all their values. Equal means written alike: NaN equals NaN, NULL
equals NULL, and -0.0 is not 0.0. Another version of DuckDB may make others of the same rows.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.fold.key_hashes import hashing_connection

Halves = npt.NDArray[np.int64]
Digests = tuple[Halves, Halves]
"""128 bits of each row, in two halves."""
MOST_COLUMNS = 40
"""The most columns in one query: DuckDB plans it in a time that grows with their square, 1,600 columns for many
seconds."""


def digests(columns: Sequence[pa.ChunkedArray | pa.Array], salt: str = "") -> Digests:
    """The digests of the rows with these columns, in the order of the table; at least one column. `salt` (hexadecimal
    digits): who does not know it cannot make two rows of one digest."""
    if len(columns) > MOST_COLUMNS:
        parts = [digests(columns[at : at + MOST_COLUMNS], salt) for at in range(0, len(columns), MOST_COLUMNS)]
        return digests([pa.array(half) for part in parts for half in part], salt)
    names = [f"c{number}" for number in range(len(columns))]
    connection = hashing_connection()
    rows = pa.table([_plainly(column) for column in pa.table(list(columns), names=names).columns], names=names)
    connection.register("whole_rows", rows)
    try:
        text = f"'{salt}', {', '.join(map(_text, names, rows.schema.types))}"
        if len(names) == 1 and pa.types.is_string(rows.schema.types[0]):  # a third of the time, and the most frequent
            text = f"coalesce('{salt}:' || c0, '{salt}n')"
        numbers = f"SELECT md5_number(concat({text})) AS m FROM whole_rows"
        low = "CAST(m & 18446744073709551615::UHUGEINT AS UBIGINT)"
        query = f"SELECT CAST(m >> 64 AS UBIGINT) AS upper, {low} AS lower FROM ({numbers})"
        found = connection.execute(query).fetchnumpy()
    finally:
        connection.unregister("whole_rows")
    upper, lower = (np.asarray(found[half], np.uint64).view(np.int64) for half in ("upper", "lower"))
    return upper, lower


def _plainly(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([_plain(chunk) for chunk in column.chunks], _plain(pa.array([], column.type)).type)


def _plain(values: pa.Array) -> pa.Array:
    """The values in a type whose text is exact: floats by their bits, times by their numbers."""
    kind = values.type
    if pa.types.is_list(kind):
        ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(values), 0))
        offsets = pa.concat_arrays([pa.array([0], ends.type), ends])
        return pa.ListArray.from_arrays(offsets, _plain(values.flatten()), mask=values.is_null())
    if pa.types.is_struct(kind):
        fields = [_plain(field) for field in values.flatten()]
        return pa.StructArray.from_arrays(fields, [f"f{n}" for n in range(len(fields))], mask=values.is_null())
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8())
    if pa.types.is_floating(kind):
        one_nan = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), kind), values)
        return one_nan.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    if pa.types.is_temporal(kind):
        return values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return values


def _text(name: str, kind: pa.DataType) -> str:
    """A text that no other value, and no two neighbouring values together, can have."""
    if pa.types.is_list(kind):
        elements = f"list_transform({name}, lambda x: concat({_text('x', kind.value_type)}))"
        return f"coalesce('[' || array_to_string({elements}, '') || ']', 'n'), ';'"
    if pa.types.is_struct(kind):
        fields = ", ".join(_text(f"struct_extract({name}, '{field.name}')", field.type) for field in kind)
        return f"CASE WHEN {name} IS NULL THEN 'n' ELSE concat('(', {fields}, ')') END, ';'"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return f"coalesce(strlen({name}) || ':' || {name}, 'n'), ';'"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"coalesce(hex({name}), 'n'), ';'"
    return f"coalesce(CAST({name} AS VARCHAR), 'n'), ';'"


def numbered_within(groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The number of earlier entries of the same group, for each."""
    order = np.argsort(groups, kind="stable")
    begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
    numbers = np.empty(len(groups), np.int64)
    numbers[order] = np.arange(len(groups)) - np.repeat(begins, np.diff(begins, append=len(groups)))
    return numbers
