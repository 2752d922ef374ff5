"""Pauses of this process's batches, as the target's product allows no more, or does not answer: told in the status
where changes are late. Set by targets, read by the driver."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet


class Answering(Protocol):
    """A session with a target."""

    def silence(self) -> str | None:
        """The statement about a server that has not answered for long; None: nothing is waited for."""


class TargetPauses:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock, self._whys, self._sessions = threading.Lock(), list[str](), WeakSet[Answering]()

    @property
    def why(self) -> str | None:
        """None: nothing waits."""
        with self._lock:
            whys, sessions = list(self._whys), list(self._sessions)
        return next(iter(whys), None) or next(filter(None, (session.silence() for session in sessions)), None)

    @contextmanager
    def told(self, why: str) -> Iterator[None]:
        with self._lock:
            self._whys.append(why)
        try:
            yield
        finally:
            with self._lock:
                self._whys.remove(why)

    def watch(self, session: Answering) -> None:
        """Ask it for as long as it exists."""
        with self._lock:
            self._sessions.add(session)


PAUSES = TargetPauses()
"""The pauses of this process."""
