"""The Replicators that follow this one's change log, for the status: from their leases, read once a minute."""

import time
from collections.abc import Callable

from tailrace.changelog.followers import LeaseFile, lease_files
from tailrace.contract.status import FollowerReport
from tailrace.storage.store import Storage

LOOK_SECONDS = 60.0


class FollowerWatch:
    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._found: tuple[LeaseFile, ...] = ()

    def look(self, storage: Storage) -> None:
        """Called by a loop of the driver."""
        self._found = tuple(lease_files(storage))

    def reports(self) -> tuple[FollowerReport, ...]:
        return tuple(self._report(file) for file in self._found)

    def _report(self, file: LeaseFile) -> FollowerReport:
        now = int(self._clock() * 1_000_000)
        return FollowerReport(
            name=file.name,
            record=None if file.lease is None else file.lease.record,
            renewed=file.changed / 1_000_000,
            held=not file.is_old(now),
            silent=file.is_silent(now),
        )
