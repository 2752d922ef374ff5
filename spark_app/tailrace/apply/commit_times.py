"""The time that commits have taken lately. Kept by the schedule; the pace of records and commits goes by it
(`contract.pace.Pace.for_commits`).
"""

from tailrace.apply.units import FIRST_GUESS, ApplyUnit

LATELY = 5.0
"""Seconds for which a unit that was committed counts as one that changes."""
KEPT = 1000
"""Units that are known; those that were committed last."""


class CommitTimes:
    def __init__(self, threads: int) -> None:
        """`threads`: commits that are made side by side."""
        self._threads = threads
        self._units: dict[ApplyUnit, float] = {}
        """The time of each one's last commit, in the order of these."""
        self.longest = FIRST_GUESS
        """Seconds that the commit of a unit that changes takes at most."""
        self.together = 0.0
        """Seconds that one commit takes of each unit that changes."""

    def committed(self, unit: ApplyUnit, now: float) -> None:
        self._units.pop(unit, None)
        self._units[unit] = now
        if len(self._units) > KEPT:
            self.forget(next(iter(self._units)))
        lately = [unit.took for unit, at in self._units.items() if now - at <= LATELY]
        self.longest, self.together = max(lately), sum(lately) / self._threads

    def forget(self, unit: ApplyUnit) -> None:
        self._units.pop(unit, None)
