"""Values in the text format of PostgreSQL's COPY, column by column, by Arrow's kernels where they are exact."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog import keys
from tailrace.targets.sql.session import UnfitValue

NULL = "\\N"
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def lines(rows: pa.Table) -> bytes:
    """The rows as COPY takes them. Raises `UnfitValue`."""
    if not rows.num_rows:
        return b""
    texts = [escaped(texts_of(name, rows.column(name))) for name in rows.column_names]
    tab = pa.scalar("\t", pa.large_string())
    joined = pc.binary_join_element_wise(*texts, tab, null_handling="replace", null_replacement=NULL)
    return ("\n".join(joined.to_pylist()) + "\n").encode()


def escaped(texts: pa.Array) -> pa.Array:
    for plain, written in _ESCAPES:
        texts = pc.replace_substring(texts, plain, written)
    return texts


def texts_of(name: str, column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The text of each value; nulls stay."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = values.type
    if pa.types.is_null(kind):
        return values.cast(pa.large_string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _without_nul(name, values).cast(pa.large_string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _each(values, lambda value: f"\\x{value.hex()}")
    if pa.types.is_timestamp(kind):
        return _instants(values)
    if pa.types.is_date(kind):
        return _dates(values)
    if pa.types.is_list(kind):
        inner = texts_of(name, values.flatten())
        return _lists(values, inner)
    if pa.types.is_struct(kind):
        return _each(values, lambda value: _without_nul_json(name, value))
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        present = values.drop_null()
        return _placed(values, keys.texts(present))
    return values.cast(pa.large_string())


def _placed(values: pa.Array, texts: Sequence[str]) -> pa.Array:
    """These texts where the values are not null."""
    found = np.full(len(values), None, dtype=object)
    found[np.asarray(values.is_valid().to_numpy(zero_copy_only=False))] = texts
    return pa.array(found.tolist(), pa.large_string())


def _each(values: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if value is None else text(value) for value in values.to_pylist()], pa.large_string())


def _without_nul(name: str, values: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring(values, "\0")).as_py():
        raise UnfitValue(name, "a text with the character U+0000, which PostgreSQL cannot store")
    return values


def _without_nul_json(name: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    if "\\u0000" in text:
        raise UnfitValue(name, "a text with the character U+0000, which PostgreSQL cannot store")
    return text


def _dates(values: pa.Array) -> pa.Array:
    days = values.cast(pa.int32()).drop_null().to_numpy().astype("datetime64[D]")
    return _placed(values, _of_era(np.datetime_as_string(days).tolist(), ""))


def _instants(values: pa.Array) -> pa.Array:
    present = values.cast(pa.int64()).drop_null().to_numpy().astype(f"datetime64[{values.type.unit}]")
    texts = np.datetime_as_string(present, unit="us").tolist()
    return _placed(values, _of_era(texts, "+00" if values.type.tz else ""))


def _of_era(texts: Sequence[str], zone: str) -> list[str]:
    """ISO 8601 counts a year 0; people, and PostgreSQL, do not: year 0 is 1 BC."""
    return [text.lstrip("+") + zone if not text.startswith(("-", "0000")) else _before(text, zone) for text in texts]


def _before(text: str, zone: str) -> str:
    year, _, rest = text.removeprefix("-").partition("-")
    return f"{int(year) + 1:04}-{rest}{zone} BC"


def _lists(values: pa.Array, inner: pa.Array) -> pa.Array:
    """Array literals; each element is quoted, so that none is taken for NULL."""
    quoted = [
        "NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for text in inner.to_pylist()
    ]
    ends = np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(values), 0)))
    begins = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    return pa.array(
        [
            "{" + ",".join(quoted[begin:end]) + "}" if valid else None
            for begin, end, valid in zip(begins, ends, values.is_valid().to_pylist(), strict=True)
        ],
        pa.large_string(),
    )
