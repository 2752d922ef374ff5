from collections.abc import Iterator

from support.states import keyed, log_state, snapshot, table_log, with_snapshots
from tailrace.apply.progress import TableProgress
from tailrace.changelog.append_list import AppendList
from tailrace.changelog.logged import LoggedCascade
from tailrace.changelog.records.snapshots import ReadFailure, SnapshotEnded, SnapshotPlanned
from tailrace.changelog.records.tables import ReachedRows, TableStopped
from tailrace.changelog.records.terms import Position, RecordNumber, Seq
from tailrace.changelog.state import LogState, TableLog
from tailrace.driver.once import OnceCheck
from tailrace.errors import Retry

PLAN = SnapshotPlanned(snapshot_id="initial-7-1", reason="initial", tables=(7,))


def table(table_id: int = 7, initial: bool = True, stopped: bool = False) -> TableLog:
    stop = (
        TableStopped(table_id=table_id, seq=Seq(1), error="NoKey", message="m", fix="f", where="source")
        if stopped
        else None
    )
    return table_log(keyed(table_id), initial_snapshot=initial, stopped=stop)


def log(*tables: TableLog, number: int = 5, position: int = 100, outcome: str | None = None) -> LogState:
    ended = None
    if outcome:
        ended = SnapshotEnded.model_validate({"snapshot_id": PLAN.snapshot_id, "outcome": outcome})
    snapshots = {PLAN.snapshot_id: snapshot(PLAN, ended=ended)} if outcome is not None else {}
    return log_state(*tables, number=number, position=Position(position), snapshots=snapshots)


def at(record: int, **more: object) -> dict[int, TableProgress]:
    return {7: TableProgress(applied_record=record, **more)}  # type: ignore[arg-type]  # fields by name


def once(position: int = 100) -> OnceCheck:
    return OnceCheck(lambda _: Position(position))


def test_it_waits_for_what_the_server_has_that_the_source_moved_to() -> None:
    """Its log begins behind the position of the one before."""
    ends = {0: Position(100), 200: Position(300)}
    check = OnceCheck(lambda state: ends[state.source_since])
    assert "capture" in check.look(log(table(), position=99), at(9), 0).waits_for
    moved = log(table(), position=200, outcome="completed").model_copy(update={"source_since": Position(200)})
    assert "capture has not reached" in check.look(moved, at(9), 0).waits_for
    assert check.look(moved.model_copy(update={"position": Position(300)}), at(9), 0).done


def test_rows_that_foreign_keys_have_reached_are_waited_for_until_they_have_been_read() -> None:
    check = once()
    event = LoggedCascade(record=RecordNumber(8), since=0, rows=(ReachedRows(columns=(1,), values=(("4",),)),))

    def waits_for(cascade: LoggedCascade) -> str:
        reached = table().model_copy(update={"cascades": AppendList([cascade])})
        state = log(reached, outcome="completed", number=9)
        return check.look(state, at(9), 0).waits_for

    told = "rows of s.t7 that foreign keys have reached are to be read again"
    assert waits_for(event) == told
    assert waits_for(event.model_copy(update={"snapshots": ("cascade-7-9-0",)})) == told
    assert waits_for(event.model_copy(update={"snapshots": (), "read_record": RecordNumber(9)})) == ""


def test_it_waits_while_another_server_answers_than_capture_knows() -> None:
    answers: Iterator[Retry | Position] = iter([Retry("another server"), Position(100)])

    def ask(_: LogState) -> Position:
        found = next(answers)
        if isinstance(found, Retry):
            raise found
        return found

    check, state = OnceCheck(ask), log(table(), outcome="completed")
    assert check.look(state, at(9), 0).waits_for == "the source's position is not known yet: another server"
    assert check.look(state, at(9), 0).done


def test_it_waits_for_capture_then_the_snapshot_then_the_table() -> None:
    check = once()
    assert "capture" in check.look(log(table(), position=99), at(9), 0).waits_for
    assert "planned" in check.look(log(table()), at(9), 0).waits_for
    assert "under way" in check.look(log(table(), outcome=""), at(9), 0).waits_for
    done = log(table(), outcome="completed", number=8)
    assert "has not applied record 8" in check.look(done, at(7), 0).waits_for
    later = done.model_copy(update={"number": 20})
    assert check.look(later, at(8), 0).done


def test_withheld_rows_and_open_requests_hold_it_up() -> None:
    check = once()
    state = log(table(), outcome="completed")
    assert not check.look(state, at(9, holes=frozenset({("1",)})), 0).done
    assert not check.look(state, at(9), 1).done
    assert check.look(state, at(9), 0).done


def test_rows_withheld_by_later_changes_are_counted_and_not_waited_for() -> None:
    check = once()
    state = log(table(), outcome="completed")
    assert not check.look(state, at(9, holes=frozenset({("1",)})), 0).done
    verdict = check.look(state, at(10, holes=frozenset({("2",)})), 0)
    assert (verdict.done, verdict.withheld) == (True, ("s.t7 (1 row)",))


