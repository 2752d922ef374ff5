"""The check that this driver still owns the change log, right before each commit to a target table.

Fencing the journal does not fence a target: a driver that stalled between locating and committing would commit at the
same time as the one that replaced it. So a commit begins with a look for a newer record (one request, usually answered
with "not there") and continues only in an epoch that this driver's capture began. Called by the target through `Admit`.

A takeover in the moment between this look and the commit itself is harmless: a target creates each version
exclusively, and the applied state moves in the same commit, so of two drivers one is refused, and the second one
continues from the other's.
"""

import time
from collections.abc import Callable
from threading import Lock

from tailrace.changelog.shared_journal import SharedJournal
from tailrace.errors import Fenced, Retry

PATIENCE = 10.0
"""Seconds to wait for a capture that starts: it begins its epoch before it can say so."""
LOOK_SECONDS = 0.1


class Ownership:
    def __init__(
        self,
        journal: SharedJournal,
        claimed: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`claimed` asks this driver's capture for its epoch; -1: it has none yet, or does not answer."""
        self._journal = journal
        self._claimed = claimed
        self._clock, self._sleep = clock, sleep
        self._ours = -1
        """The newest epoch that a capture of this driver began."""
        self._lock = Lock()

    def check(self) -> None:
        """`Fenced`: another driver has begun an epoch. `Retry`: this driver's capture has not begun one yet."""
        epoch = self._journal.look().epoch
        if epoch != self._ours:
            with self._lock:
                self._learn()

    def _learn(self) -> None:
        """The journal is in an epoch that is not known to be ours: capture has started again, or another driver has."""
        end = self._clock() + PATIENCE
        while True:
            # In this order: a capture that still answers with a lower epoch after a higher one was seen is overtaken.
            epoch, claimed = self._journal.look().epoch, self._claimed()
            if claimed == epoch:
                self._ours = epoch
                return
            if 0 <= claimed < epoch:
                raise Fenced(
                    f"the change log is in epoch {epoch}, which another writer began; this driver's is {claimed}",
                    "Exactly one process may run a Replicator; this one stops.",
                )
            if self._clock() >= end:
                raise Retry(
                    f"capture has not begun an epoch in the change log; epoch {epoch} may be another driver's",
                    "Nothing is committed until capture works; see its fault.",
                )
            self._sleep(LOOK_SECONDS)
