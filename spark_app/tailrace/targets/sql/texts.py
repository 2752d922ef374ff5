"""Values as texts that servers read, by Arrow's kernels where they are exact; nulls stay. What differs between products
is how a text stands in a statement or a file."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SPECIAL = (("nan", "NaN"), ("inf", "Infinity"))


def each(values: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if value is None else text(value) for value in values.to_pylist()], pa.large_string())


def placed(values: pa.Array, texts: Sequence[str]) -> pa.Array:
    """These texts where the values are not null."""
    found = np.full(len(values), None, dtype=object)
    found[np.asarray(values.is_valid().to_numpy(zero_copy_only=False))] = texts
    return pa.array(found.tolist(), pa.large_string())


def numbers(values: pa.Array) -> pa.Array:
    """Floats in the shortest spelling that is read as the same number, decimals with all their digits."""
    if pa.types.is_floating(values.type):
        texts = values.cast(pa.large_string())
        for plain, written in _SPECIAL:
            texts = pc.replace_substring(texts, plain, written) if plain.encode() in content(texts) else texts
        return texts
    return values.cast(pa.large_string())


def of_four_digits(values: pa.Array) -> bool:
    """True if all years are 1 to 9999, whose spelling is Arrow's, too."""
    plain = values.cast(pa.timestamp(values.type.unit)) if pa.types.is_timestamp(values.type) else values
    years = pc.min_max(pc.year(plain))
    first, last = years["min"].as_py(), years["max"].as_py()
    return first is None or (first >= 1 and last <= 9999)


def dates(values: pa.Array, spelled: Callable[[str], str]) -> pa.Array:
    """`spelled`: turns ISO 8601, which counts a year 0, into the server's spelling."""
    days = values.cast(pa.int32()).drop_null().to_numpy().astype("datetime64[D]")
    return placed(values, [spelled(text) for text in np.datetime_as_string(days).tolist()])


def instants(values: pa.Array, spelled: Callable[[str], str]) -> pa.Array:
    """Write as `dates` does, with six digits of a second and without a zone."""
    present = values.cast(pa.int64()).drop_null().to_numpy().astype(f"datetime64[{values.type.unit}]")
    return placed(values, [spelled(text) for text in np.datetime_as_string(present, unit="us").tolist()])


def escaped(texts: pa.Array, escapes: Sequence[tuple[str, str]]) -> pa.Array:
    """Most texts have nothing to escape, and a look for one byte is quick."""
    whole = content(texts)
    for plain, written in escapes:
        if plain.encode() in whole:
            texts = pc.replace_substring(texts, plain, written)
    return texts


def content(texts: pa.LargeStringArray) -> bytes:
    """All texts, one after the other."""
    if not len(texts) or texts.buffers()[2] is None:
        return b""
    offsets = np.frombuffer(texts.buffers()[1], np.int64)
    begin, end = offsets[texts.offset], offsets[texts.offset + len(texts)]
    return bytes(texts.buffers()[2].slice(begin, end - begin))


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
