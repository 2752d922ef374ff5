"""A recorded run: chunks and the log of one table under stalled commits, so that several rules can be judged by it.

Reads pgoutput row by row, on purpose: nothing of capture's decoding takes part.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg

from tailrace.batch.rule import UNCHANGED, Change

Values = tuple[object, ...]


@dataclass(frozen=True)
class RecordedChunk:
    low: int
    """Log position read before the chunk; `high` after it."""
    high: int
    snapshot: str
    rows: dict[str, Values]


@dataclass(frozen=True)
class RecordedChange:
    """A log row with its transaction's commit position and 32-bit xid."""

    position: int
    xid: int
    change: Change[str]


@dataclass(frozen=True)
class Recording:
    chunks: list[RecordedChunk]
    changes: list[RecordedChange]
    final: dict[str, Values]


def position(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").fetchone()
    assert row is not None
    return int(row[0])


def read_changes(connection: psycopg.Connection, slot: str, publication: str) -> list[RecordedChange]:
    """Everything the slot holds, consumed; one table with three text columns, the first its key."""
    query = """SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1',
               'publication_names', %s)"""
    found: list[RecordedChange] = []
    where, xid, sequence = 0, 0, 0
    for (message,) in connection.execute(query.encode(), (slot, publication)):
        if message[:1] == b"B":
            where, xid = struct.unpack(">Q", message[1:9])[0], struct.unpack(">I", message[17:21])[0]
        for op, key, values in _rows(message):
            sequence += 1
            found.append(RecordedChange(where, xid, Change(sequence, op, key, values)))  # type: ignore[arg-type]  # one of the letters, as recorded
    return found


def _rows(message: bytes) -> Iterator[tuple[str, str, Values]]:
    kind = message[:1]
    if kind == b"I":
        values, _ = _tuple(message, 6)
        yield "I", str(values[0]), values
    elif kind == b"D":
        values, _ = _tuple(message, 6)
        yield "D", str(values[0]), ()
    elif kind == b"U":
        old, offset = _tuple(message, 6) if message[5:6] in b"KO" else (None, 5)
        values, _ = _tuple(message, offset + 1)
        if old is not None and old[0] != values[0]:
            yield "D", str(old[0]), ()
            yield "M", str(values[0]), values
        else:
            yield "U", str(values[0]), values


def _tuple(message: bytes, offset: int) -> tuple[Values, int]:
    count = struct.unpack_from(">H", message, offset)[0]
    offset += 2
    values: list[object] = []
    for _ in range(count):
        kind = message[offset : offset + 1]
        offset += 1
        if kind == b"t":
            length = struct.unpack_from(">i", message, offset)[0]
            values.append(message[offset + 4 : offset + 4 + length].decode())
            offset += 4 + length
        else:
            values.append(None if kind == b"n" else UNCHANGED)
    return tuple(values), offset
