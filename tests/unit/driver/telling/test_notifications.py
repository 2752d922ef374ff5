"""Notifications to a real HTTP receiver that fails, is slow, goes away and comes back."""

import base64
import hashlib
import hmac
import itertools
import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from pydantic import ValidationError
from typing_extensions import override

from support.journals import table_schema
from support.origins import origin
from support.states import chunk
from tailrace.capture.client import CaptureClient
from tailrace.changelog.journal import JournalReader, read_record
from tailrace.changelog.records import Event, Record
from tailrace.changelog.records.cuts import CutMade
from tailrace.changelog.records.snapshots import (
    ChunkRegistered,
    PlannedRewind,
    ReadFailure,
    SnapshotEnded,
    SnapshotPlanned,
    SnapshotTableFinished,
    SnapshotTableStarted,
)
from tailrace.changelog.records.tables import TableAdded, TableStopped
from tailrace.changelog.records.terms import Position, RecordNumber, Seq
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import StorageLocation
from tailrace.contract.settings import NotificationsSpec
from tailrace.driver.asking.control import DriverControl
from tailrace.driver.telling import notifications
from tailrace.driver.telling.notices import Notice, notices
from tailrace.driver.telling.notifications import Notifications, key_path, signature, signing_key
from tailrace.errors import InvalidManifest, Retry
from tailrace.storage.store import NotFound, Storage

NO_RIGHT = ReadFailure(message="ReadRefused: no right", where="source")
KEY = b"0123456789abcdef0123456789abcdef"


