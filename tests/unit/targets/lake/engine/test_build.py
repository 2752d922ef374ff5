"""The engine against the rule: random logs, chunks and batches, row for row."""

import random
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.folder_lake import FolderTable
from support.random_log import TABLE, KeyOf, RandomLog, first_schema
from support.versions import seeds
from tailrace.batch.rule import ApplyRule, TargetState
from tailrace.batch.slice import cut
from tailrace.changelog.paths import is_bundle
from tailrace.changelog.records.terms import TableSchema
from tailrace.errors import CorruptLog
from tailrace.fold import log_rows as changes
from tailrace.fold.fold_input import MovedKeys
from tailrace.targets.lake.engine import build as engine
from tailrace.targets.lake.engine.divide import Piece, divide, shuffled_keys, to_divide
from tailrace.targets.lake.engine.part import PartInput, PartResult
from tailrace.targets.lake.model import DataFile


def divided(rnd: random.Random, work: PartInput) -> Iterable[PartResult]:
    """What `spread` does, without Spark; pieces come in any order."""
    pieces = defaultdict[int, list[Piece]](list)
    sources = to_divide(work)
    for source in rnd.sample(sources, len(sources)) if rnd.random() < 0.5 else [None]:
        for part, piece in divide(work, sources if source is None else [source]):
            pieces[part].append(piece)
    for some in pieces.values():
        rnd.shuffle(some)
    for part in range(work.fold.parts):
        yield engine.do_part(work, part, divided=shuffled_keys(work, pieces[part]))


def with_a_strange_name(rnd: random.Random, schema: TableSchema) -> TableSchema:
    """A name that Arrow would take for a path, or not."""
    name = rnd.choice([".id", "id"])
    columns = [column.model_copy(update={"name": name}) if column.name == "id" else column for column in schema.columns]
    return schema.model_copy(update={"columns": tuple(columns)})


def check(rnd: random.Random, folder: Path, composite: bool, spread: engine.Spread | None) -> None:
    keys: list[KeyOf] = [("r" * (n % 3), n) if composite else (n,) for n in range(rnd.randint(2, 9))]
    log = RandomLog(rnd, folder, with_a_strange_name(rnd, first_schema(composite)), keys)
    table = FolderTable(folder, log.schema)
    target: TargetState[KeyOf] = TargetState()
    for _ in range(rnd.randint(1, 5)):
        for _ in range(rnd.randint(1, 3)):
            log.grow()
        batch = cut(log.state, TABLE, table.applied, log.record)
        target = expected(log, target, bool(batch and batch.repair))
        if batch is not None:
            work = table.work(batch, log.access)
            table.commit(engine.build(work, spread))
            names = [column.name for column in log.schema.columns]
            wanted = sorted(repr(dict(zip(names, row, strict=True))) for row in target.rows.values())
            assert sorted(map(repr, table.rows())) == wanted
            assert table.applied.holes == {tuple(map(str, key)) for key in target.holes}


def expected(log: RandomLog, target: TargetState[KeyOf], repair: bool) -> TargetState[KeyOf]:
    columns = len(log.schema.columns)
    rows = {key: (*row, *[None] * (columns - len(row))) for key, row in target.rows.items()}
    before = TargetState(rows, target.applied_seq, target.applied_record, target.holes)
    return ApplyRule[KeyOf](columns).apply(before, log.batch(repair))


def test_a_segment_that_is_not_what_its_record_says_is_not_applied(tmp_path: Path) -> None:
    log = RandomLog(random.Random(1), tmp_path, first_schema(composite=False), [(1,), (2,)])
    table = FolderTable(tmp_path, log.schema)
    log.grow_by_changes(3)
    log.grow_by_changes(9)
    one, other = (tmp_path / logged.segment.path for logged in log.table.segments[-2:])
    other.write_bytes(one.read_bytes())
    batch = cut(log.state, TABLE, table.applied, log.record)
    assert batch is not None
    with pytest.raises(CorruptLog, match="its record says"):
        engine.build(table.work(batch, log.access))


@pytest.mark.parametrize(("rows", "size", "parts"), [(100, 1 << 30, 1), (10, 1 << 30, 3), (100, 1_000_000, 4)])
def test_a_batch_is_divided_by_its_rows_and_by_its_bytes_before_compression(
    rows: int, size: int, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RandomLog(random.Random(1), tmp_path, first_schema(composite=False), [(1,), (2,)])
    table = FolderTable(tmp_path, log.schema)
    log.grow_by_changes(30)
    for logged in log.table.segments:
        file = tmp_path / logged.segment.path
        content = pq.read_table(file)
        long = pa.array([f"{number % 10}" * 100_000 for number in range(content.num_rows)])
        pq.write_table(content.set_column(content.column_names.index("t"), "t", long), file, compression="zstd",
                       use_dictionary=False)  # fmt: skip
        assert file.stat().st_size < 100_000
    monkeypatch.setattr(changes, "LITTLE", 0)
    monkeypatch.setattr(engine, "PART_ROWS", rows)
    monkeypatch.setattr(engine, "PART_BYTES", size)
    batch = cut(log.state, TABLE, table.applied, log.record)
    assert batch is not None
    asked: list[int] = []

    def spread(work: PartInput) -> Iterable[PartResult]:
        asked.append(work.fold.parts)
        return ()

    engine.build(table.work(batch, log.access), spread)
    assert asked == ([parts] if parts > 1 else [])


def test_a_bundled_segment_tells_its_size_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RandomLog(random.Random(1), tmp_path, first_schema(composite=False), [(1,), (2,)])
    for _ in range(30):
        log.grow()
    table = FolderTable(tmp_path, log.schema)
    batch = cut(log.state, TABLE, table.applied, log.record)
    assert batch is not None
    work = table.work(batch, log.access)
    found = [segment for segment in batch.segments if is_bundle(segment.path)]
    for segment in found:
        (tmp_path / segment.path).unlink()
    monkeypatch.setattr(changes, "LITTLE", 0)
    assert changes.unpacked_size(work.fold, found) == sum(segment.size for segment in found) > 0


def test_what_lies_under_moved_keys_counts_for_the_number_of_parts(tmp_path: Path) -> None:
    log = RandomLog(random.Random(1), tmp_path, first_schema(composite=False), [(1,), (2,)])
    log.grow_by_changes(3)
    table = FolderTable(tmp_path, log.schema)
    batch = cut(log.state, TABLE, table.applied, log.record)
    assert batch is not None
    files = (DataFile("file:///a", 600, 60 << 20), DataFile("file:///b", 400, 40 << 20))  # 100 kB a row
    work = table.work(batch, log.access, files=files)
    moved = MovedKeys(np.arange(5000), np.zeros(5000, np.int64))
    assert engine.held_size(work, MovedKeys()) == 0
    assert engine.parts_for(5000, engine.held_size(work, moved)) == 12


def run(seed: int, composite: bool, divides: bool) -> None:
    rnd = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        check(rnd, Path(folder), composite, (lambda work: divided(rnd, work)) if divides else None)


@pytest.mark.parametrize(
    ("part_rows", "divides"), [(1_000_000, False), (4, False), (4, True)], ids=["whole", "in parts", "divided"]
)
@pytest.mark.parametrize("composite", [False, True], ids=["one key column", "two key columns"])
def test_the_engine_does_what_the_rule_says(
    composite: bool, part_rows: int, divides: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PART_ROWS", part_rows)
    for seed in seeds(4):
        print(f"seed {seed}")
        run(seed, composite, divides)
