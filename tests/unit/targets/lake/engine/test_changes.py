"""Tables with a row for each change, partitioned by days: what the engine and compaction write, without a format."""

import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from support.days import Folders, begun, differing, grown, partitioned
from support.lake import EAGER
from support.versions import seeds
from tailrace.targets.lake import table as lake_table


@pytest.fixture(autouse=True)
def eager_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_table, "CompactionLimits", lambda: EAGER)


def check_days(subject: Folders) -> Counter[str | None]:
    """The number of files of each day."""
    found = list(subject.days())
    assert all({day} == of_rows for day, of_rows in found)
    return Counter(day for day, _ in found)


def check(seed: int, folder: Path) -> tuple[int, int]:
    """The files before and after the compactions."""
    (folder / "log").mkdir()
    subject = Folders(folder)
    log = begun(subject, folder, partitioned(), seed)
    grown(log, 8, Random(seed))
    assert differing(log) == []
    crowded = check_days(subject)
    for _ in filter(lambda number: number > 1, crowded.values()):
        log.tidy()
    assert check_days(subject) == dict.fromkeys(crowded, 1), "each joined the files of a day"
    log.grow_by_changes(5)
    log.bring()
    assert differing(log) == []
    check_days(subject)
    return sum(crowded.values()), len(crowded)


def test_no_file_has_rows_of_two_days() -> None:
    """Nor after compactions, each of which joins files of one day."""
    found = list[tuple[int, int]]()
    for seed in seeds(2):
        print(f"seed {seed}")
        with tempfile.TemporaryDirectory() as folder:
            found.append(check(seed, Path(folder)))
    assert any(before > after > 2 for before, after in found)


def test_a_new_copy_beside_the_old_one_knows_the_days_of_its_files(tmp_path: Path) -> None:
    """Its document is read again by another driver; and what readers see has them when it is complete."""
    (tmp_path / "log").mkdir()
    subject = Folders(tmp_path)
    log = begun(subject, tmp_path, partitioned(None))
    log.grow_by_changes(30)
    log.bring()
    assert {file.day for file in subject.table.live.values()} == {None}
    log.begin_generation(10, "day", keeps=True)
    for _ in range(3):
        log.grow_by_changes(15)
        log.bring()
        log.target.restart()
    assert log.target.replacing
    for _ in range(5):
        log.tidy()
    log.target.restart()
    log.target.publish()
    assert differing(log) == []
    assert len(check_days(subject)) > 2
