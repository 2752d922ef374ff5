"""Whose change log a start may continue, and which notes it removes, over a source in memory.

(What else it does: `test_startup.py`.)
"""

from pathlib import Path
from threading import Event

import pytest

from support.scripted import ScriptedSource, ScriptedSubscription
from support.scripted_database import Database
from support.scripted_runs import manifest
from tailrace.capture import startup
from tailrace.capture.renewal import Renewal
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.paths import DROPPED
from tailrace.changelog.records import EpochStarted
from tailrace.changelog.records.terms import Position
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import Replicator
from tailrace.errors import SourceRefused
from tailrace.sources.api import Patience
from tailrace.storage.store import Storage

IDS = startup.Ids(log_id="l", nonce="new")


@pytest.fixture
def source() -> ScriptedSource:
    return ScriptedSource(Database())


def place(source: ScriptedSource, folder: Path, uid: str | None = None, **storage: str) -> startup.StartContext:
    document = manifest(folder)
    document["metadata"] |= {"namespace": "team", "uid": uid}
    document["spec"]["storage"] |= storage
    replicator = Replicator.model_validate(document)
    log = Storage.open(replicator.spec.storage)
    return startup.StartContext(replicator, source, ScriptedSubscription(source, replicator), log)


def start(at: startup.StartContext) -> JournalWriter:
    return startup.start(at, IDS, Patience(lambda _: None, Event()))


def test_every_start_removes_the_note_of_a_deletion_that_was_begun_there(
    source: ScriptedSource, tmp_path: Path
) -> None:
    """What is written from now on must not go without a proof of its own."""
    at = place(source, tmp_path)
    for _ in ("first start", "goes on"):
        at.storage.put(DROPPED, b"{}")
        start(at)
        assert not at.storage.exists(DROPPED)


def test_a_first_start_reads_everything_so_it_removes_the_note_of_a_resync(
    source: ScriptedSource, tmp_path: Path
) -> None:
    at = place(source, tmp_path)
    Renewal(id="early", request="early").write(at.storage)
    start(at)
    before = dict(source.database.readers)
    source.database.commit()
    assert start(at).state.renewed is None
    assert source.database.readers == before, "the second start does not begin anew"


def test_who_says_from_whom_takes_a_log_over_once(source: ScriptedSource, tmp_path: Path) -> None:
    start(place(source, tmp_path, uid="u1"))
    journal = start(place(source, tmp_path, uid="u2", adopt="team/shop@u1"))
    assert journal.state.owner == "team/shop@u2"
    assert journal.state.origin is not None and journal.state.origin.owner == "team/shop@u1"
    with pytest.raises(SourceRefused, match="belongs to Replicator 'team/shop@u2'"):
        start(place(source, tmp_path, uid="u3", adopt="team/shop@u1"))


def test_a_log_that_its_owner_left_behind_goes_to_the_next_who_starts(source: ScriptedSource, tmp_path: Path) -> None:
    at = place(source, tmp_path, uid="u1")
    start(at)
    JournalWriter.claim(at.storage, "dropper", started=EpochStarted(released=True))
    assert start(place(source, tmp_path, uid="u2")).state.owner == "team/shop@u2"
    with pytest.raises(SourceRefused, match="belongs to Replicator"):
        start(at)


def test_a_first_start_of_another_owner_at_the_same_place_is_left_alone(source: ScriptedSource, tmp_path: Path) -> None:
    dies = place(source, tmp_path, uid="u1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedSubscription, "begin", at_once_broken)
        with pytest.raises(OSError, match="died"):
            start(dies)
    with pytest.raises(SourceRefused, match="belongs to Replicator 'team/shop@u1'"):
        start(place(source, tmp_path, uid="u2"))
    assert JournalReader.open(dies.storage).state.origin is None


def at_once_broken(*_: object) -> Position:
    raise OSError("died")
