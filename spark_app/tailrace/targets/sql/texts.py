"""Values as texts that servers read, by Arrow's kernels where they are exact; nulls stay. What differs between products
is how a text stands in a statement or a file."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def each(values: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if value is None else text(value) for value in values.to_pylist()], pa.large_string())


def placed(values: pa.Array, texts: Sequence[str]) -> pa.Array:
    """These texts where the values are not null."""
    found = np.full(len(values), None, dtype=object)
    found[np.asarray(values.is_valid().to_numpy(zero_copy_only=False))] = texts
    return pa.array(found.tolist(), pa.large_string())


def dates(values: pa.Array, spelled: Callable[[str], str]) -> pa.Array:
    """`spelled`: turns ISO 8601, which counts a year 0, into the server's spelling."""
    days = values.cast(pa.int32()).drop_null().to_numpy().astype("datetime64[D]")
    return placed(values, [spelled(text) for text in np.datetime_as_string(days).tolist()])


def instants(values: pa.Array, spelled: Callable[[str], str]) -> pa.Array:
    """Write as `dates` does, with six digits of a second and without a zone."""
    present = values.cast(pa.int64()).drop_null().to_numpy().astype(f"datetime64[{values.type.unit}]")
    return placed(values, [spelled(text) for text in np.datetime_as_string(present, unit="us").tolist()])


def escaped(texts: pa.Array, escapes: Sequence[tuple[str, str]]) -> pa.Array:
    for plain, written in escapes:
        texts = pc.replace_substring(texts, plain, written)
    return texts


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
