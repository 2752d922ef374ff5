import io
import re
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console
from typing_extensions import override

from support.origins import origin
from support.states import chunk, keyed, segment, table_log
from support.states import log_state as log
from support.states import snapshot as of_plan
from tailrace import logs
from tailrace.apply.progress import Progress, TableProgress
from tailrace.capture.protocol import StateAnswer
from tailrace.changelog.append_list import AppendList
from tailrace.changelog.logged import KEPT_SNAPSHOTS
from tailrace.changelog.packed import PackedRows
from tailrace.changelog.records.snapshots import (
    PlannedRewind,
    ReadFailure,
    SnapshotEnded,
    SnapshotPlanned,
    SnapshotTableFinished,
)
from tailrace.changelog.records.tables import TableStopped
from tailrace.changelog.records.terms import Position, RecordNumber, Seq
from tailrace.changelog.snapshot_map import SnapshotMap
from tailrace.changelog.state import (
    LoggedCascade,
    LoggedChunk,
    LoggedFinish,
    LoggedSegment,
    LogState,
    SegmentList,
    SnapshotState,
    SnapshotTable,
    TableLog,
)
from tailrace.contract.status import Fault, SnapshotStatus, SnapshotTableProgress, Status, TableCounters, TableStatus
from tailrace.contract.status import SnapshotState as SnapshotWord
from tailrace.driver.telling import display, metrics
from tailrace.driver.telling.rates import Rate
from tailrace.driver.telling.status import Moment, assemble
from tailrace.errors import RESYNC, privacy
from tailrace.snapshot.chunks import Phase, TableRun
from tailrace.snapshot.ranges import Range

ANSWER = StateAnswer(
    record=RecordNumber(9), epoch=1, position=Position(0x16B374D848), behind_bytes=0xB8, lag_seconds=0.5
)


def table(table_id: int, *records: int, **more: Any) -> TableLog:
    segments = [LoggedSegment(record=RecordNumber(r), segment=segment(table_id, r, inserts=1)) for r in records]
    return table_log(keyed(table_id), segments=SegmentList.of(segments), **more)


def moment(log: LogState, **more: object) -> Moment:
    values: dict[str, object] = {
        "name": "shop",
        "now": 100.0,
        "started_at": 1.0,
        "log": log,
        "capture": ANSWER,
        "position_text": hex,
    }
    return Moment(**(values | more))  # type: ignore[arg-type]  # fields by name


def test_a_table_s_lag_is_the_age_of_its_oldest_commit_that_is_not_applied() -> None:
    state = log(table(7, 3, 6), table(8, 3), commit_times=PackedRows.of(np.array([(3, 40_000_000), (6, 90_000_000)])))
    progress = dict.fromkeys((7, 8), TableProgress(applied_record=RecordNumber(5)))
    status = assemble(moment(state, tables=progress))
    assert [(t.name, t.state, t.lag_seconds) for t in status.tables] == [
        ("s.t7", "REPLICATING", 10.0),
        ("s.t8", "REPLICATING", 0.0),
    ]
    assert (status.apply.lag_seconds, status.apply.record) == (10.0, 5)
    assert (status.capture.position, status.capture.lag_bytes) == ("0x16b374d848", 0xB8)


def test_a_child_counts_as_late_until_a_whole_reading_that_began_after_the_cascade_is_applied() -> None:
    def read(first: int, record: int) -> LoggedFinish:
        parts = (LoggedChunk(record=RecordNumber(first), chunk=chunk(7)),)
        return LoggedFinish(
            record=RecordNumber(record), snapshot_id="s", complete=True, replay_point=Seq(1), chunks=parts
        )

    cascades = [LoggedCascade(record=RecordNumber(r), since=since) for r, since in ((3, 40_000_000), (5, 70_000_000))]
    known = table(7, cascades=AppendList(cascades), finishes=(read(4, 6), read(6, 8)))

    def at(record: int) -> Status:
        return assemble(moment(log(known), tables={7: TableProgress(applied_record=RecordNumber(record))}))

    found = {r: (at(r).tables[0].converging_since, at(r).tables[0].lag_seconds) for r in (5, 6, 7, 8)}
    assert found == {5: (40.0, 60.0), 6: (70.0, 30.0), 7: (70.0, 30.0), 8: (None, 0.0)}
    assert 'tailrace_table_converging_seconds{table="s.t7"} 60.0' in metrics.render(at(5)).decode()
    assert 'tailrace_table_converging_seconds{table="s.t7"} 0.0' in metrics.render(at(8)).decode()
    shown = io.StringIO()
    Console(file=shown, width=200).print(display.render(at(5)))
    assert "s.t7 converging for 60.0 s" in shown.getvalue()


