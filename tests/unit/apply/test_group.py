"""Tables that one commit moves together: when a table joins them, and when it leaves."""

from dataclasses import replace
from typing import Any, cast

from typing_extensions import override

from support.apply_loop import LIMITS, Journal, Loop, Target, TargetUnit, log, table, worker_of
from tailrace.apply.applier import LOOK_SECONDS
from tailrace.apply.progress import Progress
from tailrace.apply.unit_worker import UnitWorker
from tailrace.batch.applied import AppliedState
from tailrace.batch.limits import BatchLimits
from tailrace.batch.slice import TableSlice
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import TableLog
from tailrace.contract.pace import Pace
from tailrace.errors import Locked, Retry, TargetChanged, TargetRefused


def _at(record: int) -> AppliedState:
    return AppliedState("log", Seq(record), RecordNumber(record), frozenset(), 1, 8)


class Grouped:
    """An applier over a target whose commits can move all tables; the test brings records."""

    def __init__(
        self, *tables: int, level: frozenset[int] = frozenset(), hold: float = 0.0, limits: BatchLimits = LIMITS
    ) -> None:
        self.now = 100.0
        self.targets = {number: Target() for number in tables}
        self.progress = Progress()
        self.unit = TargetUnit(self.targets, level)
        self.journal = Journal(log())
        self.loop = Loop(
            cast(SharedJournal, self.journal),
            self.progress,
            lambda known: worker_of(self.targets[known.table_id], self.progress, known.table_id),
            group=UnitWorker(self.unit, self.progress, limits),
            pace=lambda _: Pace(0.0, 0.0, hold),
            retry_seconds=lambda: 60.0,
            threads=1,
            clock=lambda: self.now,
            monotonic=lambda: self.now,
        )

    def bring(self, number: int, *tables: TableLog, offers: int = 3) -> list[tuple[int, set[int], set[int]]]:
        """The group's batches of a record, until nothing more happens."""
        self.journal.state, before = log(*tables, number=number), len(self.unit.batches)
        for _ in range(offers):
            self.loop.offer(number, patience=5)
        return self.unit.batches[before:]

    def records(self) -> list[RecordNumber]:
        return [self.progress.of(number).applied_record for number in self.targets]


def test_tables_that_are_found_level_are_moved_by_one_commit_and_those_without_changes_are_named_in_it() -> None:
    one = Grouped(7, 8, 9, level=frozenset({7, 8, 9}))
    one.bring(9, table(7, 3), table(8, 5), table(9))
    assert one.bring(12, table(7, 3, 12), table(8, 5), table(9, 11)) == [(12, {7, 8, 9}, {7, 9})]
    assert one.records() == [12, 12, 12]
    one.loop.stop()


def test_a_table_that_is_not_level_is_brought_forward_by_itself_and_joins_the_others_then() -> None:
    one = Grouped(7, 8, level=frozenset({7}))
    one.targets[7].applied.append(_at(2))
    assert one.bring(9, table(7, 3), table(8, 3)) == [(9, {7}, {7})]
    assert [c.applied_record for c in one.targets[8].applied] == [9]
    assert one.bring(12, table(7, 3, 12), table(8, 3, 11)) == [(12, {7, 8}, {7, 8})]
    one.loop.stop()


def test_while_a_snapshot_of_a_table_is_called_for_it_stays_by_itself() -> None:
    one = Grouped(7, 8, level=frozenset({7}))
    read = table(8, 3).model_copy(update={"initial_snapshot": True})
    one.bring(9, table(7, 3), read)
    assert one.bring(12, table(7, 3, 12), read) == [(12, {7}, {7})]
    one.loop.stop()


def test_tables_stay_together_if_their_first_commit_fails_and_after_a_start_before_it() -> None:
    """One that fits showed its part of a transaction while the other one failed: each went by itself."""
    one = Grouped(7, 8, level=frozenset())
    one.targets[7].applied.append(_at(5))
    one.targets[8].applied.append(_at(4))
    one.targets[7].faults.append(Retry("the disk is full"))
    changed = table(7, 3, 9), table(8, 3, 9)
    assert one.bring(9, *changed, offers=2) == [(9, {7, 8}, {7, 8})]
    assert len(one.targets[8].applied) == 1
    one.now += 30
    assert one.bring(9, *changed) == [(9, {7, 8}, {7, 8})]
    one.loop.stop()


def test_a_table_that_fails_leaves_the_group_which_continues_in_the_same_turn_and_comes_back() -> None:
    one = Grouped(7, 8, level=frozenset({7, 8}))
    one.bring(9, table(7, 3), table(8, 3))
    one.unit.failing[8] = TargetChanged("s.t8", "somebody changed it", "")
    one.targets[8].faults.append(Retry("still"))
    changed = table(7, 3, 12), table(8, 3, 12)
    assert one.bring(12, *changed, offers=1) == [(12, {7}, {7})]
    fault = one.progress.of(8).fault
    assert fault is not None and fault.name == "TargetChanged"
    assert one.progress.of(7).fault is None
    one.unit.failing.clear()
    for _ in range(3):
        one.now += 30
        one.bring(12, *changed, offers=1)
    assert one.records() == [12, 12]
    assert one.bring(14, table(7, 3, 12, 14), table(8, 3, 12, 14)) == [(14, {7, 8}, {7, 8})]
    one.loop.stop()


