"""The driver's one view of the journal, shared by the threads of apply, planner and status."""

from threading import RLock

from tailrace.apply.journal_source import HeadFile
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.state import LogState


class SharedJournal:
    """`state` is the newest fold that any thread has made; values are frozen, so readers need no lock."""

    def __init__(self, reader: JournalReader, head: HeadFile | None = None) -> None:
        """`head` is told of every new record: the stream's source looks there."""
        self._reader = reader
        self._head = head
        if head is not None:
            head.write(reader.state.number)
        self._lock = RLock()
        self._state = reader.state

    @property
    def state(self) -> LogState:
        return self._state

    def refresh(self) -> LogState:
        """Read what was recorded since."""
        with self._lock:
            before = self._state.number
            while self._reader.poll():
                pass
            self._state = self._reader.state
            if self._head is not None and self._state.number != before:
                self._head.write(self._state.number)
        return self._state
