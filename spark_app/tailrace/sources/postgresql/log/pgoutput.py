"""Messages of the pgoutput plugin (protocol 2, streaming, text): what each one says, apart from the rows' values.

Called by capture for every message that is not a row change, and for its constants. Row changes stay bytes until
`decode` walks a whole block by column. A kind that is not in the protocol is a `Stop`: skipping it would lose changes
without a word.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import NamedTuple, TypeVar

from tailrace.errors import SourceRefused

BEGIN, COMMIT, RELATION, TYPE, ORIGIN, MESSAGE, TRUNCATE = b"BCRYOMT"
INSERT, UPDATE, DELETE = b"IUD"
STREAM_START, STREAM_STOP, STREAM_COMMIT, STREAM_ABORT = b"SEcA"
ROWS = frozenset((INSERT, UPDATE, DELETE))
NEW, KEY, OLD = b"NKO"
"""Marks in front of a tuple: the new row, the old row's identity columns, the whole old row (REPLICA IDENTITY FULL)."""

POSTGRES_EPOCH = 946_684_800_000_000
"""2000-01-01 in microseconds since the Unix epoch."""

_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")
_RELATION = struct.Struct(">I")
_COLUMN = struct.Struct(">Ii")
_STREAM_COMMIT = struct.Struct(">IBQQq")
_STREAM_START = struct.Struct(">IB")
_STREAM_ABORT = struct.Struct(">II")
_COUNT, _LENGTH = struct.Struct(">H"), struct.Struct(">I")
_TRUNCATE = struct.Struct(">IB")
_MESSAGE = struct.Struct(">BQ")


class UnknownMessage(SourceRefused):
    """The stream brought something that this version of Tailrace does not know."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"the replication stream brought {detail}",
            "Upgrade Tailrace, or report it; no change after this position was captured.",
        )


class Begin(NamedTuple):
    final_lsn: int
    commit_ts: int
    """Microseconds since the Unix epoch."""
    xid: int
    """32 bits, top-level."""


class Commit(NamedTuple):
    """The commit of an ordinary or (with `xid`) a streamed transaction. `end_lsn` is the position after it."""

    commit_lsn: int
    end_lsn: int
    commit_ts: int
    xid: int | None = None


@dataclass(frozen=True)
class RelationColumn:
    name: str
    identity: bool
    """Part of the replica identity."""
    type_oid: int
    type_modifier: int


@dataclass(frozen=True)
class Relation:
    relation_id: int
    schema_name: str
    table_name: str
    replica_identity: str
    """d default, n nothing, f full, i index."""
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True)
class Truncate:
    relation_ids: tuple[int, ...]


@dataclass(frozen=True)
class LogicalMessage:
    """`pg_logical_emit_message`."""

    transactional: bool
    lsn: int
    prefix: bytes
    """The prefix as it came: another application's may hold anything, and is not read."""
    content: bytes


_Parsed = TypeVar("_Parsed")


def _whole(parse: Callable[[bytes], _Parsed]) -> Callable[[bytes], _Parsed]:
    """A message that ends early, or counts more than it holds, is a `Stop` with a name."""

    @wraps(parse)
    def checked(message: bytes) -> _Parsed:
        try:
            return parse(message)
        except (struct.error, IndexError, ValueError) as error:
            raise _cut_off(message) from error

    return checked


def _cut_off(message: bytes) -> UnknownMessage:
    return UnknownMessage(f"a message of kind {chr(message[0])!r} that is cut off ({len(message)} bytes)")


def begin(message: bytes) -> Begin:
    """Checked by itself, as `commit`: they come with every transaction, and a wrapper costs a call."""
    try:
        final_lsn, commit_ts, xid = _BEGIN.unpack_from(message, 1)
    except struct.error as error:
        raise _cut_off(message) from error
    return Begin(final_lsn, commit_ts + POSTGRES_EPOCH, xid)


def commit(message: bytes) -> Commit:
    try:
        _flags, commit_lsn, end_lsn, commit_ts = _COMMIT.unpack_from(message, 1)
    except struct.error as error:
        raise _cut_off(message) from error
    return Commit(commit_lsn, end_lsn, commit_ts + POSTGRES_EPOCH)


@_whole
def stream_commit(message: bytes) -> Commit:
    xid, _flags, commit_lsn, end_lsn, commit_ts = _STREAM_COMMIT.unpack_from(message, 1)
    return Commit(commit_lsn, end_lsn, commit_ts + POSTGRES_EPOCH, xid)


@_whole
def stream_start(message: bytes) -> int:
    """The top-level xid whose changes follow."""
    xid, _first = _STREAM_START.unpack_from(message, 1)
    return int(xid)


@_whole
def stream_abort(message: bytes) -> tuple[int, int]:
    """(top-level xid, aborted xid); equal when the whole transaction is aborted."""
    top, sub = _STREAM_ABORT.unpack_from(message, 1)
    return top, sub


@_whole
def relation(message: bytes) -> Relation:
    (relation_id,) = _RELATION.unpack_from(message, 1)
    schema_name, at = _text(message, 5)
    table_name, at = _text(message, at)
    identity = chr(message[at])
    (count,) = _COUNT.unpack_from(message, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = message[at]
        name, at = _text(message, at + 1)
        type_oid, modifier = _COLUMN.unpack_from(message, at)
        at += 8
        columns.append(RelationColumn(name, bool(flags & 1), type_oid, modifier))
    # An empty schema name stands for pg_catalog.
    return Relation(relation_id, schema_name or "pg_catalog", table_name, identity, tuple(columns))


@_whole
def truncate(message: bytes) -> Truncate:
    count, _options = _TRUNCATE.unpack_from(message, 1)
    return Truncate(struct.unpack_from(f">{count}I", message, 6))


@_whole
def inserted(message: bytes) -> list[bytes | None]:
    """The texts of an inserted row's columns; None: NULL."""
    (count,) = _COUNT.unpack_from(message, 6)
    values, at = list[bytes | None](), 8
    for _ in range(count):
        kind, at = message[at : at + 1], at + 1
        if kind == b"n":
            values.append(None)
            continue
        (length,) = _LENGTH.unpack_from(message, at)
        if kind != b"t" or at + 4 + length > len(message):
            raise ValueError("a value beyond its message")
        values.append(message[at + 4 : at + 4 + length])
        at += 4 + length
    return values


@_whole
def logical_message(message: bytes) -> LogicalMessage:
    flags, lsn = _MESSAGE.unpack_from(message, 1)
    end = message.index(b"\0", 10)
    prefix, at = message[10:end], end + 1
    (length,) = _LENGTH.unpack_from(message, at)
    if at + 4 + length > len(message):
        raise ValueError("a content beyond its message")
    return LogicalMessage(bool(flags & 1), lsn, prefix, message[at + 4 : at + 4 + length])


def unknown(kind: int) -> UnknownMessage:
    return UnknownMessage(f"a message of unknown kind {chr(kind)!r}")


def extend_xid(xid: int, reference: int) -> int:
    """The 64-bit xid nearest to `reference` (a recent 64-bit xid of the server) with these lower 32 bits.

    Xids that the log can still bring are within 2^31 of the server's next one: wraparound protection sees to it.
    """
    candidate = (reference & ~0xFFFFFFFF) | xid
    if candidate - reference > 1 << 31:
        return candidate - (1 << 32)
    if reference - candidate > 1 << 31:
        return candidate + (1 << 32)
    return candidate


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    # A SQL_ASCII database checks no text. The table is known by its id; discovery stops it by name (`unreadable`).
    return message[at:end].decode(errors="backslashreplace"), end + 1
