"""The apply loop around targets: isolation, back-off and tidying, with a target in memory."""

import errno
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier, Event, Thread
from typing import Any, cast

import pytest
from typing_extensions import override

from support.apply_loop import CHUNK, LIMITS, Journal, Loop, Target, Work, log, table, worker_of
from support.states import snapshot, with_snapshots
from support.waiting import until
from tailrace.apply.applier import GROUP_SECONDS
from tailrace.apply.progress import Progress, TableProgress
from tailrace.apply.unit_worker import UnitWorker
from tailrace.apply.upkeep import TIDY_SECONDS
from tailrace.batch.applied import AppliedState
from tailrace.batch.limits import BatchLimits, batch_end
from tailrace.batch.slice import TableSlice
from tailrace.changelog.append_list import AppendList
from tailrace.changelog.logged import DroppedTable, place_of
from tailrace.changelog.records.snapshots import SnapshotPlanned
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LoggedChunk, LogState, SegmentList, TableLog
from tailrace.errors import (
    CorruptLog,
    ForeignChange,
    InvalidManifest,
    Locked,
    Retry,
    StorageFull,
    TargetRefused,
    met_at,
)


def applier(
    state: LogState,
    targets: dict[int, Target],
    clock: Callable[[], float] = time.time,
    *,
    retry: float = 60.0,
    work: Work | None = None,
    limits: BatchLimits = LIMITS,
    journal: Journal | None = None,
) -> tuple[Loop, Progress]:
    progress = Progress()

    def make(log_table: TableLog) -> UnitWorker:
        target = targets[log_table.table_id]
        target.work = work or target.work
        return worker_of(target, progress, log_table.table_id, limits)

    shared = cast(SharedJournal, journal or Journal(state))
    return Loop(shared, progress, make, retry_seconds=lambda: retry, clock=clock, monotonic=clock), progress


def test_a_table_is_brought_to_the_end_and_records_that_bring_nothing_are_covered() -> None:
    target = Target()
    loop, progress = applier(log(table(7, 3, 5)), {7: target})
    loop.offer(9, patience=5)
    assert [c.applied_record for c in target.applied] == [9]
    loop.offer(9, patience=5)
    assert len(target.applied) == 1
    found = progress.of(7)
    assert (found.applied_record, found.committed_record, found.counters.inserts) == (9, 9, 2)
    loop.stop()


