"""The applier lets changes wait for others as long as a promise allows, and begins early enough to keep it."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from typing_extensions import override

from support.apply_loop import LIMITS, Journal, Loop, Target, TargetUnit, log, table
from tailrace.apply.commit_times import CommitTimes
from tailrace.apply.progress import Progress
from tailrace.apply.schedule import LATEST, MANY, SNAPSHOT_HOLD
from tailrace.apply.unit_worker import UnitWorker
from tailrace.changelog.append_list import AppendList
from tailrace.changelog.logged import DroppedTable, LoggedFinish, place_of
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LoggedChunk, LogState, TableLog
from tailrace.contract.pace import Pace
from tailrace.errors import Retry

HOLD = 4.0


class Followed:
    """Tables that have applied everything; the test brings records, and moves the clock."""

    def __init__(self, *tables: int, faults: tuple[Exception, ...] = (), threads: int = 1) -> None:
        self.now = 100.0
        self.took = 0.0
        """Seconds that a batch of a table takes."""
        self.limits = LIMITS
        self.record = 0.0
        """Seconds after which the next record is expected."""
        self.during: Callable[[], None] = lambda: None
        """Happens in the next batch, at its beginning."""
        self.order = list[int]()
        """Tables in the order of their batches."""
        self.targets = {number: Target() for number in tables}
        self.progress = Progress()
        self.journal = Journal(log(*(table(number, 3) for number in tables)))
        self.loop = Loop(
            cast(SharedJournal, self.journal), self.progress, self.worker,
            retry_seconds=lambda: 60.0, pace=self.pace, threads=threads, clock=self.clock, monotonic=self.clock,
        )  # fmt: skip
        self.loop.offer(RecordNumber(9), patience=5)
        assert self.commits() == [1] * len(tables), "the first batch waits for nothing"
        next(iter(self.targets.values())).faults.extend(faults)

    def pace(self, times: CommitTimes) -> Pace:
        self.times = times
        return Pace(self.record, 0.0, HOLD)

    def clock(self) -> float:
        return self.now

    def worker(self, log_table: TableLog) -> UnitWorker:
        return Watched(self, log_table.table_id)

    def bring(self, number: int, *tables: TableLog) -> None:
        """A record, with the tables as they are by it."""
        self.journal.state = log(*tables, number=number)

    def bring_and_look(self, number: int, *tables: TableLog) -> None:
        """As the driver does when a record comes."""
        self.bring(number, *tables)
        self.loop.due_in(RecordNumber(number))

    def commits(self) -> list[int]:
        return [len(target.applied) for target in self.targets.values()]

    def due_at(self, number: int, step: float = 0.5) -> float:
        """Seconds from now until a table is due."""
        begun = self.now
        while not self.loop.is_due(RecordNumber(number)):
            self.now += step
            assert self.now < begun + 100
        return self.now - begun


class Watched(UnitWorker):
    """Tells when it works, and takes its time."""

    def __init__(self, followed: Followed, table_id: int) -> None:
        super().__init__(TargetUnit({table_id: followed.targets[table_id]}), followed.progress, followed.limits)
        self.table_id = table_id
        self._followed = followed

    @override
    def advance(self, state: LogState, through: RecordNumber) -> bool:
        during, self._followed.during = self._followed.during, lambda: None
        during()
        self._followed.now += self._followed.took
        self._followed.order.append(self.table_id)
        return super().advance(state, through)


@pytest.fixture
def follow() -> Callable[..., Followed]:
    return Followed


def test_changes_wait_for_others_until_the_promise_calls_for_them(follow: Callable[..., Followed]) -> None:
    one = follow(7, 8)
    one.bring(10, table(7, 3, 10), table(8, 3))
    assert not one.loop.is_due(RecordNumber(10))
    assert one.progress.of(8).applied_record == 10, "the record brings this one nothing"
    one.now += 1
    one.bring(11, table(7, 3, 10, 11), table(8, 3))
    one.loop.offer(RecordNumber(11), patience=1)
    assert one.commits() == [1, 1]
    assert 2 <= one.due_at(11) <= 3, "counted from the first of them"
    one.loop.offer(RecordNumber(11), patience=5)
    assert one.commits() == [2, 1] and one.targets[7].applied[-1].applied_record == 11
    assert not one.loop.is_due(RecordNumber(11))
    one.loop.stop()


def test_looks_by_an_earlier_record_do_not_have_a_table_wait_for_longer(follow: Callable[..., Followed]) -> None:
    """The driver offers the record of the last batch again and again, while its tail looks by the newest."""
    one = follow(7)
    one.bring(10, table(7, 3, 10))
    waited = 0.0
    while one.loop.due_in(RecordNumber(10)):
        assert waited <= HOLD
        one.now += 0.5
        waited += 0.5
        one.loop.offer(RecordNumber(9), patience=0)
    one.loop.stop()


def test_the_time_until_a_table_is_due_is_known_exactly(follow: Callable[..., Followed]) -> None:
    one = follow(7, 8)
    assert one.loop.due_in(RecordNumber(9)) == math.inf, "nothing waits"
    one.bring(10, table(7, 3, 10), table(8, 3))
    first = one.loop.due_in(RecordNumber(10))
    assert HOLD - 1 < first <= HOLD
    one.now += 1
    one.bring(11, table(7, 3, 10), table(8, 3, 11))
    assert one.loop.due_in(RecordNumber(11)) == pytest.approx(first - 1), "the older one counts"
    one.now += first - 1.01
    assert not one.loop.is_due(RecordNumber(11))
    one.now += 0.02
    assert one.loop.due_in(RecordNumber(11)) == 0.0
    one.loop.stop()


def test_tables_that_are_due_together_are_begun_early_enough_for_all(follow: Callable[..., Followed]) -> None:
    numbers = range(20, 30)
    one = follow(*numbers)
    one.took = 0.3
    for record in (10, 11, 12, 13):  # it learns what a batch takes
        one.bring(record, *(table(number, 3, record) for number in numbers))
        seen = one.now
        while sum(one.commits()) < len(numbers) * (record - 8):
            one.due_at(record, 0.1)
            one.loop.offer(RecordNumber(record), patience=5)
    assert one.commits() == [5] * len(numbers)
    assert one.now <= seen + HOLD + 0.5, "ten batches of 0.3 s, one after the other"
    one.loop.stop()


def test_a_table_that_must_be_begun_before_the_next_record_is_begun_at_once(follow: Callable[..., Followed]) -> None:
    """Else it would be committed later, and hold no more."""
    one = follow(7)
    one.record = 1.5
    for record in (10, 11):
        one.bring(record, table(7, 3, *range(10, record + 1)))
        assert 1 < one.loop.due_in(RecordNumber(record)) < HOLD
        one.now += 1.5
    one.bring(12, table(7, 3, 10, 11, 12))
    assert one.loop.due_in(RecordNumber(12)) == 0.0, "the fourth record may come too late"
    one.loop.offer(RecordNumber(12), patience=5)
    assert one.commits() == [2] and one.now == 103.0
    one.bring(13, table(7, 3, 10, 11, 12, 13))
    one.now += 2.0
    assert one.loop.due_in(RecordNumber(13)) > 0, "the next record is late, which is no reason to hurry"
    one.loop.stop()


def test_of_tables_that_would_all_be_due_behind_one_record_some_are_committed_before(
    follow: Callable[..., Followed],
) -> None:
    """So that not all have to be committed before a record that most of them can wait for."""
    numbers = range(20, 30)
    one = follow(*numbers)
    one.took, one.record = 0.3, 1.5
    for record in range(10, 18):  # it learns what a batch takes
        one.bring(record, *(table(number, 3, record) for number in numbers))
        while sum(one.commits()) < len(numbers) * (record - 8):
            one.due_at(record, 0.1)
            one.loop.offer(RecordNumber(record), patience=5)
    before, begun = one.commits(), one.now
    brought = [list[int]() for _ in numbers]
    for record in range(18, 21):
        one.now = max(one.now, begun + 1.5 * (record - 18))
        for records in brought:
            records.append(record)
        one.bring(record, *(table(n, 3, *records) for n, records in zip(numbers, brought, strict=True)))
        if one.loop.is_due(RecordNumber(record)):
            one.loop.offer(RecordNumber(record), patience=5)
    assert one.now <= begun + HOLD
    made = [now - then for then, now in zip(before, one.commits(), strict=True)]
    assert sorted(made) == [1] * len(made)
    held = [one.targets[number].applied[-1].applied_record for number in numbers]
    assert [held.count(RecordNumber(record)) for record in (18, 19, 20)] == [2, 5, 3]
    one.loop.stop()


def test_a_table_that_takes_long_is_begun_early_however_many_threads_there_are(follow: Callable[..., Followed]) -> None:
    one = follow(7, threads=4)
    one.took = 2.0
    for record in range(10, 16):  # it learns what a batch takes
        one.bring(record, table(7, 3, record))
        begun = one.now
        one.due_at(record, 0.1)
        one.loop.offer(RecordNumber(record), patience=5)
    assert one.commits() == [7]
    assert begun + HOLD - 0.3 < one.now <= begun + HOLD + 0.1, "no thread makes one batch any faster"
    assert one.times.longest == pytest.approx(2.0, abs=0.1)
    assert one.times.together == pytest.approx(one.times.longest / 4)
    one.loop.stop()


def test_changes_that_come_during_a_batch_wait_from_then_on(follow: Callable[..., Followed]) -> None:
    """Counted from the batch's end, they would be late by what it took."""
    one = follow(7)
    one.took = 1.5
    one.bring(10, table(7, 3, 10))
    one.during = lambda: one.bring_and_look(11, table(7, 3, 10, 11))
    one.due_at(10)
    one.loop.offer(RecordNumber(10), patience=5)
    ended = one.now
    assert one.commits() == [2] and one.targets[7].applied[-1].applied_record == 10
    one.took = 0.0
    assert 0 < one.loop.due_in(RecordNumber(11)) <= HOLD - 1.5
    one.due_at(11)
    one.loop.offer(RecordNumber(11), patience=5)
    assert one.commits() == [3] and one.now <= ended - 1.5 + HOLD
    one.bring(12, table(7, 3, 10, 11, 12))
    assert one.loop.due_in(RecordNumber(12)) > HOLD - 1.6, "what has come since begins to wait"
    one.loop.stop()


