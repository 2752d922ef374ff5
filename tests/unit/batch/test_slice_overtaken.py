"""A table whose log was cut off, and a snapshot that was overtaken by a difference in the catalog: through capture,
planner, chunks and apply, with a restart before the snapshot is planned that the difference calls for.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from support import pipeline
from support.scripted_database import Change
from support.scripted_runs import Copy, filled
from tailrace.changelog import triggers
from tailrace.changelog.state import LogState
from tailrace.snapshot import planner

ONE = 1


def cut_off(one: Copy) -> None:
    """Two rows change that the target never hears of by the log, which forgets them."""
    one.document["spec"]["retention"] = {"time": "0s"}
    one.start()
    end = one.database.commit(Change("U", ONE, 3, "forgotten"), Change("D", ONE, 4))
    one.until(lambda state: state.position >= end)
    one.driver.client.report_applied([], [ONE])
    one.stop()


def working(one: Copy, condition: Callable[[LogState], object]) -> None:
    """The snapshots go on; nothing is applied."""

    def done(_: LogState) -> bool:
        one.driver.runner.step(0.02)
        return bool(condition(one.state))

    one.until(done)


def applied(one: Copy) -> None:
    """Batches up to what the journal holds."""
    number = one.state.number
    one.driver.applier.offer(number, 20.0)
    progress = one.driver.progress.all()[ONE]
    assert progress.fault is None and progress.applied_record >= number


def test_batches_go_on_until_the_snapshot_is_planned_that_is_called_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "RETRY_SECONDS", 1.0)
    one = Copy(filled("one", rows=150), tmp_path)
    one.start()
    one.level()
    one.stop()
    cut_off(one)
    with one.running():
        assert one.state.tables[ONE].trimmed_through == 2, "the log has forgotten what the target lacks"
        asked = one.ask("main.one", parallelism=1)
        one.until(lambda _: one.driver.tools.opened(ONE), work=True)
        working(one, lambda state: state.snapshots[asked].tables[ONE].chunks_done)
        one.driver.control.suspend_snapshot(asked, True)
        applied(one)
        # The planner's turn does not come.
        monkeypatch.setattr(planner, "due_snapshots", lambda *_: ())
        one.database.differing.add(ONE)
        working(one, lambda state: any(True for _ in triggers.pending(state, state.tables[ONE])))
        assert one.state.snapshots[asked].ended is None
        one.driver.control.suspend_snapshot(asked, False)
        one.database.commit(Change("U", ONE, 5, "later"))
        working(one, lambda state: state.snapshots[asked].ended is not None)
        applied(one)
    with one.running():
        assert any(True for _ in triggers.pending(one.state, one.state.tables[ONE]))
        applied(one)
        monkeypatch.undo()
        one.equal()
        read = [s.plan.reason for s in one.state.snapshots.values() if s.ended and s.ended.outcome == "completed"]
    assert "schema" in read