def test_looks_that_bring_nothing_look_at_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quiet driver looks ten times a second, and there may be thousands of tables."""
    journal = Journal(log(table(7, 3), table(8, 4)))
    loop, progress = applier(journal.state, {7: Target(), 8: Target()}, journal=journal)
    loop.offer(9, patience=5)
    loop.offer(9)
    asked: list[int] = []
    known = progress.of

    def of(table_id: int) -> TableProgress:
        asked.append(table_id)
        return known(table_id)

    monkeypatch.setattr(progress, "of", of)
    assert not any(loop.is_due(RecordNumber(9)) for _ in range(10)) and asked == []
    journal.state = journal.state.model_copy(update={"number": RecordNumber(10)})
    assert not loop.is_due(RecordNumber(10)) and asked == [], "nor does a record that brings nothing"
    assert progress.all()[8].applied_record == 10
    tables = {**journal.state.tables, 7: table(7, 3, 11)}
    journal.state = journal.state.model_copy(update={"number": RecordNumber(11), "tables": tables})
    assert loop.is_due(RecordNumber(11)) and set(asked) == {7}, "one that brings something, at its table alone"
    loop.stop()


def test_while_all_stands_still_nothing_is_begun_and_what_was_begun_has_ended() -> None:
    """Somebody else changes the tables then; afterwards they are opened again."""

    class Slow(Target):
        @override
        def apply(self, part: TableSlice) -> AppliedState:
            begun.wait(30)
            going.wait(30)
            return super().apply(part)

    begun, going = Barrier(2), Barrier(2)
    target = Slow()
    loop, progress = applier(log(table(7, 3)), {7: target})
    loop.offer(9)
    begun.wait(30)
    seen: list[int] = []
    with ThreadPoolExecutor() as pool:

        def change() -> None:
            with loop.standing_still():
                seen.append(progress.of(7).committed_record)
                loop.offer(RecordNumber(9), patience=1)
                loop.forget([7])
                seen.append(progress.of(7).applied_record)
                assert not loop.is_due(RecordNumber(9)) and not loop.is_open(7)

        changed = pool.submit(change)
        time.sleep(0.2)
        assert not seen, "the batch under way is waited for"
        going.wait(30)
        changed.result(30)
    assert seen == [9, -1]
    loop.offer(9, patience=5)
    assert loop.is_open(7) and progress.of(7).applied_record == 9
    loop.stop()


def test_a_driver_that_shuts_down_is_not_waited_for_to_stand_still() -> None:
    """What its end cancels is never over."""
    going, met = Event(), list[BaseException]()

    class Slow(Target):
        @override
        def apply(self, part: TableSlice) -> AppliedState:
            going.wait(30)
            return super().apply(part)

    loop, _ = applier(log(*(table(i, 3) for i in range(1, 8))), {i: Slow() for i in range(1, 8)})
    loop.offer(9)

    def change() -> None:
        try:
            with loop.standing_still():
                raise AssertionError("it shuts down")
        except Retry as error:
            met.append(error)

    changes, ending = Thread(target=change, daemon=True), Thread(target=loop.stop)
    changes.start()
    ending.start()
    time.sleep(0.2)
    going.set()
    changes.join(10)
    ending.join(10)
    assert len(met) == 1 and not changes.is_alive()


def test_an_error_while_an_error_is_told_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stayed in a future that nobody asked: the table was tried for ever, and nothing said why."""
    target = Target(Retry("storage is away", "Wait."))
    loop, progress = applier(log(table(7, 3)), {7: target})

    def full(*told: object, **more: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(progress, "fail", full)
    loop.offer(9, patience=5)
    with pytest.raises(OSError, match="no space left"):
        for _ in range(6000):
            loop.offer(9)
            time.sleep(0.01)
    loop.stop()


def test_a_store_that_is_away_is_told_once_a_pause_and_each_table_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """200 tables filled the log with 400 lines a minute."""

    class Away(Target):
        @override
        def open(self, *of: Any) -> Any:
            if now[0] < 1300:
                with met_at("target"):
                    raise Retry.of_place("s3://lake/t: connection refused")
            return super().open(*of)

    now = [1000.0]
    tables = {number: Away() for number in range(1, 41)}
    loop, progress = applier(log(*(table(number, 3) for number in tables)), dict(tables), clock=lambda: now[0])
    with caplog.at_level("WARNING", "tailrace"):
        while now[0] < 1250:
            now[0] += 0.5
            loop.offer(9, patience=5)
        assert all(progress.of(number).fault is not None for number in tables)
        while now[0] < 1400:
            now[0] += 0.5
            loop.offer(9, patience=5)
    assert all(progress.of(number).applied_record == 9 for number in tables), "it came back"
    assert 5 < len(caplog.records) <= 16
    loop.stop()


def test_a_store_that_is_away_is_asked_about_once_a_second_however_many_tables_wait_for_it() -> None:
    """100 tables, each with pauses as if alone, tried it 3.3 times a second."""

    class Away(Target):
        @override
        def open(self, *of: Any) -> Any:
            tries.append(now[0])
            if now[0] < 1300:
                with met_at("target"):
                    raise Retry.of_place("s3://lake/t: connection refused")
            return super().open(*of)

    now, tries = [1000.0], list[float]()
    tables = {number: Away() for number in range(1, 101)}
    loop, progress = applier(log(*(table(number, 3) for number in tables)), dict(tables), clock=lambda: now[0])
    while now[0] < 1360:
        now[0] += 0.5
        loop.offer(9, patience=5)
    assert all(progress.of(number).applied_record == 9 for number in tables), "a pause after the first answer"
    settled = [at for at in tries if 1060 <= at < 1300]
    assert 100 < len(settled) < 450, "240 are expected, 800 without"
    assert min(at for at in tries if at >= 1300) < 1310
    loop.stop()


def test_tables_that_say_that_their_place_is_away_and_are_alone_with_that_keep_no_other_waiting() -> None:
    now, fault = [1000.0], Retry.of_place("s3://lake/t/x: access timed out")
    targets = {1: Target(*[fault] * 999), 2: Target(*[fault] * 999), 3: Target()}
    loop, progress = applier(log(*(table(number, 3) for number in targets)), targets, clock=lambda: now[0])
    loop.offer(9, patience=5)
    assert progress.of(3).applied_record == 9
    for _ in range(400):
        now[0] += 0.5
        loop.offer(9, patience=5)
    assert progress.of(1).fault is not None and progress.of(2).fault is not None
    loop.stop()


def test_a_record_that_is_offered_while_the_journal_is_read_waits_for_the_next_batch() -> None:
    """Another thread reads record 10 and offers it, right behind the state that this batch is cut from."""
    before = table(7, 3)
    after = before.model_copy(update={"chunks": AppendList([LoggedChunk(record=RecordNumber(10), chunk=CHUNK)])})
    states = [log(before, number=8), log(before, number=9), log(after, number=10)]

    class Overtaken(Journal):
        @override
        def refresh(self) -> LogState:
            if self.state.number == 10:
                return self.state
            self.state = states[2]
            other = Thread(target=lambda: loop.offer(10))
            other.start()
            other.join()
            return states[1]

    target, progress = Target(), Progress()
    journal = cast(SharedJournal, Overtaken(states[0]))
    loop = Loop(journal, progress, lambda t: worker_of(target, progress), retry_seconds=lambda: 60)
    loop.offer(9, patience=5)
    loop.offer(10, patience=5)
    assert [(p.through_record, len(p.chunks)) for p in target.work.slices] == [(9, 0), (10, 1)]
    loop.stop()


def test_only_work_that_may_end_behind_the_newest_record_is_looked_for_again() -> None:
    """All other ends without anything to do, so nobody has to ask for its end."""

    class Held(Target):
        @override
        def apply(self, part: TableSlice) -> AppliedState:
            left.append([loop.may_leave(RecordNumber(number)) for number in (9, 10)])
            return super().apply(part)

    left: list[list[bool]] = []
    loop, _ = applier(log(table(7, 3)), {7: Held()})
    assert not loop.may_leave(RecordNumber(9))
    loop.offer(9, patience=5)
    assert left == [[False, True]] and not loop.may_leave(RecordNumber(10))
    loop.stop()
    left.clear()
    loop, _ = applier(log(table(7, 3, 5, rows=5)), {7: Held()}, limits=replace(LIMITS, rows=5))
    loop.offer(9, patience=5)
    assert left == [[False, True], [True, True]], "of several batches the first is not the last"
    loop.stop()


def test_work_that_takes_long_is_looked_for_since_its_group_rests_then() -> None:
    left, now = list[bool](), 100.0

    class Slow(Target):
        @override
        def apply(self, part: TableSlice) -> AppliedState:
            nonlocal now
            left.append(loop.may_leave(RecordNumber(9)))
            now += GROUP_SECONDS
            left.append(loop.may_leave(RecordNumber(9)))
            return super().apply(part)

    loop, _ = applier(log(table(7, 3)), {7: Slow()}, lambda: now)
    loop.offer(9, patience=5)
    assert left == [False, True]
    loop.stop()


def test_a_batch_is_bounded_in_rows_but_takes_at_least_one_record() -> None:
    limits = replace(LIMITS, rows=10)
    big = table(7, 3, 5, 6, rows=8)
    assert [batch_end([(big, RecordNumber(after))], RecordNumber(9), limits) for after in (0, 4, 5)] == [4, 5, 9]
    target = Target()
    loop, _ = applier(log(big), {7: target}, limits=limits)
    loop.offer(9, patience=5)
    assert [c.applied_record for c in target.applied] == [4, 5, 9]
    loop.stop()


def test_one_table_that_fails_is_named_and_retried_and_the_other_goes_on() -> None:
    now = [100.0]
    bad, good = Target(ForeignChange("s.t7", "rows changed"), Retry("away")), Target()
    loop, progress = applier(log(table(7, 3), table(8, 3)), {7: bad, 8: good}, lambda: now[0])
    loop.offer(9, patience=5)
    assert len(good.applied) == 1
    fault = progress.of(7).fault
    assert fault is not None
    assert (fault.name, progress.of(7).stopped) == ("ForeignChange", True)
    loop.offer(9, patience=5)
    assert bad.opened == 1, "the pause is not over"
    for _ in range(2):
        now[0] += 10
        loop.offer(9, patience=5)
    assert [c.applied_record for c in bad.applied] == [9]
    assert progress.of(7).fault is None
    assert bad.opened == 3, "the target is read anew after every failure"
    loop.stop()


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (ForeignChange("s.t7", "rows changed"), False),
        (Retry("the connection was reset"), False),
        (Retry.of_place("connection refused"), True),
        (StorageFull("no room in /lake"), True),
        (OSError(errno.ENOSPC, "No space left on device", "/lake/t7"), True),
    ],
)
def test_a_fault_of_the_whole_place_is_known_as_one(error: Exception, away: bool) -> None:
    loop, progress = applier(log(table(7, 3), table(8, 3)), {7: Target(error), 8: Target()})
    loop.offer(9, patience=5)
    assert progress.of(7).fault is not None
    assert (progress.of(7).away, progress.of(8).away) == (away, False)
    loop.stop()


