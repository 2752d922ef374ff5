"""Values in the text format of PostgreSQL's COPY, column by column, by Arrow's kernels where they are exact."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.targets.sql.session import UnfitValue
from tailrace.targets.sql.texts import content, dates, each, escaped, instants, json_text, numbers, of_four_digits

NULL = "\\N"
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_TAB = pa.scalar("\t", pa.large_string())
_NOTHING = pa.scalar("", pa.large_string())
_ENDED = (_NOTHING, pa.scalar("\n", pa.large_string()))
"""Nothing, joined by the end of a line."""


def lines(rows: pa.Table) -> bytes:
    """The rows as COPY takes them. Raises `UnfitValue`."""
    if not rows.num_rows:
        return b""
    texts = [escaped(texts_of(name, rows.column(name)), _ESCAPES) for name in rows.column_names]
    texts[-1] = pc.binary_join_element_wise(texts[-1], *_ENDED, null_handling="replace", null_replacement=NULL)
    return content(pc.binary_join_element_wise(*texts, _TAB, null_handling="replace", null_replacement=NULL))


def texts_of(name: str, column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The text of each value; nulls stay."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = values.type
    if pa.types.is_null(kind):
        return values.cast(pa.large_string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return of_text(name, values)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return each(values, lambda value: f"\\x{value.hex()}")
    if pa.types.is_timestamp(kind):
        zone = "+00" if kind.tz else ""
        if of_four_digits(values):
            plain = values.cast(pa.timestamp(kind.unit)).cast(pa.large_string())
            return pc.binary_join_element_wise(plain, pa.scalar(zone, pa.large_string()), _NOTHING)
        return instants(values, lambda text: _of_era(text, zone))
    if pa.types.is_date(kind):
        return values.cast(pa.large_string()) if of_four_digits(values) else dates(values, _of_era)
    if pa.types.is_list(kind):
        inner = texts_of(name, values.flatten())
        return _lists(values, inner)
    if pa.types.is_struct(kind):
        return each(values, lambda value: _without_nul_json(name, value))
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return numbers(values)
    return values.cast(pa.large_string())


def of_text(name: str, values: pa.Array) -> pa.LargeStringArray:
    """Texts that PostgreSQL can store."""
    texts = values.cast(pa.large_string())
    if b"\0" in content(texts):
        raise UnfitValue(name, "a text with the character U+0000, which PostgreSQL cannot store")
    return texts


def _without_nul_json(name: str, value: Any) -> str:
    text = json_text(value)
    if "\\u0000" in text:
        raise UnfitValue(name, "a text with the character U+0000, which PostgreSQL cannot store")
    return text


def _of_era(text: str, zone: str = "") -> str:
    """People, and PostgreSQL, count no year 0: it is 1 BC."""
    return _before(text, zone) if text.startswith(("-", "0000")) else text.lstrip("+") + zone


def _before(text: str, zone: str) -> str:
    year, _, rest = text.removeprefix("-").partition("-")
    return f"{int(year) + 1:04}-{rest}{zone} BC"


def array_literal(name: str, column: pa.ChunkedArray) -> str:
    """The texts of all values as a constant of a statement."""
    array = "{" + ",".join(_quoted(texts_of(name, column))) + "}"
    return "'" + array.replace("'", "''") + "'::text[]"


def _quoted(texts: pa.Array) -> list[str]:
    """Elements of an array."""
    whole = content(texts)
    if not (texts.null_count or b"\\" in whole or b'"' in whole):
        return [f'"{text}"' for text in texts.to_pylist()]
    return [
        "NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for text in texts.to_pylist()
    ]


def _lists(values: pa.Array, inner: pa.Array) -> pa.Array:
    """Array literals; each element is quoted, so that none is taken for NULL."""
    quoted = _quoted(inner)
    ends = np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(values), 0)))
    begins = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    return pa.array(
        [
            "{" + ",".join(quoted[begin:end]) + "}" if valid else None
            for begin, end, valid in zip(begins, ends, values.is_valid().to_pylist(), strict=True)
        ],
        pa.large_string(),
    )
