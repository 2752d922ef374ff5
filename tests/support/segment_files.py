"""The change log's segments, decoded without the product's code: Parquet files, and parts of bundles."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def read_segment(log: Path, path: str, table_id: int, first_seq: int) -> pa.Table:
    """The rows of the segment that a record names."""
    if not path.endswith(".arrow"):
        return pq.read_table(log / path)
    (rows,) = (rows for table, first, rows in bundled(log / path) if (table, first) == (table_id, first_seq))
    return rows


def bundled(file: Path) -> Iterator[tuple[int, int, pa.Table]]:
    """Table, first sequence and rows of each segment in a bundle."""
    for part in _parts(file):
        yield part["table"], part["first"], pa.ipc.open_stream(part["rows"]).read_all()


def streams(file: Path) -> Iterator[bytes]:
    """Each segment's rows as they are stored."""
    yield from (part["rows"] for part in _parts(file))


def _parts(file: Path) -> list[dict[str, Any]]:
    with pa.OSFile(str(file)) as source:
        found: list[dict[str, Any]] = pa.ipc.open_stream(source).read_all().to_pylist()
    return found


def write_bundle(file: Path, parts: Sequence[tuple[int, int, pa.Table]]) -> None:
    """The reverse of `bundled`."""
    rows = [{"table": table, "first": first, "rows": _stream(data)} for table, first, data in parts]
    kinds = {"table": pa.int64(), "first": pa.int64(), "rows": pa.binary()}
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])
    file.write_bytes(_stream(pa.Table.from_pylist(rows, schema=schema)))


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())
