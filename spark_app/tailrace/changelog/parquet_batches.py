"""How much of a Parquet file may be decoded at a time. Used for the log's segments and for a lake's files."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

BATCH_ROWS = 64 * 1024
BATCH_BYTES = 32 << 20
"""Rows of a file that are decoded at a time, and their bytes."""
_TEXT_ROWS = 2048
"""Rows of text columns to read at a time where the footer does not tell: of equal texts a dictionary holds one."""
PLAIN = {"PLAIN", "RLE", "BIT_PACKED"}
"""Encodings of which the last two are of levels."""


def batch_rows(file: pq.ParquetFile, names: Sequence[str], dictionaries: bool = True) -> int:
    """How many rows of these columns may be decoded at a time."""
    footer = file.metadata
    total = 0
    for group in range(footer.num_row_groups):
        columns = (footer.row_group(group).column(number) for number in range(footer.num_columns))
        total += sum(int(column.total_uncompressed_size) for column in columns if column.path_in_schema in names)
    types = [file.schema_arrow.field(name).type for name in names]
    text = dictionaries and any(pa.types.is_string(kind) or pa.types.is_binary(kind) for kind in types)
    fitting = BATCH_BYTES * max(1, int(footer.num_rows)) // max(1, total)
    return max(1, min(_TEXT_ROWS if text else BATCH_ROWS, fitting))


def is_plain(file: pq.ParquetFile, names: Sequence[str]) -> bool:
    """True if values of these columns are written out each, so that the footer tells how large they are."""
    footer = file.metadata
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    columns = (group.column(number) for group in groups for number in range(footer.num_columns))
    return all(PLAIN.issuperset(column.encodings) for column in columns if column.path_in_schema in names)
