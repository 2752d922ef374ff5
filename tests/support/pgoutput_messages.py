"""Makes pgoutput messages, for tests without a server. A value is text, None (null) or UNCHANGED."""

import struct
from collections.abc import Sequence

from tailrace.sources.postgresql.log.pgoutput import POSTGRES_EPOCH

UNCHANGED = object()
Value = str | None | object
TEXT_OID = 25


def tuple_data(values: Sequence[Value]) -> bytes:
    data = struct.pack(">H", len(values))
    for value in values:
        if value is None:
            data += b"n"
        elif value is UNCHANGED:
            data += b"u"
        else:
            text = str(value).encode()
            data += b"t" + struct.pack(">I", len(text)) + text
    return data


def begin(xid: int, commit_ts: int = POSTGRES_EPOCH) -> bytes:
    return b"B" + struct.pack(">QqI", 0, commit_ts - POSTGRES_EPOCH, xid)


def commit(end_lsn: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, end_lsn - 8, end_lsn, 0)


def stream_start(xid: int) -> bytes:
    return b"S" + struct.pack(">IB", xid, 1)


def stream_commit(xid: int, end_lsn: int, commit_ts: int = POSTGRES_EPOCH) -> bytes:
    return b"c" + struct.pack(">IBQQq", xid, 0, end_lsn - 8, end_lsn, commit_ts - POSTGRES_EPOCH)


def stream_abort(top: int, sub: int) -> bytes:
    return b"A" + struct.pack(">II", top, sub)


STREAM_STOP = b"E"


def relation(relation_id: int, columns: Sequence[str], key: Sequence[str], name: str = "t") -> bytes:
    data = b"R" + struct.pack(">I", relation_id) + b"public\0" + name.encode() + b"\0d"
    data += struct.pack(">H", len(columns))
    for column in columns:
        data += bytes([column in key]) + column.encode() + b"\0" + struct.pack(">Ii", TEXT_OID, -1)
    return data


def insert(relation_id: int, new: Sequence[Value]) -> bytes:
    return b"I" + struct.pack(">I", relation_id) + b"N" + tuple_data(new)


def update(relation_id: int, new: Sequence[Value], old: Sequence[Value] | None = None, tag: bytes = b"K") -> bytes:
    before = b"" if old is None else tag + tuple_data(old)
    return b"U" + struct.pack(">I", relation_id) + before + b"N" + tuple_data(new)


def delete(relation_id: int, old: Sequence[Value], tag: bytes = b"K") -> bytes:
    return b"D" + struct.pack(">I", relation_id) + tag + tuple_data(old)


def truncate(*relation_ids: int) -> bytes:
    return b"T" + struct.pack(f">IB{len(relation_ids)}I", len(relation_ids), 0, *relation_ids)


def with_xid(message: bytes, xid: int) -> bytes:
    """The form inside a stream."""
    return message[:1] + struct.pack(">I", xid) + message[1:]
