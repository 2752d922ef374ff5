"""Rows as files of Parquet for COPY: every value is a text that Snowflake reads as its type, as readers of Parquet
differ in instants, decimals and bytes. Pure."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog import keys
from tailrace.targets.snowflake import types
from tailrace.targets.sql import parquet_files
from tailrace.targets.sql.session import UnfitValue
from tailrace.targets.sql.texts import dates, each, instants, json_text, numbers, of_four_digits, placed


def files(rows: Iterable[pa.Table], kinds: Sequence[str]) -> Iterator[bytes]:
    """Files whose columns are `c0`, `c1` and so on. `kinds`: their types in Snowflake. Raises `UnfitValue`."""
    return parquet_files.files(rows, [f"c{at}" for at in range(len(kinds))], kinds, _texts)


def selected(kinds: Sequence[str]) -> str:
    """The values of such a file, as COPY selects them."""
    read = (
        f"TO_BINARY($1:c{at}::VARCHAR, 'HEX')" if kind == types.BINARY else f"$1:c{at}::VARCHAR::{kind}"
        for at, kind in enumerate(kinds)
    )
    return ", ".join(read)


def _texts(name: str, values: pa.Array, kind: str) -> pa.Array:
    texts = _written(name, values)
    most = types.MOST_BYTES.get(kind)
    if most is not None:
        longest = pc.max(pc.binary_length(texts)).as_py() or 0
        if (longest // 2 if kind == types.BINARY else longest) > most:
            raise UnfitValue(name, f"a value of more than {most >> 20} MiB")
    return texts


def _written(name: str, values: pa.Array) -> pa.Array:
    is_of = values.type
    if pa.types.is_nested(is_of):
        return each(values, json_text)
    if pa.types.is_binary(is_of) or pa.types.is_large_binary(is_of):
        return each(values, bytes.hex)
    if pa.types.is_date(is_of) or pa.types.is_timestamp(is_of):
        if not of_four_digits(values):
            raise UnfitValue(name, "a date outside of the years 1 to 9999")
        if pa.types.is_date(is_of):
            return dates(values, str)
        zone = "" if is_of.tz is None else "+00:00"
        return instants(values, lambda text: text.replace("T", " ") + zone)
    if pa.types.is_decimal(is_of):
        return placed(values, keys.texts(values.drop_null()))
    if pa.types.is_floating(is_of):
        # Of 32 bits with all digits of 64: a column that becomes wider in the source has them. Infinity is `inf` there.
        return pc.replace_substring(numbers(values.cast(pa.float64())), "Infinity", "inf")
    return values.cast(pa.large_string())
