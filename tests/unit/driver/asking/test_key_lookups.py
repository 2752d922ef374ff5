"""The source is asked which keys a request means: it may be slow, hang or refuse, and nobody but the request waits."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from typing_extensions import override

from support.catalog import catalog_table
from support.lake import table_schema
from support.pipeline import Pipeline
from support.scripted import ScriptedKeys, ScriptedSource
from support.scripted_runs import filled, manifest
from support.waiting import until
from tailrace.changelog.records.terms import Key
from tailrace.changelog.state import TableLog
from tailrace.contract.driver import SnapshotBody
from tailrace.contract.resources import SnapshotRequest
from tailrace.driver.asking import key_lookups
from tailrace.driver.asking.control import DriverControl, ManifestRequests
from tailrace.driver.asking.key_lookups import BeingLookedUp, KeyLookups, Withdrawn
from tailrace.errors import InvalidManifest, Locked, Retry
from tailrace.snapshot.planner import request_id
from tailrace.sources import api


@dataclass
class Gate:
    """Of the look-ups: while it is shut the source hangs."""

    open: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[Key, ...]] = field(default_factory=list)
    refusals: list[Exception] = field(default_factory=list)
    """What the next ones are answered with."""


@dataclass(frozen=True)
class SlowKeys(ScriptedKeys):
    gate: Gate

    @override
    def normal_keys(self, asked: Sequence[Key]) -> tuple[Key, ...]:
        self.gate.asked.append(tuple(asked))
        assert self.gate.open.wait(60)
        if self.gate.refusals:
            raise self.gate.refusals.pop(0)
        return super().normal_keys(asked)


@dataclass(frozen=True)
class Slow(ScriptedSource):
    gate: Gate = field(default_factory=Gate)

    @override
    def keys(self, table: api.Table) -> SlowKeys:
        return SlowKeys(table.name, [], self.gate)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


@pytest.fixture
def shop(tmp_path: Path, gate: Gate) -> Iterator[Pipeline]:
    database = filled("one", "two")
    made = Pipeline(manifest(tmp_path), Slow(database, gate=gate), tmp_path)
    with made.running():
        made.settle(database.end)
        yield made
        gate.open.set()


def spec(key: str, table: str = "one") -> dict[str, object]:
    return {"replicator": "shop", "tables": [f"main.{table}"], "keys": [[key]]}


def body(key: str, table: str = "one") -> SnapshotBody:
    return SnapshotBody.model_validate({"name": "again", "spec": spec(key, table)})


def in_manifest(name: str, key: str, table: str = "one") -> SnapshotRequest:
    head = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "SnapshotRequest", "metadata": {"name": name}}
    return SnapshotRequest.model_validate(head | {"spec": spec(key, table)})


def all_accepted(requests: ManifestRequests, control: DriverControl) -> None:
    def turned() -> bool:
        requests.step(control)
        return requests.open == 0

    until(turned, "a turn")


def asking_for_7(control: DriverControl) -> Callable[[], bool]:
    """In a thread, as request `id`; what it returns waits for the answer: whether that is `Withdrawn`."""
    met: list[Exception] = []

    def ask() -> None:
        try:
            control.request("id", body("7"))
        except Withdrawn as error:
            met.append(error)

    def withdrawn() -> bool:
        asking.join(20)
        return bool(met)

    asking = threading.Thread(target=ask)
    asking.start()
    return withdrawn


def test_a_client_is_told_to_ask_again_and_then_gets_the_answer_of_the_same_look_up(shop: Pipeline, gate: Gate) -> None:
    control = shop.driver.control
    for _ in range(3):
        with pytest.raises(BeingLookedUp, match="keys of main"):
            control.request("id", body("007"), patience=0.01)
    assert len(gate.asked) == 1, "one connection, however often a client asks"
    gate.open.set()
    answer = control.request("id", body("007"))
    assert shop.state.snapshots["id"].plan.keys == (("7",),)
    assert control.request("id", body("007")) == answer and len(gate.asked) == 1


def test_the_status_says_that_the_source_is_asked(shop: Pipeline, gate: Gate) -> None:
    control = shop.driver.control
    control.watch = shop.driver.client
    with pytest.raises(BeingLookedUp):
        control.request("id", body("7"), patience=0.01)
    assert control.ask_capture()
    assert control.status().message == "snapshot id waits for the source to look up its keys"
    gate.open.set()
    control.request("id", body("7"))
    assert control.status().message == ""


def test_a_request_that_is_stopped_while_its_keys_are_looked_up_is_not_planned(shop: Pipeline, gate: Gate) -> None:
    control = shop.driver.control
    withdrawn = asking_for_7(control)
    until(lambda: gate.asked, "a look-up is asked for")
    control.stop_snapshot("id")
    assert withdrawn(), "whoever waits hears of it, though the source still hangs"
    gate.open.set()
    control.request("other", body("8"))
    assert "id" not in shop.state.snapshots
    control.request("id", body("7"))
    assert "id" in shop.state.snapshots, "asked again, it is wanted again"


def test_a_request_that_is_stopped_between_its_keys_and_its_plan_is_not_planned(shop: Pipeline, gate: Gate) -> None:
    control = shop.driver.control
    gate.open.set()
    control._lock.acquire()
    withdrawn = asking_for_7(control)
    until(lambda: gate.asked and control._lookups.waiting_for is None, "one that waits for nothing")
    assert control._lookups.withdraw("id")
    control._lock.release()
    assert withdrawn() and "id" not in shop.state.snapshots


def test_what_the_source_refuses_for_now_is_asked_again(shop: Pipeline, gate: Gate) -> None:
    control = shop.driver.control
    gate.open.set()
    gate.refusals += [Locked("held by 4711"), Retry("connection lost")]
    for refusal in (Locked, Retry):
        with pytest.raises(refusal):
            control.request("id", body("7"))
    control.request("id", body("7"))
    assert len(gate.asked) == 3 and "id" in shop.state.snapshots


def test_no_more_look_ups_are_kept_than_there_is_room_for(
    shop: Pipeline, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_lookups, "MOST", 2)
    control = shop.driver.control
    for name in ("a", "b"):
        with pytest.raises(BeingLookedUp):
            control.request(name, body("7"), patience=0.01)
    with pytest.raises(Retry, match="2 snapshot requests wait"):
        control.request("c", body("7"), patience=0.01)
    gate.open.set()
    until(lambda: control._lookups.waiting_for is None, "nothing is waited for")
    assert control.request("c", body("7")).id == "c", "an answer that nobody came for makes room"


def test_requests_of_the_manifest_are_planned_in_their_order_once_the_source_answers(
    shop: Pipeline, gate: Gate
) -> None:
    asked = [in_manifest("first", "1"), in_manifest("second", "2", "two"), in_manifest("third", "3")]
    requests, control = ManifestRequests(asked), shop.driver.control
    for _ in range(3):
        begun = time.monotonic()
        requests.step(control)
        assert time.monotonic() - begun < 5
    assert (requests.open, len(gate.asked)) == (3, 1)
    gate.open.set()
    all_accepted(requests, control)
    planned = shop.driver.journal.state.snapshots
    order = sorted((planned[request_id(r)].record, r.metadata.name) for r in asked)
    assert [name for _, name in order] == ["first", "second", "third"]
    assert all(request_id(r) in planned for r in asked), "the state that was read has them all"
    shop.until(lambda state: all(s.ended for s in state.snapshots.values()), work=True)
    ended = [shop.state.snapshots[request_id(r)].ended for r in asked]
    assert [end.outcome for end in ended if end is not None] == ["completed"] * 3


def test_a_request_of_the_manifest_that_the_source_refuses_for_now_is_tried_again_after_a_pause(
    shop: Pipeline, gate: Gate
) -> None:
    now = [0.0]
    requests = ManifestRequests([in_manifest("first", "1"), in_manifest("second", "2")], lambda: now[0])
    control = shop.driver.control
    control.watch = shop.driver.client
    control.ask_capture()
    gate.open.set()
    gate.refusals.append(Locked("held by 4711"))
    requests.step(control)
    requests.step(control)
    assert (requests.open, len(gate.asked)) == (2, 1), "the pause is kept"
    assert control.status().message == "snapshot request first is asked again: Locked: held by 4711"
    now[0] = 1.0
    all_accepted(requests, control)
    assert control.status().message == ""


def test_a_request_of_the_manifest_that_is_stopped_meanwhile_is_dropped(shop: Pipeline, gate: Gate) -> None:
    first, second = in_manifest("first", "1"), in_manifest("second", "2")
    requests, control = ManifestRequests([first, second]), shop.driver.control
    turning = threading.Thread(target=lambda: requests.step(control))
    turning.start()
    until(lambda: gate.asked, "a look-up is asked for")
    control.stop_snapshot(request_id(first))
    turning.join(20)
    gate.open.set()
    all_accepted(requests, control)
    found = shop.state.snapshots[request_id(first)]
    assert found.ended is not None and found.ended.outcome == "stopped" and not found.tables
    assert len(gate.asked) == 2 and shop.state.snapshots[request_id(second)].plan.keys == (("2",),)
    # As after a restart.
    again = ManifestRequests([first, second])
    all_accepted(again, control)
    assert len(gate.asked) == 2 and not shop.state.snapshots[request_id(first)].tables
    shop.until(lambda state: all(s.ended for s in state.snapshots.values()), work=True)


def test_a_request_of_the_manifest_that_is_stopped_before_its_turn_is_not_asked(shop: Pipeline, gate: Gate) -> None:
    first, second = in_manifest("first", "1"), in_manifest("second", "2")
    requests, control = ManifestRequests([first, second]), shop.driver.control
    requests.step(control)
    control.stop_snapshot(request_id(second))
    gate.open.set()
    all_accepted(requests, control)
    assert gate.asked == [(("1",),)]
    assert not shop.state.snapshots[request_id(second)].tables


def test_a_request_of_the_manifest_with_a_key_that_is_none_is_refused(shop: Pipeline, gate: Gate) -> None:
    gate.open.set()
    requests = ManifestRequests([in_manifest("first", "seven")])
    with pytest.raises(InvalidManifest, match="no key of the table"):
        requests.step(shop.driver.control)
    assert requests.open == 1, "a run with --once is not done"


def test_keys_that_made_room_are_asked_for_again_and_nobody_is_told_that_the_request_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_lookups, "MOST", 1)
    lookups = KeyLookups(lambda _, asked: tuple(asked))
    one = catalog_table(table_schema([("id", "int64")], ["id"]), ["id"])
    logged = cast(TableLog, SimpleNamespace(table_id=one.oid, schema=one))
    assert lookups.keys("a", logged, [("1",)], 5.0) == (("1",),)
    assert lookups.keys("b", logged, [("2",)], 5.0) == (("2",),)
    with pytest.raises(Retry, match="made room") as refused:
        lookups.require("a")
    assert type(refused.value) is Retry
    lookups.withdraw("b")
    with pytest.raises(Withdrawn):
        lookups.require("b")
