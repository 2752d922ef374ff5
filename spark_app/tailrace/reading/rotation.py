"""A password that the source refuses although it let capture in before: perhaps it is just being rotated.

Kept by the snapshot runner for all of its tables together, because servers lock a user who fails too often.
"""

from dataclasses import dataclass

from tailrace.errors.backoff import ROTATION_SECONDS

PAUSE_SECONDS = 10.0
"""Between two tries, each by one step alone."""


@dataclass
class Rotation:
    """Times are of a monotonic clock."""

    _since: float | None = None
    """The first refusal since it was last accepted; None: it is not refused."""
    _due: float = 0.0

    def refused(self, now: float) -> bool:
        """True if it may be tried again: its file is read at each connect, and may soon hold the new one."""
        if self._since is None:
            self._since = now
        self._due = now + PAUSE_SECONDS
        return now - self._since <= ROTATION_SECONDS

    def accepted(self, now: float) -> None:
        """Ends the wait: what comes before the next try was admitted before the change."""
        if now >= self._due:
            self._since = None

    def is_waiting(self, now: float, under_way: int) -> bool:
        """True if no step may begin now, beside so many."""
        return self._since is not None and (now < self._due or under_way > 0)