def test_a_batch_that_waits_for_a_chunk_that_is_being_written_has_no_fault_however_long_it_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [100.0]
    target = Target(*[Locked("rows of a snapshot that are being loaded into s.t7")] * 3)
    loop, progress = applier(log(table(7, 3)), {7: target}, lambda: now[0], retry=0.0)
    with caplog.at_level("WARNING", "tailrace"):
        for opened in (1, 2, 3, 4):
            loop.offer(9, patience=5)
            assert progress.of(7).fault is None and not progress.of(7).stopped
            loop.offer(9, patience=5)
            assert target.opened == opened, "the pause is not over"
            now[0] += 10
    assert [c.applied_record for c in target.applied] == [9] and not caplog.records
    loop.stop()


def test_a_chunk_that_is_being_written_for_ever_is_warned_of_every_ten_minutes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [100.0]
    target = Target(*[Locked("rows of a snapshot that are being loaded into s.t7 (backend 4711)")] * 21)
    loop, _ = applier(log(table(7, 3)), {7: target}, lambda: now[0])
    with caplog.at_level("WARNING", "tailrace"):
        for _ in range(21):
            loop.offer(9, patience=5)
            loop.offer(9, patience=5)
            now[0] += 60
    assert [record.getMessage() for record in caplog.records] == [
        f"a batch has been waiting for {seconds} s for rows of a snapshot that are being loaded into s.t7"
        " (backend 4711)"
        for seconds in (600, 1200)
    ]
    assert [vars(record)["table"] for record in caplog.records] == ["s.t7"] * 2
    loop.stop()


