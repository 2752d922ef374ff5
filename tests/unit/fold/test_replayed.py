"""A chunk with the changes that it did not see, against the rule."""

import random
from pathlib import Path

import pytest

from support.folder_lake import FolderTable
from support.random_log import TABLE, KeyOf, RandomLog, first_schema
from tailrace.batch.rule import ApplyRule, TargetState
from tailrace.batch.slice import cut
from tailrace.changelog import keys
from tailrace.fold.replayed import replayed
from tailrace.targets.lake.engine.chunk_files import ChunkFiles


@pytest.mark.parametrize("composite", [False, True])
@pytest.mark.parametrize("seed", [*range(8), 44, 57])
def test_the_rows_of_a_chunks_keys_are_those_of_the_rules_replay(seed: int, composite: bool, tmp_path: Path) -> None:
    rnd = random.Random(seed)
    asked: list[KeyOf] = [("r" * (n % 3), n) if composite else (n,) for n in range(rnd.randint(2, 9))]
    log = RandomLog(rnd, tmp_path, first_schema(composite), asked)
    table = FolderTable(tmp_path, log.schema)
    while not log.chunks or len(log.history) < 30:
        log.grow()
    part = cut(log.state, TABLE, table.applied, log.record)
    assert part is not None and part.chunks
    work = table.work(part, log.access)
    batch = log.batch(part.repair)
    rule = ApplyRule[KeyOf](len(log.schema.columns))
    histories = rule.histories([change for change in batch.changes if change.seq <= batch.through])
    for registered, chunk in zip(part.chunks, batch.chunks, strict=True):
        found = replayed(work.fold, registered, ChunkFiles(work))
        rows = iter(found.rows.to_pylist())
        names = keys.keys(found.keys)
        wanted = {tuple(map(str, key)): key for key in chunk.keys}
        assert sorted(names) == sorted(wanted)
        for name, present, known in zip(names, found.present, found.known, strict=True):
            row = rule.replay(wanted[name], chunk, histories(wanted[name]), TargetState())
            assert (present, known) == (row is not None, row is None or row.complete), name
            if row is not None and row.complete:
                assert tuple(next(rows).values()) == row.values
        assert list(rows) == []
