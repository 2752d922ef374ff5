"""Which record a time stands for, over records as they are stored."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from support.journals import Journal
from tailrace.changelog import moments
from tailrace.changelog.journal import read_record
from tailrace.changelog.moments import SKEW, RecordAt, record_at
from tailrace.changelog.paths import record_path
from tailrace.changelog.records.terms import RecordNumber
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage


def stored(folder: Path, *commits: tuple[int, int] | None) -> Storage:
    """Record 0, and one for each of these oldest and newest commits."""
    journal, storage = Journal(Random(1)), Storage.open(StorageLocation(location=folder.as_uri()))
    records = [journal.origin(), *(journal.plain(rows=2 if times else 0, commit_time=times) for times in commits)]
    for record in records:
        storage.create(record_path(record.number), record.model_dump_json().encode())
    return storage


def at(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1e6, UTC)


def found(storage: Storage, end: int, microseconds: int) -> RecordAt:
    return record_at(storage, RecordNumber(end), at(microseconds))


def test_a_time_is_the_last_record_before_the_first_later_commit(tmp_path: Path) -> None:
    day = 10 * SKEW
    storage = stored(tmp_path, (day, day + 5), None, (day + 6, day + 9), (day + 10, day + 20), None)
    for microseconds, record in ((day - 1, 0), (day + 4, 0), (day + 5, 2), (day + 6, 2), (day + 9, 3), (day + 19, 3)):
        assert found(storage, 5, microseconds).record == record, microseconds - day
    assert found(storage, 5, day + 20) == RecordAt(None, day, day + 20), "more of that time may come"
    assert found(storage, 2, day + 6).record is None


def test_a_commit_whose_clock_was_ahead_is_not_passed(tmp_path: Path) -> None:
    day = 10 * SKEW
    storage = stored(tmp_path, (day, day), (day + SKEW, day + SKEW), (day + 1, day + 2), (day + 9, day + 2 * SKEW))
    assert found(storage, 4, day + 5).record == 1, "record 2 holds a later one, though record 3 does not"


def test_a_time_that_records_no_longer_cover_is_not_told(tmp_path: Path) -> None:
    day = 10 * SKEW
    storage = stored(tmp_path, (day, day), (day + 5, day + 5), (3 * day, 3 * day))
    assert found(storage, 3, day + 6).record == 2
    storage.delete(record_path(RecordNumber(1)))
    assert found(storage, 3, day + 6) == RecordAt(None, day + 5, 3 * day)
    assert found(storage, 3, 2 * day).record == 2
    assert found(stored(tmp_path / "idle", None), 1, day) == RecordAt(None)


def test_a_long_journal_is_bisected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And tells the same as a look at each of its records."""
    random, clock, commits = Random(3), 100 * SKEW, list[tuple[int, int] | None]()
    for number in range(1500):
        clock += random.choice((1, SKEW // 4, SKEW // 2))
        late = clock - random.randint(0, SKEW - 10)
        commits.append(None if random.random() < 0.3 or 700 <= number < 760 else (late, late + random.randint(0, 9)))
    storage, read = stored(tmp_path, *commits), list[int]()
    for number in range(40):
        storage.delete(record_path(RecordNumber(number)))

    def counting(where: Storage, number: RecordNumber) -> object:
        read.append(number)
        return read_record(where, number)

    monkeypatch.setattr(moments, "read_record", counting)
    until = 0
    for _ in range(60):
        until = random.randint(90 * SKEW, clock - 2 * SKEW)
        later = [n for n, times in enumerate(commits, 1) if times is not None and times[1] > until and n >= 40]
        earlier = [n for n, times in enumerate(commits, 1) if times is not None and times[1] < until - SKEW and n >= 40]
        assert found(storage, 1500, until).record == (min(later) - 1 if earlier else None), until
    assert len(read) / 60 < 150