def test_a_table_behind_the_group_does_not_join_it() -> None:
    """The group would have to go back."""
    one = Grouped(7, 8, level=frozenset({7}))
    one.targets[7].applied.append(_at(2))
    one.bring(9, table(7, 3), table(8, 3), offers=2)
    assert one.records() == [9, 9]
    one.progress.put(7, replace(one.progress.of(7), applied_record=RecordNumber(11)))
    assert one.bring(12, table(7, 3, 12), table(8, 3, 12), offers=1) == [(12, {7}, {7})]
    assert one.bring(14, table(7, 3, 12, 14), table(8, 3, 12, 14)) == [(14, {7, 8}, {7, 8})]
    one.loop.stop()


def test_a_table_that_is_ahead_waits_until_the_others_have_come_to_it() -> None:
    one = Grouped(7, 8, level=frozenset({7, 8}))
    one.targets[8].applied.append(_at(11))
    states = table(7, 3, 10, 12), table(8, 3, 12)
    assert one.bring(12, *states) == [(11, {7, 8}, {7}), (12, {7, 8}, {7, 8})]
    one.loop.stop()


def test_a_table_that_is_ahead_is_not_called_level_before_the_others_have_come_to_it() -> None:
    """A driver that begins in between would show it beside tables that lack half of its last transaction."""
    one = Grouped(7, 8, level=frozenset({7, 8}), limits=replace(LIMITS, rows=1))
    one.targets[8].applied.append(_at(11))
    brought = one.bring(12, table(7, 4, 8, 10, 12), table(8, 12), offers=9)
    assert brought == [(7, {7}, {7}), (9, {7}, {7}), (11, {7, 8}, {7}), (12, {7, 8}, {7, 8})]
    one.loop.stop()


class Slow(Target):
    """Each batch takes some time."""

    clock: Grouped

    @override
    def apply(self, part: TableSlice) -> AppliedState:
        self.clock.now += 0.6
        return super().apply(part)


def test_a_group_that_rests_between_two_commits_catches_up_without_waiting_for_more_changes() -> None:
    one = Grouped(7, level=frozenset({7}), hold=10.0, limits=replace(LIMITS, rows=1))
    one.bring(1, table(7))
    slow = one.targets[7] = Slow()
    slow.clock, slow.applied = one, [_at(1)]
    records = range(2, 42)
    one.journal.state = log(table(7, *records), number=41)
    assert not one.loop.is_due(RecordNumber(41))
    one.now += 11
    for _ in range(len(records)):
        one.loop.offer(41, patience=5)
    assert one.records() == [41] and one.now < 111 + 0.6 * len(records) + 1
    one.loop.stop()


def test_a_table_that_cannot_be_tidied_concerns_no_other() -> None:
    """What its target refused ended the process, as if every table had been refused."""

    class Refusing(Target):
        @override
        def tidy(self, *_: Any) -> None:
            raise TargetRefused("a lock of somebody else", "")

    one = Grouped(7, 8, level=frozenset({7, 8}))
    one.targets[8] = Refusing()
    one.bring(9, table(7, 3), table(8, 3), offers=1)
    one.loop.tidy_up(5)
    fault = one.progress.of(8).fault
    assert fault is not None and fault.name == "TargetRefused" and one.progress.of(7).fault is None
    assert one.bring(12, table(7, 3, 12), table(8, 3, 12), offers=1) == [(12, {7, 8}, {7, 8})]
    one.loop.stop()


def test_a_table_whose_upkeep_waits_has_no_other_wait() -> None:
    class Waiting(Target):
        @override
        def tidy(self, *_: Any) -> None:
            raise Locked("rows of a snapshot that are being loaded into s.t8")

    one = Grouped(7, 8, level=frozenset({7, 8}))
    one.targets[8] = Waiting()
    one.bring(9, table(7, 3), table(8, 3), offers=1)
    one.loop.tidy_up(5)
    assert one.bring(12, table(7, 3, 12), table(8, 3, 12), offers=1) == [(12, {7, 8}, {7, 8})]
    assert one.progress.of(8).fault is None
    one.loop.stop()


def test_a_failing_table_has_no_other_opened_again() -> None:
    one = Grouped(7, 8, level=frozenset({7, 8}))
    one.bring(9, table(7, 3), table(8, 3))
    one.unit.failing[8] = TargetChanged("s.t8", "somebody changed it", "")
    one.bring(12, table(7, 3, 12), table(8, 3, 12), offers=1)
    assert (one.targets[7].opened, one.targets[8].opened) == (1, 1)
    one.loop.stop()


def test_a_fault_of_the_whole_target_is_that_of_all_its_tables() -> None:
    one = Grouped(7, 8, level=frozenset({7, 8}))
    one.targets[7].faults.append(Retry("away"))
    assert one.bring(9, table(7, 3), table(8, 3), offers=1) == [(9, {7, 8}, {7, 8})]
    assert all(one.progress.of(number).fault is not None for number in (7, 8))
    one.now += 30
    assert one.bring(9, table(7, 3), table(8, 3)) == [(9, {7, 8}, {7, 8})]
    assert one.records() == [9, 9]
    one.loop.stop()


def test_a_table_whose_copy_is_dropped_while_nothing_changes_is_named_and_made_again() -> None:
    one = Grouped(7, 8, level=frozenset({7, 8}))
    one.bring(9, table(7, 3), table(8, 5))
    one.unit.gone, one.targets[8].applied = {8}, []
    for passed in (LOOK_SECONDS / 2, LOOK_SECONDS):
        assert one.progress.of(8).fault is None
        one.now += passed
        one.loop.offer(9, patience=5)
        one.loop.tidy_up(5)
    fault = one.progress.of(8).fault
    assert fault is not None and "dropped or replaced" in fault.message
    one.unit.gone = set()
    one.bring(9, table(7, 3), table(8, 5))
    assert (one.progress.of(8).fault, one.records()) == (None, [9, 9])
    assert (one.targets[7].opened, one.targets[8].opened) == (1, 2)
    one.loop.stop()
