"""When `--once` is done: pure, asked by the driver's main loop in every step.

Done is: capture has recorded everything up to the source's position at the start (or, of a server that the source moved
to since, its position when that was seen: places in two logs cannot be compared), every snapshot that is wanted has
ended, every table has covered the record at which all of that was first true, and every row that was withheld there has
been read again. Rows that are withheld because of later changes do not hold the end up (active writers could cause new
ones forever); they are counted, and the next run reads them. Tables that are stopped (and were tried with all of that:
a snapshot may have healed them), or whose last snapshot failed (in an earlier run, too), do not hold the end up either;
they make it a failure, and so do snapshots that failed or were paused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tailrace.apply.progress import TableProgress
from tailrace.changelog.logged import LoggedCascade
from tailrace.changelog.records.snapshots import SnapshotPlanned
from tailrace.changelog.records.terms import Key, Position, RecordNumber
from tailrace.changelog.state import LogState, SnapshotState, TableLog
from tailrace.contract.units import counted
from tailrace.driver.telling.status import unread
from tailrace.errors import Retry
from tailrace.snapshot import planner

NO_PROGRESS = TableProgress()


@dataclass(frozen=True)
class Verdict:
    done: bool
    waits_for: str = ""
    failed: tuple[str, ...] = ()
    """Names of tables and snapshots."""
    withheld: tuple[str, ...] = ()
    """Tables with rows that changes after the start have made unknown: `s.t (2 rows)`."""


class OnceCheck:
    """Keeps the record that counts."""

    def __init__(self, ask: Callable[[LogState], Position]) -> None:
        """`ask`: the source's position now, of the server that the state names; `Retry`: another has its place, and
        capture has not seen it yet, or none answers."""
        self._ask = ask
        self._position = Position(0)
        self._server_since: Position | None = None
        """The position at which the log of the server with that position begins; None: it was not asked yet."""
        self._record: RecordNumber | None = None
        self._since: RecordNumber | None = None
        self._pending: dict[int, frozenset[Key]] | None = None
        """The keys, by table, that were withheld when all tables had covered the record, and have not been seen
        since."""
        self._repaired: dict[str, RecordNumber] = {}
        """Repairs that ended since, with the record at which that was noticed."""
        self._asked: dict[str, frozenset[Key]] = {}
        """The keys of repairs that were seen under way."""

    def look(self, state: LogState, progress: Mapping[int, TableProgress], open_requests: int) -> Verdict:
        if self._since is None:
            self._since = state.number
        under_way = [s.plan for s in state.snapshots.open() if _fills_holes(s.plan)]
        # Now: once they have ended, their plans no longer list the keys.
        self._asked |= {plan.snapshot_id: frozenset(plan.keys or ()) for plan in under_way}
        failed = [t for t in _live(state) if _failed(t, state, progress)]
        healthy = {t.table_id: t for t in _live(state) if t not in failed}
        waits = self._waits(state, open_requests, {t.table_id: _tried(t, state, progress) for t in failed})
        if waits:
            self._record = self._pending = None
            return Verdict(False, waits)
        if self._record is None:
            self._record = state.number
        now = {table_id: progress.get(table_id, NO_PROGRESS) for table_id in healthy}
        paused = {table_id for s in _under_way(state) if s.suspended for table_id in s.tables}
        not_shown = {table_id for table_id, p in now.items() if p.replacing} - paused
        behind = [table_id for table_id, p in now.items() if p.applied_record < self._record or table_id in not_shown]
        untried = [t for t in failed if _untried(t, progress, self._record)]
        if untried:
            return Verdict(False, f"{untried[0].schema.name} is to be tried again")
        if behind:
            return Verdict(False, f"{healthy[behind[0]].schema.name} has not applied record {self._record}")
        pending = self._still_pending(state, now)
        if pending:
            return Verdict(False, f"{len(pending)} tables have rows that are still to be read again")
        names = [t.schema.name for t in failed] + [f"snapshot {name}" for name in self._failed_snapshots(state)]
        names += [f"snapshot {s.plan.request or s.plan.snapshot_id} (paused)" for s in _under_way(state) if s.suspended]
        withheld = tuple(
            f"{healthy[i].schema.name} ({counted(len(p.holes), 'row', 'rows')})" for i, p in now.items() if p.holes
        )
        return Verdict(True, failed=tuple(names), withheld=withheld)

    def _waits(self, state: LogState, open_requests: int, refused: Mapping[int, RecordNumber]) -> str:
        if self._server_since != state.source_since:
            try:
                self._position, self._server_since = self._ask(state), state.source_since
            except Retry as error:
                return f"the source's position is not known yet: {error.message}"
        if state.position < self._position:
            return "capture has not reached the source's position at start"
        if not state.tables:
            return "no table is captured yet"
        if open_requests:
            return "snapshot requests are not accepted yet"
        if planner.due_snapshots(state, {}):
            return "a snapshot is to be planned"
        reached = [t for t in _live(state) if t.table_id not in refused and any(map(_is_unread, t.cascades))]
        if reached:
            return f"rows of {reached[0].schema.name} that foreign keys have reached are to be read again"
        running = [s.plan for s in _under_way(state) if not s.suspended and not _stuck(s, refused)]
        return f"snapshot {running[0].snapshot_id} is under way" if running else ""

    def _still_pending(self, state: LogState, now: Mapping[int, TableProgress]) -> dict[int, frozenset[Key]]:
        """A key is paid back once it is seen filled, or once a repair of it that began later is applied: a key that
        is written all the time may be withheld again in the very batch that fills it."""
        if self._pending is None:
            self._pending = {table_id: p.holes for table_id, p in now.items() if p.holes}
        left = {i: keys & now[i].holes for i, keys in self._pending.items() if i in now}
        for s in state.snapshots.values():
            if not _fills_holes(s.plan) or s.ended is None or s.record <= (self._record or 0):
                continue
            ended = self._repaired.setdefault(s.plan.snapshot_id, state.number)
            for table_id in left.keys() & set(s.plan.tables):
                if s.ended.outcome == "completed" and now[table_id].applied_record >= ended:
                    left[table_id] -= self._asked.get(s.plan.snapshot_id, frozenset())
        self._pending = {table_id: keys for table_id, keys in left.items() if keys}
        return self._pending

    def _failed_snapshots(self, state: LogState) -> list[str]:
        return [
            s.plan.request or s.plan.snapshot_id
            for s in state.snapshots.values()
            if s.ended is not None and s.ended.outcome == "failed" and s.record > (self._since or 0)
        ]


def _under_way(state: LogState) -> list[SnapshotState]:
    return [s for s in state.snapshots.open() if not _fills_holes(s.plan) and not s.plan.in_background]


def _live(state: LogState) -> list[TableLog]:
    return [t for t in state.tables.values() if not t.removed]


def _stuck(snapshot: SnapshotState, refused: Mapping[int, RecordNumber]) -> bool:
    """Only tables are left to be read that failed with this snapshot in the log: no chunk of theirs is begun."""
    left = [table_id for table_id, part in snapshot.tables.items() if part.finished is None]
    return bool(left) and all(refused.get(table_id, -1) >= snapshot.record for table_id in left)


def _is_unread(cascade: LoggedCascade) -> bool:
    """True while its rows are looked for, or read by their keys: no other snapshot by keys has to be waited for."""
    return cascade.is_looked_for or bool(cascade.snapshots)


def _fills_holes(plan: SnapshotPlanned) -> bool:
    return plan.reason == "repair" and plan.keys is not None


def _tried(table: TableLog, state: LogState, progress: Mapping[int, TableProgress]) -> RecordNumber:
    """The record with which a failed table failed."""
    at = progress.get(table.table_id, NO_PROGRESS)
    return at.refused_record if at.stopped and table.stopped is None else state.number


def _untried(table: TableLog, progress: Mapping[int, TableProgress], record: RecordNumber) -> bool:
    at = progress.get(table.table_id, NO_PROGRESS)
    return table.stopped is None and at.stopped and max(at.applied_record, at.refused_record) < record


def _failed(table: TableLog, state: LogState, progress: Mapping[int, TableProgress]) -> bool:
    stopped = table.stopped is not None or progress.get(table.table_id, NO_PROGRESS).stopped
    return stopped or unread(state, table) is not None
