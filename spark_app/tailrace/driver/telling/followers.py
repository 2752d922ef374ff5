"""The Replicators that follow this one's change log, for the status: from their leases, read once a minute."""

import time
from collections.abc import Callable

from tailrace.changelog.followers import FollowerLease, leases
from tailrace.contract.status import FollowerReport
from tailrace.storage.store import Storage

LOOK_SECONDS = 60.0


class FollowerWatch:
    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._found: tuple[FollowerLease, ...] = ()

    def look(self, storage: Storage) -> None:
        """Called by a loop of the driver."""
        self._found = tuple(leases(storage))

    def reports(self) -> tuple[FollowerReport, ...]:
        return tuple(self._report(lease) for lease in self._found)

    def _report(self, lease: FollowerLease) -> FollowerReport:
        now = int(self._clock() * 1_000_000)
        held = not lease.is_old(now)
        return FollowerReport(name=lease.name, record=lease.record, renewed=lease.written_at / 1_000_000, held=held)
