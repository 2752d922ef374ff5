"""Reports to capture what the targets hold, so that the log can be trimmed and lags counted. The target is the
truth."""

import logging
import math
import time
from collections.abc import Callable, Mapping

from tailrace.apply.progress import Progress, TableProgress
from tailrace.capture.client import CaptureClient
from tailrace.changelog.changed import changed
from tailrace.changelog.records.tables import Applied
from tailrace.changelog.state import LogState, TableLog
from tailrace.errors import Retry

log = logging.getLogger(__name__)

SECONDS = 2.0
"""Between two reports."""


class Reporter:
    """Called by the driver's main loop in every step."""

    def __init__(
        self,
        client: CaptureClient,
        progress: Progress,
        retry_seconds: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`retry_seconds`: the log is not kept for a table that has failed for longer."""
        self._retry_seconds = retry_seconds
        self._cut_off: frozenset[int] = frozenset()
        self._client = client
        self._progress = progress
        self._monotonic = monotonic
        self._due = -math.inf
        self._moved_tables = progress.news()
        self._seen_tables: Mapping[int, TableLog] = {}
        """The tables of the state that was last looked at."""
        self._unreported: set[int] = set()
        """Tables that may hold what the journal does not show."""

    def report(self, state: LogState, force: bool = False) -> None:
        """Only commits that the journal does not show: a report makes a record, and a record must not call for the next
        report. Reported again until it does show them: capture may die with an unrecorded report."""
        if self._monotonic() < self._due and not force:
            return
        self._due = self._monotonic() + SECONDS
        moved = self._moved(state)
        cut_off = self._exhausted()
        # Capture forgets with each restart what is cut off, so it is reported again and again.
        if not moved and not cut_off and not self._cut_off:
            return
        try:
            self._client.report_applied(
                [
                    Applied(table_id=table_id, applied_seq=p.applied_seq, applied_record=p.applied_record)
                    for table_id, p in moved.items()
                ],
                sorted(cut_off),
            )
        except Retry as error:
            log.debug("applied sequences could not be reported to capture: %s", error)
            return
        self._cut_off = cut_off

    def _moved(self, state: LogState) -> dict[int, TableProgress]:
        """Tables that have committed what the journal does not show: a look costs those that moved, of thousands."""
        self._unreported.update(self._moved_tables(), changed(self._seen_tables, state.tables))
        self._seen_tables = state.tables
        at = {table_id: self._progress.of(table_id) for table_id in self._unreported if table_id in state.tables}
        moved = {i: p for i, p in at.items() if p.committed_record >= 0 and _is_news(p, state.tables[i])}
        self._unreported = set(moved)
        return moved

    def _exhausted(self) -> frozenset[int]:
        now, retry = self._monotonic(), self._retry_seconds()
        return frozenset(
            table_id
            for table_id, p in self._progress.failing().items()
            if p.failing_since is not None and now - p.failing_since > retry
        )


def _is_news(progress: TableProgress, logged: TableLog) -> bool:
    return progress.committed_record > logged.applied_record or progress.applied_seq > logged.applied_seq
