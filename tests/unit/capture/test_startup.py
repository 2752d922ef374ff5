"""The start of capture without a server: whom it stops, what it keeps, and when it refuses."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from support.origins import origin as make_origin
from tailrace.capture import startup
from tailrace.changelog.paths import FIRST_START
from tailrace.changelog.records import Heartbeat, Position
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.places import PostgreSql
from tailrace.contract.resources import Replicator
from tailrace.errors import PositionLost, SourceRefused
from tailrace.sources.api import Interrupted, Patience
from tailrace.sources.postgresql import objects as slots
from tailrace.sources.postgresql import publication, subscription
from tailrace.sources.postgresql.connect import Connection, PgConfig
from tailrace.sources.postgresql.log import start as making
from tailrace.sources.postgresql.names import Names
from tailrace.sources.postgresql.publication import NEEDED, Publication
from tailrace.sources.postgresql.source import PostgresSource
from tailrace.sources.postgresql.subscription import PgSubscription
from tailrace.storage.store import Storage

IDS = startup.Ids(log_id="l", nonce="new")
SERVER = slots.ServerIdentity("77", 1, "d", Position(1000))


class Source:
    """What the start asks of PostgreSQL, answered from memory."""

    def __init__(self) -> None:
        self.server = SERVER
        self.slot: slots.Slot | None = slots.Slot("pgoutput", "d", Position(5), "reserved")
        self.publication: Publication | None = None
        self.done: list[str] = []
        self.asked: Callable[[], None] = lambda: None

    def identify(self, _: Connection) -> slots.ServerIdentity:
        answer = self.server
        self.asked()
        return answer

    def create_slot(self, _: PgConfig, name: str) -> int:
        self.done.append("slot made")
        return 5

    def note(self, what: str) -> Callable[..., None]:
        return lambda *_: self.done.append(what)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    source = Source()
    monkeypatch.setattr(slots, "identify", source.identify)
    monkeypatch.setattr(slots, "find_slot", lambda *_: source.slot)
    monkeypatch.setattr(slots, "create_slot", source.create_slot)
    monkeypatch.setattr(slots, "drop_slot", source.note("slot dropped"))
    monkeypatch.setattr(slots, "slot_waits_for", lambda *_: None)
    monkeypatch.setattr(slots, "ensure_publication", source.note("publication"))
    monkeypatch.setattr(slots, "unpublishable", lambda *_: {})
    monkeypatch.setattr(publication, "look", lambda *_: source.publication)
    monkeypatch.setattr(making, "fit_tables", lambda *_, **__: [])
    monkeypatch.setattr(making, "release_slot", source.note("released"))
    monkeypatch.setattr(subscription, "release_slot", source.note("released"))
    return source


def place(folder: Path, uid: str | None = None, **storage: str) -> startup.StartContext:
    spec = {
        "source": {"type": "postgresql", "host": "h", "database": "d", "username": "u"},
        "tables": {"include": ["public.*"]},
        "target": {"type": "delta", "location": (folder / "lake").as_uri()},
        "storage": {"location": (folder / "log").as_uri(), **storage},
    }
    document: dict[str, Any] = {
        "apiVersion": "tailrace.dev/v1alpha1",
        "kind": "Replicator",
        "metadata": {"name": "shop", "namespace": "team", "uid": uid},
        "spec": spec,
    }
    replicator = Replicator.model_validate(document)
    config = PgConfig("h", 5432, "d", "u")
    log = Storage.open(replicator.spec.storage)
    return at_place(replicator, PostgresSource(config), log)


def at_place(replicator: Replicator, source: PostgresSource, log: Storage) -> startup.StartContext:
    subscription = PgSubscription(source.config, cast(Connection, None), replicator, log.root)
    return startup.StartContext(replicator, source, subscription, log)


def start(at: startup.StartContext) -> JournalWriter:
    return startup.start(at, IDS, Patience(lambda _: None, threading.Event()))


def running(at: startup.StartContext) -> JournalWriter:
    """The writer that is at work when the new one starts."""
    origin = make_origin(name="tailrace_shop", system="77")
    return JournalWriter.create(at.storage, origin, Position(5), "old")


def test_a_writer_still_at_work_does_not_make_the_position_look_lost(source: Source, tmp_path: Path) -> None:
    """It records what the source wrote after the new one had asked for the log's end."""
    at = place(tmp_path)
    old = running(at)

    def goes_on() -> None:
        source.asked = lambda: None
        source.server = replace(SERVER, insert_position=Position(3000))
        old.append(Position(2000), events=(Heartbeat(),))

    source.asked = goes_on
    journal = start(at)
    assert (journal.state.position, journal.state.epoch) == (2000, 1)


@pytest.mark.parametrize(
    ("server", "error"),
    [
        (replace(SERVER, system_identifier="78"), SourceRefused),
        (replace(SERVER, database="e"), SourceRefused),
        (replace(SERVER, timeline=2), PositionLost),
        (replace(SERVER, insert_position=Position(4)), PositionLost),
    ],
)
def test_who_is_led_to_another_source_leaves_the_writer_at_the_right_one_alone(
    source: Source, tmp_path: Path, server: slots.ServerIdentity, error: type[Exception]
) -> None:
    at = place(tmp_path)
    old = running(at)
    source.server = server
    with pytest.raises(error):
        start(at)
    old.append(Position(6), events=(Heartbeat(),))
    assert old.state.number == 1


