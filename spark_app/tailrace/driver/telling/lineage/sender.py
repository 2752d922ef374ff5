"""The queue between the driver and the receiver of lineage events: bounded, with a thread of its own.

`put` never waits. An event that cannot be delivered is tried again after growing pauses. A RUNNING that waits is
replaced by the next of its run, and what is more than the queue holds is dropped and counted. So a receiver that is
slow or down costs the driver memory for `CAPACITY` events and nothing else.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tailrace.contract.status import LineageStatus
from tailrace.driver.telling.lineage.configuration import text_of
from tailrace.errors.backoff import Backoff

log = logging.getLogger(__name__)

CAPACITY = 5000
LONGEST_PAUSE = 30.0
PASSING = (401, 403, 407, 408, 425, 429)
"""Refusals by HTTP that say nothing against the event itself: credentials, load."""


@dataclass(eq=False)
class _Waiting:
    event: Any
    run_id: str | None
    """Set of a RUNNING: a newer one of the run says all that it says."""
    ends: str | None = None
    """The run that it ends."""


class Sender:
    def __init__(
        self, emit: Callable[[Any], object], capacity: int = CAPACITY, longest_pause: float = LONGEST_PAUSE
    ) -> None:
        """`emit`: delivers an event, or raises."""
        self._emit, self._capacity = emit, capacity
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._running: dict[str, _Waiting] = {}
        """The RUNNING that waits, by run."""
        self._backoff = Backoff(longest_pause)
        self._closing = False
        self._sent = self._dropped = 0
        self._ended: set[str] = set()
        self._fault: str | None = None
        self._thread = threading.Thread(target=self._run, name="lineage-sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def status(self) -> LineageStatus:
        with self._changed:
            return LineageStatus(sent=self._sent, dropped=self._dropped, waiting=len(self._waiting), fault=self._fault)

    def take_ended(self) -> set[str]:
        """The runs whose end the receiver has, or has refused, since this was asked last."""
        with self._changed:
            ended, self._ended = self._ended, set()
            return ended

    def put(self, event: Any, run_id: str | None = None, ends: str | None = None) -> None:
        """`run_id`: of a RUNNING; `ends`: of the run that it ends."""
        with self._changed:
            before = None if run_id is None else self._running.get(run_id)
            if before is not None:
                before.event = event
                return
            waiting = _Waiting(event, run_id, ends)
            self._waiting.append(waiting)
            if run_id is not None:
                self._running[run_id] = waiting
            if len(self._waiting) > self._capacity:
                self._drop()
            self._changed.notify()

    def drop(self, events: int = 1) -> None:
        """Count events that could not even be made."""
        with self._changed:
            self._dropped += events

    def close(self, seconds: float) -> None:
        """Wait up to so long for what waits; the rest is dropped. The thread may still be held up by the receiver."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(seconds)
        with self._changed:
            left = len(self._waiting)
            self._dropped += left
            self._waiting.clear()
            self._running.clear()
        if left:
            log.warning("%d lineage events were not delivered: %s", left, self._fault or "there was no time")

    def _drop(self) -> None:
        """The oldest RUNNING, for others say what no later one says again; if there is none, the oldest."""
        oldest = next(iter(self._running.values()), None) or self._waiting[0]
        self._waiting.remove(oldest)
        self._forget(oldest)
        self._dropped += 1

    def _forget(self, waiting: _Waiting) -> None:
        if waiting.run_id is not None and self._running.get(waiting.run_id) is waiting:
            del self._running[waiting.run_id]

    # ---- on its own thread ----

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    return
                next_one = self._waiting[0]
                self._forget(next_one)  # from here on a newer one is an event of its own
            if not self._deliver(next_one) and not self._pause():
                return

    def _deliver(self, one: _Waiting) -> bool:
        """False: it is to be tried again."""
        try:
            self._emit(one.event)
        except Exception as error:  # whatever the transport raises: the copy goes on without its events
            refused = _is_refused(error)
            self._failed(error, one, refused)
            return refused
        with self._changed:
            self._sent += 1
            self._remove(one)
            self._end(one)
            back, self._fault = self._fault is not None, None
        self._backoff.reset()
        if back:
            log.info("lineage events are delivered again")
        return True

    def _failed(self, error: Exception, one: _Waiting, refused: bool) -> None:
        text = text_of(error)
        with self._changed:
            known, self._fault = self._fault, text
            if refused:
                self._dropped += self._remove(one)
                self._end(one)
        if known is None:
            what = "a lineage event was refused" if refused else "lineage events cannot be delivered"
            log.warning("%s: %s. The copy continues; tailrace_lineage_events_total counts the losses", what, text)

    def _end(self, one: _Waiting) -> None:
        if one.ends is not None:
            self._ended.add(one.ends)

    def _remove(self, one: _Waiting) -> int:
        """It may have been dropped meanwhile."""
        if one not in self._waiting:
            return 0
        self._waiting.remove(one)
        return 1

    def _pause(self) -> bool:
        """False: the driver ends, and there is no time for another attempt."""
        now = time.monotonic()
        self._backoff.failed(now)
        with self._changed:
            self._changed.wait_for(lambda: self._closing, self._backoff.due - now)
            return not self._closing


def _is_refused(error: Exception) -> bool:
    """True if the receiver took a look at the event and will never have it."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return isinstance(status, int) and 400 <= status < 500 and status not in PASSING