class Receiver:
    """Answers by its list of statuses, then 204; at the same port after a restart."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.hold: threading.Event | None = None
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.port = 0
        self.start()

    def start(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.hold is not None:
                    receiver.hold.wait(30)
                status = receiver.statuses.pop(0) if receiver.statuses else 204
                if status == 204:
                    receiver.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(status)
                self.end_headers()

            @override
            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.stop()


class World:
    """A real journal, and processes that send what it holds."""

    def __init__(self, folder: Path, receiver: Receiver) -> None:
        self._place = StorageLocation(location=(folder / "log").as_uri())
        self.writer = JournalWriter.create(Storage.open(self._place), origin("log"), Position(1), "capture")
        self.key = folder / "key"
        self.key.write_bytes(KEY)
        url = f"http://127.0.0.1:{receiver.port}/hook?token=hidden"
        self.spec = NotificationsSpec.model_validate({"url": url, "credentials": {"file": str(self.key)}})
        self.now = 0.0
        self.life()

    def life(self) -> None:
        """Another process."""
        journal = SharedJournal(JournalReader.open(Storage.open(self._place)))
        self.control = DriverControl("shop")
        self.control.journal, self.control.client = journal, cast(CaptureClient, self)
        self.sender = Notifications("shop", self.spec, key_path(self.spec, None), monotonic=lambda: self.now)

    def reborn(self) -> None:
        """Another process, capture included."""
        self.writer = JournalWriter.claim(Storage.open(self._place), f"capture of {os.getpid()}")
        self.life()

    def append(self, events: list[Event]) -> RecordNumber:
        return self.writer.append(self.writer.state.position, events=tuple(events)).number

    def has(self, *events: Event) -> None:
        self.append(list(events))

    def turn(self, times: int = 1, seconds: float = 100.0) -> None:
        assert self.control.journal is not None
        for _ in range(times):
            self.now += seconds
            self.control.journal.look()
            self.sender.step(self.control)


@pytest.fixture
def world(tmp_path: Path, receiver: Receiver) -> World:
    return World(tmp_path, receiver)


def test_events_of_the_journal_are_signed_cloud_events(world: World, receiver: Receiver) -> None:
    world.has(TableAdded(table=table_schema(1), edge="5"))
    world.has(SnapshotPlanned(snapshot_id="first", reason="initial", tables=(1,)))
    world.has(SnapshotPlanned(snapshot_id="holes", reason="repair", tables=(1,), keys=(("1",),)))
    back = PlannedRewind(cut="noon", record=RecordNumber(1), asked="cut noon", tables=(1,))
    world.has(SnapshotPlanned(snapshot_id="back", request="back", tables=(), rewind=back))
    world.has(SnapshotEnded(snapshot_id="back", outcome="completed"))
    world.has(SnapshotTableFinished(snapshot_id="first", table_id=1, chunks=0, complete=False, error=NO_RIGHT))
    world.has(SnapshotEnded(snapshot_id="first", outcome="failed"))
    world.turn()
    world.has(CutMade(name="noon"))
    stop = TableStopped(table_id=1, seq=Seq(0), error="NoKey", message="no key", fix="Add one.", where="source")
    world.has(stop)
    gone = ReadFailure(message="the version is gone", fix="Choose a later cut.", where="target")
    late = SnapshotPlanned(snapshot_id="late", request="late", tables=(), rewind=back)
    world.has(late, SnapshotEnded(snapshot_id="late", outcome="failed", failure=gone))
    world.turn()
    told = [(e["type"].removeprefix("dev.tailrace."), e["subject"]) for e in receiver.events]
    assert told == [
        ("table.added", "public.t1"), ("snapshot.started", "first"),
        ("rewind.started", "back"), ("rewind.completed", "back"), ("snapshot.progress", "first"),
        ("snapshot.completed", "first"), ("cut.made", "noon"), ("table.stopped", "public.t1"),
        ("rewind.started", "late"), ("rewind.completed", "late"),
    ]  # fmt: skip
    assert all(e["specversion"] == "1.0" and e["source"] == "/tailrace/shop" for e in receiver.events)
    assert receiver.events[5]["data"]["outcome"] == "failed"
    begun, done, failed = (receiver.events[place]["data"] for place in (2, 3, 9))
    assert (begun["cut"], begun["cutRecord"], begun["tables"]) == ("noon", 1, ["public.t1"])
    assert done == {**begun, "record": done["record"], "outcome": "completed"}
    assert (failed["outcome"], failed["error"], failed["fix"]) == ("failed", gone.message, gone.fix)
    progress = receiver.events[4]["data"]
    assert (progress["table"], progress["tablesDone"], progress["error"]) == ("public.t1", 1, NO_RIGHT.message)
    assert receiver.events[0]["id"] == "log/1/0" and receiver.events[0]["time"].endswith("Z")
    for headers, body in receiver.got:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
        assert headers["content-type"].startswith("application/cloudevents+json")
        assert headers["webhook-id"] == json.loads(body)["id"]


def test_the_progress_within_a_large_table_is_told_by_tenths(world: World, receiver: Receiver) -> None:
    world.has(TableAdded(table=table_schema(1), edge="5"), TableAdded(table=table_schema(2), edge="5"))
    world.has(SnapshotPlanned(snapshot_id="s", reason="initial", tables=(1, 2)))
    for table, rows in ((1, 2_000_000), (2, 900_000)):
        world.has(SnapshotTableStarted(snapshot_id="s", table_id=table, max_key=("99",), estimated_rows=rows))
    world.turn()

    def read(table: int, number: int, rows: int, upper: str) -> ChunkRegistered:
        lower = None if number == 1 else (str(10 * (number - 1)),)
        return chunk(table, number, lower=lower, upper=(upper,), rows=rows, path=f"{table}/{number}")

    first = world.append([read(2, 1, 500_000, "10"), read(1, 1, 150_000, "10"), read(1, 2, 100_000, "20")])
    world.has(read(1, 3, 100_000, "30"))
    world.turn()
    world.has(read(1, 4, 900_000, "40"))
    world.has(read(1, 5, 900_000, "50"), read(1, 6, 900_000, "60"))
    world.turn()
    told = [e for e in receiver.events if e["type"].endswith("snapshot.progress")]
    assert [(t["data"]["table"], t["data"]["rows"], t["data"]["rowsEstimated"]) for t in told] == [
        ("public.t1", 250_000, 2_000_000), ("public.t1", 1_250_000, 2_000_000),
    ]  # fmt: skip
    journal = world.control.journal
    assert journal is not None
    records = [read_record(journal.storage, RecordNumber(n)) for n in range(first, journal.state.number + 1)]
    later = [json.loads(notice.body) for record in records for notice in notices("shop", record, journal.state)]
    assert later == told, "also where they are told again, behind later records"


def test_a_receiver_that_fails_gets_each_event_later_and_in_order(world: World, receiver: Receiver) -> None:
    receiver.statuses = [503, 302, 500]
    for name in ("a", "b"):
        world.has(CutMade(name=name))
    world.turn(6)
    assert [e["subject"] for e in receiver.events] == ["a", "b"]
    assert (world.sender.status().sent, world.sender.status().failed) == (2, 3)


def test_a_receiver_that_is_gone_for_too_long_loses_events_that_are_counted(
    world: World, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.stop()
    world.has(CutMade(name="lost"))
    world.turn(notifications.ATTEMPTS - 1)
    assert world.sender.status().dropped == 0
    world.turn()
    receiver.start()
    world.has(CutMade(name="kept"))
    world.turn(2)
    assert [e["subject"] for e in receiver.events] == ["kept"]
    assert (world.sender.status().dropped, world.sender.status().failed) == (1, notifications.ATTEMPTS)
    assert caplog.text.count("does not accept them") == 1
    assert "hidden" not in caplog.text and KEY.decode() not in caplog.text


def test_another_process_sends_what_none_has_sent_under_the_same_ids(world: World, receiver: Receiver) -> None:
    world.has(CutMade(name="a"))
    world.turn()
    assert world.writer.state.notified is not None
    receiver.statuses = [503]
    world.has(CutMade(name="b"))
    world.turn()
    world.has(CutMade(name="while no process runs"))
    world.life()
    world.turn(2)
    assert [e["subject"] for e in receiver.events] == ["a", "b", "while no process runs"]
    world.sender._recorded_at = world.now  # sent, and not recorded before the next process begins
    world.has(CutMade(name="c"))
    world.turn(seconds=1.0)
    world.life()
    world.turn(2)
    ids = [e["id"] for e in receiver.events if e["subject"] == "c"]
    assert len(ids) == 2 and len(set(ids)) == 1


def test_a_driver_that_ends_sends_the_last_events_and_records_them(world: World, receiver: Receiver) -> None:
    world.has(CutMade(name="a"))
    world.turn()
    world.has(CutMade(name="last"))
    world.sender.finish(world.control)
    assert [e["subject"] for e in receiver.events] == ["a", "last"]
    world.life()
    world.turn(2)
    assert len(receiver.events) == 2, "none is sent again"
    receiver.stop()
    world.has(CutMade(name="while it is away"))
    world.sender.finish(world.control)
    assert world.sender.status().failed == 1
    receiver.start()
    world.life()
    world.turn(2)
    assert [e["subject"] for e in receiver.events][2:] == ["while it is away"]


def test_a_driver_that_ends_records_every_step_of_its_last_events(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "AT_ONCE", 2)
    world.turn()
    for number in range(5):
        world.has(CutMade(name=f"n{number}"))
    world.sender.finish(world.control)
    assert [e["subject"] for e in receiver.events] == [f"n{number}" for number in range(5)]
    world.life()
    world.turn(2)
    assert len(receiver.events) == 5, "none is sent again"


def test_a_slow_receiver_delays_no_reader_of_the_journal_and_more_than_fit_are_read_again(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "QUEUE", 3)
    world.turn()
    receiver.hold = threading.Event()
    world.has(CutMade(name="slow"))
    assert world.control.journal is not None
    world.control.journal.look()
    sending = threading.Thread(target=world.sender.step, args=(world.control,))
    sending.start()
    for number in range(5):
        world.has(CutMade(name=f"n{number}"))
    state = world.control.journal.look()  # while the receiver holds the sender
    assert sending.is_alive() and "n4" in state.cuts
    assert (world.sender.status().waiting, world.sender.status().dropped) == (3, 0)
    receiver.hold.set()
    sending.join(30)
    receiver.hold = None
    world.turn()
    assert world.writer.state.notified is not None and world.writer.state.notified < world.writer.state.number
    world.turn()
    assert [e["subject"] for e in receiver.events] == ["slow", *(f"n{number}" for number in range(5))]
    world.has(CutMade(name="heard again"))
    world.turn(2)
    assert [e["subject"] for e in receiver.events][6:] == ["heard again"]
    # What was recorded on the way is no event: the queue is at the end of the journal all the same.
    assert world.sender._queue.through == world.writer.state.number


def test_a_receiver_that_is_away_while_much_happens_gets_the_rest_later_and_after_a_restart(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "QUEUE", 3)
    world.turn()
    receiver.stop()
    for number in range(8):
        world.has(CutMade(name=f"n{number}"), CutMade(name=f"m{number}"))
        world.turn(seconds=0.1)
    world.life()
    world.turn()
    receiver.start()
    world.turn(9)
    told = [e["subject"] for e in receiver.events]
    assert told == [name for number in range(8) for name in (f"n{number}", f"m{number}")]
    assert world.sender.status().dropped == 0


def test_records_whose_events_can_no_longer_be_told_are_counted(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that retention has removed, that hold events of a snapshot which the state no longer has, or that are too
    many for a start; no record is counted twice."""
    monkeypatch.setattr(notifications, "QUEUE", 1)
    world.turn()
    receiver.stop()
    removed = RecordNumber(world.writer.state.number + 2)
    gone = SnapshotEnded(snapshot_id="forgotten", outcome="completed")

    def read(storage: Storage, number: RecordNumber) -> Record:
        if number == removed:
            raise NotFound(f"record {number}")
        record = read_record(storage, number)
        return record.model_copy(update={"events": (gone,)}) if number == removed + 1 else record

    monkeypatch.setattr(notifications, "read_record", read)
    for number in range(4):
        world.has(CutMade(name=f"n{number}"))
        world.turn(seconds=0.1)
    receiver.start()
    world.turn(9)
    assert [e["subject"] for e in receiver.events] == ["n0", "n3"]
    assert (world.sender.status().lost, world.sender.status().dropped) == (2, 0)
    assert "events of 2 records of the change log can no longer be told" in caplog.text
    receiver.stop()
    monkeypatch.setattr(notifications, "MOST_RECORDS", 2)
    first = world.writer.state.notified
    assert first is not None
    for number in range(4):
        world.has(CutMade(name=f"m{number}"))
    last = world.writer.state.number
    world.life()
    receiver.start()
    world.turn(9)
    assert world.sender.status().lost == last - 2 - first


