"""Batches of a table whose deleted rows stay, marked: the engine against the rule, random logs, row for row."""

import random
import tempfile
from pathlib import Path

import pytest
from unit.targets.lake.engine.test_build import divided

from support.folder_lake import FolderTable
from support.random_log import TABLE, KeyOf, first_schema
from support.soft_deletes import EVERYTHING, FolderSoftLog, following, shown, texts
from tailrace.batch.history import stored_slice
from tailrace.batch.limits import batch_end
from tailrace.batch.rule import TargetState
from tailrace.batch.slice import cut
from tailrace.batch.soft_delete import ends_before
from tailrace.changelog.history import stored
from tailrace.changelog.records.terms import RecordNumber
from tailrace.targets.lake.engine import build as engine
from tailrace.targets.lake.engine import soft_delete


def check(rnd: random.Random, folder: Path, composite: bool, spread: engine.Spread | None) -> None:
    keys: list[KeyOf] = [("r" * (n % 3), n) if composite else (n,) for n in range(rnd.randint(2, 9))]
    schema = first_schema(composite).model_copy(update={"history": "SoftDelete"})
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
            target = following(target, log, batch)
            work = table.work(stored_slice(batch), log.access)
            table.commit(soft_delete.build_marked(work, spread))
            names = [column.name for column in stored(batch.schema).columns]
            assert texts(table.rows()) == texts(shown(target, names))
            assert table.applied.holes == {tuple(map(str, key)) for key in target.holes}


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
    monkeypatch.setattr(soft_delete, "PART_ROWS", part_rows)
    for seed in [*range(4), random.SystemRandom().randrange(2**32)]:
        print(f"seed {seed}")
        run(seed, composite, divides)