def test_a_row_that_is_withheld_again_and_again_is_waited_for_until_a_later_repair_of_it_is_applied() -> None:
    check = once()
    state = log(table(), outcome="completed")
    hot = frozenset({("1",)})
    assert not check.look(state, at(9, holes=hot), 0).done
    plan = SnapshotPlanned(snapshot_id="repair-7-6", reason="repair", tables=(7,), keys=(("1",),))
    repair = snapshot(plan, 6)
    running = with_snapshots(state, state.snapshots | {plan.snapshot_id: repair}, number=6)
    assert not check.look(running, at(12, holes=hot), 0).done
    ended = SnapshotEnded.model_validate({"snapshot_id": plan.snapshot_id, "outcome": "completed"})
    over = {"ended": ended, "plan": plan.model_copy(update={"keys": ()})}  # as the fold leaves it
    done = {plan.snapshot_id: repair.model_copy(update=over)}
    later = with_snapshots(running, running.snapshots | done, number=14)
    assert not check.look(later, at(13, holes=hot), 0).done
    assert check.look(later, at(14, holes=hot), 0).done


def test_a_source_without_matching_tables_is_not_done() -> None:
    assert not once(1).look(log(), {}, 0).done


def test_a_stopped_table_does_not_hold_it_up_but_makes_it_a_failure() -> None:
    state = log(table(), table(8, initial=False, stopped=True), outcome="completed")
    verdict = once().look(state, at(9), 0)
    assert (verdict.done, verdict.failed) == (True, ("s.t8",))


def test_a_table_that_an_earlier_run_could_not_read_whole_is_a_failure_until_it_is_read() -> None:
    unread = table(initial=False).model_copy(
        update={"unread": ReadFailure(message="ReadRefused: no right", where="source")}
    )
    verdict = once().look(log(unread), at(9), 0)
    assert (verdict.done, verdict.failed) == (True, ("s.t7",))
    again = once()
    assert "under way" in again.look(log(unread, outcome=""), at(9), 0).waits_for
    assert again.look(log(table(initial=False), outcome="completed"), at(9), 0).failed == ()


def test_a_snapshot_of_which_only_failed_tables_are_left_does_not_hold_it_up() -> None:
    state = log(table(), table(8, initial=False), outcome="")
    fine = {8: TableProgress(applied_record=RecordNumber(9))}
    assert "under way" in once().look(state, at(9) | fine, 0).waits_for
    verdict = once().look(state, at(-1, stopped=True, refused_record=5) | fine, 0)
    assert (verdict.done, verdict.failed) == (True, ("s.t7",))


def test_a_stopped_table_that_a_snapshot_reads_again_is_tried_again_when_that_has_ended() -> None:
    """A target that was emptied is refused until a snapshot fills it; the refusal is older than the snapshot's plan."""
    check = once()
    refused = at(0, stopped=True, refused_record=3)
    assert "under way" in check.look(log(table(), outcome=""), refused, 0).waits_for
    again = at(0, stopped=True, refused_record=5)  # refused for another reason, which the snapshot does not heal
    assert check.look(log(table(), outcome=""), again, 0).failed == ("s.t7",)
    read = log(table(), outcome="completed", number=9)
    assert "tried again" in check.look(read, refused, 0).waits_for
    assert check.look(read, at(0, stopped=True, refused_record=9), 0).failed == ("s.t7",)
    assert check.look(read, at(9), 0).failed == ()


def test_a_table_that_is_only_retried_is_waited_for() -> None:
    assert not once().look(log(table(), outcome="completed"), at(2), 0).done


def test_a_failed_snapshot_of_this_run_is_named() -> None:
    check = once()
    check.look(log(table(), number=2), at(0), 0)
    verdict = check.look(log(table(), outcome="failed"), at(9), 0)
    assert (verdict.done, verdict.failed) == (True, ("snapshot initial-7-1",))


def test_a_paused_snapshot_does_not_hold_it_up_and_is_named() -> None:
    running = log(table(), table(8, initial=False), outcome="")
    (one,) = running.snapshots.values()
    paused = with_snapshots(running, {PLAN.snapshot_id: one.model_copy(update={"suspended": True})})
    verdict = once().look(paused, at(9) | {8: TableProgress(applied_record=RecordNumber(9))}, 0)
    assert (verdict.done, verdict.failed) == (True, ("snapshot initial-7-1 (paused)",))


def test_a_new_copy_that_readers_do_not_see_yet_is_waited_for_unless_its_snapshot_is_paused() -> None:
    state = log(table(initial=False))
    check = once()
    assert not check.look(state, at(9, replacing=True), 0).done
    assert check.look(state, at(9), 0).done
    paused = log(table(initial=False), outcome="")
    held = {PLAN.snapshot_id: paused.snapshots[PLAN.snapshot_id].model_copy(update={"suspended": True})}
    assert once().look(with_snapshots(paused, held), at(9, replacing=True), 0).done
