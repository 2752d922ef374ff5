"""When `--once` is done: pure, asked by the driver's main loop on every turn.

Done is: capture has recorded everything up to the source's position at the start, every snapshot that is wanted has
ended, no row is withheld, and every table has covered the record at which all of that was first true. Tables that are
stopped, and snapshots that failed, do not hold the end up; they make it a failure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.apply.progress import TableProgress
from tailrace.changelog.state import LogState, TableLog
from tailrace.snapshot import planner

NO_PROGRESS = TableProgress()


@dataclass(frozen=True)
class Verdict:
    done: bool
    waits_for: str = ""
    failed: tuple[str, ...] = ()
    """Names of tables and snapshots."""


class OnceCheck:
    """Keeps the record that counts. `position`: the source's at start."""

    def __init__(self, position: int) -> None:
        self._position = position
        self._record: int | None = None
        self._since: int | None = None

    def look(self, state: LogState, progress: Mapping[int, TableProgress], open_requests: int) -> Verdict:
        if self._since is None:
            self._since = state.number
        failed = [t for t in _live(state) if _failed(t, progress)]
        healthy = [t for t in _live(state) if t not in failed]
        waits = self._waits(state, progress, healthy, open_requests)
        if waits:
            self._record = None
            return Verdict(False, waits)
        if self._record is None:
            self._record = state.number
        behind = [t for t in healthy if progress.get(t.table_id, NO_PROGRESS).applied_record < self._record]
        if behind:
            return Verdict(False, f"{behind[0].schema.name} has not applied record {self._record}")
        names = [t.schema.name for t in failed] + [f"snapshot {name}" for name in self._failed_snapshots(state)]
        return Verdict(True, failed=tuple(names))

    def _waits(
        self, state: LogState, progress: Mapping[int, TableProgress], healthy: list[TableLog], open_requests: int
    ) -> str:
        if state.position < self._position:
            return "capture has not reached the source's position at start"
        if not state.tables:
            return "no table is captured yet"
        if open_requests:
            return "snapshot requests are not accepted yet"
        holes = {
            t.table_id: planner.Holes(p.applied_record, p.holes)
            for t in healthy
            if (p := progress.get(t.table_id, NO_PROGRESS)).holes
        }
        if holes:
            return f"{len(holes)} tables have rows that are still to be read again"
        if planner.wanted(state, holes):
            return "a snapshot is to be planned"
        running = [s.plan.snapshot_id for s in state.snapshots.values() if s.ended is None]
        return f"snapshot {running[0]} is under way" if running else ""

    def _failed_snapshots(self, state: LogState) -> list[str]:
        return [
            s.plan.request or s.plan.snapshot_id
            for s in state.snapshots.values()
            if s.ended is not None and s.ended.outcome == "failed" and s.record > (self._since or 0)
        ]


def _live(state: LogState) -> list[TableLog]:
    return [t for t in state.tables.values() if not t.removed]


def _failed(table: TableLog, progress: Mapping[int, TableProgress]) -> bool:
    return table.stopped is not None or progress.get(table.table_id, NO_PROGRESS).stopped