def test_tables_are_worked_side_by_side() -> None:
    work, targets = Work(), {number: Target() for number in (7, 8)}
    work.together = Barrier(2)
    loop, _ = applier(log(table(7, 3), table(8, 3)), targets, work=work)
    loop.offer(9, patience=10)
    assert [len(target.applied) for target in targets.values()] == [1, 1], "each waits for the other"
    loop.stop()


def test_a_table_is_tidied_now_and_then_between_batches_and_told_of_a_snapshot_that_is_open() -> None:
    now = [10_000.0]
    running = snapshot(SnapshotPlanned(snapshot_id="r", tables=(7,)), 9)
    target = Target()
    work = target.work
    state = log(table(7, 3))
    journal = Journal(with_snapshots(state, {"r": running}))
    progress = Progress()
    worker = worker_of(target, progress)
    loop = Loop(
        cast(SharedJournal, journal), progress, lambda _: worker,
        retry_seconds=lambda: 60, clock=lambda: now[0], monotonic=lambda: now[0],
    )  # fmt: skip
    loop.offer(9, patience=5)
    loop.offer(9, patience=5)
    loop.tidy_up(5)
    assert [a.applied_record for a in work.tidied] == [9], "after the batch"
    assert target.tidied == [(now[0], True)]
    journal.state = log(table(7, 3, 12), number=14)
    now[0] += TIDY_SECONDS - 1
    for _ in range(2):
        loop.offer(14, patience=5)
        loop.tidy_up(5)
    assert len(work.tidied) == 1
    now[0] += 1
    loop.offer(14, patience=5)
    loop.tidy_up(5)
    assert len(work.tidied) == 2
    assert target.tidied[1:] == [(now[0], False)]
    loop.stop()


