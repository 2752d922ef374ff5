"""The driver's one view of the journal, shared by the threads of apply, planner and status."""

from threading import RLock

from tailrace.changelog.journal import JournalReader
from tailrace.changelog.state import LogState


class SharedJournal:
    """`state` is the newest fold that any thread has made; values are frozen, so readers need no lock."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._lock = RLock()
        self._state = reader.state

    @property
    def state(self) -> LogState:
        return self._state

    def refresh(self) -> LogState:
        """Read what was recorded since."""
        with self._lock:
            while self._reader.poll():
                pass
            self._state = self._reader.state
        return self._state
