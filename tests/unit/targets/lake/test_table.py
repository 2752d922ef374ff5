"""A lake table around its format: chunk files that are gone, when its folder is tidied, and what vectors have cost."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyroaring import BitMap64
from pyspark.errors import PySparkException
from typing_extensions import override

from support.apply_loop import CHUNK as ANY_CHUNK
from support.apply_loop import log, table
from support.ddl.lake import QuickTable
from support.folder_lake import FolderAccess
from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import TableSlice, cut
from tailrace.changelog.append_list import AppendList
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.state import LoggedChunk, LoggedFinish
from tailrace.storage.store import NotFound
from tailrace.targets.api import ChunkLost, NeededChunks
from tailrace.targets.lake import table as lake_table
from tailrace.targets.lake.files.compact import CompactionLimits
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.files.vectors import encode
from tailrace.targets.lake.files.write import write_physical
from tailrace.targets.lake.kept import HISTORY_SECONDS, KeptChunks
from tailrace.targets.lake.model import TableCommit
from tailrace.targets.lake.table import SWEEP_RECORDS, SWEEP_SECONDS, LakeTable, lost_chunks

SCHEMA = table(7).schemas[-1].table
FORM = Layout(SCHEMA, QuickTable("file:///", FolderAccess("/")).arrow_schema(SCHEMA)).digest
CHUNK = ANY_CHUNK.model_copy(update={"layout": FORM})


def batch() -> TableSlice:
    chunks = AppendList([LoggedChunk(record=RecordNumber(2), chunk=CHUNK)])
    part = cut(
        log(table(7, 3).model_copy(update={"chunks": chunks})),
        7,
        AppliedState("log", Seq(0), RecordNumber(0), schema_version=1, table_id=7),
        RecordNumber(9),
    )
    assert part is not None and part.chunks == (CHUNK,)
    return part


def failing(monkeypatch: pytest.MonkeyPatch, folder: Path, fault: Exception) -> LakeTable:
    def build(work: object, spread: object) -> None:
        raise fault

    monkeypatch.setattr(lake_table, "build", build)
    target = QuickTable(folder.as_uri(), FolderAccess(str(folder)))
    return LakeTable(target, target.access, target.access, None)


@pytest.mark.parametrize("fault", [NotFound("file:///c"), PySparkException("NotFound: in a task")])
def test_chunks_whose_files_are_gone_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: Exception
) -> None:
    """A large batch is worked by tasks: what is missing there comes back as Spark's error."""
    with pytest.raises(ChunkLost) as caught:
        failing(monkeypatch, tmp_path, fault).apply(batch())
    assert caught.value.chunks == (CHUNK,)


def test_what_fails_while_no_chunk_file_is_gone_is_told_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lake_table, "lost_chunks", lambda part, lake: ())
    with pytest.raises(PySparkException, match="out of memory"):
        failing(monkeypatch, tmp_path, PySparkException("out of memory")).apply(batch())


@pytest.mark.parametrize("content", [None, b"", b"xx"])
def test_a_chunk_file_that_changes_after_its_keys_were_read_is_lost_and_not_committed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    """Gone, or of another size, when the commit is about to name it."""
    monkeypatch.setattr(lake_table, "build", lambda work, spread: work)
    part, target = batch(), QuickTable(tmp_path.as_uri(), FolderAccess(str(tmp_path)))
    target.ensure(part.schema, "log")
    path = tmp_path / "chunk"
    part = replace(part, chunks=(CHUNK.model_copy(update={"path": path.as_uri()}),))
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ChunkLost) as caught:
        LakeTable(target, target.access, target.access, None).apply(part)
    assert caught.value.chunks == part.chunks


