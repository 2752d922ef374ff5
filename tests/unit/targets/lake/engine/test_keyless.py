"""Tables without a key, by the engine: as many of each row as the source has, whatever a reading saw and however the
batches are cut."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from support.counted_log import SCHEMA, TABLE, CountedLog
from support.folder_lake import FolderTable
from tailrace.batch.slice import TableSlice, cut
from tailrace.changelog.records.terms import RecordNumber
from tailrace.errors import ForeignChange
from tailrace.fold import keyless
from tailrace.targets.lake.engine.keyless import build_keyless
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.files import locate_rows
from tailrace.targets.lake.files.index_cache import IndexCache


def work_of(log: CountedLog, table: FolderTable, batch: TableSlice) -> PartInput:
    files = () if batch.clear else table.files
    return table.work(batch, log.access, files=files)


def rows_of(table: FolderTable) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in table.rows())


def check(seed: int, folder: Path) -> int:
    """Returns the number of readings that saw what lies behind their replay point."""
    rnd = random.Random(seed)
    log, table = CountedLog(rnd, folder), FolderTable(folder, SCHEMA)
    read = False
    for _ in range(rnd.randint(2, 8)):
        for _ in range(rnd.randint(1, 3)):
            log.grow()
        # An older record, then the newest: a batch does not end where the log does.
        for through in sorted({rnd.randint(0, log.record), log.record}):
            batch = cut(log.state, TABLE, table.applied, RecordNumber(through))
            if batch is not None:
                read |= bool(batch.chunks)
                table.commit(build_keyless(work_of(log, table, batch)))
        if read:
            assert rows_of(table) == +log.rows, f"seed {seed}"
    return log.seen


def test_there_are_as_many_of_each_row_as_in_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    for seed in range(24):
        # Changes are read a second time, and files that have no room in the cache are read through.
        monkeypatch.setattr(keyless, "HELD_BYTES", random.Random(seed).choice((0, 1 << 20)))
        cache = random.Random(seed).choice((IndexCache(0), IndexCache(1 << 20)))
        monkeypatch.setattr(locate_rows.locate_rows, "__defaults__", (cache,))
        folder = tmp_path / str(seed)
        folder.mkdir()
        seen += check(seed, folder)
    assert seen > 2


@pytest.mark.parametrize("broken", ["seen", "replay point", "truncate"])
def test_a_change_that_counts_twice_or_never_is_found(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(part: TableSlice) -> keyless.CountedSlice:
        counted = original(part)
        match broken:
            case "seen":
                return replace(counted, seen=())
            case "replay point":
                return replace(counted, first=max(counted.first, type(counted.first)(part.start_seq + 1)))
            case _:
                return (
                    counted
                    if counted.slice.chunks
                    else replace(counted, slice=replace(part, clear=counted.slice.clear))
                )

    original = keyless.CountedSlice.of
    monkeypatch.setattr(keyless.CountedSlice, "of", of)
    for seed in range(150):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            check(seed, folder)
        except (AssertionError, ForeignChange):
            return
    pytest.fail("nobody noticed")


def test_a_delete_of_what_a_whole_table_does_not_have_is_an_error_and_before_that_it_takes_nothing(
    tmp_path: Path,
) -> None:
    log, table = CountedLog(random.Random(1), tmp_path), FolderTable(tmp_path, SCHEMA)
    log.record = 1
    log._segment([(1, "D", 1, "a"), (2, "I", 1, "a")])
    log.seq = 2
    batch = cut(log.state, TABLE, table.applied, RecordNumber(1))
    assert batch is not None
    with pytest.raises(ForeignChange, match="does not have"):
        build_keyless(work_of(log, table, replace(batch, whole=True)))
    assert not batch.whole
    table.commit(build_keyless(work_of(log, table, batch)))
    assert rows_of(table) == {(1, "a"): 1}
