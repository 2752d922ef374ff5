"""The driver reads the journal by capture's word: an idle Replicator asks its storage twice a minute."""

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
