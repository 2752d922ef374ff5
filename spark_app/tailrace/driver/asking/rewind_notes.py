"""Notes of rewinds by the command line, for the next driver: none runs meanwhile, and the change log has one writer.

    tailrace rewind ── begun ──> tables go back ── done        next driver ──> one record of the change log ──> removed

So they are in the status and in `spec.notifications` as those are that a driver carries out. Dying before `done` leaves
a note of a rewind that some tables may not have followed; the command, repeated, finishes it.
"""

import logging
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from tailrace.changelog.records.snapshots import PlannedRewind, SnapshotEnded, SnapshotPlanned
from tailrace.changelog.records.terms import Closed
from tailrace.changelog.state import LogState
from tailrace.seams import seam

log = logging.getLogger(__name__)

FILE = "rewinds.json"
CUT_SHORT = "the command ended before all tables had gone back"
RewindEvent = SnapshotPlanned | SnapshotEnded


class RewindNote(Closed):
    """A rewind that was begun."""

    snapshot_id: str
    rewind: PlannedRewind
    done: bool = False

    @property
    def events(self) -> tuple[RewindEvent, ...]:
        plan = SnapshotPlanned(snapshot_id=self.snapshot_id, tables=(), rewind=self.rewind)
        if self.done:
            return plan, SnapshotEnded(snapshot_id=self.snapshot_id, outcome="completed")
        return plan, SnapshotEnded(snapshot_id=self.snapshot_id, outcome="stopped", message=CUT_SHORT)


NOTES = TypeAdapter(list[RewindNote])


class RewindNotes:
    def __init__(self, folder: Path, token: Callable[[], str] = lambda: secrets.token_hex(6)) -> None:
        """`folder`: the run directory, locked by the caller."""
        self._file, self._token, self._continued = folder / FILE, token, False

    def begun(self, rewind: PlannedRewind) -> None:
        """Called before a table is touched. The same one as before, whose command was killed, is continued."""
        notes = self._read()
        self._continued = bool(notes) and not notes[-1].done and notes[-1].rewind == rewind
        if not self._continued:
            self._write([*notes, RewindNote(snapshot_id=f"rewind-{self._token()}", rewind=rewind)])

    def done(self, moved: bool = True) -> None:
        """`moved`: some table was elsewhere before. If none was, there is nothing to tell, unless a killed command has
        moved them."""
        notes = self._read()
        if not moved and not self._continued:
            self._write(notes[:-1])
            return
        self._write([*notes[:-1], *(last.model_copy(update={"done": True}) for last in notes[-1:])])

    def record(self, state: LogState, append: Callable[[Sequence[RewindEvent]], object]) -> None:
        """Has the change log hold what was noted, in one record."""
        unknown = [note for note in self._read() if note.snapshot_id not in state.snapshots]
        if unknown:
            append([event for note in unknown for event in note.events])
            seam("rewind.after-notes")
            # Dying here is safe: the change log knows their ids.
        self._file.unlink(missing_ok=True)

    def _read(self) -> list[RewindNote]:
        try:
            return NOTES.validate_json(self._file.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read, so the rewinds noted in it are not reported: %s", self._file, error)
            return []

    def _write(self, notes: list[RewindNote]) -> None:
        """A rewind that nobody hears of is better than none."""
        fresh = self._file.with_suffix(".new")
        try:
            fresh.write_bytes(NOTES.dump_json(notes))
            fresh.replace(self._file)
        except OSError as error:
            log.warning("%s cannot be written, so the next driver will not report the rewind: %s", self._file, error)
