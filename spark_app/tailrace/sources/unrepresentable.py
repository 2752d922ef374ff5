"""Values that a column's type in the log and the target cannot hold: what is the same for every product.

They become NULL and are counted, or stop their table where `options[].onUnsupported` says so. The log's decoder and the
chunk reader both ask the codec of their product, which alone decides what a type can hold: a value becomes NULL by both
or by none.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.contract.resources import TableOptions
from tailrace.errors import CHANGED, RESYNC

SET_NULL = "onUnsupported: SetNull"


def sets_null(options: TableOptions | None) -> bool:
    """True if such values of the table's columns become NULL. (Never those of its key.)"""
    return options is None or options.on_unsupported == "SetNull"


def without_unrepresentable(values: pa.Array, fits: Callable[[pa.Array], bool]) -> pa.Array:
    """The values with nulls where one does not fit. `fits`: checks if all values of an array do; each is judged by
    itself, so it may be asked for any part of them."""
    distinct = values.unique()  # `infinity` may be in every row
    found: list[int] = []
    parts = [(0, len(distinct))]
    while parts:
        low, high = parts.pop()
        if fits(distinct.slice(low, high - low)):
            continue
        if high - low == 1:
            found.append(low)
            continue
        middle = (low + high) // 2
        parts += [(low, middle), (middle, high)]
    bad = pc.is_in(values, value_set=distinct.take(pa.array(found, pa.int64())))
    # Not pc.if_else: it leaves the bytes where the nulls are, and codecs look at all of an array's bytes.
    places = pa.array(np.arange(len(values)), mask=bad.to_numpy(zero_copy_only=False))
    return values.take(places)


def way_out(table: str, column: str, key: bool) -> str:
    """The fix for a value that its type cannot hold, though its text could be copied."""
    as_text = f"Copy the column as text: spec.options: [{{match: {table}, as: {{{column}: text}}}}]"
    if key:
        return f"{as_text}, {CHANGED}; then {RESYNC}. A key cannot become NULL."
    return f"{as_text}, or let such values become NULL, with {SET_NULL} there; {CHANGED}; then {RESYNC}."


def or_null(table: str, key: bool) -> str:
    """The end of a fix for a value that its text could not be copied of either."""
    if key:
        return " A key cannot become NULL."
    return f" Or let such values become NULL: spec.options: [{{match: {table}, {SET_NULL}}}], {CHANGED}; then {RESYNC}."


AS_TEXT = "Where such values occur, copy the column as text (options[].as)"
RARE = "Correct such values in the source"
"""A fix where the text of a value does not help."""


def limited(limit: str, key: bool, nulls: bool, way: str = AS_TEXT) -> tuple[str, str]:
    """Reason and suggestion for a column whose type holds most values, `limit` saying which not, before one of these
    stops the table. `nulls`: the table's such values become NULL."""
    if not limit or key:
        return limit, f"{way} (a column of the key cannot become NULL)." if limit else ""
    if nulls:
        return f"{limit}: such values become NULL", ""
    return limit, f"{way}; or let such values become NULL: options[].{SET_NULL}."
