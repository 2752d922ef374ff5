"""The working copy of one record's fold: shallow copies of the state's maps, in which event handlers replace values.

Made by `state.fold`, changed by `table_events` and `snapshot_events`; nothing of the old state is changed.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tailrace.changelog.logged import (
    KEPT_REWINDS,
    KEPT_SNAPSHOTS,
    CopyStop,
    LoggedCut,
    LoggedSignal,
    LogState,
    SnapshotState,
    TableLog,
    TransactionLog,
)
from tailrace.changelog.records import Record
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.snapshot_map import SnapshotMap
from tailrace.errors import CorruptLog

NOTHING_PENDING = RecordNumber(1 << 62)


class Folding:
    """The working copy: `state` before the record, the maps after it."""

    def __init__(self, state: LogState, record: Record) -> None:
        self.state = state
        self.record = record
        self.origin, self.source_since = state.origin, state.source_since
        self.owner, self.released = state.owner, state.released
        self.tables: dict[int, TableLog] = dict(state.tables)
        self.snapshots: SnapshotMap[SnapshotState] = state.snapshots.copy()
        self.transactions = _with_transactions(state.transactions, record)
        self.commit_times, self.newest_commits = state.commit_times, state.newest_commits
        if record.commit_time is not None:
            oldest, newest = (np.array([(record.number, at)], np.int64) for at in record.commit_time)
            self.commit_times = state.commit_times.append(oldest)
            self.newest_commits = state.newest_commits.append(newest)
        self.forgotten_plan = state.forgotten_plan
        self.renewed, self.renewals, self.renewal = state.renewed, state.renewals, state.renewal
        self.forgotten_tables = state.forgotten_tables
        self.dropped = state.dropped
        self.cuts: dict[str, LoggedCut] = dict(state.cuts)
        self.notified = state.notified
        self.copy_stops: dict[str, CopyStop] = dict(state.copy_stops)
        self.signals: dict[Seq, LoggedSignal] = dict(state.signals)
        self.applied = False
        """Some table's applied record moved or no longer counts, so `commit_times` may shrink."""

    def corrupt(self, what: str) -> NoReturn:
        raise CorruptLog(f"journal record {self.record.number}: {what}")

    def table(self, table_id: int) -> TableLog:
        if table_id not in self.tables:
            self.corrupt(f"table {table_id} is not known")
        return self.tables[table_id]

    def captured(self, table_id: int) -> TableLog:
        table = self.table(table_id)
        if table.removed or table.stopped is not None:
            self.corrupt(f"table {table.schema.name} is no longer captured")
        return table

    def update(self, table: TableLog, **changes: Any) -> None:
        self.tables[table.table_id] = table.model_copy(update=changes)

    def in_record(self, seq: Seq, what: str) -> None:
        if not self.record.first_seq <= seq <= self.record.last_seq:
            self.corrupt(f"{what} at sequence {seq}, outside {self.record.first_seq}..{self.record.last_seq}")

    def forget(self) -> None:
        if self.applied:
            running = (t for t in self.tables.values() if t.ended_at is None)
            oldest = min((_first_pending(t) for t in running), default=NOTHING_PENDING)
            self.commit_times = self.commit_times.drop(self.commit_times.find(0, oldest))
            self.newest_commits = self.newest_commits.drop(self.newest_commits.find(0, oldest))
        ended = self.snapshots.ended
        if len(ended) <= KEPT_SNAPSHOTS:
            return
        own = [key for key in ended if self.snapshots[key].plan.request is None]
        asked = [key for key in ended if self.snapshots[key].plan.request is not None]
        rewound = [key for key in asked if self.snapshots[key].is_rewound]
        requested = [key for key in asked if not self.snapshots[key].is_rewound]
        for key in filter(self._done_with, own[:-KEPT_SNAPSHOTS]):
            self.forgotten_plan = max(self.forgotten_plan, self.snapshots[key].record)
            del self.snapshots[key]
        for key in (*filter(self._done_with, requested[:-KEPT_SNAPSHOTS]), *rewound[:-KEPT_REWINDS]):
            del self.snapshots[key]

    def _done_with(self, snapshot_id: str) -> bool:
        """No target still has to apply the snapshot's end, or to pass over the lost chunks that it makes up for."""
        snapshot = self.snapshots[snapshot_id]
        covered = [self.tables[i] for i in snapshot.tables if i in self.tables]
        running = [table for table in covered if table.ended_at is None]
        ends = any(finish.snapshot_id == snapshot_id for table in running for finish in table.finishes)
        lost = snapshot.plan.replaces and any(table.applied_record < snapshot.record for table in running)
        return not ends and not lost


def _with_transactions(known: TransactionLog, record: Record) -> TransactionLog:
    new = record.transactions
    return known.added(new) if new.numbers else known


def _first_pending(table: TableLog) -> RecordNumber:
    """The first record above the table's applied record that brings rows for it (`NOTHING_PENDING`: none)."""
    first = table.segments.record_after(table.applied_record)
    records = [t.record for t in table.truncates if t.record > table.applied_record][:1]
    return min([NOTHING_PENDING if first is None else first, *records])


Handler = Callable[[Folding, Any], None]