def test_changes_that_a_longer_batch_has_taken_along_leave_no_time_behind(follow: Callable[..., Followed]) -> None:
    one = follow(7)
    one.limits = replace(LIMITS, rows=1)
    one.loop.forget([7])
    one.took = 1.0
    one.bring(11, table(7, 3, 10, 11))

    def offered() -> None:
        one.bring_and_look(12, table(7, 3, 10, 11, 12))
        one.loop.offer(RecordNumber(12))

    one.during = offered
    one.loop.offer(RecordNumber(11), patience=5)
    assert [applied.applied_record for applied in one.targets[7].applied[1:]] == [10, 11, 12]
    assert one.loop.due_in(RecordNumber(12)) == math.inf
    one.now += 60
    one.bring(13, table(7, 3, 10, 11, 12, 13))
    assert one.loop.due_in(RecordNumber(13)) > 0, "it begins to wait"
    one.loop.stop()


def test_of_tables_that_cannot_all_be_in_time_the_one_that_waits_longest_is_first(
    follow: Callable[..., Followed],
) -> None:
    one = follow(7, 8, 9)
    one.order.clear()
    one.bring(10, table(7, 3), table(8, 3), table(9, 3, 10))
    assert not one.loop.is_due(RecordNumber(10))
    one.now += 1
    one.bring(11, table(7, 3, 11), table(8, 3), table(9, 3, 10))
    assert not one.loop.is_due(RecordNumber(11))
    one.now += 1
    one.bring(12, table(7, 3, 11), table(8, 3, 12), table(9, 3, 10))
    assert not one.loop.is_due(RecordNumber(12))
    one.now += 60
    one.loop.offer(RecordNumber(12), patience=5)
    assert one.order == [9, 7, 8]
    one.loop.stop()


