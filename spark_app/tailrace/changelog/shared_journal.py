"""The driver's one view of the journal, shared by the threads of apply, planner and status."""

import time
from collections.abc import Callable
from threading import RLock

from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records import Record
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.state import LogState
from tailrace.storage.store import Storage

LOOK_SECONDS = 60.0
"""Between two looks at the storage that nothing calls for: capture's word says nothing of another writer."""


Heard = Callable[[Record, LogState], None]
"""Takes a record and the state behind it."""


class SharedJournal:
    """`state` is the newest fold that any thread has made; values are frozen, so readers need no lock."""

    def __init__(
        self,
        reader: JournalReader,
        newest: Callable[[], RecordNumber | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`newest`: the number of the newest record, as capture knows it, which writes them all; None: it does not
        say."""
        self._reader = reader
        self._newest, self._clock = newest, clock
        self._lock = RLock()
        self._state = reader.state
        self._heard: list[Heard] = []
        self._looked = clock()
        self._begun = self._ended = 0
        """Looks at the storage, numbered: the last that has begun, and the last that has ended."""

    @property
    def storage(self) -> Storage:
        return self._reader.storage

    @property
    def state(self) -> LogState:
        return self._state

    def refresh(self, newest: RecordNumber | None = None) -> LogState:
        """Read what was recorded since. The storage is asked where there is something to read, where capture does not
        say, and once a minute. `newest`: the newest record as capture has just said; None: it is asked."""
        newest = self._newest() if newest is None else newest
        with self._lock:
            if newest is None or self._clock() - self._looked >= LOOK_SECONDS:
                return self.look()
            while self._reader.state.number < newest and self._next():
                pass
            self._state = self._reader.state
        return self._state

    def follow(self, heard: Heard) -> LogState:
        """`heard` is called with each record after the state that is returned, and must not wait."""
        with self._lock:
            self._heard.append(heard)
            return self._reader.state

    def _next(self) -> bool:
        record = self._reader.next()
        if record is None:
            return False
        for heard in self._heard:
            heard(record, self._reader.state)
        return True

    def look(self) -> LogState:
        """Read to the journal's end, whichever process has written it. Threads that ask while a look is under way share
        the next one: it begins after each of them has asked, so it sees what a look of their own would."""
        wanted = self._begun + 1
        with self._lock:
            if self._ended < wanted:
                self._begun += 1
                number = self._begun
                while self._next():
                    pass
                self._state, self._looked, self._ended = self._reader.state, self._clock(), number
            return self._state
