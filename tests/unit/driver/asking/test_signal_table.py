"""Signals of the source's table: each is carried out in one record with its answer, in the order of the log."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from support.journals import table_schema
from support.killed import killed_at
from support.origins import origin
from support.states import keyed, log_state, snapshot, table_log, with_snapshots
from support.transactions import numbered
from tailrace.capture.client import CaptureClient
from tailrace.changelog.journal import JournalReader, read_record
from tailrace.changelog.records.signals import SignalAnswered, SignalReceived
from tailrace.changelog.records.snapshots import PlannedRewind, SnapshotEnded, SnapshotPlanned, SnapshotSuspended
from tailrace.changelog.records.tables import TableAdded
from tailrace.changelog.records.terms import Position, RecordNumber, Seq
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LoggedSignal, LogState
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import StorageLocation
from tailrace.driver.asking.control import DriverControl
from tailrace.driver.asking.signal_acts import SignalNotices
from tailrace.driver.asking.signal_table import TableSignals, open_signals
from tailrace.errors import Retry
from tailrace.storage.store import Storage


class Died(BaseException):
    """Stands for the end of the process."""


class Log:
    """Journal and capture: what is appended is in the state at once."""

    def __init__(self) -> None:
        self.state = log_state(*(table_log(keyed(i)) for i in (7, 8)))
        self.records: list[list[Any]] = []
        self.failures: list[BaseException] = []
        """The next appends end with these: before they are recorded, or, `Died`, behind."""

    def refresh(self) -> LogState:
        return self.state

    def received(self, kind: str | None, data: object = None, name: str | None = "ad-hoc", **more: Any) -> None:
        seq = Seq(len(self.state.signals) + 40)
        text = data if data is None or isinstance(data, str) else json.dumps(data)
        signal = SignalReceived(seq=seq, id=name, type=kind, data=text, **more)
        known = {**self.state.signals, seq: LoggedSignal(signal=signal, received_at=5)}
        self.state = self.state.model_copy(update={"signals": known})

    def append(self, events: list[Any]) -> int:
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Retry):
            raise failure
        shots, signals = dict(self.state.snapshots), dict(self.state.signals)
        for event in events:
            match event:
                case SnapshotPlanned():
                    assert event.snapshot_id not in shots
                    shots[event.snapshot_id] = snapshot(event, 10)
                case SnapshotEnded():
                    shots[event.snapshot_id] = shots[event.snapshot_id].model_copy(update={"ended": event})
                case SnapshotSuspended():
                    update = {"suspended": event.suspended}
                    shots[event.snapshot_id] = shots[event.snapshot_id].model_copy(update=update)
                case SignalAnswered():
                    assert signals[event.seq].answer is None
                    signals[event.seq] = signals[event.seq].model_copy(update={"answer": event})
                case _:
                    raise AssertionError(event)
        self.records.append(list(events))
        self.state = with_snapshots(self.state, shots, signals=signals)
        if failure is not None:
            raise failure
        return 10

    @property
    def plans(self) -> list[SnapshotPlanned]:
        return [s.plan for s in self.state.snapshots.values()]

    @property
    def answers(self) -> list[tuple[str, str]]:
        found = (logged.answer for logged in self.state.signals.values())
        return [(answer.outcome, answer.message) for answer in found if answer is not None]


def turn(log: Log) -> None:
    """One life of the process."""
    control = DriverControl("shop")
    control.journal, control.client = cast(SharedJournal, log), cast(CaptureClient, log)
    clock, table = [0.0], TableSignals("postgres", SignalNotices(), lambda: clock[0])
    for _ in range(3):
        clock[0] += 10
        table.step(control)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "tailrace.driver.asking"):
        yield caplog


def test_a_signal_and_its_answer_are_one_record(told: pytest.LogCaptureFixture) -> None:
    log = Log()
    log.received("execute-snapshot", {"data-collections": ["s\\.t.*"], "type": "incremental"})
    turn(log)
    assert [[event.kind for event in record] for record in log.records] == [
        ["snapshot-planned", "snapshot-planned", "signal-answered"]
    ]
    assert [p.snapshot_id for p in log.plans] == ["signal-40-7", "signal-40-8"]
    assert [p.request for p in log.plans] == ["ad-hoc", "ad-hoc"]
    assert log.answers == [("done", "")]
    assert '"type": "STARTED"' in told.text


@pytest.mark.parametrize("failure", [Died(), Retry("capture is away")])
def test_a_process_that_dies_or_waits_carries_each_signal_out_once(failure: BaseException) -> None:
    log = Log()
    log.received("execute-snapshot", {"data-collections": ["s.t7"]})
    log.received("stop-snapshot", {})
    log.received("execute-snapshot", {"data-collections": ["s.t8"]})
    log.failures = [failure]
    if isinstance(failure, Died):
        with pytest.raises(Died):
            turn(log)
    turn(log)
    turn(log)
    assert [p.tables for p in log.plans] == [(7,), (8,)]
    assert [s.ended and s.ended.outcome for s in log.state.snapshots.values()] == ["stopped", None]
    assert len(log.records) == 3 and open_signals(log.state) == []


class Written:
    """A real journal with signals, and capture's end of it in the process that claims it."""

    def __init__(self, folder: Path) -> None:
        self.place = StorageLocation(location=folder.as_uri())
        self.writer = JournalWriter.create(Storage.open(self.place), origin("log"), Position(1), "capture")
        tables = [TableAdded(table=table_schema(number), edge="5") for number in (7, 8)]
        self.append([*tables])
        data = [json.dumps({"data-collections": [f"public.t{7 + number % 2}"]}) for number in range(6)]
        first = self.writer.state.last_seq + 1
        made = [
            SignalReceived(seq=Seq(first + number), id=f"s{number}", type="execute-snapshot", data=text)
            for number, text in enumerate(data)
        ]
        made.append(SignalReceived(seq=Seq(first + len(made)), id="stop", type="stop-snapshot", data="{}"))
        seqs = tuple(received.seq for received in made)
        self.writer.append(
            Position(2),
            seqs[-1],
            transactions=numbered(tuple(1000 + seq for seq in seqs), seqs),
            events=tuple(made),
            commit_time=(1, 2),
        )

    def append(self, events: list[Any]) -> int:
        return self.writer.append(self.writer.state.position, events=tuple(events)).number

    def life(self) -> None:
        self.writer = JournalWriter.claim(Storage.open(self.place), "another capture")
        control, clock = DriverControl("shop"), [0.0]
        control.journal = SharedJournal(JournalReader.open(Storage.open(self.place)))
        control.client = cast(CaptureClient, self)
        table = TableSignals("postgres", SignalNotices(), lambda: clock[0])
        for _ in range(3):
            clock[0] += 10
            control.journal.look()
            table.step(control)