def test_lost_files_of_a_snapshot_that_ends_are_found_among_those_adopted_before(tmp_path: Path) -> None:
    kept = CHUNK.model_copy(update={"chunk": 1, "path": (tmp_path / "kept").as_uri()})
    gone = CHUNK.model_copy(update={"chunk": 2, "path": (tmp_path / "gone").as_uri()})
    (tmp_path / "kept").write_bytes(b"x")
    ends = LoggedFinish(
        record=RecordNumber(8), snapshot_id="s", complete=True, replay_point=Seq(1),
        chunks=tuple(
            LoggedChunk(record=RecordNumber(2), chunk=c) for c in (kept, gone, CHUNK.model_copy(update={"path": None}))
        ),
    )  # fmt: skip
    state = log(table(7, 3).model_copy(update={"finishes": (ends,)}))
    part = cut(state, 7, AppliedState("log", Seq(3), RecordNumber(3), schema_version=1, table_id=7), RecordNumber(9))
    assert part is not None
    assert lost_chunks(part, FolderAccess(str(tmp_path))) == (gone,)


@dataclass
class Tidied(QuickTable):
    """Notes when it was tidied, and what was to stay."""

    expired: list[tuple[float, KeptChunks]] = field(default_factory=list)
    swept: list[float] = field(default_factory=list)

    @override
    def expire(self, older_than: float, chunks: KeptChunks) -> bool:
        self.expired.append((older_than, chunks))
        return True

    @override
    def sweep(self, older_than: float, chunks: KeptChunks) -> int:
        self.swept.append(older_than)
        return 0


def test_old_versions_go_at_each_look_and_the_folder_is_listed_now_and_then(tmp_path: Path) -> None:
    schema = batch().schema
    target = Tidied(tmp_path.as_uri(), FolderAccess(str(tmp_path)))
    lake = LakeTable(target, target.access, target.access, None)
    needed = NeededChunks(frozenset({"s3://lake/t/data/chunk%201.parquet"}), True)

    def tidy(now: float, record: int = 9) -> None:
        lake.tidy(
            schema, AppliedState("log", Seq(record), RecordNumber(record), schema_version=1, table_id=7), needed, now
        )

    tidy(1e6)
    tidy(1e6 + 60)
    assert target.expired[1] == (1e6 + 60 - HISTORY_SECONDS, KeptChunks(frozenset({"chunk 1.parquet"}), True))
    assert target.swept == [], "not at every start"
    tidy(1e6 + SWEEP_SECONDS)
    tidy(1e6 + SWEEP_SECONDS + 60)
    assert target.swept == [1e6 + SWEEP_SECONDS - HISTORY_SECONDS]
    tidy(1e6 + SWEEP_SECONDS + 120, record=2 * SWEEP_RECORDS)
    assert len(target.swept) == 2, "sooner in a busy table"


def test_a_file_is_rewritten_for_what_the_vectors_of_this_tables_commits_have_cost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each commit marks one row more of 20,000, which is a vector of all that are dead."""
    monkeypatch.setattr(lake_table, "CompactionLimits", lambda: CompactionLimits(tiny_bytes=0))
    part, target = batch(), Tidied(tmp_path.as_uri(), FolderAccess(str(tmp_path)))
    target.ensure(part.schema, "log")
    arrow = target.arrow_schema(part.schema)
    rows = pa.table([pa.array(range(20_000)).cast(field.type) for field in arrow], schema=arrow)
    (base,) = (made.file for made in write_physical(target.access, target.location, arrow, [rows]))
    change, spent = TableCommit(AppliedState("log"), [base]), 0
    monkeypatch.setattr(lake_table, "build", lambda work, spread: change)
    lake, part = LakeTable(target, target.access, target.access, None), replace(part, chunks=())
    lake.apply(part)
    for number in range(1, 1000):
        dead = BitMap64(range(0, 7 * number, 7))
        spent += len(encode(dead))
        change = TableCommit(AppliedState("log"), marks={base.path: dead})
        lake.apply(part)
        lake.tidy(part.schema, AppliedState("log"), NeededChunks(frozenset(), False), 1e6)
        if base.path not in target.live:
            break
    assert spent - len(encode(dead)) <= CompactionLimits().vector_share * base.size < spent
    (rewritten,) = target.files()
    assert rewritten.rows == 20_000 - number and number < 2_000