def test_one_failing_table_makes_the_whole_failing_and_is_named() -> None:
    progress = Progress()
    progress.put(8, TableProgress(applied_record=RecordNumber(9)))
    progress.fail(7, Fault(name="ForeignChange", message="rows changed", since=50), stopped=True)
    progress.fail(7, Fault(name="ForeignChange", message="rows changed", since=60), stopped=True)
    status = assemble(moment(log(table(7), table(8)), tables=progress.all()))
    assert (status.state, status.tables_failing, status.tables_replicating) == ("Failing", 1, 1)
    assert "s.t7: ForeignChange: rows changed" in status.message
    fault = status.tables[0].fault
    assert fault is not None
    assert (fault.since, fault.count) == (50, 2)


def test_a_table_that_capture_stopped_tells_capture_s_error() -> None:
    stop = TableStopped(
        table_id=7, seq=Seq(1), error="ValueUnsupported", message="numeric NaN", fix="use as", where="capture"
    )
    status = assemble(moment(log(table(7, stopped=stop))))
    assert status.tables[0].state == "STOPPED"
    fault = Fault(name="ValueUnsupported", message="numeric NaN", fix="use as", where="capture")
    assert status.tables[0].fault == fault


def test_columns_with_values_that_became_null_are_named_with_how_many_in_status_view_and_metrics() -> None:
    status = assemble(moment(log(table(7, nulled=(("amount", 3), ("until", 1200))), table(8))))
    assert [(one.column, one.values) for one in status.tables[0].nulled] == [("amount", 3), ("until", 1200)]
    assert status.tables[1].nulled == () and status.tables_failing == 0
    console = Console(file=io.StringIO(), width=200)
    console.print(display.render(status))
    (line,) = [line for line in console.file.getvalue().splitlines() if "became NULL" in line]  # type: ignore[attr-defined]  # a StringIO
    assert "s.t7 values became NULL that their type cannot hold: amount 3, until 1,200" in line
    shown = metrics.render(status).decode()
    assert 'tailrace_table_nulled_values_total{column="until",table="s.t7"} 1200.0' in shown
    assert 'table="s.t8"} 1' not in shown.split("nulled_values_total", 1)[1]


def test_a_running_snapshot_shows_rows_ranges_and_time_left() -> None:
    plan = SnapshotPlanned(snapshot_id="s1", request="again", tables=(7,))
    part = SnapshotTable(table_id=7, started=True, estimated_rows=1000, rows_done=250, chunks_done=2)
    state = log(table(7), snapshots={"s1": of_plan(plan, tables={7: part})})
    run = TableRun("s1", 7, Phase.WALK, reading={3: Range(3, ("5",), ("9",))})
    status = assemble(moment(state, runs={("s1", 7): run}, snapshot_rates={"s1": 50.0}))
    (snapshot,) = status.snapshots
    assert (snapshot.state, snapshot.rows_done, snapshot.seconds_left) == ("Running", 250, 15.0)
    assert snapshot.tables[0].running == (f"({privacy.key('5')}, {privacy.key('9')}]",)
    assert status.tables[0].state == "SNAPSHOTTING"
    console = Console(width=160, record=True, file=None, quiet=False)
    with console.capture() as shown:
        console.print(display.render(status))
    assert "25%" in shown.get()
    assert "250 of about 1,000 rows" in shown.get()
    assert "snapshot again 25% (250 rows)" in display.line(status)


