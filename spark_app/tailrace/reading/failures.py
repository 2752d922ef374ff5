"""Answers to steps that fail: when they are tried again, what is logged, and when a table is stopped.

Called by the snapshot runner with the results of its steps, on its thread. Times are of a monotonic clock.
"""

import logging
from collections.abc import Callable

from tailrace.changelog.state import SnapshotState
from tailrace.contract.faults import fault_of
from tailrace.errors import AuthenticationFailed, Locked, Stop, TableStop, TailraceError
from tailrace.errors.backoff import Outages
from tailrace.reading import steps, together
from tailrace.reading.rotation import Rotation
from tailrace.reading.run_entry import RunEntry, as_recorded
from tailrace.snapshot import chunks

log = logging.getLogger(__name__)


class StepFailures:
    def __init__(self, retry_seconds: Callable[[], float], clock: Callable[[], float]) -> None:
        """See `SnapshotRunner`."""
        self._retry_seconds, self._clock = retry_seconds, clock
        self._rotation = Rotation()
        self._outages = Outages()

    def must_wait(self, now: float, under_way: int) -> bool:
        """True if no step may begin now, beside so many: the source refuses its password, or does not answer."""
        return self._rotation.is_waiting(now, under_way) or self._outages.is_waiting(now, "source")

    def source_answered(self, now: float) -> None:
        self._rotation.accepted(now)
        self._outages.answered(now, ("source",))

    def capture_answered(self, now: float) -> None:
        self._outages.answered(now, ("capture",))

    def all_answered(self, now: float) -> None:
        """A chunk was read, written and registered."""
        self.source_answered(now)
        self._outages.answered(now)

    def is_news(self, error: Exception, now: float) -> bool:
        """False: an error like it has just been logged, by this step or another."""
        return self._outages.met(error, now)

    def failed(self, entry: RunEntry, error: Exception, ordinal: int | None, now: float) -> None:
        """Has the table tried again after a pause, or stopped. `ordinal`: the chunk that was read; None: it was another
        step. Raises a `Stop`."""
        refused = isinstance(error, AuthenticationFailed)
        if isinstance(error, Stop) and not (refused and self._rotation.refused(now)):
            raise error
        fault = fault_of(error, self._clock())
        if isinstance(error, Locked):
            _wait(entry, error, now)
        else:
            known = isinstance(error, TailraceError)
            quiet = not self.is_news(error, now) or isinstance(error, steps.TargetNotOpen)
            log.log(
                logging.DEBUG if quiet else logging.WARNING,
                "snapshot step failed: %s: %s", fault.name, fault.message,
                extra={"snapshot": entry.run.snapshot_id}, exc_info=None if known else error,
            )  # fmt: skip
            if refused:
                entry.backoff.waited(now)  # the table is not given up for it
            else:
                entry.backoff.failed(now)
        entry.table = None  # looked up again: its definition may be what changed
        entry.alone = not (together.is_of_all(error) or isinstance(error, steps.TargetNotOpen))
        if ordinal is not None:
            entry.run = chunks.step(entry.run, chunks.ReadFailed(ordinal, fault))
        else:
            entry.busy = False
            if entry.run.cutting:
                entry.run = chunks.step(entry.run, chunks.CutFailed(fault))
        patience = self._retry_seconds()
        lasting = isinstance(error, TableStop) or entry.backoff.is_exhausted(now, patience)
        lasting |= self._outages.outlasted(error, now, patience)
        if lasting and entry.run.phase not in (chunks.Phase.FINISH, chunks.Phase.DONE):
            entry.give_up(fault)

    def end_failed(self, entry: RunEntry, error: Exception, snapshot: SnapshotState | None, now: float) -> None:
        """Ends a table that failed for good, perhaps because it returned for this very snapshot: that is checked
        again. `snapshot`: None where the journal no longer has it."""
        self.failed(entry, error, None, now)
        if entry.run.given_up is not None and snapshot is not None:
            entry.run = as_recorded(snapshot, entry.run.table_id)


def _wait(entry: RunEntry, error: Locked, now: float) -> None:
    """However long a migration holds its lock, the table is not stopped: it is tried again and again, with pauses in
    which others are read."""
    if entry.waits_for is None:
        log.info("a snapshot waits for %s", error.message, extra={"snapshot": entry.run.snapshot_id})
    entry.waits_for = error.message
    entry.backoff.waited(now)
