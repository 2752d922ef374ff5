"""The driver reads the journal by capture's word: an idle Replicator asks its storage twice a minute."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typing_extensions import override

from support.origins import origin
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records.terms import Position, RecordNumber
from tailrace.changelog.shared_journal import LOOK_SECONDS, SharedJournal
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage

MINUTE_OF_TURNS = 360
"""Four times a second to apply, twice for snapshots."""


class Counted(Storage):
    requests = 0

    @override
    def get(self, path: str) -> bytes:
        self.requests += 1
        return super().get(path)

    @override
    def exists(self, path: str) -> bool:
        self.requests += 1
        return super().exists(path)


class Followed:
    """A journal with its writer, a clock that the test moves, and what capture says of the newest record."""

    def __init__(self, folder: Path) -> None:
        place = StorageLocation(location=folder.as_uri())
        self.writer = JournalWriter.create(Storage.open(place), origin("log"), Position(1), "capture")
        storage = Counted.open(place)
        assert isinstance(storage, Counted)
        self.storage = storage
        self.now, self.answers = 1000.0, True
        reader = JournalReader.open(self.storage, lambda: self.now)
        self.journal = SharedJournal(reader, self.newest, lambda: self.now)
        self.storage.requests = 0

    def newest(self) -> RecordNumber | None:
        return self.writer.state.number if self.answers else None

    def requests(self) -> int:
        """Since this was asked last."""
        made, self.storage.requests = self.storage.requests, 0
        return made

    def minute(self) -> None:
        for _ in range(MINUTE_OF_TURNS):
            self.now += 60 / MINUTE_OF_TURNS
            self.journal.refresh()


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


def test_an_idle_journal_costs_two_requests_a_minute(followed: Followed) -> None:
    followed.minute()
    assert followed.requests() <= 2
    for _ in range(10):
        followed.minute()
    assert followed.requests() <= 20


def test_a_new_record_is_read_at_once_by_one_request(followed: Followed) -> None:
    for number in (1, 2, 3):
        followed.writer.append(Position(number + 1))
        assert followed.journal.refresh().number == number
        assert followed.requests() == 1


def test_who_has_just_been_told_of_a_record_does_not_ask_for_it(followed: Followed) -> None:
    followed.writer.append(Position(2))
    told = followed.newest()
    followed.answers = False
    assert followed.journal.refresh(told).number == 1
    assert followed.journal.refresh(told).number == 1
    assert followed.requests() == 1


def test_without_capture_every_turn_asks_the_storage(followed: Followed) -> None:
    followed.writer.append(Position(2))
    followed.answers = False
    assert followed.journal.refresh().number == 1
    followed.requests()
    for _ in range(5):
        followed.journal.refresh()
    assert followed.requests() == 5


def test_a_record_of_another_writer_is_found_within_a_minute(followed: Followed) -> None:
    """Capture does not know of it until it writes itself."""
    JournalWriter.claim(followed.storage, "another")
    assert followed.journal.refresh().epoch == 0
    followed.now += LOOK_SECONDS
    assert followed.journal.refresh().epoch == 1


def test_a_look_finds_a_record_of_another_writer_at_once(followed: Followed) -> None:
    JournalWriter.claim(followed.storage, "another")
    assert followed.journal.look().epoch == 1
    assert followed.journal.refresh().epoch == 1


def test_threads_that_ask_while_a_look_is_under_way_share_the_next_one(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The present one may have passed the record that they are to see."""
    passed, go_on, get = threading.Event(), threading.Event(), followed.storage.get

    def slowly(path: str) -> bytes:
        try:
            return get(path)
        finally:
            if not passed.is_set():
                passed.set()
                go_on.wait(10)

    monkeypatch.setattr(followed.storage, "get", slowly)
    with ThreadPoolExecutor(7) as pool:
        first = pool.submit(lambda: followed.journal.look().epoch)
        assert passed.wait(10)
        JournalWriter.claim(Storage.open(StorageLocation(location=followed.storage.root)), "another")
        later = [pool.submit(lambda: followed.journal.look().epoch) for _ in range(6)]
        time.sleep(0.3)
        go_on.set()
        assert (first.result(), [one.result() for one in later]) == (0, [1] * 6)
    assert followed.requests() == 3, "the first, and two that meet the new record and the end"


def test_who_shared_a_look_that_failed_looks_again(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(followed.journal._reader, "next", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            followed.journal.look()
    JournalWriter.claim(followed.storage, "another")
    assert followed.journal.look().epoch == 1
