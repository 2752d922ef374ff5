"""The cuts of a driver, with a capture and a target in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest

from support.journals import Journal, table_schema
from tailrace.apply.progress import HeldCut, Progress, TableProgress
from tailrace.capture.client import CaptureClient
from tailrace.changelog import cuts
from tailrace.changelog.records import Event
from tailrace.changelog.records.tables import TableAdded, TableRemoved
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState, fold
from tailrace.cli import cut_text
from tailrace.contract.settings import CutsSpec
from tailrace.contract.status import Fault
from tailrace.driver.asking.cuts import CutKeeper
from tailrace.driver.asking.server import Conflict, Unknown
from tailrace.driver.telling import display, metrics
from tailrace.driver.telling.status import Moment, assemble
from tailrace.errors import InvalidManifest, Retry
from tailrace.targets.api import Target


class World:
    """Journal, capture and target; tables 1 and 2 were read whole."""

    def __init__(self) -> None:
        self._journal = Journal(Random(1))
        self.state = fold(LogState(), self._journal.origin())
        self.append([TableAdded(table=table_schema(i), edge="5") for i in (1, 2)])
        read = {i: t.model_copy(update={"read_record": 1}) for i, t in self.state.tables.items()}
        read = {i: t.model_copy(update={"added_record": 0}) for i, t in read.items()}
        self.state = self.state.model_copy(update={"tables": read})
        self.files: dict[str, Mapping[str, Any]] = {"left": {}}

    def append(self, events: Sequence[Event]) -> RecordNumber:
        self.state = fold(self.state, self._journal.plain(events=tuple(events)))
        return self.state.number

    def refresh(self) -> LogState:
        return self.state

    def show_cut(self, log_id: str, name: str, document: Mapping[str, Any] | None) -> None:
        self.files.pop(name, None)
        if document is not None:
            self.files[name] = document

    def shown_cuts(self, log_id: str) -> list[str]:
        return list(self.files)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def progress() -> Progress:
    return Progress()


@pytest.fixture
def keeper(world: World, progress: Progress) -> CutKeeper:
    journal, client = cast(SharedJournal, world), cast(CaptureClient, world)
    return CutKeeper(journal, client, progress, cast(Target, world), text=lambda at: f"at {at}")


def test_what_tables_come_to_is_noted_once_and_shown(world: World, progress: Progress, keeper: CutKeeper) -> None:
    made = keeper.make("noon")
    assert (made.record, made.position) == (world.state.number, f"at {world.state.position}")
    assert (made.complete, made.waits) == (False, True)
    progress.hold("noon", 1, HeldCut(12))
    progress.hold("noon", 2, HeldCut(why="rows were withheld"))
    keeper.step()
    number = world.state.number
    keeper.step()
    assert (world.state.number, progress.held()) == (number, {})
    (cut,) = keeper.reports()
    assert (cut.complete, cut.waits) == (False, False)
    assert [(t.name, t.version, t.why) for t in cut.tables] == [
        ("public.t1", "12", None),
        ("public.t2", None, "rows were withheld"),
    ]
    shown = world.files["noon"]
    assert (shown["complete"], shown["tables"]) == (False, {"public.t1": {"location": "public/t1", "version": 12}})
    assert shown["without"] == {"public.t2": "rows were withheld"}
    assert world.files.keys() == {"noon"}, "what a dropped cut had left is gone"
    lines = list(cut_text.lines(cut))
    assert lines[0].startswith(f"noon: incomplete; record {cut.record}, position at {world.state.position}, ")
    assert lines[1:] == ["  public.t1: version 12", "  public.t2: not in it: rows were withheld"]


def test_a_version_that_another_program_deleted_is_shown_no_longer(
    world: World, progress: Progress, keeper: CutKeeper
) -> None:
    keeper.make("noon")
    progress.hold("noon", 1, HeldCut(12))
    progress.hold("noon", 2, HeldCut(7))
    keeper.step()
    assert world.files["noon"]["complete"]
    for _ in range(2):  # and once more, by a table that is opened again
        progress.hold("noon", 1, HeldCut(why=cuts.MADE_AGAIN))
        keeper.step()
        keeper.step()
        shown = world.files["noon"]
        assert (shown["complete"], list(shown["tables"])) == (False, ["public.t2"])
        assert (shown["without"], progress.held()) == ({"public.t1": cuts.MADE_AGAIN}, {})


def test_a_cut_says_which_tables_it_waits_for_and_which_never_come(
    world: World, progress: Progress, keeper: CutKeeper
) -> None:
    keeper.make("noon")
    progress.put(1, TableProgress(fault=Fault(name="Retry", message="away", since=0, where="target")))
    world.append([TableRemoved(table_id=2, reason="dropped"), TableAdded(table=table_schema(3), edge="5")])
    (cut,) = keeper.reports()
    assert [(t.name, t.why, t.waits) for t in cut.tables] == [
        ("public.t1", "it is failing: Retry: away", False),
        ("public.t2", "it was dropped before it came to the cut", False),
        ("public.t3", "it was added later", False),
    ]
    assert list(cut_text.listing([cut]))[1] == "  public.t1: not in it: it is failing: Retry: away"


def test_a_dropped_cut_is_no_longer_kept_or_shown(world: World, progress: Progress, keeper: CutKeeper) -> None:
    keeper.make("noon")
    keeper.step()
    progress.hold("noon", 1, HeldCut(12))
    keeper.drop("noon")
    keeper.step()
    assert (keeper.reports(), world.files, progress.held()) == ((), {}, {})
    assert list(cut_text.listing([])) == ["no cuts"]


def test_bad_names_are_refused_and_nothing_is_recorded(world: World, keeper: CutKeeper) -> None:
    keeper.make("noon")
    number = world.state.number
    with pytest.raises(Conflict, match=r"there is a cut 'noon'.*tailrace cut -f <manifest> --drop noon"):
        keeper.make("noon")
    for name in ("Noon", "no on", "", "_x", "x" * 64, "a/b"):
        with pytest.raises(InvalidManifest, match="lower-case letters, digits and _"):
            keeper.make(name)
    with pytest.raises(Unknown, match=r"there is no cut 'nine'.*The newest are noon"):
        keeper.drop("nine")
    world.state = world.state.model_copy(update={"tables": {}})
    with pytest.raises(Retry, match="no table is captured yet"):
        keeper.make("nothing")
    assert world.state.number == number


def test_the_clock_makes_cuts_and_drops_the_oldest_of_its_own(world: World, progress: Progress) -> None:
    now: list[float] = [1_000_000.0]
    spec: list[CutsSpec | None] = [CutsSpec(every="15m", keep=2)]
    journal, client = cast(SharedJournal, world), cast(CaptureClient, world)
    keeper = CutKeeper(
        journal, client, progress, cast(Target, world), text=str, spec=lambda: spec[0], clock=lambda: now[0]
    )

    def at(seconds: float) -> list[str]:
        """A step at this time, by which the journal's writer goes, too."""
        now[0] = 1_000_000.0 + seconds
        before = set(world.state.cuts)
        keeper.step()
        made = {n: c.model_copy(update={"made_at": int(now[0] * 1e6)}) for n, c in world.state.cuts.items()}
        changes = {"cuts": {n: made[n] if n not in before else c for n, c in world.state.cuts.items()}}
        world.state = world.state.model_copy(update=changes)
        return list(world.state.cuts)

    assert at(0) == ["19700112_134640"]
    keeper.make("by_name")
    assert len(at(899)) == 2
    assert at(900) == ["19700112_134640", "by_name", "19700112_140140"]
    assert at(1800) == ["by_name", "19700112_140140", "19700112_141640"]
    assert world.files.keys() == set(at(1801))
    assert at(-5000)[-1] == "19700112_122320", "a clock that was set back"
    spec[0] = CutsSpec(keep=1)
    assert at(-4999) == ["by_name", "19700112_122320"]
    spec[0] = None
    assert at(9999) == ["by_name", "19700112_122320"]


