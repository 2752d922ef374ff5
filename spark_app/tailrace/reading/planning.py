"""Has the journal hold the snapshots that there should be, and the ends of those that are over.

Called by the snapshot runner in each of its rounds. What is decided is in `snapshot.planner`; a round asks it about the
tables and snapshots that records have changed since the last one.
"""

import logging
from collections.abc import Callable, Iterator, Mapping

from tailrace.apply.progress import Progress
from tailrace.capture.client import CaptureClient
from tailrace.changelog.changed import changed
from tailrace.changelog.records.snapshots import SnapshotPlanned
from tailrace.changelog.state import LogState, SnapshotState, TableLog
from tailrace.contract.settings import VerifySpec
from tailrace.contract.units import seconds
from tailrace.reading import cascades
from tailrace.reading.steps import Tools
from tailrace.seams import seam
from tailrace.snapshot import planner

log = logging.getLogger(__name__)

BACKGROUND_LOOK = 5.0
"""Seconds between two looks for a verification that is due."""


class Planning:
    def __init__(
        self,
        tools: Callable[[], Tools],
        client: CaptureClient,
        progress: Progress,
        background: Callable[[], VerifySpec | None],
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        """The arguments: see `SnapshotRunner`."""
        self._tools, self._client, self._progress, self._background = tools, client, progress, background
        self._clock, self._monotonic = clock, monotonic
        self._background_look_at = 0.0
        self._seen_tables: Mapping[int, TableLog] = {}
        """The tables whose calls for snapshots have all been answered, ..."""
        self._seen_snapshots: Mapping[str, SnapshotState] = {}
        """... and the snapshots whose ends have all been recorded."""
        self._wanted = True
        """Verifications in the background were wanted then."""
        self._seen_for_cascades: Mapping[int, TableLog] = {}
        self._cascading: dict[int, None] = {}
        """Tables that had cascades when they were last looked at for that."""

    def plan(self, state: LogState) -> LogState:
        """Returns the state with what had to be recorded."""
        holes = {i: planner.Holes(p.applied_record, p.holes) for i, p in self._progress.with_holes().items()}
        tables, lost = state.tables, list(self._tools().lost())
        news = [tables[table_id] for table_id in changed(self._seen_tables, tables)]
        plans = [*planner.due_snapshots(state, holes, news), *planner.rereads_of_lost(state, lost), *self._due(state)]
        if plans:
            self._client.append(plans)
            seam("snapshot.after-plan")
            for line in planner.log_lines(state, plans):
                log.info("%s", line)
            state = self._tools().journal.refresh()
        self._seen_tables = tables
        return self._end(state)

    def _end(self, state: LogState) -> LogState:
        snapshots, wanted = state.snapshots, self._background() is not None
        news = [snapshots[snapshot_id] for snapshot_id in changed(self._seen_snapshots, snapshots)]
        unwanted = () if wanted else planner.unwanted(snapshots.open() if self._wanted else news)
        # One that is over by itself is not stopped, too.
        ends = list({end.snapshot_id: end for end in (*unwanted, *planner.endings(state, news))}.values())
        if ends:
            self._client.append(ends)
            for end in ends:
                level = logging.WARNING if end.outcome == "failed" else logging.INFO
                text = f"snapshot {end.outcome}" + (f": {end.message}" if end.message else "")
                log.log(level, "%s", text, extra={"snapshot": end.snapshot_id})
            state = self._tools().journal.refresh()
        self._seen_snapshots, self._wanted = snapshots, wanted
        return state

    def _due(self, state: LogState) -> Iterator[SnapshotPlanned]:
        asked, now = self._background(), self._monotonic()
        if asked is not None and now >= self._background_look_at:
            self._background_look_at = now + BACKGROUND_LOOK
            plan = planner.due_verification(state, self._clock(), seconds(asked.every), self._is_comparable)
            yield from () if plan is None else (plan,)

    def _is_comparable(self, table_id: int) -> bool:
        """While the target is suspended, a verification would read and then wait."""
        return self._tools().opened(table_id) and self._tools().is_whole(table_id)

    def are_cascades_due(self, state: LogState, holds: cascades.Holds) -> bool:
        """True if rows that foreign keys have reached can be looked for now."""
        for table_id in changed(self._seen_for_cascades, state.tables):
            if state.tables[table_id].cascades:
                self._cascading[table_id] = None
            else:
                self._cascading.pop(table_id, None)
        self._seen_for_cascades = state.tables
        among = [state.tables[table_id] for table_id in self._cascading if table_id in state.tables]
        return bool(cascades.due(state, holds, among))
