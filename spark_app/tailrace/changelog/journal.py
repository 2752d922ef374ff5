"""The journal: numbered records, created exclusively, read in order by probing the next number.

Capture holds the one `JournalWriter`; apply, planner and status each hold a `JournalReader`. Both carry the folded
state. Every `ROLLUP_RECORDS` records, or `ROLLUP_BYTES` of them, the writer stores the state as a roll-up, so that a
start reads one roll-up and the records after it.
"""

import time
from collections.abc import Callable

from pydantic import ValidationError

from tailrace.changelog.paths import ROLLUPS, number_of, record_path, rollup_path
from tailrace.changelog.records import Origin, Record
from tailrace.changelog.state import LogState, fold
from tailrace.errors import CorruptLog
from tailrace.storage import NotFound, Storage

Clock = Callable[[], float]

ROLLUP_RECORDS = 1000
ROLLUP_BYTES = 16 << 20
STALE_SECONDS = 60.0
"""A reader that slept longer asks whether retention has passed it by; far below the shortest retention of records."""


def read_record(storage: Storage, number: int) -> Record:
    """Record `number`, or `NotFound`."""
    return parse_record(storage.get(record_path(number)), number)


def parse_record(data: bytes, number: int) -> Record:
    try:
        return Record.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise CorruptLog(
            f"journal record {number} is not readable: {first['msg']} at {'.'.join(map(str, first['loc']))}",
            "Use the version of Tailrace that wrote it, or start a new change log and take a snapshot.",
        ) from error


def load_rollup(storage: Storage) -> LogState:
    """The newest roll-up's state, or the empty state. Lists one small folder: at a start only."""
    numbers = [number_of(path) for path, _ in storage.list(ROLLUPS)]
    newest = max((n for n in numbers if n is not None), default=None)
    if newest is None:
        return LogState()
    try:
        state = LogState.model_validate_json(storage.get(rollup_path(newest)))
    except ValidationError as error:
        raise CorruptLog(
            f"roll-up {newest} is not readable", "Remove it if the records before it still exist."
        ) from error
    if state.number != newest:
        raise CorruptLog(f"roll-up {newest} holds the state of record {state.number}")
    return state


def read_origin(storage: Storage) -> Origin | None:
    """What the change log belongs to, without reading all of it; None: there is no change log."""
    rolled_up = load_rollup(storage)
    if rolled_up.origin is not None:
        return rolled_up.origin
    try:
        return next((e for e in read_record(storage, 0).events if isinstance(e, Origin)), None)
    except NotFound:
        return None


class JournalReader:
    """Follows the journal. `state` is the fold of all records read so far."""

    def __init__(self, storage: Storage, state: LogState, clock: Clock = time.time) -> None:
        self.storage = storage
        self.state = state
        self._clock = clock
        self._polled = clock()

    @classmethod
    def open(cls, storage: Storage, clock: Clock = time.time) -> "JournalReader":
        """Start from the newest roll-up and read up to the journal's end. No journal: `state.number` is -1."""
        started = clock()
        reader = cls(storage, load_rollup(storage), clock)
        reader._polled = started
        while reader.next() is not None:
            pass
        return reader

    def next(self) -> Record | None:
        """The next record, folded into `state`; None: there is none yet."""
        self._check_not_passed_by()
        try:
            record = read_record(self.storage, self.state.number + 1)
        except NotFound:
            return None
        self.state = fold(self.state, record)
        return record

    def poll(self, limit: int = 1000) -> list[Record]:
        """Up to `limit` new records."""
        records: list[Record] = []
        while len(records) < limit and (record := self.next()) is not None:
            records.append(record)
        return records

    def _check_not_passed_by(self) -> None:
        """After a long sleep the next record may have come and gone. The record last read tells: the journal's head is
        never removed, and records go in order, so while it stands, nothing after it is gone."""
        now = self._clock()
        asleep = abs(now - self._polled) > STALE_SECONDS
        self._polled = now
        if asleep and self.state.number >= 0 and not self.storage.exists(record_path(self.state.number)):
            newer = load_rollup(self.storage)
            if newer.number <= self.state.number:
                raise CorruptLog(f"journal record {self.state.number} is gone and no roll-up holds it")
            self.state = newer
