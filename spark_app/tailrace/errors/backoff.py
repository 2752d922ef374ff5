"""The time at which something that failed is tried again: after pauses that grow, from one that is short.

Held by the applier for each table and by the snapshot runner for each table of a snapshot, and by both for the places
that all their tables need. `now` is of a monotonic clock.
"""

import random
import re
from collections.abc import Collection
from dataclasses import dataclass

from tailrace.errors import Retry, where_of

FIRST_PAUSE = 0.5
"""Seconds after the first failure; doubled with each further one."""
LONGEST_OUTAGE_PAUSE = 30.0
ROTATION_SECONDS = 60.0
"""A password that was accepted before may be in the middle of its rotation: changed in the server, not yet in its file.
For so long a process that runs tries again."""


@dataclass
class Backoff:
    longest: float
    """Seconds that a pause has at most."""
    jitter: float = 0.0
    """Share of a pause by which it is shorter or longer, so that many do not come back at once."""
    due: float = 0.0
    """The time before which it is not tried."""
    failing_since: float | None = None
    """The first failure after the last success; None: nothing failed since."""
    _pause: float | None = None

    def failed(self, now: float) -> None:
        if self.failing_since is None:
            self.failing_since = now
        self._rest(now)

    def waited(self, now: float) -> None:
        """It was impossible to continue: that counts as no failure, however long it lasts."""
        self.failing_since = None
        self._rest(now)

    def _rest(self, now: float) -> None:
        pause = FIRST_PAUSE if self._pause is None else self._pause
        self.due = now + pause * (1 + self.jitter * (2 * random.random() - 1))
        self._pause = min(pause * 2, self.longest)

    def reset(self) -> None:
        """The next pause is a short one again. One that is under way continues: it is another step's."""
        self.failing_since = self._pause = None

    def is_waiting(self, now: float) -> bool:
        return now < self.due

    def is_exhausted(self, now: float, patience: float) -> bool:
        """True if it has failed for longer than `patience` seconds."""
        return self.failing_since is not None and now - self.failing_since > patience


class Outages:
    """Places that do not answer. Their errors are told once a pause, however many tables meet them; who asks
    `is_waiting` first tries a place that is away only after such pauses.

    Errors are alike if they differ in paths and locations alone. For one thread, or under a lock."""

    def __init__(self) -> None:
        self._away: dict[tuple[str, str], Backoff] = {}

    def met(self, error: Exception, now: float) -> bool:
        """Takes an error in. True: it is to be told; False: one like it has just been."""
        if not (isinstance(error, Retry) and error.away):
            return True
        outage = self._away.setdefault(_kind(error), Backoff(LONGEST_OUTAGE_PAUSE))
        if outage.is_waiting(now):
            return False
        outage.failed(now)
        return True

    def answered(self, now: float, places: Collection[str] | None = None) -> None:
        """Ends outages of these places (None: of all), for somebody got an answer. What was asked before the pause says
        nothing of now."""
        for kind, outage in list(self._away.items()):
            if (places is None or kind[0] in places) and not outage.is_waiting(now):
                del self._away[kind]

    def is_waiting(self, now: float, place: str) -> bool:
        """True if it is not yet time to try the place again."""
        return any(outage.is_waiting(now) for (where, _), outage in self._away.items() if where == place)

    def outlasted(self, error: Exception, now: float, patience: float) -> bool:
        """True if the error is one of an outage that has lasted for longer than `patience` seconds."""
        outage = self._away.get(_kind(error))
        return outage is not None and outage.is_exhausted(now, patience)


def _kind(error: Exception) -> tuple[str, str]:
    """The place and the text without paths."""
    return where_of(error) or "", without_paths(str(error))


def without_paths(text: str) -> str:
    """The part of an error's text that is the same for all tables that meet it."""
    return re.sub(r"\S*/\S*", "…", text)
