"""One queue over all objects: who is due, and a few workers. No object is worked on twice at the same time.

An object that is woken while it is worked on is due again right after. A failed round is tried again with a growing
pause, each object by itself; nothing ever drops out of the queue but by being gone.
"""

import asyncio
import heapq
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tailrace.errors import Retry, TailraceError
from tailrace_operator import metrics
from tailrace_operator.kube import ApiUnavailable
from tailrace_operator.observe.model import ObjectKey

log = logging.getLogger(__name__)

SETTLE_SECONDS = 0.1
"""Changes that come together are one round."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
WORKERS = 64
"""Most rounds wait for a driver's answer; drivers that are silent hold a worker for as long as they are given."""
Round = Callable[[ObjectKey], Awaitable[float | None]]
"""Does one round; returns seconds until the next, None: the object is gone."""


class Scheduler:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[ObjectKey, float] = {}
        self._heap: list[tuple[float, int, ObjectKey]] = []
        self._order = itertools.count()
        self._busy: dict[ObjectKey, float] = {}
        self._pauses: dict[ObjectKey, float] = {}
        self._told: dict[ObjectKey, str] = {}
        """The error of an object's last round. It is told once, however often it comes back."""
        self._changed = asyncio.Event()
        self._ended = clock()

    def wake(self, key: ObjectKey, delay: float = SETTLE_SECONDS) -> None:
        """Due in `delay` seconds, or earlier if it already was."""
        at = self._clock() + delay
        if self._due.get(key, at + 1) <= at:
            return
        self._due[key] = at
        heapq.heappush(self._heap, (at, next(self._order), key))
        self._changed.set()

    def overdue(self) -> float:
        """Seconds that the oldest due or unfinished round waits."""
        now = self._clock()
        oldest = min([*self._due.values(), *self._busy.values()], default=now)
        return max(now - oldest, 0.0)

    def stuck(self) -> float:
        """Seconds without progress: of the longest round under way, or since work is due and none has ended. A long
        queue that moves is slow; a restart would make it slower."""
        now = self._clock()
        longest = max((now - at for at in self._busy.values()), default=0.0)
        waits = min(now - self._ended, now - min(self._due.values(), default=now))
        return max(longest, waits, 0.0)

    def length(self) -> int:
        now = self._clock()
        return sum(at <= now for at in self._due.values()) + len(self._busy)

    async def run(self, work: Round, workers: int = WORKERS) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._worker(work))

    async def _worker(self, work: Round) -> None:
        while True:
            key = await self._next()
            self._busy[key] = self._clock()
            try:
                delay = await self._round(work, key)
            finally:
                del self._busy[key]
                self._ended = self._clock()
            if delay is not None:
                self.wake(key, delay)
            self._changed.set()

    async def _next(self) -> ObjectKey:
        while True:
            key, wait = self._pop()
            if key is not None:
                return key
            self._changed.clear()
            # `wait_for` of Python 3.11 loses a cancellation that comes together with the change.
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    def _pop(self) -> tuple[ObjectKey | None, float | None]:
        """The next that is due and not being worked on, else how long to wait (None: until something changes)."""
        now, held = self._clock(), []
        found: ObjectKey | None = None
        while self._heap and self._heap[0][0] <= now and found is None:
            entry = heapq.heappop(self._heap)
            at, _, key = entry
            if self._due.get(key) != at:
                continue  # woken earlier since
            if key in self._busy:
                held.append(entry)
                continue
            del self._due[key]
            found = key
        wait = max(self._heap[0][0] - now, 0.01) if self._heap else None
        for entry in held:
            heapq.heappush(self._heap, entry)
        return found, wait

    async def _round(self, work: Round, key: ObjectKey) -> float | None:
        start = self._clock()
        try:
            delay = await work(key)
        except TailraceError as error:
            return self._failed(key, error)
        else:
            self._pauses.pop(key, None)
            self._told.pop(key, None)
            metrics.ROUNDS.labels(key.kind, "done").inc()
            return delay
        finally:
            metrics.ROUND_SECONDS.labels(key.kind).observe(self._clock() - start)

    def _failed(self, key: ObjectKey, error: TailraceError) -> float:
        metrics.ROUNDS.labels(key.kind, "retry" if isinstance(error, Retry) else "refused").inc()
        pause = self._pauses.get(key, FIRST_PAUSE)
        self._pauses[key] = min(pause * 2, LONGEST_PAUSE)
        asked = error.after if isinstance(error, ApiUnavailable) and error.after is not None else 0.0
        delay = max(pause * random.uniform(0.7, 1.3), asked)
        where = {"object": f"{key.kind}/{key.namespace}/{key.name}"}
        level = logging.DEBUG if self._told.get(key) == error.message else logging.WARNING
        self._told[key] = error.message
        log.log(level, "%s; retrying in %.1f s", error.message, delay, extra=where)
        return delay
