"""One batch of a table whose copy has a row for each change (`changelog.history`), whatever the target: rows to add.

Every change after the applied sequence is a row, whatever becomes of it in the same batch, so a batch that is cut
differently after a crash adds the same rows. The rows of a chunk are `READ`, as if they had been read right before its
replay point: the changes from there on count over them.
"""

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.changelog.history import COMMIT_DAY, COMMIT_TIME, OP, SEQ, UNCHANGED, added, logged, named
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.segments import COMMIT_TS
from tailrace.changelog.types import arrow_type
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.log_rows import DELETE, INSERT, MOVE, UPDATE, SegmentRows, promoted, segment_rows

READ, TRUNCATED = "r", "t"
LETTERS = {INSERT: "c", UPDATE: "u", DELETE: "d", MOVE: "c"}
"""A row that moves to another key is deleted under its old one, and created under the new one."""


def change_rows(work: FoldInput) -> Iterator[pa.Table]:
    """The batch's changes, under the target's names: those of rows in order of sequence, then truncates. `work`: of a
    slice that `stored_slice` has made."""
    part = work.slice
    versions = {number: logged(schema) for number, schema in part.versions.items()}
    own = replace(work, slice=replace(part, schema=logged(part.schema), versions=versions))
    first = part.applied.applied_seq
    segments = [segment for segment in part.segments if segment.last_seq > first]
    for block in segment_rows(own, segments, more=(COMMIT_TS,)):
        new = block.filter(block.seq > first)
        if len(new.seq):
            yield _rows(work, own, new)
    emptied = [seq for seq in part.truncates if seq > first]
    if emptied:
        times = pa.array([part.truncated_at.get(seq) for seq in emptied], pa.timestamp("us", "UTC"))
        values = {
            OP: pa.array([TRUNCATED] * len(emptied)),
            SEQ: pa.array(emptied, pa.int64()),
            COMMIT_TIME: times.cast(arrow_type("timestamptz")),
        }
        yield _filled(work, len(emptied), _under_names(work, values))


def read_rows(work: FoldInput, chunk: ChunkRegistered, rows: pa.Table) -> pa.Table:
    """Rows of a chunk as rows of the copy. `rows`: under the target's names, with or without the added columns."""
    return with_added(
        work, rows, {OP: pa.array([READ] * rows.num_rows), SEQ: pa.array([read_at(chunk)] * rows.num_rows)}
    )


def read_at(chunk: ChunkRegistered) -> int:
    """The sequence of its rows."""
    return chunk.replay_point - 1


def with_added(work: FoldInput, rows: pa.Table, values: dict[str, pa.Array]) -> pa.Table:
    """The rows with these values in the added columns, and NULL in the others of them."""
    names = {column.name for column in added(work.slice.schema)}
    known = {name: rows.column(name) for name in rows.column_names if name not in names}
    return _filled(work, rows.num_rows, {**known, **_under_names(work, values)})


def _under_names(work: FoldInput, values: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """The values of added columns under the names that they have in the copy."""
    if COMMIT_TIME in values and work.slice.schema.partition_by is not None:
        values = {**values, COMMIT_DAY: values[COMMIT_TIME].cast(pa.date32())}
    return {named(work.slice.schema, name): column for name, column in values.items()}


def _filled(work: FoldInput, count: int, known: dict[str, pa.Array]) -> pa.Table:
    """Columns in the target's order; NULL where nothing is known."""
    columns = [known[name] if name in known else pa.nulls(count, work.types[name]) for name in work.names]
    return pa.table(columns, names=work.names)


def _rows(work: FoldInput, own: FoldInput, block: SegmentRows) -> pa.Table:
    found = promoted(own, [block])
    unknown = set(np.unique(found.op).tolist()) - LETTERS.keys()
    assert not unknown, f"operations {unknown}"
    letters: npt.NDArray[np.object_] = np.empty(len(found.op), object)
    for code, letter in LETTERS.items():
        letters[found.op == code] = letter
    values = {
        OP: pa.array(letters, pa.string()),
        SEQ: pa.array(found.seq, pa.int64()),
        COMMIT_TIME: block.table[COMMIT_TS].cast(arrow_type("timestamptz")),
        UNCHANGED: _unchanged(own, block),
    }
    return with_added(work, found.rows, values)


def _unchanged(own: FoldInput, block: SegmentRows) -> pa.Array:
    """The names, as the columns were called then, of values that the log did not carry, as a JSON array; NULL: it did
    carry all. They are told from the change alone, whatever the batch has besides."""
    count = len(block.seq)
    if "_unchanged" not in block.table.column_names:
        return pa.nulls(count, pa.string())
    names = [column.name for column in own.slice.versions[block.segment.schema_version].columns]
    texts = [
        json.dumps([names[place] for place in places], ensure_ascii=False) if places else None
        for places in block.table["_unchanged"].to_pylist()
    ]
    return pa.array(texts, pa.string())
