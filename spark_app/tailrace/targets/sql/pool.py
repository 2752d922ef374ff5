"""Connections to the target, kept for the next batch. Made by each product."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, Full, LifoQueue
from typing import Protocol

from typing_extensions import override

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
                return self._connect()
            if session.usable:
                return session
            session.close()
