"""Rewinds by the command line are recorded by the next driver, each once, whichever process is killed."""

from pathlib import Path
from typing import Any

import pytest

from support.journals import table_schema
from support.killed import killed_at
from support.origins import origin
from tailrace.changelog.journal import JournalReader, read_record
from tailrace.changelog.records.snapshots import PlannedRewind, SnapshotEnded, SnapshotPlanned
from tailrace.changelog.records.tables import TableAdded
from tailrace.changelog.records.terms import Position, RecordNumber
from tailrace.changelog.state import LogState
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import StorageLocation
from tailrace.driver.asking.rewind_notes import CUT_SHORT, FILE, RewindNotes
from tailrace.storage.store import Storage


def to(cut: str) -> PlannedRewind:
    return PlannedRewind(cut=cut, record=RecordNumber(1), asked=f"cut {cut}", tables=(1,))


class Log:
    """A real journal, claimed by each driver."""

    def __init__(self, folder: Path) -> None:
        self._place = StorageLocation(location=(folder / "log").as_uri())
        self._writer = JournalWriter.create(Storage.open(self._place), origin("log"), Position(1), "capture")
        self._append([TableAdded(table=table_schema(1), edge="5")])

    def _append(self, events: Any) -> None:
        self._writer.append(self._writer.state.position, events=tuple(events))

    def driver(self, notes: RewindNotes) -> None:
        """One that starts, and records what was noted."""
        self._writer = JournalWriter.claim(Storage.open(self._place), "another capture")
        notes.record(self._writer.state, self._append)

    @property
    def state(self) -> LogState:
        return JournalReader.open(Storage.open(self._place)).state

    @property
    def rewinds(self) -> list[tuple[str, str, str]]:
        """Cut, outcome and message of each, in the order of the journal."""
        records = (read_record(Storage.open(self._place), RecordNumber(n)) for n in range(self.state.number + 1))
        events = [event for record in records for event in record.events]
        plans = {e.snapshot_id: e.rewind for e in events if isinstance(e, SnapshotPlanned)}
        ends = [e for e in events if isinstance(e, SnapshotEnded)]
        assert len(ends) == len(plans)
        found = [(plans[end.snapshot_id], end) for end in ends]
        return [(plan.cut, end.outcome, end.message) for plan, end in found if plan is not None]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_each_is_recorded_once_also_by_drivers_that_are_killed(log: Log, tmp_path: Path) -> None:
    notes = RewindNotes(tmp_path)
    log.driver(notes)  # there is nothing to record
    for cut in ("noon", "evening", "noon"):
        notes.begun(to(cut))
        notes.done()
    for seam in ("journal.before-create", "rewind.after-notes"):
        killed_at(seam, lambda: log.driver(RewindNotes(tmp_path)), visit=2 if seam.startswith("journal") else 1)
        assert (tmp_path / FILE).exists()
    log.driver(RewindNotes(tmp_path))
    assert log.rewinds == [(cut, "completed", "") for cut in ("noon", "evening", "noon")]
    assert not (tmp_path / FILE).exists()
    log.driver(RewindNotes(tmp_path))
    assert len(log.rewinds) == 3


def test_a_command_that_was_killed_is_continued_by_the_same_one_and_else_was_cut_short(
    log: Log, tmp_path: Path
) -> None:
    RewindNotes(tmp_path).begun(to("noon"))
    again = RewindNotes(tmp_path)
    again.begun(to("noon"))
    again.done()
    RewindNotes(tmp_path).begun(to("evening"))
    other = RewindNotes(tmp_path)
    other.begun(to("night"))
    other.done()
    log.driver(other)
    assert log.rewinds == [("noon", "completed", ""), ("evening", "stopped", CUT_SHORT), ("night", "completed", "")]


def test_notes_that_cannot_be_read_are_told_and_stop_nothing(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for broken in ("", "{}", "[1]", '[{"snapshot_id": "a"}]'):
        (tmp_path / FILE).write_text(broken)
        log.driver(RewindNotes(tmp_path))
        assert not (tmp_path / FILE).exists()
    assert caplog.text.count("cannot be read") == 4
    assert log.rewinds == []


def test_a_rewind_that_moved_nothing_is_not_told_unless_a_killed_command_did(log: Log, tmp_path: Path) -> None:
    notes = RewindNotes(tmp_path)
    for moved in (True, False):
        notes.begun(to("a"))
        notes.done(moved)
    log.driver(notes)
    assert log.rewinds == [("a", "completed", "")]
    RewindNotes(tmp_path).begun(to("b"))  # killed once the tables were back
    notes.begun(to("b"))
    notes.done(moved=False)
    log.driver(notes)
    assert log.rewinds[1:] == [("b", "completed", "")]
