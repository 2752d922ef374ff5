"""Copies that their target stops: recorded once for each stop, over restarts, and told as notifications."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from support.journals import table_schema
from support.origins import origin
from tailrace.apply.progress import TableProgress
from tailrace.capture.client import CaptureClient
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records import Event
from tailrace.changelog.records.tables import TableAdded, TableRemoved, TableStopped
from tailrace.changelog.records.terms import Position, RecordNumber, Seq
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.faults import fault_of
from tailrace.contract.resources import StorageLocation
from tailrace.driver.asking.control import DriverControl
from tailrace.driver.telling.copy_stops import SETTLE_SECONDS, CopyStops
from tailrace.driver.telling.notices import notices
from tailrace.errors import (
    Fenced,
    Retry,
    StorageFull,
    TableStop,
    TailraceError,
    TargetChanged,
    TargetRefused,
    Where,
    met_at,
)
from tailrace.storage.store import Storage

CHANGED = TargetChanged("public.t1", "public.t1 was replaced", "Resync it.")
WELL = TableProgress(applied_record=RecordNumber(1))


class Driver:
    """A real journal with three tables, and drivers over it."""

    def __init__(self, folder: Path) -> None:
        self._place = StorageLocation(location=(folder / "log").as_uri())
        self._writer = JournalWriter.create(Storage.open(self._place), origin("log"), Position(1), "capture")
        self.append([TableAdded(table=table_schema(number), edge="5") for number in (1, 2, 3)])
        self.told: list[dict[str, Any]] = []
        self.away = False
        self.now = 0.0
        self.life()

    def life(self) -> None:
        """Another process, which knows nothing of its tables yet."""
        self._journal = SharedJournal(JournalReader.open(Storage.open(self._place)))
        self._journal.follow(lambda record, state: self.told.extend(map(_document, notices("shop", record, state))))
        self.control = DriverControl("shop")
        self.control.journal, self.control.client = self._journal, cast(CaptureClient, self)
        self.stops = CopyStops(lambda: self.now)

    def append(self, events: list[Event]) -> RecordNumber:
        if getattr(self, "away", False):
            raise Retry("capture is away")
        return self._writer.append(self._writer.state.position, events=tuple(events)).number

    def has(self, *events: Event) -> None:
        self.append(list(events))
        self._journal.look()

    def fails(self, table: int, error: TailraceError, *, exhausted: bool = False, where: Where = "target") -> None:
        """As the applier notes it."""
        try:
            with met_at(where):
                raise error
        except TailraceError as met:
            away = isinstance(met, Retry) and met.away
            stopped = exhausted or not isinstance(met, Retry)
            self.control.progress.fail(table, fault_of(met, self.now), stopped, away=away)

    def works(self, *tables: int) -> None:
        for table in tables:
            self.control.progress.put(table, WELL)

    def turn(self) -> list[tuple[str, str]]:
        """Looks until all is told; returns the events, by type and subject."""
        before = len(self.told)
        for _ in range(3):
            self.stops.step(self.control)
            self.now += SETTLE_SECONDS
        return [(event["type"].removeprefix("dev.tailrace."), event["subject"]) for event in self.told[before:]]

    def tables(self) -> list[str]:
        """Those of the last event."""
        return cast(list[str], self.told[-1]["data"]["tables"])


def _document(notice: Any) -> dict[str, Any]:
    return cast(dict[str, Any], json.loads(notice.body))


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


def test_a_table_that_its_target_stops_is_told_once_with_its_error(driver: Driver) -> None:
    driver.works(2, 3)
    driver.fails(1, CHANGED)
    assert driver.turn() == [("table.stopped", "public.t1")]
    data = driver.told[-1]["data"]
    assert (data["table"], data["error"], data["message"]) == ("public.t1", "TargetChanged", CHANGED.message)
    assert (data["fix"], data["where"], data["replicator"]) == (CHANGED.fix, "target", "shop")
    for _ in range(3):
        driver.fails(1, CHANGED)  # it is tried again
        assert driver.turn() == []
    driver.works(1)
    assert driver.turn() == [("table.resumed", "public.t1")]
    assert driver.told[-1]["data"]["error"] == "TargetChanged"
    assert driver.turn() == []
    driver.fails(1, CHANGED)
    assert driver.turn() == [("table.stopped", "public.t1")], "another stop"


def test_a_table_that_is_retried_or_stopped_for_a_moment_is_told_of_by_no_event(driver: Driver) -> None:
    driver.fails(1, Retry("the connection was reset"))
    assert driver.turn() == []
    driver.fails(1, CHANGED)
    driver.stops.step(driver.control)
    driver.works(1)
    assert driver.turn() == []


def test_a_stop_that_outlasts_a_process_is_not_told_again_and_its_end_is(driver: Driver) -> None:
    driver.fails(1, CHANGED)
    driver.stops.step(driver.control, last=True)
    assert [event["type"] for event in driver.told[-1:]] == ["dev.tailrace.table.stopped"]
    driver.life()
    assert driver.turn() == [], "nothing is known of it yet"
    driver.fails(1, CHANGED)
    assert driver.turn() == []
    driver.life()
    driver.works(1, 2, 3)
    assert driver.turn() == [("table.resumed", "public.t1")]


def test_what_capture_cannot_record_is_told_later(driver: Driver) -> None:
    driver.fails(1, CHANGED)
    driver.away = True
    assert driver.turn() == []
    driver.away = False
    assert driver.turn() == [("table.stopped", "public.t1")]


def test_a_place_that_is_away_is_one_stop_however_many_tables_meet_it_and_when(driver: Driver) -> None:
    for table in (1, 2):
        driver.fails(table, Retry.of_place(f"the server closed the connection of public.t{table}"), exhausted=True)
    assert driver.turn() == [("tables.stopped", "target")]
    data = driver.told[-1]["data"]
    assert (data["tables"], data["tablesTotal"], data["error"]) == (["public.t1", "public.t2"], 2, "Retry")
    driver.fails(3, Retry.of_place("timeout"), exhausted=True)
    assert driver.turn() == []
    driver.works(1, 3)
    assert driver.turn() == [], "the last one is still stopped"
    driver.works(2)
    assert driver.turn() == [("tables.resumed", "target")]
    assert driver.told[-1]["data"]["tables"] == ["public.t1", "public.t2", "public.t3"]


def test_a_full_place_is_told_as_one_even_by_a_single_table(driver: Driver) -> None:
    driver.works(2, 3)
    driver.fails(1, StorageFull("no room at /lake/public/t1"), exhausted=True)
    assert driver.turn() == [("tables.stopped", "target")]
    driver.fails(1, CHANGED)
    assert driver.turn() == [("table.stopped", "public.t1")], "there is room, and no table has resumed"
    assert [stop.error for stop in driver._journal.state.copy_stops.values()] == ["TargetChanged"]
    driver.works(1)
    assert driver.turn() == [("table.resumed", "public.t1")]


def test_a_table_that_fails_alone_once_the_place_is_back_holds_up_no_other_and_is_told(driver: Driver) -> None:
    for table in (1, 2, 3):
        driver.fails(table, Retry.of_place("the server is away"), exhausted=True)
    assert driver.turn() == [("tables.stopped", "target")]
    driver.works(2, 3)
    value = Retry("column x of public.t1 has a value that its type does not take", "Make the type wider.")
    driver.fails(1, value)
    assert driver.turn() == [], "as long as it is only retried, no other event would tell of it"
    driver.fails(1, value, exhausted=True)
    assert driver.turn() == [("table.stopped", "public.t1"), ("tables.resumed", "target")]
    assert driver.told[-2]["data"]["fix"] == value.fix and driver.tables() == ["public.t2", "public.t3"]
    for _ in range(3):
        driver.fails(1, Retry.of_place("the server closed the connection"), exhausted=True)
        assert driver.turn() == []
        driver.fails(1, value, exhausted=True)
        assert driver.turn() == []
    driver.works(1)
    assert driver.turn() == [("table.resumed", "public.t1")]
    assert driver._journal.state.copy_stops == {}


def test_two_places_that_are_away_are_two_stops(driver: Driver) -> None:
    target, storage = Retry.of_place("the target is away"), Retry.of_place("503 from the object store")
    for table in (1, 2, 3):
        driver.fails(table, target, exhausted=True)
    assert driver.turn() == [("tables.stopped", "target")]
    for _ in range(2):
        for table in (2, 3):
            driver.fails(table, storage, exhausted=True, where="storage")
        told = driver.turn()
        assert told in ([("tables.stopped", "storage")], []), "the target has not been seen to answer"
        for table in (2, 3):
            driver.fails(table, target, exhausted=True)
        assert driver.turn() == []
    for table in (2, 3):
        driver.fails(table, storage, exhausted=True, where="storage")
    driver.works(1)
    assert driver.turn() == [("tables.resumed", "target")]
    assert driver.tables() == ["public.t1"]
    driver.works(2, 3)
    assert driver.turn() == [("tables.resumed", "storage")]
    assert driver.tables() == ["public.t2", "public.t3"]


def test_a_table_that_resumed_after_an_error_alone_is_not_told_again_with_those_it_was_stopped_with(
    driver: Driver,
) -> None:
    refused = TargetRefused("/lake/public may not be written", "Grant it.")
    for table in (1, 2, 3):
        driver.fails(table, refused)
    assert driver.turn() == [("tables.stopped", "target")]
    driver.fails(1, CHANGED)
    assert driver.turn() == [("table.stopped", "public.t1")]
    driver.works(1)
    assert driver.turn() == [("table.resumed", "public.t1")]
    driver.fails(1, refused)
    assert driver.turn() == [("table.stopped", "public.t1")], "another stop"
    driver.works(1)
    assert driver.turn() == [("table.resumed", "public.t1")]
    driver.life()
    driver.works(1, 2, 3)
    assert driver.turn() == [("tables.resumed", "target")]
    assert driver.tables() == ["public.t2", "public.t3"]


def test_a_table_of_two_stops_that_end_together_resumes_once(driver: Driver) -> None:
    for table in (1, 2):
        driver.fails(table, TargetRefused("/lake/public may not be written"))
    driver.turn()
    driver.fails(1, CHANGED)
    assert driver.turn() == [("table.stopped", "public.t1")]
    driver.works(1, 2)
    assert driver.turn() == [("tables.resumed", "target"), ("table.resumed", "public.t1")]
    assert driver.told[-2]["data"]["tables"] == ["public.t2"]
    for table in (1, 3):
        driver.fails(table, TargetRefused("/lake/public may not be written"))
    driver.turn()
    for table in (1, 2):
        driver.fails(table, StorageFull("no room"), exhausted=True)
    assert driver.turn() == [("tables.stopped", "target")]
    driver.works(1, 2, 3)
    assert driver.turn() == [("tables.resumed", "target")] * 2
    assert [event["data"]["tables"] for event in driver.told[-2:]] == [["public.t3"], ["public.t1", "public.t2"]]


def test_refusals_of_several_tables_in_the_same_words_are_one_event_and_others_are_not(driver: Driver) -> None:
    for table in (1, 2):
        driver.fails(table, TargetRefused(f"/lake/public/t{table} may not be written", "Grant it."))
    driver.fails(3, TargetRefused("a view is in the way of public.t3"))
    assert driver.turn() == [("tables.stopped", "target"), ("table.stopped", "public.t3")]
    assert driver.told[-2]["data"]["tables"] == ["public.t1", "public.t2"]
    driver.works(3)
    assert driver.turn() == [("table.resumed", "public.t3")]


def test_another_error_of_a_stopped_table_is_told_and_none_twice(driver: Driver) -> None:
    driver.fails(1, TargetRefused("no right to write public.t1"))
    assert driver.turn() == [("table.stopped", "public.t1")]
    driver.fails(1, CHANGED)
    assert driver.turn() == [("table.stopped", "public.t1")]
    driver.fails(1, TargetRefused("no right to write public.t1"))
    assert driver.turn() == []
    driver.works(1)
    assert driver.turn() == [("table.resumed", "public.t1")], "one end, whatever the errors were"
    assert driver.told[-1]["data"]["error"] == "TargetChanged"
    assert driver._journal.state.copy_stops == {}


def test_a_table_that_starts_over_has_no_stop_and_one_that_the_source_stops_is_told_by_that(driver: Driver) -> None:
    driver.fails(1, CHANGED)
    driver.turn()
    gone = TableRemoved(table_id=1, reason="it starts over")
    driver.has(gone, TableAdded(table=table_schema(1, version=2), edge="5", resync="again"))
    driver.control.progress.forget(1)
    assert driver.turn() == []
    assert driver._journal.state.copy_stops == {}
    driver.fails(1, CHANGED)
    assert driver.turn() == [("table.stopped", "public.t1")]
    stop = TableStopped(table_id=2, seq=Seq(0), error="NoKey", message="no key", fix="Add one.", where="source")
    driver.has(stop)
    driver.fails(2, TableStop("public.t2", "what it lacks is gone"))
    assert driver.turn() == []


def test_an_error_that_ends_the_process_is_none_of_a_table(driver: Driver) -> None:
    driver.fails(1, Fenced("another driver has taken over"))
    assert driver.turn() == []


def test_an_event_has_the_same_id_however_often_it_is_told(driver: Driver) -> None:
    driver.fails(1, CHANGED)
    driver.turn()
    first = driver.told[-1]
    assert first["id"] == f"log/{first['data']['record']}/0"
