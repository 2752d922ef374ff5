"""Values as literals of MySQL's SQL, and rows as statements of bounded size. Sessions run with NO_BACKSLASH_ESCAPES."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog import keys
from tailrace.targets.mysql import json_documents, types
from tailrace.targets.sql.session import UnfitValue
from tailrace.targets.sql.texts import dates, each, escaped, instants, json_text, placed

_QUOTE = (("'", "''"),)


def literal(value: object) -> str:
    """One value of a statement of ours."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


def unlabelled_values(rows: pa.Table, kinds: Sequence[str]) -> dict[str, int]:
    """How many values of each enum are the empty text that an invalid value became, which a strict session refuses."""
    found: dict[str, int] = {}
    for name, kind in zip(rows.column_names, kinds, strict=True):
        if kind.startswith("enum(") and "" not in types.labels(kind):
            empty = pc.sum(pc.equal(pc.binary_length(rows.column(name)), 0)).as_py()
            found |= {name: int(empty)} if empty else {}
    return found


def inserts(
    head: bytes, rows: pa.Table, kinds: Sequence[str], sizes: tuple[int, int], tail: bytes = b""
) -> Iterator[bytes]:
    """Statements that begin with `head`, end with `tail`, and take no more than the first of the sizes in bytes or,
    where one row is larger, the second. `kinds`: the types of the columns in the target. Raises `UnfitValue`."""
    if not rows.num_rows:
        return
    usual, most = (size - len(head) - len(tail) for size in sizes)
    columns = [
        json_documents.literals(rows.column(name).combine_chunks())
        if kind == "json"
        else literals_of(name, rows.column(name))
        for name, kind in zip(rows.column_names, kinds, strict=True)
    ]
    comma = pa.scalar(",", pa.large_string())
    joined = pc.binary_join_element_wise(*columns, comma, null_handling="replace", null_replacement="NULL")
    lengths_of = np.asarray(pc.binary_length(joined)) + len("(),")
    largest = int(lengths_of.argmax())
    if lengths_of[largest] >= most:
        lengths = [len(column[largest].as_py() or "") for column in columns]
        raise UnfitValue(rows.column_names[int(np.argmax(lengths))], _TOO_LARGE)
    ends, begin, texts = np.cumsum(lengths_of), 0, joined.to_pylist()
    while begin < len(texts):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + min(usual, most), side="right")))
        yield head + ("(" + "),(".join(texts[begin:end]) + ")").encode() + tail
        begin = end


_TOO_LARGE = "a value in a row that is larger than the target's max_allowed_packet"


def literals_of(name: str, column: pa.ChunkedArray) -> pa.Array:
    """The literal of each value; nulls stay."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = values.type
    if pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return values.cast(pa.large_string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return each(values, lambda value: f"x'{value.hex()}'")
    if pa.types.is_floating(kind):
        return _doubles(name, values)
    if pa.types.is_decimal(kind) and kind.scale == 0:
        return _texts(name, values)  # quoted, the target's `bit` would take the digits for bytes
    return quoted(_texts(name, values))


def _texts(name: str, values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_timestamp(kind):
        return instants(values, lambda text: _of_range(name, text))
    if pa.types.is_date(kind):
        return dates(values, lambda text: _of_range(name, text))
    if pa.types.is_nested(kind):
        return each(values, json_text)
    if pa.types.is_decimal(kind):
        return placed(values, keys.texts(values.drop_null()))
    return values.cast(pa.large_string())


def quoted(texts: pa.Array) -> pa.Array:
    quote, nothing = (pa.scalar(text, pa.large_string()) for text in ("'", ""))
    return pc.binary_join_element_wise(quote, escaped(texts, _QUOTE), quote, nothing)


def _of_range(name: str, text: str) -> str:
    """ISO 8601 as it is, for years that MySQL has."""
    year = text.partition("-")[0]
    if len(year) != 4 or year == "0000":
        raise UnfitValue(name, "a date outside of the years 1 to 9999, which MySQL cannot store")
    return text


def _doubles(name: str, values: pa.Array) -> pa.Array:
    """With an exponent: without one it is a decimal. Four bytes are spelled as the double that they are."""
    present = values.drop_null().cast(pa.float64())
    if not pc.all(pc.is_finite(present), min_count=0).as_py():
        raise UnfitValue(name, "an infinite number or NaN, which MySQL cannot store")
    spelled = map(repr, present.to_pylist())
    return placed(values, [text if "e" in text else f"{text}e0" for text in spelled])
