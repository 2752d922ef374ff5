"""The cutover of a manifest: when it is attempted, what it says, and what ends it."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.resources import SOURCE, replicator
from tailrace.contract.driver import TableReport, VerificationReport
from tailrace.contract.resources import Replicator
from tailrace.contract.status import ComparedRows, SnapshotStatus
from tailrace.driver.asking import declared_cutover
from tailrace.driver.asking.declared_cutover import DeclaredCutover
from tailrace.driver.asking.equality import CopyDiffers
from tailrace.errors import CutOver, Fenced, Retry, SourceRefused, TailraceError
from tailrace.places import Places

OWN = "cutover-0a1b2c3d"


class World:
    """Whose attempts end as it says; time passes only where something waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.now, self.attempts, self.ends = 0.0, 0, False
        self.act: Callable[[Any], None] = lambda cutover: None
        self.asked: Replicator | None = None
        self.give(cutover={})
        monkeypatch.setattr(declared_cutover, "Cutover", self.made)
        self.control: Any = SimpleNamespace(name="shop")
        self.subject = DeclaredCutover(
            cast(Any, self.control),
            Places(self.replicator.spec),
            replicator=lambda: self.replicator,
            wait=self.wait,
            clock=lambda: 0.0,
            monotonic=lambda: self.now,
        )

    def give(self, **spec: object) -> None:
        """Another version of the manifest."""
        storage = {"location": "file:///nowhere/log"}
        self.replicator = Replicator.model_validate(replicator("shop", target=SOURCE, storage=storage, **spec))

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.ends

    def made(self, replicator: Replicator, places: Places, driver: Any, options: Any, say: Any, **more: Any) -> Any:
        self.attempts += 1
        self.driver, self.options = driver, options
        return SimpleNamespace(run=lambda: self.act(SimpleNamespace(say=say, **more)))

    def refuse(self, error: TailraceError) -> None:
        def act(cutover: Any) -> None:
            raise error

        self.act = act


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return World(monkeypatch, tmp_path)


def test_without_the_field_nothing_is_attempted(world: World) -> None:
    world.give()
    world.subject.step()
    assert world.attempts == 0 and world.subject.status() is None


def test_one_that_is_done_ends_the_driver(world: World) -> None:
    world.give(cutover={"acceptMissing": True, "verifiedWithin": "2h"})
    with pytest.raises(CutOver, match="programs may write to"):
        world.subject.step()
    assert (world.options.accept_missing, world.options.verified_within, world.options.stopped) == (True, 7200.0, False)
    told = world.subject.status()
    assert told is not None and told.fault is None


def test_a_refusal_is_said_and_tried_again_after_growing_pauses(world: World) -> None:
    world.refuse(Retry("table a is SNAPSHOTTING", "Wait."))
    times = []
    while world.now < 300:
        before = world.attempts
        world.subject.step()
        times += [world.now] if world.attempts > before else []
        world.now += 0.5
    told = world.subject.status()
    assert told is not None and told.fault is not None
    assert (told.fault.name, told.fault.fix) == ("Retry", "Wait.")
    assert len(times) < 15 and max(b - a for a, b in pairwise(times)) <= 61


def test_tables_that_differ_are_not_compared_every_minute(world: World) -> None:
    world.refuse(CopyDiffers("not equal to the source: a"))
    while world.now < 1300:
        world.subject.step()
        world.now += 1
    assert world.attempts == 3
    world.give(cutover={"verifiedWithin": "1h"})
    world.subject.step()
    assert world.attempts == 4, "a new manifest is tried at once"


def test_a_right_that_is_missing_does_not_end_the_replication(world: World) -> None:
    world.refuse(SourceRefused("permission denied for sequence a", "Run `GRANT`."))
    world.subject.step()
    told = world.subject.status()
    assert told is not None and told.fault is not None and told.fault.fix == "Run `GRANT`."
    world.now += 100
    world.refuse(Fenced("another driver"))
    with pytest.raises(Fenced):
        world.subject.step()


