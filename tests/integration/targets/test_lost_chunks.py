"""A chunk file that somebody removes, or replaces, between the batch's building and its commit is lost in both formats:
named as such, and no version of the table ever names the file."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from support.apply_loop import CHUNK, log, table
from support.iceberg import folder_catalog, local
from support.versions import turns
from tailrace.batch.applied import FIRST
from tailrace.batch.slice import TableSlice, cut
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.state import LoggedChunk
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage
from tailrace.targets.api import ChunkLost
from tailrace.targets.lake import table as lake_table
from tailrace.targets.lake.delta.table import DeltaTable
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.table import LakeTable

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
SCHEMA = table(7).schemas[-1].table
ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


@pytest.fixture(params=turns("delta", "iceberg"))
def target(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> LakeTable:
    name = f"t{uuid.uuid4().hex[:8]}"
    if request.param == "delta":
        storage = Storage.open(StorageLocation(location=tmp_path.as_uri()))
        return LakeTable(DeltaTable(lambda: spark, storage, f"{tmp_path.as_uri()}/{name}"), storage, storage, None)
    catalog = folder_catalog(spark)
    storage = Storage.open(StorageLocation(location=catalog.location))
    return LakeTable(IcebergTable(catalog, storage, name, "t"), storage, storage, None)


def chunk_of(target: LakeTable) -> ChunkRegistered:
    writer = target.chunk_writer(SCHEMA)
    written = writer.write("s", 0, [ROWS])
    assert written is not None
    found = {"path": written.path, "rows": written.rows, "size": written.size, "layout": writer.form}
    return CHUNK.model_copy(update=found)


def batch(target: LakeTable, chunk: ChunkRegistered) -> TableSlice:
    logged = table(7).model_copy(
        update={"chunks": table(7).chunks.append(LoggedChunk(record=RecordNumber(2), chunk=chunk))}
    )
    part = cut(log(logged), 7, target.open(SCHEMA, "log", FIRST), RecordNumber(9))
    assert part is not None
    return part


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_a_chunk_file_that_changes_right_before_the_commit_is_lost_and_nothing_is_committed(
    target: LakeTable, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None]
) -> None:
    target.open(SCHEMA, "log", FIRST)
    chunk = chunk_of(target)
    part = batch(target, chunk)
    assert chunk.path is not None
    path = local(chunk.path)
    monkeypatch.setattr(lake_table, "seam", lambda name: harm(path) if name == "apply.before-commit" else None)
    with pytest.raises(ChunkLost) as caught:
        target.apply(part)
    assert caught.value.chunks == (chunk,)
    assert target.open(SCHEMA, "log", FIRST).applied_record == 0

    monkeypatch.undo()
    again = chunk_of(target)
    assert target.apply(batch(target, again)).applied_record == 9, "the chunk that was read again is taken"
