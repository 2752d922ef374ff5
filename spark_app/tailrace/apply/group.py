"""The tables that one commit moves together, where a target can do that: those that are level.

A table leaves the group when it fails, or is not level with it, and is a unit by itself until nothing is being read of
it and it is level again. Held by the schedule, under the applier's lock.
"""

from tailrace.apply.progress import Progress
from tailrace.apply.publishing import is_settled
from tailrace.apply.unit_worker import UnitWorker
from tailrace.apply.units import ApplyUnit, TableEntry
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.shared_journal import SharedJournal


class TableGroup:
    def __init__(self, journal: SharedJournal, progress: Progress, worker: UnitWorker | None) -> None:
        """`worker`: the unit's that tables join; None: the target cannot do that, and each table stays by itself."""
        self._journal, self._progress = journal, progress
        self.unit = None if worker is None else ApplyUnit(worker=worker)
        self._apart: dict[int, TableEntry] = {}
        """Tables that have left the group."""

    def leave(self, entry: TableEntry, own: ApplyUnit) -> None:
        entry.unit.leave(entry)
        own.enter(entry)
        self._apart[entry.table.table_id] = entry

    def forget(self, table_id: int) -> None:
        self._apart.pop(table_id, None)

    def board(self) -> list[int]:
        """Has the tables that are level with the group join it, while it rests; returns them."""
        unit = self.unit
        if unit is None or unit.running is not None:
            return []
        ready = [entry for entry in self._apart.values() if self._may_join(entry)]
        if not ready:
            return []
        level = min((self._progress.of(i).applied_record for i in unit.entries), default=RecordNumber(-1))
        joining = [entry for entry in ready if self._progress.of(entry.table.table_id).applied_record >= level]
        for entry in joining:
            entry.unit.leave(entry)
            unit.enter(entry)
            del self._apart[entry.table.table_id]
        return [entry.table.table_id for entry in joining]

    def _may_join(self, entry: TableEntry) -> bool:
        state, applied, table_id = self._journal.state, entry.copy.applied, entry.table.table_id
        if entry.running is not None or self._progress.of(table_id).fault is not None:
            return False
        if applied is None or entry.copy.replacing or table_id not in state.tables:
            return False
        return is_settled(state.tables[table_id], state, applied)
