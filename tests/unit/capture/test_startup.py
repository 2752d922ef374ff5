"""The start of capture over a source in memory: whom it stops, what it keeps, and when it refuses.

(PostgreSQL's own conditions: `unit/sources/postgresql/test_admission.py`, `integration/capture/test_start.py`.)
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from typing_extensions import override

from support.scripted import ScriptedSource, ScriptedSubscription, resume_point
from support.scripted_database import Database
from support.scripted_runs import manifest
from tailrace.capture import startup
from tailrace.changelog import first_start
from tailrace.changelog.paths import FIRST_START
from tailrace.changelog.records import Heartbeat, Origin
from tailrace.changelog.records.terms import Position, ResumePoint
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import Replicator
from tailrace.errors import PositionLost, SourceRefused
from tailrace.sources.api import CreatedByOther, Patience
from tailrace.storage.store import Storage


@dataclass(frozen=True)
class Watched(ScriptedSource):
    """Does something each time after it has said where its log ends."""

    after: list[Callable[[], None]] = field(default_factory=list)

    @override
    def log_end(self) -> Position:
        end = super().log_end()
        if self.after:
            self.after.pop(0)()
        return end


@dataclass(frozen=True)
class Broken(ScriptedSubscription):
    """What it is to make fails."""

    preparing: Exception | None = None
    beginning: Exception | None = None

    @override
    def prepare(self, log_id: str, noted: Origin | None, patience: Patience) -> Origin:
        if self.preparing is not None:
            raise self.preparing
        return super().prepare(log_id, noted, patience)

    @override
    def begin(self, origin: Origin, patience: Patience) -> ResumePoint:
        if self.beginning is not None:
            raise self.beginning
        return super().begin(origin, patience)


@pytest.fixture
def source() -> Watched:
    made = Watched(Database())
    for _ in range(5):
        made.database.commit()
    return made


def place(source: ScriptedSource, folder: Path, uid: str | None = None, **faults: Exception) -> startup.StartContext:
    document = manifest(folder)
    document["metadata"] |= {"namespace": "team", "uid": uid}
    replicator = Replicator.model_validate(document)
    subscription = Broken(source, replicator, **faults)
    return startup.StartContext(replicator, source, subscription, Storage.open(replicator.spec.storage))


def start(at: startup.StartContext, log_id: str = "l") -> JournalWriter:
    ids = startup.Ids(log_id=log_id, nonce=uuid4().hex)
    return startup.start(at, ids, Patience(lambda _: None, threading.Event()))


def goes_on(writer: JournalWriter, source: ScriptedSource) -> None:
    """The source writes, and the writer records it."""
    point = resume_point(Position(source.database.commit()))
    writer.append(point.position, source_state=point.source_state, events=(Heartbeat(),))


def test_a_writer_still_at_work_does_not_make_the_position_look_lost(source: Watched, tmp_path: Path) -> None:
    """It records what the source wrote after the new one had asked for the log's end."""
    at = place(source, tmp_path)
    old = start(at)

    source.after.append(lambda: goes_on(old, source))
    journal = start(at)
    assert (journal.state.position, journal.state.epoch) == (6, 1)


def test_who_is_led_to_another_source_leaves_the_writer_at_the_right_one_alone(source: Watched, tmp_path: Path) -> None:
    old = start(place(source, tmp_path))
    with pytest.raises(PositionLost):
        start(place(ScriptedSource(Database()), tmp_path))
    goes_on(old, source)
    assert old.state.number == 1


def test_a_start_that_was_interrupted_is_gone_on_with_under_its_own_id(source: Watched, tmp_path: Path) -> None:
    """What it has half made in the source is held under that name."""
    with pytest.raises(OSError, match="died"):
        start(place(source, tmp_path, beginning=OSError("died")), "first")
    at = place(source, tmp_path)
    noted = first_start.read(at.storage)
    assert noted is not None and noted.log_id == "first"
    journal = start(at, "second")
    assert journal.state.origin is not None and journal.state.origin.log_id == "first"
    assert not at.storage.exists(FIRST_START)


def test_a_start_that_was_refused_makes_no_claim_to_what_comes_later(source: Watched, tmp_path: Path) -> None:
    at = place(source, tmp_path, preparing=SourceRefused("wal_level is replica"))
    with pytest.raises(SourceRefused, match="wal_level"):
        start(at)
    assert not at.storage.exists(FIRST_START)


def test_what_somebody_else_made_first_is_not_taken_for_our_own_at_the_next_start(
    source: Watched, tmp_path: Path
) -> None:
    at = place(source, tmp_path, beginning=CreatedByOther(SourceRefused("the slot exists")))
    with pytest.raises(SourceRefused, match="the slot exists"):
        start(at)
    assert not at.storage.exists(FIRST_START)


def test_a_copied_manifest_does_not_take_over_another_owners_stream(source: Watched, tmp_path: Path) -> None:
    first, copy = place(source, tmp_path, uid="u1"), place(source, tmp_path, uid="u2")
    old = start(first)
    readers = dict(source.database.readers)
    with pytest.raises(SourceRefused, match=r"belongs to Replicator 'team/shop@u1', this is 'team/shop@u2'") as caught:
        start(copy)
    assert "set storage.adopt to 'team/shop@u1'" in caught.value.fix
    assert source.database.readers == readers, "what the first one reads by is left alone"
    goes_on(old, source)
    assert start(first).state.epoch == 1, "a restart of the same driver passes"