def test_processes_that_are_killed_carry_each_signal_out_once(tmp_path: Path) -> None:
    """SIGKILL right before and right after the record of each signal is durable."""
    log = Written(tmp_path / "log")
    for turn in range(12):
        # Its first record claims the journal. One that dies behind a record has carried out one signal.
        killed_at(("journal.before-create", "journal.after-create")[turn % 2], log.life, visit=2)
    assert len(open_signals(JournalReader.open(Storage.open(log.place)).state)) == 1
    log.life()
    storage, state = Storage.open(log.place), log.writer.state
    records = [read_record(storage, RecordNumber(number)) for number in range(state.number + 1)]
    events = [event for record in records for event in record.events]
    answers = [event for event in events if isinstance(event, SignalAnswered)]
    assert len(answers) == 7 and {event.seq for event in answers} == set(state.signals)
    plans = [event for event in events if isinstance(event, SnapshotPlanned)]
    assert [(plan.request, plan.tables) for plan in plans] == [(f"s{n}", (7 + n % 2,)) for n in range(6)]
    assert open_signals(state) == [] and all(event.outcome == "done" for event in answers)


def test_snapshots_are_paused_and_resumed_in_the_order_of_the_log() -> None:
    log = Log()
    log.received("execute-snapshot", {"data-collections": ["s.t7"]})
    log.received("pause-snapshot")
    turn(log)
    assert [s.suspended for s in log.state.snapshots.values()] == [True]
    log.received("resume-snapshot", "{}")
    turn(log)
    assert [s.suspended for s in log.state.snapshots.values()] == [False]


