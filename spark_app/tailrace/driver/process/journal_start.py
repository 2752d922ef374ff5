"""The driver's wait for a change log that capture has begun, or begun again: asked in each step of the driver's start.

Capture may wait for long (for a transaction to end, for another reader of the source), so a step costs the storage no
more than one look for the next record.
"""

from collections.abc import Callable
from pathlib import Path

from tailrace.capture.renewal import Renewal
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.state import LogState
from tailrace.storage.store import Storage


class JournalStart:
    def __init__(self, storage: Storage, resync: Path | None, claimed: Callable[[], bool]) -> None:
        """`resync`: the file with the request that the operator hands over. `claimed`: whether capture has the
        journal."""
        self._storage = storage
        self._resync = resync
        self._claimed = claimed
        self._reader: JournalReader | None = None
        self._renewal: Renewal | None = None

    def look(self) -> JournalReader | None:
        """A reader of the journal that may be worked with; None: there is none yet, or the stream is to start over."""
        if self._reader is None:
            self._reader = JournalReader.open(self._storage)
        while self._reader.poll():
            pass
        state = self._reader.state
        return self._reader if state.origin is not None and not self._starts_over(state) else None

    def _starts_over(self, state: LogState) -> bool:
        """Capture has still to begin the stream again. Until then the journal's origin may name another server, and
        what is read from this one would be refused."""
        if self._renewal is None or state.has_done(self._renewal.id):
            noted, handed_over = Renewal.read(self._storage), Renewal.handed_over(self._resync)
            self._renewal = Renewal.due(noted, handed_over, state)
        return self._renewal is not None and not self._claimed()
