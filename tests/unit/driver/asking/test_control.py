"""What the running driver answers to requests for snapshots and for its status."""

import json
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.resources import replicator
from support.states import keyed, log_state, snapshot, table_log, with_snapshots
from tailrace.apply.progress import TableProgress
from tailrace.capture.client import CaptureClient, CaptureGone
from tailrace.capture.protocol import StateAnswer
from tailrace.changelog.records.snapshots import SnapshotPlanned
from tailrace.changelog.records.terms import Position, RecordNumber
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState, SnapshotTable, TableLog
from tailrace.contract.driver import SnapshotBody, SpecBody
from tailrace.contract.manifest import parse
from tailrace.contract.resources import SnapshotRequestSpec
from tailrace.contract.status import Fault, TableCounters
from tailrace.driver.asking.control import DriverControl
from tailrace.driver.asking.live_spec import LiveSpec
from tailrace.driver.asking.server import Conflict
from tailrace.errors import InvalidManifest, RemovalUnconfirmed, Retry

BODY = SnapshotBody(name="again", spec=SnapshotRequestSpec(replicator="shop", tables=("s.t7",), chunk_rows=5))


def table(table_id: int, **more: Any) -> TableLog:
    return table_log(keyed(table_id), **more)


class Journal:
    def __init__(self, *tables: TableLog) -> None:
        self.state = log_state(*tables)

    def refresh(self) -> LogState:
        return self.state

    def record(self, plan: SnapshotPlanned, **more: object) -> None:
        shot = snapshot(plan, 10, **more)
        self.state = with_snapshots(self.state, self.state.snapshots | {plan.snapshot_id: shot})


class Client:
    """Records what it is asked; `hold` keeps the answer back, as a busy capture does."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.asked: list[object] = []
        self.hold = threading.Event()
        self.hold.set()
        self.answer: StateAnswer | None = StateAnswer(record=RecordNumber(9), epoch=1, position=Position(5))

    def append(self, events: list[Any]) -> int:
        self.asked += events
        assert self.hold.wait(30)
        self.journal.record(events[0])
        return 10

    def state(self) -> StateAnswer:
        if self.answer is None:
            raise CaptureGone("away")
        return self.answer


def control(*tables: TableLog) -> tuple[DriverControl, Journal, Client]:
    made, journal = DriverControl("shop"), Journal(*tables)
    client = Client(journal)
    made.journal = cast(SharedJournal, journal)
    made.client = made.watch = cast(CaptureClient, client)
    return made, journal, client


def test_a_request_that_is_known_is_answered_even_when_its_table_has_gone() -> None:
    driver, journal, client = control(table(7))
    first = driver.request("a", BODY)
    journal.state = journal.state.model_copy(update={"tables": {7: table(7, removed=True)}})
    assert driver.request("a", BODY) == first
    assert len(client.asked) == 1
    with pytest.raises(InvalidManifest, match="no captured table matches"):
        driver.request("b", BODY)
    other = BODY.model_copy(update={"spec": BODY.spec.model_copy(update={"chunk_rows": 6})})
    with pytest.raises(Conflict):
        driver.request("a", other)


def test_a_spec_that_drops_most_tables_is_refused_while_the_driver_runs() -> None:
    driver, _, _ = control(table(7), table(8))
    now = parse(json.dumps(replicator(tables={"include": ["s.*"]})), "m").replicator()
    driver.live = LiveSpec(now)
    driver.live.accepts = True

    def body(**tables: object) -> SpecBody:
        return SpecBody(spec=parse(json.dumps(replicator(tables=tables)), "m").replicator().spec)

    with pytest.raises(RemovalUnconfirmed, match=r"s\.t7, s\.t8") as met:
        driver.change_spec(body(include=["S.*"]))
    assert driver.live.next() is None
    code = met.value.fix.split("'")[1]
    with pytest.raises(Retry, match="once the chunks"):
        driver.live.offer(body(include=["S.*"], confirmRemoval=code), patience=0)
    assert driver.live.next() is not None
    assert driver.change_spec(body(include=["s.*"])).changed == (), "taking it back needs no confirmation"


def test_the_status_is_told_while_a_request_waits_for_capture() -> None:
    driver, _, client = control(table(7))
    client.hold.clear()
    asking = threading.Thread(target=driver.request, args=("a", BODY), daemon=True)
    asking.start()
    told = threading.Thread(target=driver.status, daemon=True)
    told.start()
    told.join(5)
    blocked = told.is_alive()
    client.hold.set()
    asking.join(5)
    assert not blocked


def test_a_capture_that_ends_again_and_again_is_a_failure_with_a_name_until_one_works() -> None:
    driver, _, client = control(table(7))
    assert driver.ask_capture()
    driver.capture_fault = Fault(name="CaptureEnded", message="capture ended with code 1: Retry: cannot connect to db")
    client.answer = StateAnswer(record=RecordNumber(-1), epoch=-1, position=Position(0), waiting_for="capture starts")
    assert not driver.ask_capture()
    status = driver.status()
    assert (status.state, status.capture.alive) == ("Failing", False)
    assert status.fault is not None and "cannot connect to db" in status.message
    client.answer = None
    assert not driver.ask_capture()
    driver.capture_fault = None
    client.answer = StateAnswer(record=RecordNumber(9), epoch=1, position=Position(5))
    assert driver.ask_capture()
    assert driver.status().capture.alive


def test_executors_that_are_wanted_are_told_and_one_while_large_batches_do_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, _, _ = control(table(7))
    assert driver.status().executors_wanted == 0
    driver.want_executors(4)
    driver.want_executors(None)
    assert driver.status().executors_wanted == 4, "the JVM did not answer"
    driver.want_executors(0)
    assert driver.status().executors_wanted == 0
    monkeypatch.setattr("tailrace.driver.asking.control.DEMAND", SimpleNamespace(missing=True))
    assert driver.status().executors_wanted == 1
    driver.want_executors(4)
    assert driver.status().executors_wanted == 4


def test_each_snapshot_has_its_own_speed() -> None:
    now = [0.0]
    driver, journal, _ = control(table(7), table(8))
    driver._clock = lambda: now[0]
    for seconds in (0, 10):
        now[0] = float(seconds)
        for table_id, rows in ((7, 100 * seconds), (8, 0)):
            plan = SnapshotPlanned(snapshot_id=f"s{table_id}", tables=(table_id,))
            part = SnapshotTable(table_id=table_id, started=True, estimated_rows=2000, rows_done=rows)
            journal.record(plan, tables={table_id: part})
        status = driver.status()
    told = [(s.id, s.rows_per_second, s.seconds_left) for s in status.snapshots]
    assert told == [("s7", 100.0, 10.0), ("s8", 0.0, None)]


def test_each_table_has_its_own_speed_and_the_whole_their_sum() -> None:
    now = [0.0]
    driver, _, _ = control(table(7), table(8))
    driver._clock = lambda: now[0]
    for seconds in (0, 10):
        now[0] = float(seconds)
        driver.progress.put(7, TableProgress(counters=TableCounters(inserts=20 * seconds, snapshot_rows=80 * seconds)))
        driver.progress.put(8, TableProgress(counters=TableCounters(updates=seconds, deletes=seconds)))
        status = driver.status()
    assert [t.rows_per_second for t in status.tables] == [100.0, 2.0]
    assert status.apply.rows_per_second == 102.0