def test_no_cut_is_made_before_a_table_was_read(world: World, progress: Progress) -> None:
    unread = {i: table.model_copy(update={"read_record": -1}) for i, table in world.state.tables.items()}
    world.state = world.state.model_copy(update={"tables": unread})
    journal, client = cast(SharedJournal, world), cast(CaptureClient, world)
    CutKeeper(journal, client, progress, cast(Target, world), text=str, spec=CutsSpec).step()
    assert world.state.cuts == {}


def test_status_metrics_and_display_have_the_last_cut(world: World, progress: Progress, keeper: CutKeeper) -> None:
    moment = Moment(name="shop", now=1_000.0, started_at=1.0, log=world.state)
    assert assemble(moment).cuts is None
    keeper.make("noon")
    keeper.make("nine")
    progress.hold("nine", 1, HeldCut(12))
    progress.hold("nine", 2, HeldCut(13))
    keeper.step()
    status = assemble(replace(moment, log=world.state))
    assert status.cuts is not None
    assert (status.cuts.kept, status.cuts.last, status.cuts.complete) == (2, "nine", True)
    text = metrics.render(status).decode()
    assert "tailrace_cuts_kept 2.0" in text and f"tailrace_cut_last_timestamp_seconds {status.cuts.made}" in text
    assert str(display._cuts(status)[0]).startswith("2 cuts, the last (nine, complete) ")
