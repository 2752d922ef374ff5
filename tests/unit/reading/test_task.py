"""A chunk is read once; that of a table without a key is written as several files, for one is built in memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from tailrace.changelog.records.terms import Position
from tailrace.errors import Retry
from tailrace.reading import task
from tailrace.reading.task import ChunkTask, perform
from tailrace.sources.api import ChunkRead, KeyRange, Writer
from tailrace.targets.api import WrittenChunk

BATCH = pa.record_batch({"n": pa.array(range(10), pa.int64())})


@dataclass
class Files:
    """A target that keeps what it is given."""

    rows: dict[int, list[int]] = field(default_factory=dict)

    def write(self, snapshot_id: str, chunk: int, rows: Iterable[pa.Table]) -> WrittenChunk | None:
        found = [n for table in rows for n in table.column("n").to_pylist()]
        self.rows[chunk] = found
        return WrittenChunk(f"file:///{chunk}", len(found), 1) if found else None

    def discard(self, paths: Sequence[str]) -> None:
        for path in paths:
            del self.rows[int(path.rpartition("/")[2])]


@dataclass
class Reading:
    batches: int
    cut_off: bool = False

    def read(self, table: object, part: object, where: object, write: Writer) -> ChunkRead:
        for _ in range(self.batches):
            write(BATCH)
        if self.cut_off:
            raise Retry("the connection was cut")
        return ChunkRead(10 * self.batches, "1:1:", Position(9), ("n",), (("n", 1),))


def asked(batches: int, files: Files, keyless: bool, cut_off: bool = False) -> ChunkTask:
    schema = SimpleNamespace(where=None, columns=(), keyless=keyless)
    table = cast(Any, SimpleNamespace(name="s.t", schema=schema))
    return ChunkTask(cast(Any, Reading(batches, cut_off)), table, KeyRange(None, None), None, cast(Any, files), "s", 0)


def read(batches: int, files: Files, keyless: bool, cut_off: bool = False) -> task.ChunkFile:
    return perform(asked(batches, files, keyless, cut_off))


@pytest.mark.parametrize(("batches", "counts"), [(0, []), (1, [10]), (3, [20, 10]), (4, [20, 20])])
def test_the_files_of_one_reading_have_all_its_rows(
    batches: int, counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "FILE_BYTES", 2 * BATCH.nbytes)
    files = Files()
    found = read(batches, files, keyless=True)
    assert [len(rows) for rows in files.rows.values()] == counts
    assert found.all_rows == 10 * batches
    paths = [found.path, *(file.path for file in found.further)]
    assert [path for path in paths if path is not None] == [f"file:///{n}" for n in files.rows]
    assert found.nulled == ((("n", 1),) if batches else ())


def test_a_chunk_of_a_table_with_a_key_is_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "FILE_BYTES", 1)
    files = Files()
    assert (read(3, files, keyless=False).further, len(files.rows[0])) == ((), 30)


def test_a_reading_that_is_cut_off_leaves_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "FILE_BYTES", 1)
    files = Files()
    with pytest.raises(Retry, match="cut"):
        read(3, files, keyless=True, cut_off=True)
    assert files.rows == {}
