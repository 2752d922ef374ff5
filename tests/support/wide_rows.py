"""Updates that leave a wide column unchanged: a target, a log, and the batch applied in a process of its own.

`python -m support.wide_rows FOLDER ROWS WIDTH` applies and prints two numbers in MiB: the most that Arrow ever held,
the same in every run, and the most that the process ever had, which depends on when the allocator gives memory back.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from support.folder_lake import FolderAccess, FolderTable, layout_of
from support.lake import table_schema
from support.states import log_state, table_log
from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import cut
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.segment_list import SegmentList
from tailrace.changelog.segments import segment_schema, write_segment
from tailrace.changelog.state import LoggedSegment, LogState
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage
from tailrace.targets.lake.engine import build as engine
from tailrace.targets.lake.files.access import parquet
from tailrace.targets.lake.files.write import write_files
from tailrace.targets.lake.model import TableCommit

SCHEMA = table_schema([("id", "int64"), ("n", "int64"), ("wide", "string")], ["id"])


def value(number: int, width: int) -> str:
    return f"{number:09d}".ljust(width, "abcdefghij"[number % 10])


def target(folder: Path, rows: int, width: int) -> FolderTable:
    """The rows before the batch."""
    table = FolderTable(folder, SCHEMA)

    def some() -> Iterator[pa.Table]:
        for start in range(0, rows, 500):
            ids = range(start, min(start + 500, rows))
            yield pa.table({"id": ids, "n": [0] * len(ids), "wide": [value(number, width) for number in ids]})

    written = list(write_files(table.access, table.location, layout_of(SCHEMA), some()))
    table.commit(TableCommit(AppliedState("log", schema_version=1), [result.file for result in written]))
    return table


def updates(folder: Path, rows: int) -> LogState:
    """`n` changes in every row, in one record."""
    schema = segment_schema(SCHEMA)
    data = pa.table(
        {
            "_seq": pa.array(range(1, rows + 1)),
            "_op": ["U"] * rows,
            "_commit_ts": pa.array([0] * rows, schema.field("_commit_ts").type),
            "_unchanged": pa.array([[2]] * rows, schema.field("_unchanged").type),
            "_old_key": pa.nulls(rows, schema.field("_old_key").type),
            "id": pa.array(range(rows)),
            "n": pa.array(range(rows)),
            "wide": pa.nulls(rows, pa.string()),
        },
        schema=schema,
    )
    segment = write_segment(Storage.open(StorageLocation(location=folder.as_uri())), SCHEMA, data)
    segments = SegmentList.of([LoggedSegment(record=RecordNumber(1), segment=segment)])
    return log_state(table_log(SCHEMA, 0, segments=segments), number=1, last_seq=Seq(rows))


def apply(folder: Path, rows: int, width: int) -> tuple[int, int]:
    """Make, apply and check; the peaks of Arrow's memory and of the process, in MiB."""
    table, log = target(folder / "table", rows, width), updates(folder, rows)
    batch = cut(log, SCHEMA.table_id, table.applied, RecordNumber(1))
    assert batch is not None
    work = table.work(batch, FolderAccess(str(folder)), layout=layout_of(SCHEMA))
    table.commit(engine.build(work))
    seen = set[int]()
    for file in table.files:
        if len(file.dead) == file.rows:
            continue
        assert not file.dead
        with parquet(table.access, file.path) as opened:
            for found in opened.iter_batches(500):
                numbers, n, wide = found.columns
                assert n == numbers
                assert pc.all(pc.equal(pc.binary_length(wide), width)).as_py()
                begins = pc.binary_slice(wide.cast(pa.binary()), 0, 9).cast(pa.string()).cast(pa.int64())
                assert begins == numbers
                seen.update(numbers.to_pylist())
    assert seen == set(range(rows))
    status = Path("/proc/self/status").read_text()
    process = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) >> 10
    arrow = pa.default_memory_pool().max_memory()
    assert arrow is not None
    return arrow >> 20, process


if __name__ == "__main__":
    print(*apply(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
