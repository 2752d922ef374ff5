"""Between the socket's threads and capture's one loop: calls that wait for their answer, and what can be told at
once."""

import os
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from tailrace.capture.protocol import Recorded, Request, StateAnswer
from tailrace.changelog.records import Position


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


class Inbox:
    """A queue that a selecting loop can wait for."""

    def __init__(self) -> None:
        self._items: deque[Call | Gone] = deque()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    def put(self, item: Call | Gone) -> None:
        self._items.append(item)
        self.wake()

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


class Board:
    """The newest state, for whoever asks; answered without the loop, which may be waiting for the source."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = StateAnswer(record=-1, epoch=-1, position=Position(0), waiting_for="capture starts")

    def show(self, state: StateAnswer) -> None:
        with self._lock:
            self._state = state

    def waiting_for(self, what: str | None) -> None:
        with self._lock:
            self._state = self._state.model_copy(update={"waiting_for": what})

    def state(self) -> StateAnswer:
        with self._lock:
            return self._state
