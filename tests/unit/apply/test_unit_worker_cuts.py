"""Cuts: a batch ends at each, the version that holds it is kept before the next one, whoever was killed in between."""

from dataclasses import replace
from typing import cast

import pytest
from typing_extensions import override

from support.apply_loop import LIMITS, Journal, Loop, Target, TargetUnit, alone, log, table, worker_of
from tailrace.apply.progress import HeldCut, Progress
from tailrace.apply.unit_worker import TableCopy, UnitWorker
from tailrace.batch.applied import AppliedState
from tailrace.changelog import cuts
from tailrace.changelog.records.terms import Position, RecordNumber, Seq
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LoggedCut, LogState
from tailrace.errors import Retry
from tailrace.targets.api import TableFailed


def with_cuts(state: LogState, *records: int, tables: tuple[int, ...] = (7,)) -> LogState:
    made = [
        LoggedCut(
            name=f"c{n}", scheduled=False, record=RecordNumber(n), position=Position(n), commit_time=None, made_at=n,
            awaited=frozenset(tables),
        )
        for n in records
    ]  # fmt: skip
    return state.model_copy(update={"cuts": {cut.name: cut for cut in made}})


def records_of(target: Target) -> list[int]:
    return [applied.applied_record for applied in target.applied]


def run(worker: UnitWorker, state: LogState) -> None:
    while worker.advance(state, state.number):
        pass


def test_a_batch_ends_at_each_cut_and_its_version_is_kept() -> None:
    target, progress = Target(), Progress()
    run(alone(target, progress), with_cuts(log(table(7, 3, 4, 6, 8)), 4, 6))
    assert records_of(target) == [4, 6, 9]
    assert target.kept == {"c4": 0, "c6": 1}
    assert progress.held() == {("c4", 7): HeldCut(0), ("c6", 7): HeldCut(1)}


def test_a_table_to_which_nothing_came_is_at_a_cut_with_the_version_that_it_has() -> None:
    target, progress = Target(), Progress()
    worker = alone(target, progress)
    run(worker, log(table(7, 3), number=4))
    run(worker, with_cuts(log(table(7, 3), number=9), 6, 8))
    assert (records_of(target), target.kept) == ([4], {"c6": 0, "c8": 0})


def test_the_loop_enters_a_table_to_which_nothing_came_for_a_cut() -> None:
    target, progress = Target(), Progress()
    journal = Journal(log(table(7, 3), number=4))
    loop = Loop(
        cast(SharedJournal, journal), progress, lambda t: worker_of(target, progress, t.table_id),
        retry_seconds=lambda: 60.0,
    )  # fmt: skip
    loop.offer(4, patience=5)
    journal.state = with_cuts(log(table(7, 3), number=9), 6)
    loop.offer(9, patience=5)
    loop.stop()
    assert (target.kept, progress.of(7).applied_record) == ({"c6": 0}, 9)


@pytest.mark.parametrize("passed", [5, 9])
def test_a_cut_that_a_killed_process_had_come_to_is_found_again_by_its_record(passed: int) -> None:
    """It was killed between its commit and the naming, or before the journal knew the name."""
    state = with_cuts(log(table(7, 3, 5, 8)), 5)
    target, progress = Target(), Progress()
    run(alone(target, progress), state.model_copy(update={"cuts": {}, "number": RecordNumber(5), "last_seq": Seq(5)}))
    if passed > 5:
        run(alone(target, Progress()), state.model_copy(update={"cuts": {}}))
    progress = Progress()
    run(alone(target, progress), state)
    assert records_of(target) == [5, 9]
    assert (target.kept, progress.held()) == ({"c5": 0}, {("c5", 7): HeldCut(0)})


def test_what_the_journal_says_already_is_not_named_again() -> None:
    state = with_cuts(log(table(7, 3, 5)), 3)
    settled = state.cuts["c3"].model_copy(update={"awaited": frozenset(), "versions": {7: 41}})
    target, progress = Target(), Progress()
    worker = alone(target, progress)
    run(worker, state.model_copy(update={"cuts": {"c3": settled}}))
    assert (target.kept, progress.held()) == ({}, {})
    worker.tidy(7, state.model_copy(update={"cuts": {"c3": settled}}), 0.0)
    assert target.kept == {"c3": 41}, "it is kept by the upkeep"
    worker.tidy(7, state.model_copy(update={"cuts": {}, "number": RecordNumber(10)}), 0.0)
    assert target.kept == {}, "until it is dropped"


HOLDS = AppliedState("log", Seq(4), RecordNumber(4), schema_version=1, table_id=7)


