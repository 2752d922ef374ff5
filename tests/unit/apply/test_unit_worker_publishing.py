"""When a new copy takes the place of what readers see."""

from dataclasses import replace

import pytest
from typing_extensions import override

from support.apply_loop import Target, alone, log, table
from support.states import with_snapshots
from tailrace.apply.progress import Progress
from tailrace.apply.publishing import read_whole
from tailrace.apply.unit_worker import PATIENCE
from tailrace.batch.applied import AppliedState, Generation
from tailrace.batch.slice import TableSlice
from tailrace.changelog.records.snapshots import ReadFailure, SnapshotPlanned, SnapshotTableFinished
from tailrace.changelog.records.terms import Key, RecordNumber, Seq, TableSchema
from tailrace.changelog.state import LoggedFinish, LogState, SnapshotState, SnapshotTable, TableLog

READ = {"read_record": RecordNumber(2)}
AT = AppliedState("log", Seq(9), RecordNumber(9), schema_version=1, table_id=7)


def snapshot(where: str | None = None, keys: tuple[Key, ...] | None = None, done: bool = False) -> SnapshotState:
    plan = SnapshotPlanned(snapshot_id="s", reason="request", tables=(7,), where=where, keys=keys)
    finished = SnapshotTableFinished(snapshot_id="s", table_id=7, chunks=1, complete=True) if done else None
    return SnapshotState(plan=plan, record=RecordNumber(3), tables={7: SnapshotTable(table_id=7, finished=finished)})


def state(known: TableLog, *snapshots: SnapshotState) -> LogState:
    return with_snapshots(log(known, number=99), {s.plan.snapshot_id: s for s in snapshots})


def known(**more: object) -> TableLog:
    return table(7, 3).model_copy(update=READ | more)


def finish(record: int, complete: bool = True) -> LoggedFinish:
    return LoggedFinish(record=RecordNumber(record), snapshot_id="s", complete=complete, replay_point=Seq(1), chunks=())


@pytest.mark.parametrize(
    ("logged", "snapshots", "applied", "whole"),
    [
        (known(), (), AT, True),
        (known(read_record=RecordNumber(-1)), (), AT, False),
        (known(read_record=RecordNumber(1)), (), AT, False),
        (known(reread_record=RecordNumber(4)), (), AT, False),
        (known(unread=ReadFailure(message="m", where="source")), (), AT, False),
        (known(), (), replace(AT, gap=RecordNumber(4)), False),
        (known(), (snapshot(),), AT, False),
        (known(), (snapshot(done=True),), AT, True),
        (known(), (snapshot(where="a = 1"),), AT, True),
        (known(), (snapshot(keys=(("1",),)),), AT, True),
        (known(initial_snapshot=True), (), AT, False),
        (known(finishes=(finish(8),)), (), AT, True),
        (known(finishes=(finish(8),)), (), replace(AT, applied_record=RecordNumber(7)), False),
        (known(finishes=(finish(8, complete=False),)), (), replace(AT, applied_record=RecordNumber(7)), True),
    ],
)
def test_a_table_is_read_when_a_snapshot_of_all_of_it_has_ended_in_the_target_and_no_other_is_called_for(
    logged: TableLog, snapshots: tuple[SnapshotState, ...], applied: AppliedState, whole: bool
) -> None:
    assert read_whole(logged, state(logged, *snapshots), applied) == whole


class Copying(Target):
    """Makes a new copy; what of it is withheld after each batch."""

    def __init__(self, *withheld: set[str]) -> None:
        super().__init__()
        self.withheld = list(withheld)
        self.published: list[AppliedState] = []
        self.keeps: bool | None = None

    @property
    @override
    def replacing(self) -> bool:
        return not self.published

    @override
    def publish(self) -> None:
        self.published.append(self.applied[-1])

    @override
    def open(self, schema: TableSchema, log_id: str, generation: Generation) -> AppliedState:
        self.keeps = generation.keeps
        return super().open(schema, log_id, generation)

    @override
    def apply(self, part: TableSlice) -> AppliedState:
        applied = super().apply(part)
        holes = frozenset((key,) for key in (self.withheld.pop(0) if self.withheld else ()))
        self.applied[-1] = replace(applied, holes=holes)
        return self.applied[-1]


def advanced(target: Copying, *records: int, **more: object) -> list[bool]:
    """Whether the table was a new copy still after each record."""
    progress = Progress()
    worker, logged, seen = alone(target, progress), table(7, *records).model_copy(update=READ | more), []
    for record in records:
        while worker.advance(state(logged), RecordNumber(record)):
            pass
        seen.append(progress.of(7).replacing)
    return seen


def test_a_complete_copy_is_shown_after_the_batch_that_completes_it() -> None:
    target = Copying()
    assert advanced(target, 3, 4) == [False, False]
    assert [applied.applied_record for applied in target.published] == [3] and target.keeps


def test_nothing_is_kept_of_a_table_that_must_no_longer_be_shown() -> None:
    target = Copying()
    advanced(target, 3, must_hide=True)
    assert target.keeps is False


def test_an_incomplete_copy_is_not_shown() -> None:
    target = Copying()
    assert advanced(target, 3, 4, unread=ReadFailure(message="m", where="source")) == [True, True]
    assert target.published == []


def test_rows_that_are_withheld_when_the_copy_is_complete_are_waited_for_and_those_of_later_changes_are_not() -> None:
    target = Copying({"1", "2"}, {"2", "3"}, {"3", "1"})
    assert advanced(target, 3, 4, 5, 6) == [True, True, False, False]


def test_a_row_that_is_withheld_again_and_again_is_not_waited_for_for_ever() -> None:
    target = Copying(*[{"1"} for _ in range(PATIENCE + 3)])
    seen = advanced(target, *range(3, PATIENCE + 5))
    assert seen.index(False) == PATIENCE - 1