def test_a_record_that_does_not_fit_is_not_read_again_before_it_may(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "QUEUE", 4)
    asked = list[int]()

    def counted(storage: Storage, number: RecordNumber) -> Record:
        asked.append(number)
        return read_record(storage, number)

    monkeypatch.setattr(notifications, "read_record", counted)
    world.turn()
    receiver.stop()
    world.has(*(CutMade(name=f"n{number}") for number in range(3)))
    world.has(*(CutMade(name=f"m{number}") for number in range(2)))
    asked.clear()
    world.turn(5, seconds=0.1)
    assert len(asked) <= 1 and len(world.sender._queue) == 3
    receiver.start()
    world.turn(9)
    assert [e["subject"] for e in receiver.events] == ["n0", "n1", "n2", "m0", "m1"]


def told(receiver: Receiver) -> set[str]:
    return {event["subject"] for event in receiver.events}


def killed_life(world: World, more: int, seconds: float) -> None:
    """A process that SIGKILL ends right behind its attempt of this number, or when there is nothing more to send.
    `seconds`: between its steps; it records what it has sent every few."""
    pid = os.fork()
    if pid == 0:
        try:
            world.reborn()
            attempt, attempts = world.sender._attempt, itertools.count(1)

            def last(notice: Notice, now: float) -> bool:
                sent = attempt(notice, now)
                if next(attempts) == more:
                    os.kill(os.getpid(), signal.SIGKILL)
                return sent

            world.sender._attempt = last  # type: ignore[method-assign]  # in this process alone
            world.turn(60, seconds)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def test_processes_that_are_killed_lose_no_event_and_change_no_id(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "AT_ONCE", 2)
    names = [f"n{number}" for number in range(24)]
    for at in range(0, len(names), 2):
        world.has(*(CutMade(name=name) for name in names[at : at + 2]))
    random = Random()
    killed_life(world, 5, 0.1)  # of these it has recorded two
    while len(told(receiver)) < len(names):
        killed_life(world, random.randint(1, 9), random.choice([0.1, 4.0]))
    world.reborn()
    world.turn(20)
    found = [(e["subject"], e["id"]) for e in receiver.events]
    first = list(dict.fromkeys(found))
    assert [name for name, _ in first] == names  # so each name had one id
    assert len({identity for _, identity in first}) == len(names)
    assert len(found) > len(names), "no process was killed between sending and recording"
    assert world.control.journal is not None and world.control.journal.look().notified is not None
    told_before = len(receiver.got)
    world.reborn()
    world.turn(3)
    assert len(receiver.got) == told_before


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/x",
        "host/x",
        "https://user:word@host/x",
        "https://",
        "http://host:port/",
        "https://host/a b",
        "https://host/#x",
    ],
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        NotificationsSpec.model_validate({"url": url, "credentials": {"file": "/key"}})


