"""Batches of a table whose deleted rows stay, marked: the engine against the rule, random logs, row for row."""

import random
import tempfile
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from unit.targets.lake.engine.test_build import divided

from support.folder_lake import FolderTable
from support.random_log import TABLE, KeyOf, first_schema
from support.soft_deletes import EVERYTHING, FolderSoftLog, following, shown, texts, told_of_lost
from support.versions import seeds
from tailrace.batch.history import stored_slice
from tailrace.batch.limits import batch_end
from tailrace.batch.rule import TargetState
from tailrace.batch.slice import cut
from tailrace.batch.soft_delete import ends_before
from tailrace.changelog.history import DELETED, stored
from tailrace.changelog.records.terms import RecordNumber
from tailrace.targets.lake.engine import build as engine
from tailrace.targets.lake.engine import soft_delete
from tailrace.targets.lake.model import DataFile


def check(rnd: random.Random, folder: Path, composite: bool, spread: engine.Spread | None) -> int:
    """The number of deleted rows of which neither the log nor the copy had the values."""
    lost = list[KeyOf]()
    keys: list[KeyOf] = [("r" * (n % 3), n) if composite else (n,) for n in range(rnd.randint(2, 9))]
    prefix = "sys_" if composite else "_"
    schema = first_schema(composite).model_copy(update={"history": "SoftDelete", "history_prefix": prefix})
    log = FolderSoftLog(rnd, folder, schema, keys)
    table, target, covered = FolderTable(folder, stored(schema)), TargetState[KeyOf](), RecordNumber(0)
    for _ in range(rnd.randint(1, 5)):
        for _ in range(rnd.randint(1, 3)):
            log.grow()
        while covered < log.record:
            covered = batch_end([(log.table, covered)], log.record, EVERYTHING, ends_before(log.table))
            batch = cut(log.state, TABLE, table.applied, covered)
            if batch is None:
                continue
            target = following(target, log, batch, lost)
            work = table.work(stored_slice(batch), log.access)
            table.commit(soft_delete.build_marked(work, spread))
            names = [column.name for column in stored(batch.schema).columns]
            assert texts(table.rows()) == texts(shown(target, names))
            assert table.applied.holes == {tuple(map(str, key)) for key in target.holes}
    return len(lost)


def run(seed: int, composite: bool, divides: bool) -> int:
    rnd = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        return check(rnd, Path(folder), composite, (lambda work: divided(rnd, work)) if divides else None)


@pytest.mark.parametrize(
    ("part_rows", "divides"), [(1_000_000, False), (4, False), (4, True)], ids=["whole", "in parts", "divided"]
)
@pytest.mark.parametrize("composite", [False, True], ids=["one key column", "two key columns"])
def test_the_engine_does_what_the_rule_says(
    composite: bool, part_rows: int, divides: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Deleted rows that cannot be kept are told."""
    monkeypatch.setattr(engine, "PART_ROWS", part_rows)
    monkeypatch.setattr(soft_delete, "PART_ROWS", part_rows)
    for seed in seeds(2):
        print(f"seed {seed}")
        caplog.clear()
        assert run(seed, composite, divides) == told_of_lost(caplog)


def test_a_truncate_holds_the_places_of_one_file_at_a_time() -> None:
    rows = 200_000
    joint = soft_delete._Joint({f"f{n}": DataFile(f"f{n}", rows, 1, BitMap64([3, n + 10])) for n in range(12)})
    tracemalloc.start()
    try:
        found = [(path, len(places), int(places[3])) for path, places in soft_delete._living(joint)]
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [(f"f{n}", rows - 2, 4) for n in range(12)]
    assert most < 8 * rows * 4


def test_a_mark_that_another_program_set_to_null_is_none(tmp_path: Path) -> None:
    """Else such a row would never be marked, and no reader of present rows would see it."""
    schema = first_schema(composite=False).model_copy(update={"history": "SoftDelete"})
    log = FolderSoftLog(random.Random(1), tmp_path, schema, [(1,), (2,), (3,)])
    table = FolderTable(tmp_path, stored(schema))
    batch = None
    while batch is None or not table.rows():
        log.grow()
        batch = cut(log.state, TABLE, table.applied, log.record)
        if batch is not None:
            table.commit(soft_delete.build_marked(table.work(stored_slice(batch), log.access)))
    (mark,) = table.work(stored_slice(batch), log.access).layout.physical([DELETED])
    for file in table.files:
        held, altered = pq.read_table(table.access._file(file.path)), f"{file.path}-altered"
        at = held.column_names.index(mark)
        pq.write_table(
            held.set_column(at, held.schema.field(at), pa.nulls(held.num_rows, pa.bool_())),
            table.access._file(altered),
        )
        del table.live[file.path]
        table.live[altered] = replace(file, path=altered)
    there = len(table.rows())
    assert there and [row[DELETED] for row in table.rows()] == [None] * there
    log.record = RecordNumber(log.record + 1)
    log._truncate()
    last = cut(log.state, TABLE, table.applied, log.record)
    assert last is not None
    table.commit(soft_delete.build_marked(table.work(stored_slice(last), log.access)))
    assert [row[DELETED] for row in table.rows()] == [True] * there
