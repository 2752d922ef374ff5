"""Write rows as Parquet data files (or chunk files to adopt later) in the target's layout.

Apply calls `write_files` for new rows, chunk readers call `write_file` with a `chunk_path`.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.fold.key_columns import cast
from tailrace.targets.lake.files.access import FOOTERS, FileAccess, footer_size
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.model import NewFile

GROUP_ROWS = 128 * 1024
"""Rows per row group: small enough to find one key's group cheaply, large enough to compress well."""
GROUP_BYTES = 64 << 20
"""Bytes of a row group's rows in memory: rows of some kilobytes make groups of fewer rows."""
FILE_BYTES = 128 << 20
"""Aimed size of a data file. Files are built in memory, so this bounds the writer, too."""
SAMPLE, FEWEST, DISTINCT = 16 * 1024, 1024, 0.1
"""A column gets a dictionary if at most this share of that many first rows is distinct; none does in smaller files."""
PACKED = 16 * 1024
"""Bytes of a file's rows in memory from which on they are compressed: of fewer, compressing saves next to nothing."""
_DATA = "data"


def data_path(location: str, name: uuid.UUID) -> str:
    """A new data file of the table."""
    return f"{location}/{_DATA}/{name}.parquet"


def chunk_path(location: str, snapshot_id: str, chunk: int, name: uuid.UUID) -> str:
    """A chunk file, adopted later as it is. `name` is new for every read of the chunk: no path is written twice.

    It is where data files are: Tailrace's own clean-up spares it, another tool's VACUUM takes it if it was not adopted
    for an hour. Then `NotFound` says so when it is adopted, and the chunk is read again.
    """
    safe = "".join(char if char.isascii() and (char.isalnum() or char == "-") else "-" for char in snapshot_id[:100])
    return f"{location}/{_DATA}/chunk-{safe}-{chunk:06d}-{name}.parquet"


@dataclass(frozen=True)
class Written:
    """A written file and its footer (statistics of each row group and column)."""

    file: NewFile
    footer: pq.FileMetaData


def write_file(access: FileAccess, path: str, layout: Layout, batches: Iterable[pa.Table]) -> Written | None:
    """All rows (source column names) into one file at `path`; None and no file when there are none."""
    sink = pa.BufferOutputStream()
    writer: pq.ParquetWriter | None = None
    for batch in batches:
        if batch.num_rows:
            for piece in _pieces(layout.to_physical(batch)):
                writer = writer or _writer(sink, layout.arrow, piece)
                writer.write_table(piece, row_group_size=GROUP_ROWS)
    return None if writer is None else _finish(access, path, sink, writer)


def write_files(
    access: FileAccess,
    location: str,
    layout: Layout,
    batches: Iterable[pa.Table],
    file_bytes: int = FILE_BYTES,
    *,
    day: str | None = None,
) -> Iterator[Written]:
    """Rows (source column names) into as many data files as the size bound asks for, in the given order."""
    yield from write_physical(access, location, layout.arrow, map(layout.to_physical, batches), file_bytes, day=day)


def write_physical(
    access: FileAccess,
    location: str,
    schema: pa.Schema,
    batches: Iterable[pa.Table],
    file_bytes: int = FILE_BYTES,
    *,
    day: str | None = None,
) -> Iterator[Written]:
    """Writes rows that have the data files' schema already. `day`: see `NewFile`."""
    sink: pa.BufferOutputStream = pa.BufferOutputStream()
    writer: pq.ParquetWriter | None = None
    packed = True
    for group in _groups(batches):
        if writer is not None and not packed:  # few rows, and then huge ones
            yield _finish(access, data_path(location, uuid.uuid4()), sink, writer, day)
            sink, writer = pa.BufferOutputStream(), None
        if writer is None:
            packed = group.nbytes >= PACKED
            writer = _writer(sink, schema, group, packed)
        writer.write_table(group, row_group_size=GROUP_ROWS)
        if sink.tell() >= file_bytes:
            yield _finish(access, data_path(location, uuid.uuid4()), sink, writer, day)
            sink, writer = pa.BufferOutputStream(), None
    if writer is not None:
        yield _finish(access, data_path(location, uuid.uuid4()), sink, writer, day)


def write_batch(access: FileAccess, location: str, schema: pa.Schema, columns: Sequence[pa.Array]) -> Iterator[Written]:
    """Writes few rows, whose columns stand in the schema's order; casts lose nothing."""
    kept = [cast(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    rows = pa.Table.from_arrays(kept, schema=schema)
    if rows.nbytes >= PACKED:
        yield from write_physical(access, location, schema, [rows])
        return
    sink = pa.BufferOutputStream()
    writer = _writer(sink, schema, rows, packed=False)
    writer.write_table(rows, row_group_size=GROUP_ROWS)
    yield _finish(access, data_path(location, uuid.uuid4()), sink, writer)


def _groups(batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yields the rows in tables of a row group's size."""
    held: list[pa.Table] = []
    rows = size = 0
    for batch in batches:
        for piece in _pieces(batch):
            if held and (rows + piece.num_rows > GROUP_ROWS or size + piece.nbytes > GROUP_BYTES):
                yield _one(held)
                held, rows, size = [], 0, 0
            held.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
    if held:
        yield _one(held)


def _one(tables: list[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def _pieces(batch: pa.Table) -> Iterator[pa.Table]:
    step = max(1, min(GROUP_ROWS, GROUP_BYTES * batch.num_rows // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _writer(sink: pa.BufferOutputStream, schema: pa.Schema, first: pa.Table, packed: bool = True) -> pq.ParquetWriter:
    """`first`: the rows that come first. `packed` False: nothing is compressed."""
    how = "zstd" if packed else "none"
    # Spark and the lake formats know no ARROW:schema; without it every reader sees the same plain Parquet.
    return pq.ParquetWriter(sink, schema, compression=how, store_schema=False, use_dictionary=repeated(first))


def repeated(rows: pa.Table) -> list[str]:
    """Columns that get a dictionary: of others it costs half of the writing, and makes the file larger."""
    sample = rows.slice(0, SAMPLE)
    if sample.num_rows < FEWEST:
        return []
    most = sample.num_rows * DISTINCT
    flat = (field.name for field in sample.schema if not pa.types.is_nested(field.type))
    return [name for name in flat if pc.count_distinct(sample[name]).as_py() <= most]


def _finish(
    access: FileAccess, path: str, sink: pa.BufferOutputStream, writer: pq.ParquetWriter, day: str | None = None
) -> Written:
    writer.close()
    data = sink.getvalue()
    access.create(path, data.to_pybytes())
    footer = writer.writer.metadata
    FOOTERS.put(path, footer, footer_size(data[-8:].to_pybytes()))
    return Written(NewFile(path, footer.num_rows, data.size, day=day), footer)
