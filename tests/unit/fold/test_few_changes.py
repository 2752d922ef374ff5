"""Small batches row by row: the same as with arrays, and left to these where a row is not all there is to know."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from typing_extensions import override

from support.folder_lake import FolderTable
from support.random_log import TABLE, KeyOf, RandomLog, first_schema
from support.states import chunk
from tailrace.batch.slice import TableSlice, cut
from tailrace.changelog.records.terms import Seq, TableSchema
from tailrace.errors import CorruptLog
from tailrace.fold import few_changes
from tailrace.targets.lake.engine import build as engine
from tailrace.targets.lake.engine.few import build_few
from tailrace.targets.lake.files.index import FileIndex
from tailrace.targets.lake.files.index_cache import IndexCache


@dataclass
class WholeRows(RandomLog):
    """Each change carries its whole row, and each segment is part of a bundle."""

    @override
    def _carried(self, key: KeyOf) -> tuple[object, ...]:
        return self._row(key)

    @override
    def _segment(self, count: int, bundled: bool = False) -> None:
        super()._segment(count, bundled=True)


def made(folder: Path, seed: int, keys: Sequence[KeyOf], schema: TableSchema | None = None) -> WholeRows:
    schema = schema or first_schema(composite=len(keys[0]) > 1)
    return WholeRows(random.Random(seed), folder, schema, list(keys))


def batch_of(log: RandomLog, table: FolderTable) -> TableSlice:
    batch = cut(log.state, TABLE, table.applied, log.record)
    assert batch is not None
    return batch


KEYS: dict[str, list[KeyOf]] = {
    "numbers": [(n,) for n in (-3, 0, 2**62, 7, 12)],
    "texts": [(text,) for text in ("", "a", "ä", "zz", "\U0001f600")],
    "two columns": [("r" * (n % 3), n) for n in range(6)],
}


def schema_of(kind: str) -> TableSchema:
    schema = first_schema(composite=kind == "two columns")
    if kind != "texts":
        return schema
    columns = [c.model_copy(update={"type": "string"}) if c.key is not None else c for c in schema.columns]
    return schema.model_copy(update={"columns": tuple(columns)})


@pytest.mark.parametrize("kind", KEYS)
def test_few_whole_rows_leave_what_the_arrays_leave(kind: str, tmp_path: Path) -> None:
    log = made(tmp_path, 3, KEYS[kind], schema_of(kind))
    mine, theirs = FolderTable(tmp_path, log.schema), FolderTable(tmp_path, log.schema)
    cache, written, marked = IndexCache(1 << 20), 0, 0
    for _ in range(40):
        for _ in range(log.rnd.randint(1, 3)):
            log.grow_by_changes(log.rnd.randint(1, 4))
        work = mine.work(batch_of(log, mine), log.access)
        commit = build_few(work, cache)
        assert commit is not None
        arrays = theirs.work(batch_of(log, theirs), log.access)
        mine.commit(commit)
        theirs.commit(engine.merge(arrays, [engine.do_part(arrays, 0)]))
        assert mine.applied == theirs.applied
        assert sorted(map(repr, mine.rows())) == sorted(map(repr, theirs.rows()))
        assert [(file.rows, file.dead) for file in mine.files] == [(file.rows, file.dead) for file in theirs.files]
        written, marked = written + len(commit.add), marked + len(commit.marks)
    assert written > 30 and marked > 30


def declined(log: RandomLog, table: FolderTable, batch: TableSlice) -> bool:
    return few_changes.few_changes(table.work(batch, log.access).fold) is None


def test_what_is_kept_of_keys_does_not_keep_the_bundle() -> None:
    """An index of several columns has these themselves: a view would keep all rows of the bundle in memory."""
    rows = pa.record_batch({name: pa.array(range(100_000), pa.int64()) for name in "ab"}).slice(7, 1)
    kept = FileIndex.build(few_changes._chosen(rows.columns, [0])).values
    assert (
        len(kept) == 2
        and sum(buffer.size for values in kept for buffer in values.buffers() if buffer is not None) < 1000
    )


def test_what_is_not_few_whole_rows_is_left_to_the_arrays(tmp_path: Path) -> None:
    log = made(tmp_path, 1, KEYS["numbers"])
    table = FolderTable(tmp_path, log.schema)
    log.grow_by_changes(5)
    batch = batch_of(log, table)
    (segment,) = batch.segments
    assert not declined(log, table, batch)
    others: dict[str, TableSlice] = {
        "a chunk": replace(batch, chunks=(chunk(TABLE),)),
        "a TRUNCATE": replace(batch, clear=True),
        "holes": replace(batch, applied=replace(batch.applied, holes=frozenset({("1",)}))),
        "other columns": replace(batch, applied=replace(batch.applied, schema_version=0)),
        "values that were not carried": replace(batch, segments=(segment.model_copy(update={"unchanged": True}),)),
        "a file": replace(batch, segments=(segment.model_copy(update={"path": "segments/1.parquet"}),)),
        "many rows": replace(batch, segments=(segment.model_copy(update={"rows": few_changes.FEW + 1}),)),
        "a history": replace(batch, schema=batch.schema.model_copy(update={"history": "Versions"})),
        "no key": replace(batch, schema=batch.schema.model_copy(update={"keyless": True})),
        "nothing new": replace(batch, through_seq=Seq(0)),
    }
    assert [name for name, other in others.items() if not declined(log, table, other)] == []


def test_keys_that_are_equal_in_several_forms_are_left_to_the_arrays(tmp_path: Path) -> None:
    schema = first_schema(composite=False)
    columns = [c.model_copy(update={"type": "float64"}) if c.key is not None else c for c in schema.columns]
    log = made(tmp_path, 1, [(0.0,), (-0.0,)], schema.model_copy(update={"columns": tuple(columns)}))
    table = FolderTable(tmp_path, log.schema)
    log.grow_by_changes(3)
    assert declined(log, table, batch_of(log, table))


def test_rows_that_are_not_what_the_record_says_are_not_applied(tmp_path: Path) -> None:
    log = made(tmp_path, 1, KEYS["numbers"])
    table = FolderTable(tmp_path, log.schema)
    log.grow_by_changes(4)
    batch = batch_of(log, table)
    wrong = tuple(segment.model_copy(update={"rows": segment.rows + 1}) for segment in batch.segments)
    with pytest.raises(CorruptLog, match="its record says"):
        engine.build(table.work(replace(batch, segments=wrong), log.access))
