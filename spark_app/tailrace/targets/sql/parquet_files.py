"""Rows as files of Parquet of bounded size, which warehouses load. Called by products."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

FILE_BYTES = 32 << 20
"""Bytes of a file after which another one begins."""
Fitting = Callable[[str, pa.Array, str], pa.Array]
"""The column's values in a form that the product reads as this type; raises `UnfitValue` with the column's name."""


def files(rows: Iterable[pa.Table], names: Sequence[str], kinds: Sequence[str], fitting: Fitting) -> Iterator[bytes]:
    """Files of all rows, whose columns get these names. `kinds`: their types in the warehouse."""
    sink, writer = io.BytesIO(), None
    for part in rows:
        if not part.num_rows:
            continue
        columns = [fitting(n, _whole(part.column(n)), k) for n, k in zip(part.column_names, kinds, strict=True)]
        made = pa.table(columns, names=list(names))
        writer = writer or pq.ParquetWriter(sink, made.schema, compression="snappy", version="2.6")
        writer.write_table(made)
        if sink.tell() >= FILE_BYTES:
            writer.close()
            yield sink.getvalue()
            sink, writer = io.BytesIO(), None
    if writer is not None:
        writer.close()
        yield sink.getvalue()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