def test_a_snapshot_that_failed_is_shown_to_whoever_asked_for_it() -> None:
    fault = Fault(name="ReadRefused", message="column regio does not exist", fix="Correct where.", where="source")
    one = SnapshotStatus(id="s1", name="again", reason="request", state="Failed", fault=fault)
    status = Status(name="shop", state="Running", started_at=1, updated_at=2, snapshots=(one,))
    assert display.line(status).endswith("snapshot again failed")
    text = shown(status, 160)
    assert "snapshot again failed (source) ReadRefused: column regio does not exist. Fix: Correct where." in text


def test_of_many_rewinds_the_newest_are_shown() -> None:
    """The log remembers a thousand, so that none is repeated."""
    rewind = PlannedRewind(cut="noon", record=RecordNumber(3), asked="cut noon", tables=(7,))
    plans = [SnapshotPlanned(snapshot_id=f"r{n}", request=f"back{n}", tables=(), rewind=rewind) for n in range(60)]
    known = {
        plan.snapshot_id: of_plan(plan, ended=SnapshotEnded(snapshot_id=plan.snapshot_id, outcome="completed"))
        for plan in plans
    }
    status = assemble(moment(log(table(7), snapshots=known)))
    assert [s.id for s in status.snapshots] == [f"r{n}" for n in range(60 - KEPT_SNAPSHOTS, 60)]


def ended(name: str | None, *tables: str, state: SnapshotWord, reason: str = "initial") -> SnapshotStatus:
    fault = Fault(name="SnapshotFailed", message="no right") if state == "Failed" else None
    parts = tuple(SnapshotTableProgress(name=table, finished=True) for table in tables)
    return SnapshotStatus(id="x", name=name, reason=reason, state=state, tables=parts, fault=fault)


def test_a_failed_snapshot_is_shown_until_a_later_one_has_read_its_tables() -> None:
    def told(*snapshots: SnapshotStatus) -> bool:
        known = tuple(TableStatus(name=name, state="REPLICATING") for name in ("s.a", "s.b"))
        both = Status(name="shop", state="Running", started_at=1, updated_at=2, tables=known, snapshots=snapshots)
        assert ("failed" in display.line(both)) == ("no right" in shown(both, 160))
        return "failed" in display.line(both)

    failed, read = ended(None, "s.a", state="Failed"), ended(None, "s.a", state="Completed")
    assert told(failed) and told(read, failed)
    assert not told(failed, read) and not told(failed, ended("mine", "s.a", "s.b", state="Completed"))
    assert told(failed, ended(None, "s.b", state="Completed")), "another table"
    assert told(failed, ended(None, "s.a", state="Completed", reason="repair")), "single rows"
    assert told(ended("mine", "s.a", "s.b", state="Failed"), read), "half of it"
    assert not told(ended(None, "17", state="Failed")), "the table is gone"
    assert told(ended("mine", "17", state="Failed")), "it was asked for"