@pytest.mark.parametrize("how", ["withdrawn", "changed", "shutdown"])
def test_an_attempt_that_waits_ends_with_the_manifest_or_the_driver(world: World, how: str) -> None:
    def act(cutover: Any) -> None:
        cutover.say("waiting: a session may write")
        match how:
            case "withdrawn":
                world.give()
            case "changed":
                world.give(cutover={"acceptMissing": True})
            case _:
                world.ends = True
        cutover.sleep(0.2)
        pytest.fail("it continues")

    world.act = act
    world.subject.step()
    assert world.attempts == 1 and world.now >= 1.0


def test_tables_are_compared_in_requests_that_are_not_too_long(world: World) -> None:
    asked: list[tuple[str, ...]] = []

    def request(snapshot_id: str, body: Any) -> Any:
        asked.append(body.spec.tables)
        assert body.spec.mode == "Verify"
        return SimpleNamespace(id=snapshot_id)

    world.control.status = lambda: SimpleNamespace(snapshots=())
    world.control.request, world.control.report = request, verified
    verify(world, [f"s.t{n}" for n in range(1500)])
    assert [len(part) for part in asked] == [1000, 500]


def test_a_comparison_that_is_under_way_is_waited_for(world: World) -> None:
    reports = iter([verified(OWN, "Running"), verified(OWN, "Running"), verified(OWN)])
    world.control.status = lambda: SimpleNamespace(snapshots=(comparison(OWN),))
    world.control.report = lambda id_: next(reports)
    verify(world, ["s.a"])
    assert next(reports, None) is None


def test_a_comparison_that_somebody_has_paused_is_named(world: World) -> None:
    paused = comparison(OWN, "Paused")
    world.control.status = lambda: SimpleNamespace(snapshots=(paused,))
    world.control.report = lambda id_: verified(id_, "Paused")
    world.act = lambda cutover: world.driver.verify(["s.a"])
    world.subject.step()
    told = world.subject.status()
    assert told is not None and told.fault is not None and told.fault.name == "CutoverRefused"
    assert told.fault.message == f"the comparison {OWN} of this cutover is paused" and OWN in told.fault.fix


@pytest.mark.parametrize("name", ["cutover-check", f"{OWN}-again"])
def test_a_user_s_request_with_such_a_name_is_not_waited_for(world: World, name: str) -> None:
    asked: list[str] = []

    def request(snapshot_id: str, body: Any) -> Any:
        asked.append(snapshot_id)
        return SimpleNamespace(id=snapshot_id)

    world.control.status = lambda: SimpleNamespace(snapshots=(comparison(name, "Paused"),))
    world.control.request = request
    world.control.report = lambda id_: verified(id_, "Completed" if id_ in asked else "Paused")
    verify(world, ["s.a"])
    assert len(asked) == 1


def test_rows_that_differ_end_the_attempt(world: World) -> None:
    wrong = TableReport(name="s.a", finished=True, compared=ComparedRows(rows=2, missing=1), differences=(), fault=None)
    world.control.status = lambda: SimpleNamespace(snapshots=())
    world.control.request = lambda id_, body: SimpleNamespace(id=id_)
    world.control.report = lambda id_: verified(id_, tables=(wrong,))
    world.act = lambda cutover: world.driver.verify(["s.a"])
    world.subject.step()
    told = world.subject.status()
    assert told is not None and told.fault is not None and told.fault.name == "CopyDiffers"


def comparison(snapshot_id: str, state: Any = "Running") -> SnapshotStatus:
    return SnapshotStatus(id=snapshot_id, name=snapshot_id, reason="requested", verify=True, state=state)


def verified(snapshot_id: str, state: Any = "Completed", tables: tuple[TableReport, ...] = ()) -> VerificationReport:
    return VerificationReport(id=snapshot_id, state=state, sample=None, tables=tables, repairs=0, repairs_left=0)


def verify(world: World, tables: Sequence[str]) -> None:
    """As an attempt does."""
    world.act = lambda cutover: world.driver.verify(tables)
    with pytest.raises(CutOver):
        world.subject.step()
