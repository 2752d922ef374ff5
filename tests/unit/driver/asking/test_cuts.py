"""The cuts of a driver, with a capture and a target in memory."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, cast

import pytest

from support.journals import Journal, table_schema
from tailrace.apply.progress import HeldCut, Progress, TableProgress
from tailrace.capture.client import CaptureClient
from tailrace.changelog.records import Event
from tailrace.changelog.records.tables import TableAdded, TableRemoved
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState, fold
from tailrace.cli import cut_text
from tailrace.contract.status import Fault
from tailrace.driver.asking.cuts import CutKeeper
from tailrace.driver.asking.server import Conflict, Unknown
from tailrace.errors import InvalidManifest
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
    with pytest.raises(Conflict, match=r"there is a cut 'noon'.*tailrace cut --drop noon"):
        keeper.make("noon")
    for name in ("Noon", "no on", "", "_x", "x" * 64, "a/b"):
        with pytest.raises(InvalidManifest, match="lower-case letters, digits and _"):
            keeper.make(name)
    with pytest.raises(Unknown, match=r"there is no cut 'nine'.*The newest are noon"):
        keeper.drop("nine")
    assert world.state.number == number