def test_how_late_tables_are_committed_is_known_and_forgotten_when_they_are_in_time_again(
    follow: Callable[..., Followed],
) -> None:
    numbers = range(20, 20 + MANY)
    one = follow(*numbers)
    assert one.loop.late == 0.0

    def round_of(records: range, waits: float) -> None:
        for record in records:
            one.bring(record, *(table(number, 3, record) for number in numbers))
            assert not one.loop.is_due(RecordNumber(record))
            one.now += waits
            one.loop.offer(RecordNumber(record), patience=5)

    round_of(range(10, 20), HOLD + 2.0)
    assert 1.9 < one.loop.late <= 2.0
    round_of(range(20, 26), HOLD)
    assert one.loop.late < 0.01
    round_of(range(26, 28), 3600.0)
    assert one.loop.late <= LATEST, "a pause of an hour counts for seconds"
    assert not one.loop.is_due(RecordNumber(27))
    assert one.loop.late == 0.0, "all have everything"
    one.loop.stop()


def test_a_few_late_tables_have_no_longer_records(follow: Callable[..., Followed]) -> None:
    one = follow(7)
    for record in range(10, 20):
        one.bring(record, table(7, 3, record))
        assert not one.loop.is_due(RecordNumber(record))
        one.now += HOLD + 100.0
        one.loop.offer(RecordNumber(record), patience=5)
    assert 0 < one.loop.late <= LATEST / MANY
    one.loop.stop()


