from dataclasses import replace
from typing import cast

import pytest

from tailrace.apply.progress import Progress, TableProgress
from tailrace.capture.client import CaptureClient
from tailrace.changelog.records.tables import Applied
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.state import LogState, TableLog
from tailrace.contract.status import Fault
from tailrace.driver.telling.applied_report import Reporter
from tailrace.errors import Retry


class Client:
    def __init__(self) -> None:
        self.told: list[tuple[Applied, ...]] = []
        self.cut_off: list[int] = []
        self.away = False

    def report_applied(self, tables: list[Applied], cut_off: list[int]) -> None:
        if self.away:
            raise Retry("capture is starting")
        self.cut_off = cut_off
        self.told.append(tuple(tables))


def log(table: TableLog) -> LogState:
    return LogState.model_construct(tables={table.table_id: table})


def test_capture_hears_of_commits_only_and_again_after_it_was_away() -> None:
    now, client = [0.0], Client()
    progress = Progress(lambda: now[0])
    reporter = Reporter(cast(CaptureClient, client), progress, lambda: 60.0, lambda: now[0])
    state = log(TableLog.model_construct(table_id=7))
    reporter.report(state)
    assert client.told == []
    progress.put(7, TableProgress(applied_seq=Seq(4), applied_record=RecordNumber(9), committed_record=RecordNumber(8)))
    now[0] += 3
    client.away = True
    reporter.report(state)
    client.away = False
    now[0] += 3
    reporter.report(state)
    told = (Applied(table_id=7, applied_seq=Seq(4), applied_record=RecordNumber(9)),)
    assert client.told == [told]
    now[0] += 3
    reporter.report(state)
    assert client.told == [told, told], "capture may have died before it was recorded"
    state = log(TableLog.model_construct(table_id=7, applied_seq=4, applied_record=9))
    progress.put(
        7, TableProgress(applied_seq=Seq(4), applied_record=RecordNumber(12), committed_record=RecordNumber(8))
    )
    now[0] += 3
    reporter.report(state)
    assert len(client.told) == 2, "a record that brought the table nothing calls for no report"


def test_a_report_looks_at_the_tables_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    now, client, progress = [0.0], Client(), Progress(lambda: 0.0)
    reporter = Reporter(cast(CaptureClient, client), progress, lambda: 60.0, lambda: now[0])
    tables = {i: TableLog.model_construct(table_id=i, applied_record=8, applied_seq=4) for i in range(50)}
    held = TableProgress(applied_seq=Seq(4), applied_record=RecordNumber(9), committed_record=RecordNumber(8))
    for table_id in tables:
        progress.put(table_id, held)
    reporter.report(LogState.model_construct(tables=tables))
    asked: list[int] = []
    known = progress.of

    def of(table_id: int) -> TableProgress:
        asked.append(table_id)
        return known(table_id)

    monkeypatch.setattr(progress, "of", of)
    monkeypatch.setattr(progress, "all", lambda: pytest.fail("all tables are looked at"))
    progress.put(7, replace(held, committed_record=RecordNumber(10)))
    again = TableLog.model_construct(table_id=9, applied_record=0, applied_seq=0)  # it was added again
    for state in [LogState.model_construct(tables={**tables, 9: again})] * 2:
        now[0] += 3
        reporter.report(state)
        assert {one.table_id for one in client.told[-1]} == {7, 9}
    assert sorted(asked) == [7, 7, 9, 9]


def test_a_table_that_fails_for_longer_than_the_retry_time_is_reported_as_cut_off_until_it_heals() -> None:
    now, client = [0.0], Client()
    progress = Progress(lambda: now[0])
    reporter = Reporter(cast(CaptureClient, client), progress, lambda: 60.0, lambda: now[0])
    state = log(TableLog.model_construct(table_id=7))
    for now[0] in (10.0, 50.0, 69.0):
        progress.fail(7, Fault(name="Retry", message="m", since=now[0]), stopped=False)
        reporter.report(state)
    assert client.cut_off == [], "not yet"
    now[0] = 75.0
    reporter.report(state)
    assert client.cut_off == [7]
    client.cut_off = []  # capture has started again
    now[0] = 78.0
    reporter.report(state)
    assert client.cut_off == [7]
    progress.put(7, TableProgress())
    now[0] = 80.0
    reporter.report(state)
    assert client.cut_off == []


def test_a_clock_that_is_set_neither_cuts_a_table_off_nor_spares_one() -> None:
    wall, now, client = [1e9], [0.0], Client()
    progress = Progress(lambda: now[0])
    reporter = Reporter(cast(CaptureClient, client), progress, lambda: 60.0, lambda: now[0])
    state = log(TableLog.model_construct(table_id=7))

    def fails(seconds: float) -> list[int]:
        now[0] += seconds
        progress.fail(7, Fault(name="Retry", message="m", since=wall[0]), stopped=False)
        reporter.report(state)
        return client.cut_off

    assert fails(0) == []
    wall[0] += 86_400
    assert fails(10) == [], "set forward by a day"
    wall[0] -= 10 * 86_400
    assert fails(45) == []
    assert fails(10) == [7], "set back"
    progress.put(7, TableProgress())
    wall[0] += 1
    assert fails(10) == [], "it was well in between, however short the time"


def test_a_table_that_fails_with_two_names_in_turn_is_cut_off_like_any_other() -> None:
    """The retry time began again with each change of the name."""
    now, client = [0.0], Client()
    progress = Progress(lambda: now[0])
    reporter = Reporter(cast(CaptureClient, client), progress, lambda: 60.0, lambda: now[0])
    state = log(TableLog.model_construct(table_id=7))
    for number in range(8):
        now[0] = 10.0 + 9 * number
        name = ("Retry", "OutcomeUnknown")[number % 2]
        progress.fail(7, Fault(name=name, message="m", since=now[0]), stopped=False)
        reporter.report(state)
    assert client.cut_off == [7]
    fault = progress.of(7).fault
    assert fault is not None and (fault.name, fault.since, fault.count) == ("OutcomeUnknown", 10.0, 8)
    progress.put(7, TableProgress())
    progress.fail(7, Fault(name="Retry", message="m", since=now[0]), stopped=False)
    now[0] += 9
    reporter.report(state)
    assert client.cut_off == [], "the retry time begins again after a success"