def test_a_key_is_read_as_webhooks_have_it_and_a_bad_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"whsec_{base64.b64encode(KEY).decode()}\n")
    assert signing_key(path) == KEY
    assert signature(KEY, "a", 1, b"{}") == signature(signing_key(path), "a", 1, b"{}")
    for bad in ("", "short", "whsec_%%%"):
        path.write_text(bad)
        with pytest.raises(InvalidManifest, match="fewer than 16"):
            signing_key(path)
    with pytest.raises(InvalidManifest, match="cannot be read"):
        signing_key(tmp_path / "none")
    spec = NotificationsSpec.model_validate({"url": "https://host/x", "credentials": {"secretName": "hook"}})
    with pytest.raises(InvalidManifest, match="outside Kubernetes"):
        key_path(spec, None)
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / notifications.SECRET_KEY).write_bytes(KEY)
    assert key_path(spec, tmp_path) == tmp_path / "hook" / "signingKey"


def test_a_storage_that_is_away_at_the_start_has_no_event_sent_twice(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        world.has(CutMade(name=name))
    world.life()
    real, away = read_record, iter([False, False, True, True])

    def flaky(storage: Storage, number: RecordNumber) -> Record:
        if next(away, False):
            raise Retry("503")
        return real(storage, number)

    monkeypatch.setattr(notifications, "read_record", flaky)
    for _ in range(2):
        with pytest.raises(Retry):
            world.turn()
    world.turn()
    world.has(CutMade(name="c"))
    world.turn()
    assert [e["subject"] for e in receiver.events] == ["a", "b", "c"]