def shown(status: Status, width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as captured:
        console.print(display.render(status))
    return captured.get()


def test_a_narrow_terminal_shows_fewer_columns_and_none_cut() -> None:
    name = "warehouse.order_items"
    counted = TableCounters(inserts=123456789, updates=23456789, deletes=3456789, snapshot_rows=456789123)
    row = TableStatus(name=name, state="REPLICATING", lag_seconds=0.5, rows_per_second=54321, counters=counted)
    part = SnapshotTableProgress(name=name, running=(f"({privacy.key('5')}, {privacy.key('9')}]",))
    snapshot = SnapshotStatus(
        id="s", name="again", reason="request", state="Running", tables=(part,),
        rows_done=1000, rows_estimated=4000, seconds_left=15.0,
    )  # fmt: skip
    status = Status(
        name="shop", state="Running", started_at=1, updated_at=2, tables=(row,), snapshots=(snapshot,), tables_total=1
    )
    wide, narrow, narrowest = (shown(status, width) for width in (200, 80, 40))
    for cell in (
        "456,789,123",
        "3,456,789",
        f"reading ({privacy.key('5')}, {privacy.key('9')}]",
        "15.0 s left",
        "holes",
    ):
        assert cell in wide
    line = rf"^{re.escape(name)} +REPLICATING +0.5 s +54,321 +123,456,789 +23,456,789 *$"
    assert re.search(line, narrow, re.MULTILINE), narrow
    assert "deletes" not in narrow and "holes" not in narrow and "…" not in narrow
    assert re.search(r"^snapshot again +━+ +25% .*15.0 s left", narrow, re.MULTILINE), narrow
    assert re.search(rf"^{re.escape(name)} +REPLICATING", narrowest, re.MULTILINE), narrowest
    assert all(len(line) <= 40 for line in narrowest.splitlines())


@pytest.mark.parametrize("width", [40, 60])
def test_names_that_are_too_long_for_a_terminal_are_cut_in_the_middle_and_stay_different(width: int) -> None:
    """Partitions and their like differ at the end."""
    names = [f"warehouse.measurements_of_all_stations_and_sensors_{year}" for year in (2024, 2025, 2026)]
    snapshots = tuple(
        SnapshotStatus(id=name, name=name, reason="request", state="Running", rows_done=1, rows_estimated=4)
        for name in names
    )
    rows = tuple(TableStatus(name=name, state="SNAPSHOTTING") for name in names)
    status = Status(name="shop", state="Running", started_at=1, updated_at=2, tables=rows, snapshots=snapshots)
    lines = shown(status, width).splitlines()
    for year in (2024, 2025, 2026):
        assert any(re.search(rf"^ware\S+…\S+_{year} +SNAPSHOTTING *$", line) for line in lines), lines
        assert any(re.search(rf"^snapshot ware\S*….*_{year} +25%", line) for line in lines), lines
    assert all(len(line) <= width for line in lines)
    assert all(name in shown(status, 120) for name in names)


def test_a_name_of_wide_characters_is_cut_to_the_width_of_the_terminal() -> None:
    rows = tuple(TableStatus(name=f"public.{'測定値' * 9}{n}", state="REPLICATING") for n in (1, 2))
    status = Status(name="shop", state="Running", started_at=1, updated_at=2, tables=rows)
    lines = shown(status, 40).splitlines()
    assert all(cell_len(line) <= 40 for line in lines)
    assert [line for line in lines if re.search(r"…\S+1 +REPLICATING", line)], lines


def test_a_table_whose_snapshot_failed_is_failing_until_a_later_one_succeeds() -> None:
    def snapshot(name: str, record: int, error: str | None) -> SnapshotState:
        failure = None if error is None else ReadFailure(message=error, where="source")
        done = SnapshotTableFinished(snapshot_id=name, table_id=7, chunks=1, complete=error is None, error=failure)
        part = SnapshotTable(table_id=7, finished=done)
        ended = SnapshotEnded(snapshot_id=name, outcome="failed" if error else "completed")
        plan = SnapshotPlanned(snapshot_id=name, tables=(7,))
        return of_plan(plan, record, tables={7: part}, ended=ended)

    failed = snapshot("a", 4, "ReadRefused: no right")
    progress = {7: TableProgress(applied_record=RecordNumber(9))}
    unread = table(7, unread=ReadFailure(message="ReadRefused: no right", where="source"))
    for snapshots in ({"a": failed}, {}):  # the snapshot itself is forgotten some day
        (table_status,) = assemble(moment(log(unread, snapshots=snapshots), tables=progress)).tables
        assert table_status.state == "FAILING"
        assert table_status.fault is not None
        assert "no right" in table_status.fault.message and table_status.fault.where == "source"
    plan = SnapshotPlanned(snapshot_id="b", tables=(7,))
    again = of_plan(plan, 6)
    under_way = log(unread, snapshots={"a": failed, "b": again})
    assert assemble(moment(under_way, tables=progress)).tables[0].state == "SNAPSHOTTING"
    both = {"a": failed, "b": snapshot("b", 6, None)}
    assert assemble(moment(log(table(7), snapshots=both), tables=progress)).tables[0].state == "REPLICATING"


def test_a_table_says_whether_its_existing_rows_have_been_read() -> None:
    """Out of the change log alone: a driver that has just started knows it before it has opened a target."""
    for asked, read_record, read in ((False, -1, True), (True, -1, False), (True, 4, True)):
        one = table(7, initial_snapshot=asked, read_record=read_record)
        (told,) = assemble(moment(log(one), tables={})).tables
        assert told.read is read, (asked, read_record)
    again = table(7, initial_snapshot=True, added_record=9, read_record=4)
    assert not assemble(moment(log(again))).tables[0].read, "it was started over since"


def test_a_table_whose_first_snapshot_is_not_planned_yet_does_not_replicate() -> None:
    progress = {7: TableProgress(applied_record=RecordNumber(9))}
    for read_record, state in ((-1, "WAITING"), (4, "REPLICATING")):
        one = table(7, initial_snapshot=True, read_record=read_record)
        assert assemble(moment(log(one), tables=progress)).tables[0].state == state


def test_a_table_that_readers_see_as_it_was_before_says_so() -> None:
    known = log(table(7, 3, initial_snapshot=True, read_record=RecordNumber(5)))
    for replacing in (True, False):
        progress = {7: TableProgress(applied_record=RecordNumber(9), replacing=replacing)}
        (status,) = assemble(moment(known, tables=progress)).tables
        assert (status.replacing, status.read) == (replacing, not replacing)
        assert status.state == ("SNAPSHOTTING" if replacing else "REPLICATING")
        assert ("REPLACING" in shown(assemble(moment(known, tables=progress)), 120)) == replacing


def test_a_read_that_failed_for_no_named_reason_is_called_snapshot_failed() -> None:
    unread = table(7, unread=ReadFailure(message="it ended in the middle", where="driver"))
    (failed,) = assemble(moment(log(unread), tables={7: TableProgress()})).tables
    assert failed.state == "FAILING" and failed.fault is not None
    assert (failed.fault.name, failed.fault.message) == ("SnapshotFailed", "it ended in the middle")


class Counted(SnapshotMap[SnapshotState]):
    """Counts how often all are gone through."""

    walks = 0

    @override
    def values(self) -> Any:
        self.walks += 1
        return super().values()

    @override
    def open(self) -> Any:
        self.walks += 1
        return super().open()


def test_a_status_of_many_tables_does_not_go_through_all_snapshots_for_each() -> None:
    tables = [table(n) for n in range(100)]
    plans = [SnapshotPlanned(snapshot_id=f"s{n}", tables=(n,)) for n in range(100)]
    shots = Counted({p.snapshot_id: of_plan(p) for p in plans})
    status = assemble(moment(log(*tables).model_copy(update={"snapshots": shots})))
    assert {t.state for t in status.tables} == {"SNAPSHOTTING"}
    assert 0 < shots.walks < 5


def test_without_capture_the_status_says_so() -> None:
    status = assemble(moment(log(), capture=None))
    assert (status.state, status.capture.alive) == ("Starting", False)


def test_a_first_start_says_what_capture_waits_for() -> None:
    waits = StateAnswer(
        record=RecordNumber(-1),
        epoch=-1,
        position=Position(0),
        waiting_for="the slot waits for transaction 7 of backend 9",
    )
    status = assemble(moment(LogState(), capture=waits))
    assert (status.state, status.message) == ("Starting", "the slot waits for transaction 7 of backend 9")


def test_an_open_transaction_for_which_the_source_keeps_its_log_is_named() -> None:
    held = StateAnswer(
        record=RecordNumber(5), epoch=1, position=Position(1), log_held_by="transaction 7 of app (pid 9)"
    )
    status = assemble(moment(log(table(7, 3), origin=origin()), capture=held))
    assert status.capture.log_held_by == held.log_held_by
    assert (status.state, status.message) == ("Running", f"the source keeps much log for {held.log_held_by}")


def test_counters_are_summed_in_the_line() -> None:
    progress = {
        7: TableProgress(applied_record=RecordNumber(9), counters=TableCounters(inserts=1200, updates=3, deletes=4))
    }
    text = display.line(assemble(moment(log(table(7)), tables=progress)))
    assert "1,200 inserts, 3 updates, 4 deletes" in text


@pytest.mark.parametrize("name", ["public.a[red]b", "public.a[/b]"])
def test_brackets_in_a_name_are_no_markup(name: str) -> None:
    """`[/b]` ended the run."""
    part = SnapshotTableProgress(name=name, running=(f"({name}, …]",))
    snapshot = SnapshotStatus(id="s", name=name, reason="request", state="Running", tables=(part,))
    tables = (TableStatus(name=name, state="REPLICATING"),)
    status = Status(name="shop", state="Running", started_at=1, updated_at=2, tables=tables, snapshots=(snapshot,))
    assert shown(status, 200).count(name) == 3


def test_a_name_does_not_steer_the_terminal() -> None:
    name = "public.a\x1b[2J\nb"
    fault = Fault(name="NoKey", message=f"{name} has no key", fix=f"Exclude {name}.")
    tables = (TableStatus(name=name, state="STOPPED", fault=fault),)
    status = Status(name="shop", state="Failing", message=f"{name} fails", started_at=1, updated_at=2, tables=tables)
    text = shown(status, 300) + display.line(status)
    assert text.count("public.a\\x1b[2J\\nb") == 6 and "\x1b[2J" not in text


def test_without_a_terminal_one_line_comes_every_few_seconds_and_when_the_state_changes() -> None:
    now = [0.0]
    lines: list[str] = []
    view = display.LineDisplay(lines.append, json=False, clock=lambda: now[0])
    begun = log(table(7), origin=origin())
    more = {7: TableProgress(applied_record=RecordNumber(9), counters=TableCounters(inserts=1))}
    view.show(assemble(moment(begun)))
    view.show(assemble(moment(begun)))
    assert assemble(moment(begun, stop_at=RecordNumber(7))).message.startswith("apply stops at record 7 (--stop-at)")
    view.show(assemble(moment(begun, suspended=True)))
    now[0] = 6.0
    view.show(assemble(moment(begun, tables=more, suspended=True)))
    assert len(lines) == 3
    view.show(assemble(moment(begun, tables=more, suspended=True)), last=True)
    assert len(lines) == 4


def test_where_the_log_is_json_a_line_of_the_status_is_one_of_its_events(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tailrace")
    status = assemble(moment(log(table(7))))
    for form in logs.FORMS:
        display.choose(json=False, log_format=form).show(status)
    assert capsys.readouterr().out == display.line(status) + "\n"
    assert [record.getMessage() for record in caplog.records] == [display.line(status)]


def test_without_a_terminal_a_line_that_says_nothing_new_comes_once_a_minute() -> None:
    now = [0.0]
    lines: list[str] = []
    view = display.LineDisplay(lines.append, json=False, clock=lambda: now[0])
    busy = {7: TableProgress(applied_record=RecordNumber(9), counters=TableCounters(inserts=1))}
    for progress, shown in ((None, 3), (busy, 4)):
        for _ in range(130 if progress is None else 6):
            view.show(assemble(moment(log(table(7)), **({"tables": progress} if progress else {}))))
            now[0] += 1.0
        assert len(lines) == shown, lines


def test_a_status_that_takes_long_to_make_is_made_less_often() -> None:
    now, made = [0.0], [0]

    def status() -> Status:
        now[0] += 0.05
        made[0] += 1
        return assemble(moment(log(table(7))))

    lines: list[str] = []
    view = display.Paced(display.LineDisplay(lines.append, json=False), status, lambda: now[0], lambda: now[0])
    while now[0] < 30:  # as the main loop turns
        view.show()
        now[0] += 0.5
    assert 5 <= made[0] <= 7
    shown = len(lines)
    view.show(last=True)
    assert len(lines) == shown + 1


def test_a_machine_that_stalls_does_not_silence_the_view() -> None:
    now, made = [0.0], [0]

    def status() -> Status:
        now[0] += 3.0  # of waiting, not of work
        made[0] += 1
        return assemble(moment(log(table(7))))

    lines: list[str] = []
    view = display.Paced(display.LineDisplay(lines.append, json=False), status, lambda: now[0], lambda: 0.0)
    view.show()
    view.show()
    assert made[0] == 2


def test_a_status_that_no_terminal_shows_is_made_once_a_second() -> None:
    now, made = [0.0], [0]

    def status() -> Status:
        made[0] += 1
        return assemble(moment(log(table(7))))

    view = display.Paced(display.LineDisplay(list[str]().append, json=False), status, lambda: now[0], lambda: 0.0)
    while now[0] < 10:
        view.show()
        now[0] += 0.5
    assert made[0] == 10


def test_a_hundred_snapshots_do_not_fill_the_line() -> None:
    plans = [SnapshotPlanned(snapshot_id=f"s{n}", tables=(7,)) for n in range(100)]
    running = {p.snapshot_id: of_plan(p, tables={7: SnapshotTable(table_id=7, started=True)}) for p in plans}
    status = assemble(moment(log(table(7), snapshots=running)))
    text = display.line(status)
    assert text.count("snapshot s.t7") == 5
    assert "and 95 more" in text


def test_a_rate_is_the_slope_over_the_window_and_survives_a_counter_that_begins_anew() -> None:
    rate = Rate(window=10)
    assert [rate.add(0, 0), rate.add(1, 100), rate.add(2, 200)] == [0.0, 100.0, 100.0]
    assert rate.add(30, 200) < 10
    assert rate.add(31, 0) == 0.0


def test_on_a_terminal_the_view_is_drawn_with_its_bars_and_faults() -> None:
    plan = SnapshotPlanned(snapshot_id="s1", request="again", tables=(7,))
    part = SnapshotTable(table_id=7, started=True, estimated_rows=1000, rows_done=250)
    snapshots = {"s1": of_plan(plan, tables={7: part})}
    progress = Progress()
    progress.fail(
        8, Fault(name="ForeignChange", message="rows changed", fix="put it back", where="target"), stopped=True
    )
    screen = io.StringIO()
    view = display.LiveDisplay(Console(file=screen, force_terminal=True, width=160))
    view.show(assemble(moment(log(table(7), table(8), snapshots=snapshots), tables=progress.all())), last=True)
    view.close()
    shown = screen.getvalue()
    fault = ("(target) ", "ForeignChange: rows changed", "Fix: put it back")
    for text in ("snapshot again", "25%", "s.t8", *fault, "SNAPSHOTTING"):
        assert text in shown


def test_the_fix_of_a_failed_snapshot_is_what_works_in_the_table_s_state() -> None:
    """A snapshot of a stopped table is refused: only a resync brings it back."""

    def fix(message: str, fix: str) -> str:
        unread = ReadFailure(message=message, fix=fix, where="source")
        (one,) = assemble(moment(log(table(7, unread=unread)), tables={7: TableProgress()})).tables
        assert one.fault is not None and "Fix" not in one.fault.message
        return one.fault.fix

    refused = fix("ReadRefused: no right", "GRANT SELECT.")
    assert refused.startswith("GRANT SELECT.") and "snapshot" in refused and RESYNC in refused
    assert fix("it ended in the middle", "").startswith("Remove the cause. ")
    unsupported = fix("ValueUnsupported: infinity", f"Copy it as text, then {RESYNC}.")
    assert unsupported == f"Copy it as text, then {RESYNC}."


def test_what_a_stopped_table_lacks_in_the_log_is_brought_by_a_resync_alone() -> None:
    stop = TableStopped(table_id=7, seq=Seq(0), error="NoKey", message="m", fix="Add a key.", where="source")
    for met, name in (("LogTrimmed", "NoKey"), ("TargetRefused", "TargetRefused")):
        progress = TableProgress(fault=Fault(name=met, message="m", fix="f"), stopped=True)
        (one,) = assemble(moment(log(table(7, stopped=stop)), tables={7: progress})).tables
        assert one.fault is not None and one.fault.name == name


def test_nobody_says_how_far_a_table_is_behind_while_capture_ends_again_and_again() -> None:
    """What the source has written since is not in the log: 0.0 s was shown for hours."""
    away = Fault(name="StorageFull", message="capture ended")
    status = assemble(moment(log(table(7)), tables={7: TableProgress()}, capture=None, fault=away))
    assert status.tables[0].lag_seconds is None and status.apply.lag_seconds is None