def test_a_passing_fault_becomes_a_stopped_table_when_it_lasts_too_long() -> None:
    now = [100.0]
    loop, progress = applier(log(table(7, 3)), {7: Target(*[Retry("away")] * 9)}, lambda: now[0], retry=60)
    loop.offer(9, patience=5)
    assert not progress.of(7).stopped
    now[0] += 61
    loop.offer(9, patience=5)
    assert progress.of(7).stopped
    loop.stop()


def test_a_target_that_refuses_altogether_ends_the_process() -> None:
    loop, _ = applier(log(table(7, 3)), {7: Target(TargetRefused("another log"))})
    loop.offer(9, patience=5)
    with pytest.raises(TargetRefused, match="another log"):
        loop.offer(9)
    loop.stop()


def test_a_target_that_refuses_one_table_stops_that_table_alone_until_it_is_put_right() -> None:
    now = [100.0]
    bad, good = Target(TargetRefused("a table of somebody else")), Target()
    loop, progress = applier(log(table(7, 3), table(8, 3)), {7: bad, 8: good}, lambda: now[0])
    loop.offer(9, patience=5)
    loop.offer(9, patience=5)
    fault = progress.of(7).fault
    assert fault is not None and fault.name == "TargetRefused" and progress.of(7).stopped
    assert len(good.applied) == 1
    now[0] += 60
    loop.offer(9, patience=5)
    assert progress.of(7).fault is None
    loop.stop()


def test_a_table_that_the_target_cannot_even_name_does_not_stop_the_others() -> None:
    progress, good = Progress(), Target()

    def make(log_table: TableLog) -> UnitWorker:
        if log_table.table_id == 7:
            raise InvalidManifest("table s.a/b cannot be a folder's name")
        return worker_of(good, progress, 8)

    journal = cast(SharedJournal, Journal(log(table(7, 3), table(8, 3))))
    loop = Loop(journal, progress, make, retry_seconds=lambda: 60)
    for _ in range(2):
        loop.offer(9, patience=5)
    assert len(good.applied) == 1
    fault = progress.of(7).fault
    assert fault is not None and "a/b" in fault.message
    assert not loop.is_open(7)
    loop.stop()


def test_a_table_that_is_no_longer_captured_leaves_nothing_behind() -> None:
    targets = {7: Target(), 8: Target()}
    loop, progress = applier(log(table(7, 3), table(8, 3)), targets)
    loop.offer(9, patience=5)
    assert loop.is_open(7)
    gone = table(7, 3).model_copy(update={"removed": True})
    cast(Any, loop)._journal.state = log(gone, table(8, 3))
    loop.offer(9, patience=5)
    assert not loop.is_open(7) and loop.is_open(8)
    assert set(progress.all()) == {8}
    loop.stop()


def test_a_broken_change_log_ends_the_process_whichever_table_meets_it() -> None:
    targets = {7: Target(CorruptLog("record 4 is missing")), 8: Target()}
    loop, _ = applier(log(table(7, 3), table(8, 3)), targets)
    loop.offer(9, patience=5)
    with pytest.raises(CorruptLog):
        loop.offer(9)
    loop.stop()


def test_a_place_is_left_once_the_batch_of_a_dropped_table_is_over_and_entered_once_its_copy_is_gone() -> None:
    """Both have the number of their name, as with MySQL."""
    work = Work()
    work.together = Barrier(2)
    loop, _ = applier(log(table(7, 3)), {7: Target()}, work=work)
    loop.offer(9)
    again = table(7, 3).model_copy(update={"generation": RecordNumber(9)})
    state = log(again)
    place = place_of(again)
    dropped = DroppedTable(place=place, table_ids=(7,), generation=RecordNumber(0), begun=True)
    cast(Any, loop)._journal.state = state.model_copy(update={"dropped": (dropped,)})
    assert not loop.is_done_with(place), "its last batch is under way"
    work.together.wait(5)
    until(lambda: loop.is_done_with(place), "the last batch")
    loop.offer(9, patience=1)
    assert not loop.is_open(7) and loop.is_done_with(place)
    work.together = None
    cast(Any, loop)._journal.state = state
    loop.offer(9, patience=5)
    assert loop.is_open(7)
    loop.stop()


