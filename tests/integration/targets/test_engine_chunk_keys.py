"""Keys are read once, whatever the number of parts; and a batch takes only so many of them."""

from collections import Counter
from pathlib import Path
from typing import cast

import pytest

from support.apply_loop import CHUNK, table
from support.folder_lake import NotedAccess
from support.rereads import divided, reread
from tailrace.batch.limits import BatchLimits, batch_end
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.state import LoggedChunk, TableLog
from tailrace.targets.lake.engine import build as engine
from tailrace.targets.lake.engine.part import PartInput, PartResult

ROWS = 400_000


def _opened(folder: Path, part_rows: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[str], int, int]:
    """How often each file was opened, by how many parts, and how many rows stayed."""
    monkeypatch.setattr(engine, "PART_ROWS", part_rows)
    target, work = reread(folder, ROWS)
    parts: list[int] = []

    def spread(work: PartInput) -> list[PartResult]:
        parts.append(work.fold.parts)
        return divided(work)

    change = engine.build(work, spread)
    opened = Counter({Path(path).name: count for path, count in cast(NotedAccess, work.lake).opened().items()})
    target.commit(change)
    chunks = Counter({name: count for name, count in opened.items() if name.startswith("chunk-")})
    chunks["files of the target"] = sum(opened.values()) - sum(chunks.values())
    return chunks, parts[0], sum(file.rows - len(file.dead) for file in target.files)


def test_a_key_file_is_opened_no_more_often_for_many_parts_than_for_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, two, rows = _opened(tmp_path / "few", 400_000, monkeypatch)
    many, more, same = _opened(tmp_path / "many", 20_000, monkeypatch)
    assert two == 2 and more == 30
    assert few == many
    assert rows == same == ROWS - len(range(7, ROWS, 1000))


def _with_chunks(*records: int, rows: int) -> list[LoggedChunk]:
    return [
        LoggedChunk(record=RecordNumber(record), chunk=CHUNK.model_copy(update={"rows": rows})) for record in records
    ]


def test_a_batch_ends_before_the_record_that_exceeds_a_bound() -> None:
    limits = BatchLimits(rows=400_000, size=3, chunk_rows=100, chunks=3)

    def ends(table: TableLog, *behind: int) -> list[RecordNumber]:
        return [batch_end([(table, RecordNumber(after))], RecordNumber(9), limits) for after in behind]

    rows = table(7).model_copy(update={"chunks": tuple(_with_chunks(2, 2, 5, 6, rows=40))})
    assert ends(rows, 0, 4, 5, 6) == [4, 9, 9, 9]
    count = table(7).model_copy(update={"chunks": tuple(_with_chunks(2, 3, 4, 5, 6, 6, 6, 6, 7, rows=1))})
    assert ends(count, 0, 4, 5, 6) == [
        4,
        5,
        6,
        9,
    ]
    size = table(7, 2, 4, 6, 8)
    assert ends(size, 0, 2, 7) == [7, 9, 9]
