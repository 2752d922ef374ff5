"""One connection for several short transactions, one after the other: opened when it is first needed, and no longer
used after an error. For the chunks of many small tables (`sources.api.ChunkReader.kept`)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class KeptConnection(Generic[C]):
    """One thread's connection."""

    def __init__(self, connect: Callable[[], C], is_as_before: Callable[[C], bool] = lambda _: True) -> None:
        """`is_as_before`: returns True if the transaction that ended has left the connection as it found it."""
        self._connect, self._is_as_before = connect, is_as_before
        self._idle: C | None = None

    @contextmanager
    def use(self) -> Iterator[C]:
        """A connection without an open transaction, for one transaction."""
        connection, self._idle = self._idle if self._idle is not None else self._connect(), None
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if self._is_as_before(connection):
            self._idle = connection
        else:
            connection.close()

    def close(self) -> None:
        idle, self._idle = self._idle, None
        if idle is not None:
            idle.close()
