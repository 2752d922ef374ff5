"""When tables are tidied: seldom where nothing is written, and never in front of a change."""

import gc
import time
import weakref
from collections.abc import Callable
from threading import Event
from typing import Any, cast

from typing_extensions import override

from support.apply_loop import Journal, Loop, Target, Work, log, table, worker_of
from tailrace.apply.progress import Progress
from tailrace.apply.unit_worker import UnitWorker
from tailrace.apply.upkeep import TIDY_SECONDS
from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState, TableLog
from tailrace.errors import Retry


def applier(
    state: LogState, targets: dict[int, Target], clock: Callable[[], float] = time.time, work: Work | None = None
) -> tuple[Loop, Progress]:
    progress = Progress()

    def make(log_table: TableLog) -> UnitWorker:
        target = targets[log_table.table_id]
        target.work = work or target.work
        return worker_of(target, progress, log_table.table_id)

    journal = cast(SharedJournal, Journal(state))
    return Loop(journal, progress, make, retry_seconds=lambda: 60, clock=clock, monotonic=clock), progress


def tidied(loop: Loop) -> None:
    loop.tidy_up(10)


def test_idle_tables_are_tidied_once_more_and_then_daily() -> None:
    """Each of them was, every 30 seconds: two looks a minute, of lists on an object store, for nothing."""
    now = [10_000.0]
    count, hours = 40, 30
    targets = {number: Target() for number in range(100, 100 + count)}
    work = Work()
    loop, _ = applier(log(*(table(number, 3) for number in targets)), targets, lambda: now[0], work=work)
    loop.offer(9, patience=5)
    loop.offer(9)
    tidied(loop)
    assert len(work.tidied) == count, "what was just written, at once"
    for _ in range(hours * 60):
        now[0] += 60.0
        loop.offer(9)
        tidied(loop)
    assert len(work.tidied) == 3 * count, "after an hour or two, and after a day"
    assert sum(target.opened for target in targets.values()) == count
    loop.stop()


def test_a_start_looks_at_what_it_finds_no_sooner_than_after_an_hour() -> None:
    now = [10_000.0]
    target, work = Target(), Work()
    target.applied.append(AppliedState("log", Seq(9), RecordNumber(9), frozenset(), 1, 7))
    loop, _ = applier(log(table(7, 3)), {7: target}, lambda: now[0], work=work)
    for seconds in (0.0, 60.0, 3000.0):
        now[0] += seconds
        loop.offer(9, patience=5)
        tidied(loop)
    assert (target.opened, len(work.tidied)) == (1, 0)
    now[0] += 7200.0
    loop.offer(9, patience=5)
    tidied(loop)
    assert len(work.tidied) == 1
    loop.stop()


def test_a_change_waits_for_no_other_tables_tidying() -> None:
    """With as many tables in front of it as there are threads, it waited for all of them."""
    release, begun = Event(), Event()

    class Slow(Work):
        @override
        def tidy(self, applied: AppliedState) -> None:
            begun.set()
            assert release.wait(20)
            super().tidy(applied)

    now = [10_000.0]
    targets = {number: Target() for number in range(1, 13)}
    state = log(*(table(number, 3) for number in targets))
    loop, _ = applier(state, targets, lambda: now[0], work=Slow())
    loop.offer(9, patience=5)
    loop.offer(9, patience=5)
    assert begun.wait(10)
    now[0] += 3 * 3600.0
    cast(Any, loop)._journal.state = log(*(table(n, 3) for n in range(1, 12)), table(12, 3, 12), number=14)
    loop.offer(14, patience=5)
    loop.offer(14, patience=5)
    assert [c.applied_record for c in targets[12].applied] == [9, 14]
    release.set()
    loop.stop()


def test_a_table_that_cannot_be_tidied_is_named_until_it_can_and_goes_on_meanwhile() -> None:
    now = [10_000.0]

    class Failing(Work):
        faults = 1

        @override
        def tidy(self, applied: AppliedState) -> None:
            if self.faults:
                self.faults -= 1
                raise Retry("away")
            super().tidy(applied)

    target, work = Target(), Failing()
    loop, progress = applier(log(table(7, 3)), {7: target}, lambda: now[0], work=work)
    for _ in range(2):
        loop.offer(9, patience=5)
        tidied(loop)
    fault = progress.of(7).fault
    assert fault is not None and fault.name == "Retry"
    now[0] += TIDY_SECONDS
    for _ in range(2):
        loop.offer(9, patience=5)
        tidied(loop)
    assert progress.of(7).fault is None
    assert len(work.tidied) == 1
    loop.stop()


def test_a_table_at_rest_does_not_keep_the_state_of_the_whole_log() -> None:
    """Of two thousand tables, each tidied at another time, each kept another state, with all tables in it."""
    now, work = [10_000.0], Work()
    loop, _ = applier(log(table(7, 3)), {7: Target()}, lambda: now[0], work=work)
    journal = cast(Any, loop)._journal
    for number in (9, 10):
        journal.state = log(table(7, number), number=number)
        for _ in range(2):
            loop.offer(number, patience=5)
        tidied(loop)
        now[0] += TIDY_SECONDS + 1
    assert len(work.tidied) == 2
    former = weakref.ref(journal.state)
    journal.state = log(table(7, 10), number=11)
    loop.offer(11, patience=5)
    gc.collect()
    assert former() is None
    loop.stop()
