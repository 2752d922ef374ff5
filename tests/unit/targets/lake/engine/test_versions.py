"""Batches of a table all of whose versions stay: the engine against the rule, random logs, row for row."""

import random
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from support.folder_lake import FolderTable
from support.kept_versions import FolderVersionLog, Versions, slices
from support.random_log import KeyOf, first_schema
from support.soft_deletes import texts
from support.versions import seeds
from tailrace.batch.history import stored_slice
from tailrace.changelog.history import stored
from tailrace.changelog.records.terms import RecordNumber
from tailrace.fold.newest import FROM_BASE
from tailrace.targets.lake.engine import build as engine
from tailrace.targets.lake.engine import versions
from tailrace.targets.lake.engine.versions import build_versions


def check(seed: int, folder: Path, composite: bool) -> list[str]:
    rnd = random.Random(seed)
    keys: list[KeyOf] = [("r" * (n % 3), n) if composite else (n,) for n in range(rnd.randint(2, 9))]
    prefix = "sys_" if composite else "_"
    schema = first_schema(composite).model_copy(update={"history": "Versions", "history_prefix": prefix})
    log, times = FolderVersionLog(rnd, folder, schema, keys), dict[int, int]()
    table, wanted, covered = FolderTable(folder, stored(schema)), Versions(log), RecordNumber(0)
    for _ in range(rnd.randint(2, 6)):
        for _ in range(rnd.randint(1, 3)):
            log.grow()
            times |= {chunk.chunk: log.moment(log.seq) for chunk, _ in log.chunks if chunk.chunk not in times}
        for part in slices(log, table, covered, log.record):
            now = 5000 + part.through_record
            wanted.follow(part, times, now)
            change = build_versions(table.work(stored_slice(part), log.access), None, now / 1_000_000)
            table.commit(change)
            names = [column.name for column in stored(part.schema).columns]
            assert texts(table.rows()) == texts(wanted.shown(names))
            assert table.applied.holes == {tuple(map(str, key)) for key in wanted.target.holes}
        covered = log.record
    return texts(table.rows())


@pytest.mark.parametrize("part_rows", [1_000_000, 4], ids=["whole", "in parts"])
@pytest.mark.parametrize("composite", [False, True], ids=["one key column", "two key columns"])
def test_the_engine_does_what_the_rule_says(composite: bool, part_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several changes of a key in one batch and in one commit, moves, TRUNCATEs, values that the log does not carry,
    late chunks, lists of keys, ends of snapshots, evolving columns, clocks that go back."""
    monkeypatch.setattr(engine, "PART_ROWS", part_rows)
    monkeypatch.setattr(versions, "BATCH_BYTES", 50 * part_rows)
    for seed in seeds(3):
        print(f"seed {seed}")
        with tempfile.TemporaryDirectory() as folder:
            check(seed, Path(folder), composite)


def test_versions_that_repeat_a_long_value_are_written_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "BATCH_BYTES", 1000)
    pool = [pa.array(["x" * 400, None, "y" * 5000]), pa.array([1, 2, 3])]
    rows = [np.array([0, 0, 0, 0, 1, 2, FROM_BASE, 0]), np.array([0, 1, 2, 0, 1, 2, 0, 1])]
    sizes = versions._sum_of_sizes([versions._sizes(column) for column in pool], rows)
    assert sizes.tolist() == [432, 432, 432, 432, 32, 5032, 16, 432]
    assert [(some.start, some.stop) for some in versions._pieces(sizes)] == [(0, 2), (2, 5), (5, 6), (6, 8)]