def test_a_table_that_is_being_read_is_not_late(follow: Callable[..., Followed]) -> None:
    one = follow(7)
    read = table(7, 3, chunk=True)
    chunks = [LoggedChunk(record=RecordNumber(10), chunk=each.chunk) for each in read.chunks]
    one.bring(10, read.model_copy(update={"chunks": AppendList(chunks)}))
    one.due_at(10)
    one.now += 60
    one.loop.offer(RecordNumber(10), patience=5)
    assert one.commits() == [2] and one.loop.late == 0.0
    one.loop.stop()


def test_people_who_wait_for_a_snapshot_wait_for_little_more(follow: Callable[..., Followed]) -> None:
    one = follow(7)
    read = table(7, 3, chunk=True)
    chunks = [LoggedChunk(record=RecordNumber(10), chunk=each.chunk) for each in read.chunks]
    one.bring(10, read.model_copy(update={"chunks": AppendList(chunks)}))
    assert one.due_at(10, 0.1) <= SNAPSHOT_HOLD
    one.loop.stop()


def test_with_the_end_of_its_snapshot_a_table_has_nothing_more_to_wait_for(follow: Callable[..., Followed]) -> None:
    """Of hundreds of small tables the last one would else show its rows a second later."""
    one = follow(7)
    read = table(7, 3, chunk=True)
    chunks = [LoggedChunk(record=RecordNumber(10), chunk=each.chunk) for each in read.chunks]
    finish = LoggedFinish(
        record=RecordNumber(11), snapshot_id="s", complete=True, replay_point=Seq(0), chunks=tuple(chunks)
    )
    one.bring(11, read.model_copy(update={"chunks": AppendList(chunks), "finishes": (finish,)}))
    assert one.loop.is_due(RecordNumber(11))
    one.loop.stop()


def test_a_table_that_is_dropped_gets_its_last_changes_first(follow: Callable[..., Followed]) -> None:
    """Its copy is kept as the table was at its end."""
    one = follow(7, 8)
    ended = table(7, 3, 10).model_copy(update={"removed": True})
    one.bring(10, ended, table(8, 3))
    assert one.loop.is_due(RecordNumber(10))
    one.loop.offer(RecordNumber(10), patience=5)
    assert one.targets[7].applied[-1].applied_record == 10
    one.loop.offer(RecordNumber(11), patience=5)
    assert one.commits() == [2, 1] and one.loop.is_done_with(place_of(ended))
    one.loop.stop()


def test_a_table_whose_copy_is_deleted_or_whose_place_is_taken_gets_nothing_more(
    follow: Callable[..., Followed],
) -> None:
    one = follow(7, 8)
    ended = [table(number, 3, 10).model_copy(update={"removed": True}) for number in (7, 8)]
    taken = table(9, 10)
    name = {"table_name": "t8"}
    schema = taken.schemas[0].model_copy(update={"table": taken.schema.model_copy(update=name)})
    one.targets[9] = Target()
    one.bring(10, *ended, taken.model_copy(update={"schemas": (schema,)}))
    dropped = DroppedTable(place=place_of(ended[0]), table_ids=(7,), generation=RecordNumber(0), begun=False)
    one.journal.state = one.journal.state.model_copy(update={"dropped": (dropped,)})
    one.loop.offer(RecordNumber(10), patience=5)
    assert one.commits() == [1, 1, 1]
    assert one.loop.is_done_with(place_of(ended[0]))
    one.loop.stop()


def test_tables_are_listed_only_while_no_other_thread_adds_or_forgets_one(follow: Callable[..., Followed]) -> None:
    """The loop that deletes dropped copies asks from a thread of its own: a list that changed under it ended the
    driver."""
    one = follow(7)
    schedule = one.loop._schedule
    listed = schedule.live

    def guarded() -> list[TableLog]:
        assert one.loop._lock.locked()
        return listed()

    schedule.__dict__["live"] = guarded
    one.bring(10, table(7, 3, 10))
    one.loop.offer(RecordNumber(10))
    assert not one.loop.is_due(RecordNumber(10))
    assert one.loop.is_done_with(("s", "t8"))
    one.loop.stop()


def test_a_table_that_failed_is_tried_again_when_its_pause_has_ended(follow: Callable[..., Followed]) -> None:
    one = follow(7, faults=(Retry("away", ""),))
    one.bring(10, table(7, 3, 10))
    one.due_at(10)
    one.loop.offer(RecordNumber(10), patience=5)
    assert one.commits() == [1] and one.progress.of(7).fault is not None
    assert not one.loop.is_due(RecordNumber(10)), "its pause has not ended"
    assert one.due_at(10, 0.1) < HOLD
    one.loop.offer(RecordNumber(10), patience=5)
    assert one.commits() == [2]
    one.loop.stop()
