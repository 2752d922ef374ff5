"""The tables that are being read: an entry for each table of an open snapshot, as the journal has them.

The snapshot runner follows the journal with it in each round; owned by its thread.
"""

from collections.abc import Callable, Mapping

from tailrace.changelog.changed import changed
from tailrace.changelog.state import SnapshotState
from tailrace.contract.resources import SnapshotSpec
from tailrace.reading.chunk_rows import RowsPerChunk, chosen_rows
from tailrace.reading.messages import RunKey
from tailrace.reading.run_entry import RunEntry, as_recorded
from tailrace.reading.turns import TableTurns
from tailrace.snapshot import planner


class RunEntries:
    def __init__(self, turns: TableTurns, defaults: Callable[[], SnapshotSpec]) -> None:
        self.known: dict[RunKey, RunEntry] = {}
        self._turns, self._defaults = turns, defaults
        self._seen: Mapping[str, SnapshotState] = {}
        """The snapshots that `known` are of."""
        self._over: dict[RunKey, None] = {}
        """Tables that are left as soon as nothing of them is under way."""

    def follow(self, now: Mapping[str, SnapshotState]) -> None:
        """`now`: the journal's snapshots."""
        before, self._seen = self._seen, now
        for snapshot_id in changed(before, now):
            snapshot, known = now[snapshot_id], before.get(snapshot_id)
            if known is not None and known.record != snapshot.record:  # another one has its id
                self._leave(snapshot_id, known)
                known = None
            same = known is not None and known.is_open == snapshot.is_open
            for table_id in changed(known.tables if known is not None and same else {}, snapshot.tables):
                if _is_unread(snapshot, table_id):
                    self._enter(snapshot, (snapshot_id, table_id))
                else:
                    self._over[snapshot_id, table_id] = None
        for snapshot_id in before.keys() - now.keys():
            self._leave(snapshot_id, before[snapshot_id])
        for key in list(self._over):
            self._forget(key, now.get(key[0]))

    def is_over(self, key: RunKey) -> bool:
        """True of a table of which nothing is begun: its snapshot has nothing more to read of it, or another snapshot
        has the id, which reads it once nothing of the former one is under way."""
        return key in self._over

    def _leave(self, snapshot_id: str, snapshot: SnapshotState) -> None:
        self._over |= {(snapshot_id, table_id): None for table_id in snapshot.tables}

    def _forget(self, key: RunKey, snapshot: SnapshotState | None) -> None:
        entry = self.known.get(key)
        if entry is not None and (entry.run.reading or entry.busy):
            return  # what comes of it would be taken for the work of the next snapshot with this id
        del self._over[key]
        if entry is not None:
            del self.known[key]
            self._turns.remove(key)
        if snapshot is not None and _is_unread(snapshot, key[1]):
            self._enter(snapshot, key)

    def _enter(self, snapshot: SnapshotState, key: RunKey) -> None:
        if key not in self.known:
            first_rows = chosen_rows(snapshot.plan, self._defaults()) or planner.FIRST_CHUNK_ROWS
            run = as_recorded(snapshot, key[1])
            self.known[key] = RunEntry(run, RowsPerChunk(first_rows, run.rows_done))
            self._turns.add(key)


def _is_unread(snapshot: SnapshotState, table_id: int) -> bool:
    """True if the snapshot is open and has the table, of which something is left to do."""
    part = snapshot.tables.get(table_id)
    return snapshot.is_open and part is not None and part.finished is None
