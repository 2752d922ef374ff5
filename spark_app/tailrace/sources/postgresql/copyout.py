"""COPY (…) TO STDOUT (FORMAT binary) as blocks of whole rows, in bounded memory.

Called by the chunk reader; `columnar.split` takes the blocks. libpq is used directly: psycopg's `Copy` passes each row
through its generators, which costs more than the rest of a chunk together.
"""

import select
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from psycopg import errors, pq

from tailrace.databases.postgresql.connect import Connection
from tailrace.errors import Retry

_SIGNATURE = b"PGCOPY\n\xff\r\n\0"
_HEADER = 19
"""Signature, int32 flags, int32 length of the header's extension."""
_TRAILER = b"\xff\xff"
BLOCK_BYTES = 8 << 20
BLOCK_ROWS = 1 << 16
"""A block ends at whichever comes first: what one chunk reader holds at a time, a few times over."""


@dataclass(frozen=True)
class CopyBlock:
    """Whole rows: row i is `data[ends[i] - sizes[i] : ends[i]]`, an int16 column count first."""

    data: bytes
    sizes: npt.NDArray[np.int64]

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        return np.cumsum(self.sizes)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The places where each row's column values begin, after the count."""
        return self.ends - self.sizes + 2


def copy_out(connection: Connection, statement: bytes) -> Iterator[CopyBlock]:
    """Run the COPY and yield its rows. psycopg errors of the server are raised as they are."""
    pgconn = connection.pgconn
    pgconn.send_query_params(statement, None)  # the protocol that takes one statement only
    while pgconn.flush():
        _poll(pgconn.socket, select.POLLOUT)
    _expect(connection, pq.ExecStatus.COPY_OUT)
    rows = [_first(connection)]
    size = len(rows[0])
    get = pgconn.get_copy_data
    while True:  # once per row: the server sends one message for each
        length, data = get(1)
        if length > 0:
            if size >= BLOCK_BYTES or len(rows) >= BLOCK_ROWS:
                yield _block(rows)
                rows, size = [], 0
            rows.append(bytes(data))  # not the view: the garbage collector tracks views, which costs half the speed
            size += length
        elif length == 0:
            _wait(connection)
        else:
            break
    _expect(connection, pq.ExecStatus.COMMAND_OK)
    while _result(connection) is not None:
        pass
    if rows.pop() != _TRAILER:
        raise Retry("COPY from PostgreSQL ended without its trailer")
    if rows:
        yield _block(rows)


def _first(connection: Connection) -> bytes:
    """The first row, or the trailer of an empty answer; the header stands in front of it in the same message."""
    length, data = connection.pgconn.get_copy_data(1)
    while length == 0:
        _wait(connection)
        length, data = connection.pgconn.get_copy_data(1)
    message = bytes(data)
    if length < 0:
        _expect(connection, pq.ExecStatus.COMMAND_OK)
    if not message.startswith(_SIGNATURE):
        raise Retry("COPY from PostgreSQL does not begin with its signature")
    return message[_HEADER:]


def _wait(connection: Connection) -> None:
    _poll(connection.pgconn.socket, select.POLLIN)
    connection.pgconn.consume_input()


def _poll(socket: int, event: int) -> None:
    """Wait as long as it takes: keep-alives end a dead connection. (select stops at 1024 files.)"""
    waiter = select.poll()
    waiter.register(socket, event)
    waiter.poll()


def _block(rows: list[bytes]) -> CopyBlock:
    sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    return CopyBlock(b"".join(rows), sizes)


def _expect(connection: Connection, status: pq.ExecStatus) -> None:
    result = _result(connection)
    if result is None or result.status != status:
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            while _result(connection) is not None:
                pass  # what failed is over, and the connection may be asked why
            raise errors.error_from_result(result, encoding="utf-8")
        raise Retry(f"COPY from PostgreSQL answered {result.status if result else 'nothing'} instead of {status.name}")


def _result(connection: Connection) -> pq.abc.PGresult | None:
    pgconn = connection.pgconn
    while pgconn.is_busy():
        _wait(connection)
    return pgconn.get_result()