@pytest.mark.parametrize(
    ("slot", "words"),
    [
        (None, "missing"),
        (slots.Slot("pgoutput", "d", Position(6), "reserved"), "after the journal's position"),
        (slots.Slot("pgoutput", "d", Position(5), "lost"), "lost its log"),
        (slots.Slot("pgoutput", "d", None, "reserved"), "another one"),
        (slots.Slot("test_decoding", "d", Position(5), "reserved"), "another one"),
        (slots.Slot("pgoutput", "e", Position(5), "reserved"), "another one"),
    ],
)
def test_a_slot_that_does_not_fit_the_journal_is_a_lost_position(
    source: Source, tmp_path: Path, slot: slots.Slot | None, words: str
) -> None:
    at = place(tmp_path)
    running(at)
    source.slot = slot
    with pytest.raises(PositionLost, match=words):
        start(at)


def test_a_slot_of_our_name_that_this_place_did_not_make_is_kept(source: Source, tmp_path: Path) -> None:
    """A namesake's, or ours whose change log is elsewhere: to drop it would lose that log's position."""
    with pytest.raises(SourceRefused, match=r"tailrace_shop_.*holds no change log") as caught:
        start(place(tmp_path))
    assert f"pg_drop_replication_slot('{Names.of(place(tmp_path).replicator).slot}')" in caught.value.fix
    assert source.done == []


def test_a_slot_that_an_interrupted_start_left_is_made_anew(source: Source, tmp_path: Path) -> None:
    at = place(tmp_path)
    source.slot = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "create_slot", at_once_broken)
        with pytest.raises(OSError, match="died"):
            start(at)
    source.slot = slots.Slot("pgoutput", "d", Position(5), "reserved")
    source.done.clear()
    journal = start(at)
    assert journal.state.position == 5
    assert source.done == ["released", "slot dropped", "publication", "slot made"]
    assert not at.storage.exists(FIRST_START)


def at_once_broken(*_: object) -> int:
    raise OSError("died")


def test_a_start_that_was_refused_makes_no_claim_to_a_slot_that_comes_later(source: Source, tmp_path: Path) -> None:
    def unfit(*_: object) -> None:
        raise SourceRefused("wal_level is replica")

    source.slot = None
    at = place(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "fit_tables", unfit)
        with pytest.raises(SourceRefused, match="wal_level"):
            start(at)
    source.slot = slots.Slot("pgoutput", "d", Position(5), "reserved")
    with pytest.raises(SourceRefused, match="holds no change log"):
        start(at)


def test_with_a_slot_given_the_publication_of_a_namesake_is_left_alone(source: Source, tmp_path: Path) -> None:
    at = place(tmp_path)
    spec = at.replicator.spec
    given = spec.model_copy(update={"source": spec.source.model_copy(update={"postgresql": PostgreSql(slot="given")})})
    assert isinstance(at.source, PostgresSource)
    at = at_place(at.replicator.model_copy(update={"spec": given}), at.source, at.storage)
    source.publication = Publication("p", "1 1", False, True, NEEDED, {}, {})
    with pytest.raises(SourceRefused, match=r"publication 'tailrace_shop_.*' exists"):
        start(at)
    assert source.done == []
    source.publication = None
    assert start(at).state.position == 5
    assert source.done == ["publication", "released"]


def test_a_slot_that_a_namesake_made_first_is_not_taken_for_our_own_at_the_next_start(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beaten(*_: object) -> int:
        source.slot = slots.Slot("pgoutput", "d", Position(5), "reserved")
        raise slots.SlotExists

    source.slot = None
    monkeypatch.setattr(slots, "create_slot", beaten)
    for _ in range(2):
        with pytest.raises(SourceRefused, match="holds no change log"):
            start(place(tmp_path))
    assert "slot dropped" not in source.done


def test_a_copied_manifest_does_not_take_over_another_owners_stream(source: Source, tmp_path: Path) -> None:
    source.slot = None
    first, copy = place(tmp_path, uid="u1"), place(tmp_path, uid="u2")
    old = start(first)
    source.slot = slots.Slot("pgoutput", "d", Position(5), "reserved")
    source.done.clear()
    with pytest.raises(SourceRefused, match=r"belongs to Replicator 'team/shop@u1', this is 'team/shop@u2'") as caught:
        start(copy)
    assert "set storage.adopt to 'team/shop@u1'" in caught.value.fix
    assert source.done == [], "the first one's connection is not ended"
    old.append(Position(6), events=(Heartbeat(),))
    assert start(first).state.epoch == 1, "a restart of the same driver passes"


def test_a_log_connection_is_known_by_its_change_log_and_not_by_the_slot_that_it_reads(tmp_path: Path) -> None:
    """Two Replicators may be given the same slot by mistake: neither ends the other's connection."""
    replicator = place(tmp_path).replicator
    first, second = Names.of(replicator, "0a" * 16), Names.of(replicator, "0b" * 16)
    assert first.slot == second.slot
    assert not set(first.applications) & set(second.applications)


def test_who_is_told_to_end_does_not_wait_for_the_slot(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.slot, free, stopping = None, threading.Event(), threading.Event()
    monkeypatch.setattr(slots, "create_slot", lambda *_: free.wait(30) and 5)
    stopping.set()
    with pytest.raises(Interrupted):
        startup.start(place(tmp_path), IDS, Patience(lambda _: None, stopping))
    assert place(tmp_path).storage.exists(FIRST_START), "a slot that was done at that moment is known as ours"
    free.set()
