"""Between the socket's threads and capture's one loop: calls that wait for their answer, and those that can be answered
at once."""

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from tailrace.capture.protocol import Recorded, Request, StateAnswer
from tailrace.changelog.records.terms import Position, RecordNumber
from tailrace.errors import TailraceError


@dataclass(frozen=True)
class Call:
    """One request; the loop sets the future's result or exception."""

    request: Request
    connection: int
    reply: Future[Recorded | None] = field(default_factory=Future)


@dataclass(frozen=True)
class Gone:
    """A connection has ended."""

    connection: int


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class Inbox:
    """A queue that a selecting loop can wait for."""

    def __init__(self) -> None:
        self._items: deque[Call | Gone] = deque()
        self._lock = threading.Lock()
        self._ended: TailraceError | None = None
        self._read, self._write = os.pipe()
        weakref.finalize(self, _close, self._read, self._write)
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    def put(self, item: Call | Gone) -> None:
        with self._lock:
            self._items.append(item)
            if self._ended is not None:
                self._refuse(self._ended)
        self.wake()

    def end(self, error: TailraceError) -> None:
        """No loop takes anything more: whoever waits for an answer, now or later, gets the error."""
        with self._lock:
            self._ended = error
            self._refuse(error)

    def _refuse(self, error: TailraceError) -> None:
        for item in self.take():
            if isinstance(item, Call):
                item.reply.set_exception(error)

    def wake(self) -> None:
        try:
            os.write(self._write, b".")
        except BlockingIOError:
            return  # the pipe is full of wake-ups already

    def take(self) -> list[Call | Gone]:
        with suppress(BlockingIOError):
            os.read(self._read, 65536)
        items = []
        while self._items:
            items.append(self._items.popleft())
        return items


ASKED_SECONDS = 5.0
"""Seconds for which a wish for longer records holds: a driver that lives repeats it every second."""
OLD = 10.0
"""Seconds without a new measurement, of which there is one a second, until the last one is called old."""


class Board:
    """The newest state, for all that ask; answered without the loop, which may be waiting for the source. The number of
    the newest record is that of the moment when it is asked for: the driver reads the journal by it. A loop that is
    stuck measures nothing: its last measurement then grows old, and the state says so."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._shown = 0.0
        self._beat: float | None = None
        self._state = StateAnswer(record=RecordNumber(-1), epoch=-1, position=Position(0), waiting_for="capture starts")
        self._newest: Callable[[], RecordNumber] = lambda: RecordNumber(-1)
        self._news = threading.Condition()
        self._told = RecordNumber(-1)
        """The newest record of which those that wait have been told."""
        self._asked = 0.0, float("-inf")
        """The time that records may take, as it was last asked for, and when that was."""

    def show(self, state: StateAnswer, newest: Callable[[], RecordNumber]) -> None:
        """`newest`: asked from other threads."""
        with self._lock:
            self._state, self._newest, self._shown = state, newest, self._clock()

    def beat(self) -> None:
        """Notes that the loop has completed a round, or a part of a long step."""
        self._beat = self._clock()
        self.tell()

    def tell(self) -> None:
        """Wakes whoever waits for a record, if there is a new one."""
        newest = self._newest()
        if newest != self._told:
            with self._news:
                self._told = newest
                self._news.notify_all()

    def ask(self, record_seconds: float) -> None:
        """`record_seconds`: as in `GetState`."""
        self._asked = record_seconds, self._clock()

    @property
    def record_seconds(self) -> float:
        """Seconds that a record may take at least; 0: nobody asks for more than the promise leaves."""
        seconds, asked = self._asked
        return seconds if self._clock() - asked <= ASKED_SECONDS else 0.0

    def rest(self) -> None:
        """Until the next beat the loop does what has time limits of its own: it writes to the storage."""
        self._beat = None

    def still(self) -> float:
        """Seconds for which the loop has stood still; 0: it has not begun, or rests."""
        return 0.0 if self._beat is None else self._clock() - self._beat

    def waiting_for(self, what: str | None) -> None:
        with self._lock:
            self._state = self._state.model_copy(update={"waiting_for": what})

    def state(self, after: RecordNumber = RecordNumber(-1), patience: float = 0.0) -> StateAnswer:
        """`after`, `patience`: as in `GetState`."""
        if patience > 0:
            with self._news:
                self._news.wait_for(lambda: self._newest() > after, patience)
        with self._lock:
            return self._state.model_copy(update={"record": self._newest(), **self._grown_old()})

    def _grown_old(self) -> dict[str, object]:
        lag, age, still = self._state.lag_seconds, self._clock() - self._shown, self.still()
        found: dict[str, object] = {}
        if lag is not None and age > OLD:
            found["lag_seconds"] = round(lag + age, 3)
        if still > OLD:
            # Not while it works on one large transaction, however long: it comes round between two segments.
            found["waiting_for"] = f"the source, silent for {still:.0f} s"
        return found
