"""A `ChangeStream` over a log connection, an assembler and the captured tables: the base of both products' streams."""

from typing import Any, Generic, Protocol, TypeVar

from tailrace.changelog.records.terms import Position
from tailrace.sources.log.blocks import BlockBuilder
from tailrace.sources.log.tables import StreamTables


class Connected(Protocol):
    """The log connection."""

    def fileno(self) -> int: ...

    def heard(self) -> None:
        """We were busy and did not listen: silence counts from now."""

    def keep_alive(self) -> None:
        """`Retry` after too long a silence."""

    def close(self) -> None: ...


class Assembling(Protocol):
    """The part that puts the log into transactions."""

    @property
    def builder(self) -> BlockBuilder[Any]: ...

    @property
    def position(self) -> Position:
        """The position after the last finished transaction."""


Log = TypeVar("Log", bound=Connected)


class LogStream(Generic[Log]):
    _assembler: Assembling
    _tables: StreamTables[Any]
    _log: Log | None = None

    @property
    def _connected(self) -> Log:
        assert self._log is not None, "start() comes first"
        return self._log

    def fileno(self) -> int:
        return self._connected.fileno()

    @property
    def position(self) -> Position:
        return self._assembler.position

    @property
    def pending(self) -> bool:
        return self._assembler.builder.pending

    @property
    def in_transaction(self) -> bool:
        return self._assembler.builder.divided

    def keep_alive(self, listened: bool = True) -> None:
        if self._log is None:
            return
        if not listened:
            self._log.heard()
        self._log.keep_alive()

    def is_captured(self, table_id: int) -> bool:
        return self._tables.is_captured(table_id)

    def version_with(self, table_id: int, columns: tuple[str, ...]) -> int | None:
        return self._tables.version_with(table_id, columns)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
