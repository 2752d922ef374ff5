"""The demand for executors of this process's large batches.

A Spark task without an executor waits forever. `targets.lake.engine.spread` reports here when it begins to wait, and is
notified when to stop waiting: the driver works the batch itself then.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PATIENCE = 60.0
"""Seconds that a large batch waits without any executor: enough for a pod to start where the image is on the node."""
WITHOUT = 300.0
"""Seconds for which large batches do not wait again after one has waited in vain."""
LOOK = 1.0


@dataclass
class Attempt:
    """A job that waits for executors. `given_up`: none came, and it was cancelled."""

    given_up: bool = False
    over: threading.Event = field(default_factory=threading.Event)


class Demand:
    """Thread-safe."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, look: float = LOOK) -> None:
        self._clock, self._look = clock, look
        self._without: float | None = None
        """Until then large batches do not wait for executors; None: they do."""

    @property
    def missing(self) -> bool:
        """A large batch has waited in vain, not long ago."""
        until = self._without
        return until is not None and self._clock() < until

    def came(self) -> None:
        """An executor has worked for a large batch."""
        self._without = None

    @contextmanager
    def patiently(self, runs: Callable[[], bool], cancel: Callable[[], None]) -> Iterator[Attempt]:
        """Around a job: `cancel` is called once no executor has run for `PATIENCE` seconds; `runs`: one does. Looked at
        until the end: those that are there may go, and no other come."""
        attempt = Attempt()
        watch = threading.Thread(target=self._watch, args=(attempt, runs, cancel), name="executors-wait", daemon=True)
        watch.start()
        try:
            yield attempt
        finally:
            attempt.over.set()
            watch.join()

    def _watch(self, attempt: Attempt, runs: Callable[[], bool], cancel: Callable[[], None]) -> None:
        alone_since = self._clock()
        while not attempt.over.wait(self._look):
            if attempt.given_up:
                cancel()  # once more: the job had not begun then
            elif runs():
                alone_since = self._clock()
            elif self._clock() - alone_since >= PATIENCE:
                self._without = self._clock() + WITHOUT
                attempt.given_up = True
                cancel()


DEMAND = Demand()
"""The demand of this process, which has one Spark session at most."""