def test_a_table_that_the_new_records_do_not_name_is_passed_by_without_being_entered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered: list[int] = []
    real = UnitWorker.advance

    def counted(worker: UnitWorker, state: LogState, through: int) -> bool:
        entered.extend(worker.copies)
        return real(worker, state, RecordNumber(through))

    monkeypatch.setattr(UnitWorker, "advance", counted)
    targets = {7: Target(), 8: Target()}
    loop, progress = applier(log(table(7, 3), table(8, 3)), targets, lambda: 100.0)
    loop.offer(9, patience=5)
    entered.clear()
    cast(Any, loop)._journal.state = log(table(7, 3), table(8, 3, 12), number=14)
    loop.offer(14, patience=5)
    assert entered == [8]
    assert [progress.of(number).applied_record for number in targets] == [14, 14]
    assert [progress.of(number).committed_record for number in targets] == [9, 14]
    gap = targets[7].applied[-1]
    assert loop.is_open(7)
    cast(Any, loop)._schedule.entries[7].copy.applied = replace(gap, gap=RecordNumber(3))
    cast(Any, loop)._journal.state = log(table(7, 3), table(8, 3, 12), number=16)
    loop.offer(16, patience=5)
    assert entered == [8, 7], "a gap that nobody fills must be told"
    fault = progress.of(7).fault
    assert fault is not None and fault.name == "LogTrimmed"
    cast(Any, loop)._schedule.entries[7].unit.backoff.due = 0.0
    cast(Any, loop)._schedule.entries[7].tidied = 100.0
    loop.offer(16, patience=5)
    entered[:] = [8]
    trimmed = table(7, 3).model_copy(update={"trimmed_through": 15, "segments": SegmentList()})
    cast(Any, loop)._journal.state = log(trimmed, table(8, 3, 12), number=20)
    loop.offer(20, patience=5)
    assert entered == [8, 7], "what the table may have needed is gone: that must be told"
    fault = progress.of(7).fault
    assert fault is not None and fault.name == "LogTrimmed"
    loop.stop()


def test_a_lost_chunk_file_is_named_until_no_batch_needs_it_and_forgotten_then() -> None:
    state = log(table(7, 3, chunk=True))
    loop, progress = applier(state, {7: Target()}, work=Work(missing=(CHUNK,)))
    loop.offer(9, patience=5)
    assert progress.of(7).fault is not None
    assert loop.lost_chunks() == [CHUNK] == loop.lost_chunks()
    past = replace_tables(state, table(7, 3))
    loop._journal = cast(SharedJournal, Journal(past))
    assert loop.lost_chunks() == []
    loop._journal = cast(SharedJournal, Journal(state))
    assert loop.lost_chunks() == [], "nothing is kept of it"
    loop.stop()


def replace_tables(state: LogState, *tables: TableLog) -> LogState:
    return state.model_copy(update={"tables": {t.table_id: t for t in tables}})


def test_a_clock_that_is_set_back_by_a_day_holds_no_retry_up() -> None:
    wall, monotonic = [1_000_000.0], [100.0]
    bad = Target(Retry("away"))
    progress = Progress()
    loop = Loop(
        cast(SharedJournal, Journal(log(table(7, 3)))), progress,
        lambda t: worker_of(bad, progress),
        retry_seconds=lambda: 60, clock=lambda: wall[0], monotonic=lambda: monotonic[0],
    )  # fmt: skip
    loop.offer(9, patience=5)
    fault = progress.of(7).fault
    assert fault is not None and fault.since == wall[0], "people are shown the time of day"
    wall[0] -= 86_400
    monotonic[0] += 10
    loop.offer(9, patience=5)
    assert [c.applied_record for c in bad.applied] == [9]
    loop.stop()
