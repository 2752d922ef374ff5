"""Hazard T10 on the whole path: a table is emptied after a chunk was read and before the journal hears of the chunk."""

from pathlib import Path

import pytest

from support.scripted_database import Change
from support.scripted_runs import Copy, filled
from tailrace.reading import steps


@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_a_truncate_between_a_chunk_and_its_registration_empties_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    copy = Copy(filled("one", "two", rows=40), tmp_path)
    copy.document["spec"]["snapshot"]["parallelism"] = 1
    read: list[str] = []

    def seam(name: str) -> None:
        read.extend([name] if name == "snapshot.before-register" else [])
        if len(read) == chunk and copy.database.end == 2:
            copy.database.commit(Change("T", 1), Change("T", 2))
            copy.database.commit(Change("I", 1, 1, "after"))

    monkeypatch.setattr(steps, "seam", seam)
    with copy.running():
        copy.level()
        assert len(read) > chunk
        assert (copy.rows(1), copy.rows(2)) == ({1: "after"}, {})
        copy.equal()