@pytest.mark.parametrize(
    "data",
    [
        {"data-collections": ["\ud800"]},
        {"data-collections": ["\\Qs.t7"]},
        {"data-collections": ["s.t7"], "additional-condition": "v = '\ud800'"},
        {"data-collections": ["s.t7"], "additional-condition": "v = " + "(" * 1500 + "1" + ")" * 1500},
        {"data-collections": ["s.t7"], "additional-conditions": [{"data-collection": "\\Qs", "filter": "v = 1"}]},
    ],
    ids=["half of a character", "unended quote", "half in a filter", "deep filter", "unended quote of a condition"],
)
def test_a_signal_that_nobody_can_read_is_answered_and_the_next_one_is_carried_out(data: object) -> None:
    """Else it would end the driver, at each start again: it stands in the journal until it is answered."""
    log = Log()
    log.received("execute-snapshot", data)
    log.received("execute-snapshot", {"data-collections": ["s.t8"]})
    turn(log)
    (outcome, message), last = log.answers
    assert outcome == "ignored" and message and last == ("done", "")
    assert [p.tables for p in log.plans] == [(8,)]


def test_a_failure_inside_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("v")

    log = Log()
    log.received("execute-snapshot", {"data-collections": ["s.t7"]})
    monkeypatch.setattr("tailrace.driver.asking.signals.execution", broken)
    turn(log)
    assert log.answers[0][0] == "ignored" and "KeyError" in log.answers[0][1]


def test_rewinds_are_no_snapshots_to_stop_or_pause() -> None:
    log = Log()
    rewind = PlannedRewind(cut="noon", record=RecordNumber(3), asked="cut noon", tables=(7,))
    plan = SnapshotPlanned(snapshot_id="u", request="back", tables=(), rewind=rewind)
    log.state = with_snapshots(log.state, {"u": snapshot(plan, 10)})
    log.received("pause-snapshot")
    log.received("stop-snapshot", {})
    turn(log)
    (known,) = log.state.snapshots.values()
    assert known.ended is None and not known.suspended and log.answers == [("done", "")] * 2


def test_what_cannot_be_carried_out_is_answered_with_the_fix(told: pytest.LogCaptureFixture) -> None:
    log = Log()
    log.received("execute-snapshot", "{")
    log.received("custom")
    log.received("log", {})
    log.received("execute-snapshot", {"data-collections": ["s.t9"]})
    log.received(
        "execute-snapshot",
        {
            "data-collections": ["s.t7"],
            "additional-conditions": [{"data-collection": "s.t7", "filter": "1 = 1; DROP TABLE t7"}],
        },
    )
    log.received("log", {"message": "x"}, name=None)
    log.received(None)
    log.received(None, name=None, fault="the signal table has 4 columns. Fix: Give it three.")
    log.received("execute-snapshot", {"data-collections": ["s.t7", "s.t9"]})
    log.received("log", {"message": "at {}"}, name="last")
    turn(log)
    expected = [
        "is not JSON", "'custom' is not supported", "no message", "no captured table matches s.t9",
        "more than a condition", "the row has no id", "has no type", "has 4 columns",
    ]  # fmt: skip
    ignored, partly, done = log.answers[:8], log.answers[8], log.answers[9]
    for (outcome, message), part in zip(ignored, expected, strict=True):
        assert outcome == "ignored" and part in message and "Fix: " in message
    assert partly[0] == "done" and "s.t9" in partly[1]
    assert done == ("done", "") and "signal 'last': at 0" in told.text
    assert [p.tables for p in log.plans] == [(7,)]
