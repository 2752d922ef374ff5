"""Segments: immutable change rows of one table and one schema version, in order of sequence.

Large ones are Parquet files of their own, small ones are parts of bundles (`changelog.bundles`). Capture writes them
before the record that names them; apply reads them by the state's list. Layout: `segment_schema`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from secrets import token_hex

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.changelog.bundles import RESTORE, ObjectAccess, bundled_rows
from tailrace.changelog.parquet_batches import batch_rows
from tailrace.changelog.paths import is_bundle, segment_path
from tailrace.changelog.records import Segment
from tailrace.changelog.records.terms import Seq, TableSchema
from tailrace.changelog.types import arrow_type
from tailrace.errors import CorruptLog, NoKey, ValueUnsupported, privacy
from tailrace.storage.store import Storage

SEQ, OP, COMMIT_TS, UNCHANGED, OLD_KEY = "_seq", "_op", "_commit_ts", "_unchanged", "_old_key"
LOG_COLUMNS = (SEQ, OP, COMMIT_TS, UNCHANGED, OLD_KEY)
INSERT, UPDATE, DELETE, MOVE = "I", "U", "D", "M"
KEPT_SCHEMAS = 4096
_SCHEMAS: dict[int, tuple[TableSchema, pa.Schema]] = {}
"""Schemas by the identity of the table's version, which is asked for with each of its segments."""
ROW_GROUP_ROWS = 131_072
"""Rows that a reader holds at least at a time."""


def segment_schema(table: TableSchema) -> pa.Schema:
    """The log's own columns, then the table's, typed.

    `_unchanged` lists indexes into `table.columns` of values that the log did not carry (null: none); their cells are
    null.
    `_old_key` holds the key a moved row had (null unless `_op` is M); a table without a key has no such column.
    """
    known = _SCHEMAS.get(id(table))
    if known is None or known[0] is not table:
        if len(_SCHEMAS) >= KEPT_SCHEMAS:
            _SCHEMAS.clear()
        known = _SCHEMAS[id(table)] = table, _segment_schema(table)
    return known[1]


def _segment_schema(table: TableSchema) -> pa.Schema:
    clash = [c.name for c in table.columns if c.name in LOG_COLUMNS]
    if clash:
        raise ValueUnsupported(
            table.name,
            f"column {clash[0]} has a name that the change log needs itself",
            "Rename or exclude the column.",
        )
    if not table.key_columns and not table.keyless:
        raise NoKey(table.name, f"table {table.name} has no key", "Add a primary key or a replica identity.")
    old_key = pa.struct([pa.field(c.name, arrow_type(c.type)) for c in table.key_columns])
    return pa.schema(
        [
            pa.field(SEQ, pa.int64(), nullable=False),
            pa.field(OP, pa.string(), nullable=False),
            pa.field(COMMIT_TS, pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field(UNCHANGED, pa.list_(pa.int16())),
            *([] if table.keyless else [pa.field(OLD_KEY, old_key)]),
            *(pa.field(c.name, arrow_type(c.type)) for c in table.columns),
        ]
    )


def write_segment(
    storage: Storage,
    table: TableSchema,
    rows: pa.Table | Iterable[pa.RecordBatch],
    token: Callable[[], str] = lambda: token_hex(8),
) -> Segment:
    """Write rows (not none, of `segment_schema(table)`, sequences rising) as one file; durable when this returns."""
    data = rows if isinstance(rows, pa.Table) else pa.Table.from_batches(list(rows), segment_schema(table))
    segment = segment_of(table, data)
    path = segment_path(table, segment.first_seq, segment.last_seq, token())
    with storage.open_output(path) as output:
        # Without dictionaries: they cost twice as much as the rest of the writing, and zstd finds what repeats.
        pq.write_table(data, output, compression="zstd", row_group_size=ROW_GROUP_ROWS, use_dictionary=False)
    return segment.model_copy(update={"path": path, "size": output.size})


def segment_of(table: TableSchema, data: pa.Table) -> Segment:
    """The segment of these rows, which still lacks its place and its size."""
    schema = segment_schema(table)
    if not data.schema.equals(schema):
        raise ValueError(f"rows of {table.name} have columns {data.schema}, the segment has {schema}")
    first, last = _range(data, table)
    counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(data[OP]).to_pylist()}
    moves = counts.get(MOVE, 0)
    return Segment(
        table_id=table.table_id,
        schema_version=table.version,
        path="",
        rows=data.num_rows,
        size=0,
        first_seq=first,
        last_seq=last,
        unchanged=data[UNCHANGED].null_count < data.num_rows,
        moves=moves > 0,
        inserts=counts.get(INSERT, 0),
        updates=counts.get(UPDATE, 0) + moves,
        # A segment may begin with the M whose D closed the one before it.
        deletes=max(0, counts.get(DELETE, 0) - moves),
    )


def _range(data: pa.Table, table: TableSchema) -> tuple[Seq, Seq]:
    if data.num_rows == 0:
        raise ValueError(f"a segment of {table.name} needs a row")
    seqs = data[SEQ].to_numpy()
    if not (seqs[1:] > seqs[:-1]).all():
        raise ValueError(f"sequences of {table.name} do not rise")
    return Seq(int(seqs[0])), Seq(int(seqs[-1]))


@contextmanager
def open_segment(log: ObjectAccess, segment: Segment) -> Iterator[pq.ParquetFile | pa.Table]:
    """The segment for reading, a table if it is part of a bundle; `CorruptLog` if it is not what its record says."""
    if is_bundle(segment.path):
        data = bundled_rows(log, segment)
        _check_rows(segment, data.num_rows)
        yield data
        return
    with log.open_input(segment.path) as source:
        try:
            file = pq.ParquetFile(source)
        except pa.ArrowInvalid as error:
            raise CorruptLog(
                f"segment {segment.path} is not a Parquet file: {privacy.error_text(error)}", RESTORE
            ) from error
        with file:
            _check_rows(segment, file.metadata.num_rows)
            yield file


def segment_batches(log: ObjectAccess, segment: Segment, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The segment's rows with these columns, some at a time; a part of a bundle is few enough to come at once."""
    with open_segment(log, segment) as found:
        if isinstance(found, pa.Table):
            yield found.select(columns)
            return
        for batch in found.iter_batches(batch_rows(found, columns, dictionaries=False), columns=columns):
            yield pa.table(batch)


def _check_rows(segment: Segment, rows: int) -> None:
    if rows != segment.rows:
        raise CorruptLog(f"segment {segment.path} has {rows} rows, its record says {segment.rows}", RESTORE)
