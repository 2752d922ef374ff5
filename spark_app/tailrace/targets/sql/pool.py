"""Connections to the target, kept for the next batch. Made by each product."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, Full, LifoQueue
from time import monotonic
from typing import Protocol

from typing_extensions import override

from tailrace.errors import AuthenticationFailed, Retry
from tailrace.errors.backoff import ROTATION_SECONDS
from tailrace.targets.sql.session import TargetSession

IDLE = 4
"""Connections that are kept."""


class PooledSession(TargetSession, Protocol):
    @property
    def usable(self) -> bool: ...

    def close(self) -> None: ...


class SessionPool:
    """See `targets.sql.session.TargetSessions`. Picklable: another process makes connections of its own."""

    def __init__(self, connect: Callable[[], PooledSession]) -> None:
        """`connect`: picklable."""
        self._connect = connect
        self._idle: LifoQueue[PooledSession] = LifoQueue(IDLE)
        self._refused: float | None = -math.inf
        """Since when the password is refused, by a monotonic clock; None: it was accepted the last time."""

    @override
    def __reduce__(self) -> tuple[type["SessionPool"], tuple[Callable[[], PooledSession]]]:
        return SessionPool, (self._connect,)

    @contextmanager
    def session(self) -> Iterator[PooledSession]:
        session = self._taken()
        try:
            yield session
        except BaseException:
            session.close()
            raise
        try:
            self._idle.put_nowait(session)
        except Full:
            session.close()

    def _taken(self) -> PooledSession:
        while True:
            try:
                session = self._idle.get_nowait()
            except Empty:
                return self._connected()
            if session.usable:
                return session
            session.close()

    def _connected(self) -> PooledSession:
        try:
            session = self._connect()
        except AuthenticationFailed as error:
            now = monotonic()
            self._refused = now if self._refused is None else self._refused
            if now - self._refused > ROTATION_SECONDS:
                raise
            again = f"{error.message}; tried again for {ROTATION_SECONDS:.0f} s, as it was accepted before"
            raise Retry.of_place(again, error.fix) from error
        self._refused = None
        return session
