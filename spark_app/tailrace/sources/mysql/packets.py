"""Answers of a prepared statement, straight from the socket of a PyMySQL connection: rows in the binary protocol, whole
blocks of them, with the place of each.

PyMySQL would make a tuple of Python objects of each row. Between two commands its reader has nothing left over, so the
socket may be read past it. Called by `rows_read`.
"""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray
from pymysql.err import raise_mysql_exception

from tailrace.databases.mysql.connect import ANSWER_SECONDS, Connection

BLOCK = 4 << 20
"""Bytes of rows that are taken at a time."""
SLACK = 16
"""Bytes behind the last row: gathers read whole words."""
_HEADER = struct.Struct("<I")
_WARNINGS = struct.Struct("<H")
_WHOLE = 0xFFFFFF
"""Bytes of a packet that another one continues."""
_PREPARE, _EXECUTE, _CLOSE = 0x16, 0x17, 0x19
_EOF, _ERROR = 0xFE, 0xFF


@dataclass(frozen=True)
class WireColumn:
    """A column of the answer as its definition says."""

    name: str
    type: int
    unsigned: bool


@dataclass(frozen=True)
class Block:
    """Rows as they came: `starts` are the places of their first bytes in `data`, which has `SLACK` behind."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]


class _Wire(Protocol):
    """The parts that PyMySQL does not expose: the socket, TLS included, and a command that is only sent."""

    _sock: socket.socket

    def _execute_command(self, command: int, sql: str | bytes) -> None: ...


class PreparedAnswer:
    """The rows of one statement, which has no parameters."""

    def __init__(self, connection: Connection, statement: str) -> None:
        self._connection = cast(_Wire, connection)
        self._socket = self._connection._sock
        self._socket.settimeout(ANSWER_SECONDS)
        self._buffer = bytearray(1 << 16)
        self._from = self._at = self._to = 0
        """The places where what is not yet taken begins, how far its rows have been found, and where it ends."""
        self._ended = False
        self.warnings = 0
        """How many the server gave, once all rows have been taken; it forgets them at the next statement but
        SHOW WARNINGS."""
        self._connection._execute_command(_PREPARE, statement)
        self._statement, columns, parameters = struct.unpack_from("<IHH", self._packet(), 1)
        for _ in range((columns + 1 if columns else 0) + (parameters + 1 if parameters else 0)):
            self._packet()
        self._connection._execute_command(_EXECUTE, struct.pack("<IBI", self._statement, 0, 1))
        self._packet()  # how many columns, as above
        self.columns = [_column(self._packet()) for _ in range(columns)]
        self._packet()

    def blocks(self) -> Iterator[Block]:
        """All rows. The connection is free for the next statement once the last has been taken; `close` comes after."""
        while not self._ended:
            starts = self._gather()
            if starts:
                yield self._cut(starts)
            elif not self._ended:
                yield self._large()

    def close(self) -> None:
        """Let the server forget the statement; it answers nothing."""
        self._connection._execute_command(_CLOSE, struct.pack("<I", self._statement))

    def _packet(self) -> bytes:
        """One packet that is no row."""
        while (size := self._size(self._from)) is None or self._to < self._from + 4 + size:
            self._more()
        found = bytes(self._buffer[self._from + 4 : self._from + 4 + size])
        self._from += 4 + size
        if found[:1] == bytes([_ERROR]):
            raise_mysql_exception(found)
        return found

    def _size(self, at: int) -> int | None:
        """Bytes of the packet there; None: its header is not here yet."""
        return _HEADER.unpack_from(self._buffer, at)[0] & _WHOLE if self._to >= at + 4 else None

    def _more(self) -> None:
        """Take what the socket has. Nothing moves in the buffer, which grows for a row that is larger."""
        if len(self._buffer) - self._to < 2 * SLACK:
            self._buffer += bytearray(max(BLOCK, len(self._buffer)))
        took = self._socket.recv_into(memoryview(self._buffer)[self._to : len(self._buffer) - SLACK])
        if not took:
            raise ConnectionError("the server closed the connection")
        self._to += took

    def _gather(self) -> list[int]:
        """Places of whole rows, about `BLOCK` bytes of them or the last. None: a row in several packets comes next."""
        starts: list[int] = []
        self._at = self._from
        while True:
            self._scan(starts)
            enough = bool(starts) and self._at - self._from >= BLOCK
            if enough or self._ended or self._size(self._at) == _WHOLE:
                return starts
            self._more()

    def _scan(self, starts: list[int]) -> None:
        add, unpack, buffer, at, to = starts.append, _HEADER.unpack_from, self._buffer, self._at, self._to
        while at + 4 < to:  # the only work per row
            size = unpack(buffer, at)[0] & _WHOLE
            if size == _WHOLE or at + 4 + size > to:
                break
            if buffer[at + 4]:
                self._ended = True
                if buffer[at + 4] == _ERROR:
                    raise_mysql_exception(bytes(buffer[at + 4 : at + 4 + size]))
                self.warnings = _WARNINGS.unpack_from(buffer, at + 5)[0]
                break
            add(at + 4)
            at += 4 + size
        self._at = at

    def _cut(self, starts: list[int]) -> Block:
        block = Block(np.frombuffer(self._buffer, np.uint8), np.array(starts, np.int64))
        rest = self._buffer[self._at : self._to]
        self._buffer = rest + bytearray(BLOCK)
        self._from, self._to = 0, len(rest)
        return block

    def _large(self) -> Block:
        """One row in several packets, put together."""
        row = bytearray()
        size = _WHOLE
        while size == _WHOLE:
            while (found := self._size(self._from)) is None or self._to < self._from + 4 + found:
                self._more()
            size = found
            row += self._buffer[self._from + 4 : self._from + 4 + size]
            self._from += 4 + size
        self._buffer = self._buffer[self._from : self._to] + bytearray(BLOCK)
        self._from, self._to = 0, self._to - self._from
        return Block(np.frombuffer(row + bytearray(SLACK), np.uint8), np.array([0], np.int64))


def _column(definition: bytes) -> WireColumn:
    at, texts = 0, []
    for _ in range(6):
        size = definition[at]
        texts.append(definition[at + 1 : at + 1 + size])
        at += 1 + size
    _, _, kind, flags = struct.unpack_from("<HIBH", definition, at + 1)
    return WireColumn(texts[4].decode(), kind, bool(flags & 32))