@pytest.mark.parametrize(
    ("applied", "why"),
    [
        (replace(HOLDS, holes=frozenset({("1",)})), "1 rows were withheld until they are read again"),
        (replace(HOLDS, gap=RecordNumber(2)), "rows are missing that are read again"),
    ],
)
def test_a_copy_that_is_not_what_the_source_had_is_not_in_the_cut(applied: AppliedState, why: str) -> None:
    class Lacking(Target):
        @override
        def open(self, *given: object) -> AppliedState:
            return self.applied[0]

    target, progress = Lacking(), Progress()
    target.applied = [applied]
    run(alone(target, progress), with_cuts(log(table(7, 3), number=4), 4))
    assert (target.kept, progress.held()) == ({}, {("c4", 7): HeldCut(why=why)})


def test_a_new_copy_that_readers_do_not_see_is_not_in_the_cut() -> None:
    class New(Target):
        replacing = True

    target, progress = New(), Progress()
    run(alone(target, progress), with_cuts(log(table(7, 3), number=5), 4))
    assert (target.kept, progress.held()) == ({}, {("c4", 7): HeldCut(why=cuts.STARTED_OVER)})


def test_a_table_that_cannot_keep_its_version_does_not_pass_the_cut_and_no_other_waits() -> None:
    class Refusing(TargetUnit):
        @override
        def keep(self, table_id: int, versions: object) -> None:
            if table_id == 7 and versions:
                raise Retry("the catalog is away")
            super().keep(table_id, cast(dict[str, int], versions))

    state = with_cuts(log(table(7, 3, 6), table(8, 3, 6)), 4, tables=(7, 8))
    targets, progress = {7: Target(), 8: Target()}, Progress()
    worker = UnitWorker(Refusing({7: targets[7]}), progress, LIMITS)
    worker.add(TableCopy(7))
    for _ in range(2):
        with pytest.raises(TableFailed, match="the catalog is away"):
            run(worker, state)
    other = UnitWorker(Refusing({8: targets[8]}), progress, LIMITS)
    other.add(TableCopy(8))
    run(other, state)
    assert (records_of(targets[7]), records_of(targets[8])) == ([4], [4, 9])
    run(alone(targets[7], progress), state)
    assert targets[7].kept == targets[8].kept == {"c4": 0}


def test_tables_that_one_commit_moves_come_to_a_cut_together() -> None:
    state = with_cuts(log(table(7, 3, 6), table(8, 5)), 4, tables=(7, 8))
    unit, progress = TargetUnit({7: Target(), 8: Target()}), Progress()
    worker = UnitWorker(unit, progress, LIMITS)
    worker.add(TableCopy(7))
    worker.add(TableCopy(8))
    unit.targets[8].applied.append(AppliedState("log", Seq(0), RecordNumber(0), schema_version=1, table_id=8))
    run(worker, state)
    assert [record for record, _, _ in unit.batches] == [4, 9]
    assert progress.held() == {("c4", 7): HeldCut(0), ("c4", 8): HeldCut(0)}


def test_upkeep_that_began_with_an_older_state_lets_no_version_go() -> None:
    """It waits for a batch, which comes to a cut meanwhile; the driver may have noted that by then, too."""
    before, state = log(table(7, 3), number=3), with_cuts(log(table(7, 3, 5), number=6), 5)
    target, progress = Target(), Progress()
    worker = alone(target, progress)
    run(worker, before)
    run(worker, state)
    progress.recorded(list(progress.held()))
    for known in (before, state):
        worker.tidy(7, known, 0.0)
        assert target.kept == {"c5": 1}


def test_a_table_that_was_deleted_and_made_again_no_longer_has_the_versions_that_cuts_name() -> None:
    """Its new ones get the same numbers later, and hold other rows."""
    state = with_cuts(log(table(7, 3, 4, 6, 8)), 4, 6)
    held = {name: cut.model_copy(update={"awaited": frozenset(), "versions": {7: int(cut.record)}})
            for name, cut in state.cuts.items()}  # fmt: skip
    state = state.model_copy(update={"cuts": held})
    for newest, gone in ((6, []), (5, ["c6"]), (0, ["c4", "c6"])):
        target, progress = Target(), Progress()
        unit = TargetUnit({7: target})
        unit.numbers[7] = newest
        worker = UnitWorker(unit, progress, LIMITS)
        worker.add(TableCopy(7))
        run(worker, state)
        assert progress.held() == {(name, 7): HeldCut(None, cuts.MADE_AGAIN) for name in gone}
