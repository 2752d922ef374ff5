"""A driver commits to targets only while the journal is in an epoch that its own capture began."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.origins import origin
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records.terms import Position
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import StorageLocation
from tailrace.driver.process.ownership import PATIENCE, Ownership
from tailrace.errors import Fenced, Retry
from tailrace.storage.store import Storage

ORIGIN = origin("log")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    made = Storage.open(StorageLocation(location=tmp_path.as_uri()))
    JournalWriter.create(made, ORIGIN, Position(1), "first")
    return made


def _owner(storage: Storage, answers: Iterator[int]) -> tuple[Ownership, list[float]]:
    """`answers`: what capture says of its epoch; and the pauses made."""
    pauses: list[float] = []
    journal = SharedJournal(JournalReader.open(storage))
    return Ownership(journal, lambda: next(answers), lambda: sum(pauses), pauses.append), pauses


def test_an_epoch_of_the_drivers_own_capture_is_asked_for_once(storage: Storage) -> None:
    owner, pauses = _owner(storage, iter([0]))
    owner.check()
    owner.check()
    assert pauses == []


def test_a_driver_whose_change_log_was_taken_over_is_fenced(storage: Storage) -> None:
    owner, _ = _owner(storage, iter([0, 0]))
    owner.check()
    JournalWriter.claim(storage, "second")
    with pytest.raises(Fenced, match=r"in epoch 1, which another writer began; this driver's is 0"):
        owner.check()


def test_a_capture_that_starts_again_is_waited_for(storage: Storage) -> None:
    owner, pauses = _owner(storage, iter([0, -1, -1, 1]))
    owner.check()
    JournalWriter.claim(storage, "our next capture")
    owner.check()
    owner.check()
    assert len(pauses) == 2


def test_without_a_capture_nothing_is_committed(storage: Storage) -> None:
    owner, pauses = _owner(storage, iter(lambda: -1, 0))
    with pytest.raises(Retry, match="capture has not begun an epoch"):
        owner.check()
    assert PATIENCE <= sum(pauses) < PATIENCE + 1


def test_a_capture_that_began_its_epoch_between_the_two_questions_is_believed(storage: Storage) -> None:
    def claims() -> Iterator[int]:
        JournalWriter.claim(storage, "ours")
        yield 1
        yield 1

    owner, _ = _owner(storage, claims())
    owner.check()
