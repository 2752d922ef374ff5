"""A snapshot that reads a whole table again, in the batches that a worker would cut, and the batch with which it ends.

Run in a process of its own (`python -m support.many_chunk_keys FOLDER ROWS`), since it measures its own memory: it
prints one JSON document. The engine, its division into parts and the files are the real ones. In place of Spark's
shuffle stands a folder, and the parts are worked one after the other, as by a single task slot.
"""

import json
import pickle
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa

from support.folder_lake import FolderTable
from support.rereads import LAYOUT, SCHEMA
from support.states import chunk
from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import FinishedSnapshot, TableSlice
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.targets.lake.engine import build as engine
from tailrace.targets.lake.engine.divide import Piece, divide, shuffled_keys, to_divide
from tailrace.targets.lake.engine.part import PartInput, PartResult
from tailrace.targets.lake.files.index_cache import IndexCache
from tailrace.targets.lake.files.write import write_file, write_files
from tailrace.targets.lake.model import TableCommit
from tailrace.targets.lake.target import LIMITS

CHUNK_ROWS = 100_000
GONE = 1000
"""Of so many rows one is no longer in the source."""


class Memory:
    """The most that the process held, pages of mapped files aside; sampled by a thread."""

    def __init__(self) -> None:
        self.peak = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Memory":
        self.peak = 0
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ending.wait(0.05):
            lines = Path("/proc/self/status").read_text().splitlines()
            held = next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))
            self.peak = max(self.peak, held)


def main(folder: Path, rows: int) -> dict[str, object]:
    target = _filled(folder, rows)
    chunks = list(_chunks(target, rows))
    batches = [
        chunks[at : at + LIMITS.chunk_rows // CHUNK_ROWS]
        for at in range(0, len(chunks), LIMITS.chunk_rows // CHUNK_ROWS)
    ]
    found: dict[str, object] = {"rows": rows, "batches": len(batches)}
    spent = list[float]()
    with Memory() as most:
        for number, batch in enumerate(batches[:-1]):
            spent.append(_apply(target, folder, number, batch, ())[0])
    found |= {"batch_cpu_seconds": round(max(spent, default=0.0), 1), "batch_peak_mib": most.peak >> 20}
    with Memory() as most:
        ended = FinishedSnapshot("s", Seq(1), RecordNumber(1), tuple(chunks))
        last, parts = _apply(target, folder, len(batches), batches[-1], (ended,))
    found |= {"end_cpu_seconds": round(last, 1), "end_parts": parts, "end_peak_mib": most.peak >> 20}
    left = sum(file.rows - len(file.dead) for file in target.files)
    assert left == rows - len(range(7, rows, GONE)), f"{left} rows"
    return found | {"cpu_seconds": round(sum(spent) + last, 1)}


def _filled(folder: Path, rows: int) -> FolderTable:
    target = FolderTable(folder / "table", SCHEMA)
    applied = AppliedState("log", Seq(0), RecordNumber(1), schema_version=1, table_id=SCHEMA.table_id)
    for start in range(0, rows, LIMITS.chunk_rows):
        ids = np.arange(start, min(rows, start + LIMITS.chunk_rows), dtype=np.int64)
        written = write_files(target.access, target.location, LAYOUT, [pa.table({"id": ids})])
        target.commit(TableCommit(applied, [result.file for result in written]))
    return target


def _chunks(target: FolderTable, rows: int) -> Iterator[ChunkRegistered]:
    """All rows but those that are gone."""
    for number, start in enumerate(range(0, rows, CHUNK_ROWS)):
        ids = np.arange(start, min(rows, start + CHUNK_ROWS), dtype=np.int64)
        path = f"{target.location}/chunk-{number}.parquet"
        read = write_file(target.access, path, LAYOUT, [pa.table({"id": ids[ids % GONE != 7]})])
        assert read is not None
        yield chunk(SCHEMA.table_id, number, path=path, rows=read.file.rows, size=read.file.size)


def _apply(
    target: FolderTable,
    folder: Path,
    number: int,
    chunks: list[ChunkRegistered],
    finished: tuple[FinishedSnapshot, ...],
) -> tuple[float, int]:
    """CPU seconds of the batch, and its parts."""
    part = TableSlice(
        target.applied, SCHEMA.table_id, SCHEMA, {1: SCHEMA}, Seq(0), Seq(0), RecordNumber(number + 2), False,
        (), (), tuple(chunks),
        finished, True,
    )  # fmt: skip
    work = target.work(part, target.access, layout=LAYOUT)
    parts = [1]

    def spread(work: PartInput) -> Iterator[PartResult]:
        parts[0] = work.fold.parts
        return _by_parts(work, folder / "shuffle")

    begun = process_time()
    change = engine.build(work, spread)
    spent = process_time() - begun
    target.commit(change)
    return spent, parts[0]


def _by_parts(work: PartInput, shuffle: Path) -> Iterator[PartResult]:
    """As `engine.spread`: the pieces of a part go to its file, and are read back when it is its turn."""
    shuffle.mkdir()
    for part, piece in divide(work, to_divide(work)):
        with (shuffle / str(part)).open("ab") as file:
            pickle.dump(piece, file)
    for part in range(work.fold.parts):
        yield engine.do_part(work, part, IndexCache(0), shuffled_keys(work, _pieces(shuffle / str(part))))
        pa.default_memory_pool().release_unused()
    shutil.rmtree(shuffle)


def _pieces(path: Path) -> Iterator[Piece]:
    with path.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
