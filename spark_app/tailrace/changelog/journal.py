"""The journal: numbered records, created exclusively, read in order by probing the next number.

Capture holds the one `JournalWriter`; apply, planner and status each hold a `JournalReader`. Both carry the folded
state. Every `ROLLUP_RECORDS` records, or `ROLLUP_BYTES` of them, whichever process wrote them, the writer stores the
state as a roll-up (`changelog.rollup`), so that a start reads one roll-up and the records after it.
"""

import json
import time
from collections.abc import Callable

from pydantic import ValidationError

from tailrace.changelog.paths import JOURNAL, number_of, record_path
from tailrace.changelog.records import Origin, Record, check_format
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.rollup import Rollups
from tailrace.changelog.state import fold
from tailrace.errors import CorruptLog
from tailrace.storage.store import NotFound, Storage

Clock = Callable[[], float]

ROLLUP_RECORDS = 1000
ROLLUP_BYTES = 16 << 20
STALE_SECONDS = 60.0
"""A reader that has read nothing for longer asks whether retention has passed it by; far below the shortest retention
of records."""


def read_record(storage: Storage, number: RecordNumber) -> Record:
    """Record `number`, or `NotFound`."""
    return parse_record(storage.get(record_path(number)), number)


def parse_record(data: bytes, number: RecordNumber) -> Record:
    if number == 0:
        _check_format(data)
    try:
        return Record.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise CorruptLog(
            f"journal record {number} is not readable: {first['msg']} at {'.'.join(map(str, first['loc']))}",
            "Use the version of Tailrace that wrote it, or start a new change log and take a snapshot.",
        ) from error


def _check_format(data: bytes) -> None:
    """Checks the format of record 0: in another format the other fields may not be what this version expects."""
    try:
        (version,) = (e["format_version"] for e in json.loads(data)["events"] if e["kind"] == "origin")
    except (ValueError, KeyError, TypeError):
        return  # no origin at all: its model says what is wrong
    check_format(version)


def read_origin(storage: Storage) -> Origin | None:
    """The origin of the change log, without reading all of it; None: there is no change log."""
    _, rolled_up = Rollups.load(storage)
    if rolled_up.origin is not None:
        return rolled_up.origin
    try:
        return next((e for e in read_record(storage, RecordNumber(0)).events if isinstance(e, Origin)), None)
    except NotFound:
        return None


class JournalReader:
    """Follows the journal. `state` is the fold of all records read so far."""

    def __init__(self, storage: Storage, clock: Clock = time.time) -> None:
        self.storage = storage
        self._clock = clock
        self._load()

    def _load(self) -> None:
        """Begin with the newest roll-up."""
        self._proven = self._clock()
        """The time at which the records after `state` were last known to be there or to come."""
        self.rollups, self.state = Rollups.load(self.storage)
        self.bytes = 0
        """Bytes of the records read since the roll-up."""

    @classmethod
    def open(cls, storage: Storage, clock: Clock = time.time) -> "JournalReader":
        """Start from the newest roll-up and read up to the journal's end. No journal: `state.number` is -1."""
        reader = cls(storage, clock)
        while True:
            while reader.next() is not None:
                pass
            if reader._passed_by():
                continue
            behind = reader._behind_a_gap()
            if behind is None:
                return reader
            if reader.next() is None and not reader._passed_by():
                raise CorruptLog(
                    f"journal record {reader.state.number + 1} is missing, and record {behind} is there",
                    "Put the journal's records back, or start a new change log and take a snapshot.",
                )

    def next(self) -> Record | None:
        """The next record, folded into `state`; None: there is none yet."""
        if abs(self._clock() - self._proven) > STALE_SECONDS:
            self._passed_by()
        number = RecordNumber(self.state.number + 1)
        try:
            data = self.storage.get(record_path(number))
        except NotFound:
            return None
        record = parse_record(data, number)
        self.state = fold(self.state, record)
        self.bytes += len(data)
        self._proven = self._clock()
        return record

    def poll(self, limit: int = 1000) -> list[Record]:
        """Up to `limit` new records."""
        records: list[Record] = []
        while len(records) < limit and (record := self.next()) is not None:
            records.append(record)
        return records

    def _behind_a_gap(self) -> RecordNumber | None:
        """The first record after the one that would come next. A start must not take a gap for the journal's end: it
        would write into it, and give up what the source still holds for the records behind it."""
        following = record_path(self.state.number + 1)
        numbers = (number_of(path) for path, _ in self.storage.list(JOURNAL, after=following) if path.count("/") == 1)
        # Others' files (a backup's, an editor's) have no number.
        return next((number for number in numbers if number is not None), None)

    def _passed_by(self) -> bool:
        """True if retention removed the next record before it was read; then `state` is now that of a roll-up. A reader
        that sleeps, or reads more slowly than records grow old, would otherwise wait forever for a record that is gone.
        The record read last is the test: the journal's head is never removed, and records go in order, so while it
        exists, nothing after it is gone."""
        number, now = self.state.number, self._clock()
        if number >= 0 and not self.storage.exists(record_path(number)):
            self._load()
            if self.state.number <= number:
                raise CorruptLog(
                    f"journal record {number} is missing, and no later roll-up stands for it",
                    "Put the journal's records back, or start a new change log and take a snapshot.",
                )
            return True
        self._proven = now
        return False
