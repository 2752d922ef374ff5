"""A table that a snapshot has read again, and the batch with which that snapshot ends."""

from collections import defaultdict
from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa

from support.folder_lake import FolderTable, NotedAccess, layout_of
from support.lake import table_schema
from support.states import chunk
from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import FinishedSnapshot, TableSlice
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.targets.lake.engine import build as engine
from tailrace.targets.lake.engine.divide import Piece, divide, shuffled_keys, to_divide
from tailrace.targets.lake.engine.part import PartInput, PartResult
from tailrace.targets.lake.files.write import write_file, write_files
from tailrace.targets.lake.model import TableCommit

SCHEMA = table_schema([("id", "int64")], ["id"])
LAYOUT = layout_of(SCHEMA)
CHUNK_ROWS = 50_000


def reread(folder: Path, rows: int) -> tuple[FolderTable, PartInput]:
    """A table of so many rows, all of which a snapshot has read again but every thousandth, which is gone."""
    target = FolderTable(folder / "table", SCHEMA)
    ids = np.arange(rows, dtype=np.int64)
    written = write_files(target.access, target.location, LAYOUT, [pa.table({"id": ids})])
    applied = AppliedState("log", Seq(0), RecordNumber(1), schema_version=1, table_id=SCHEMA.table_id)
    target.commit(TableCommit(applied, [result.file for result in written]))
    chunks = []
    for number, start in enumerate(range(0, rows, CHUNK_ROWS)):
        some = ids[start : start + CHUNK_ROWS]
        path = f"{target.location}/chunk-{number}.parquet"
        read = write_file(target.access, path, LAYOUT, [pa.table({"id": some[some % 1000 != 7]})])
        assert read is not None
        chunks.append(chunk(SCHEMA.table_id, number, path=path, rows=read.file.rows, size=read.file.size))
    part = TableSlice(
        applied, SCHEMA.table_id, SCHEMA, {1: SCHEMA}, Seq(0), Seq(0), RecordNumber(2), False, (), (), tuple(chunks),
        (FinishedSnapshot("s", Seq(1), RecordNumber(1), tuple(chunks)),), True,
    )  # fmt: skip
    return target, target.work(part, target.access, layout=LAYOUT, lake=NotedAccess(str(folder)))


def divided(work: PartInput) -> list[PartResult]:
    """What `spread` does, without Spark."""
    pieces = defaultdict[int, list[Piece]](list)
    for part, piece in divide(work, to_divide(work)):
        pieces[part].append(piece)
    return [engine.do_part(work, part, divided=shuffled_keys(work, pieces[part])) for part in range(work.fold.parts)]


def seconds(folder: Path, rows: int) -> float:
    """CPU seconds of the batch; its result is checked."""
    target, work = reread(folder, rows)
    begun = process_time()
    change = engine.build(work, divided)
    spent = process_time() - begun
    target.commit(change)
    assert sum(file.rows - len(file.dead) for file in target.files) == rows - len(range(7, rows, 1000))
    return spent
