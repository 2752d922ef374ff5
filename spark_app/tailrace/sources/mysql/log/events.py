"""The events of the binary log that are read one by one: header, checksums, GTIDs, queries, XA, compressed payloads.

`assembler` asks for what an event's body says; row events and table maps have modules of their own (`walk`,
`table_map`). Every function gets a body without header and checksum, and raises `UnknownEvent` if it is not whole.
"""

import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from typing import BinaryIO, NamedTuple

import zstandard

from tailrace.errors import SourceRefused
from tailrace.sources.mysql.position import OFFSET_BITS

HEADER = struct.Struct("<IBIIIH")
"""Timestamp, type, server id, size, end in the file, flags."""
IGNORABLE = 0x80
"""Flag: a reader that does not know the event's type may pass over it."""
OF_A_SESSION = 0x04
"""Flag of a query: it uses a temporary table, or something else that only its session has."""
UNCHECKED = 1 << 1 | 1 << 2
"""Flags of a row event: its session checks neither foreign keys nor unique keys."""
ROW_FLAGS = 6
"""Place of a row event's flags."""
CHECKSUM_BYTES = 4
_COMPRESSED_ZSTD, _COMPRESSED_NONE = 0, 255
_GTID = struct.Struct("<B16sq")
GTID_TIME, GTID_TIME_BITS = 42, (1 << 55) - 1
"""The place of the commit's time in a GTID event (eight bytes), and the bits that are the time."""
_MARIADB_GTID, _STANDALONE, _GROUP_COMMIT, _PREPARES, _DECIDES, _IN_PARTS = 13, 1, 2, 0x40, 0x80, 14
"""Bytes of MariaDB's GTID event that are always there; its flags, and those of the byte that may stand behind."""
_GTID_LIST_COUNT = (1 << 28) - 1
"""Which bits of a GTID_LIST event's first four bytes are the number of its entries."""
_LOADED_FILE = 26
"""The place at which an EXECUTE_LOAD_QUERY event continues like a QUERY event."""
_BEGIN = b"BEGIN"
MAX_PAYLOAD = 1 << 30
"""Bytes that a compressed event may have unpacked: the greatest max_allowed_packet."""
_UNPACKED_AT_ONCE = 1 << 20


class Kind(IntEnum):
    """Types of events; MariaDB's own begin at 160."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    FORMAT_DESCRIPTION = 15
    XID = 16
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    MARIADB_ANNOTATE_ROWS = 160
    MARIADB_CHECKPOINT = 161
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163
    MARIADB_QUERY_COMPRESSED = 165
    MARIADB_WRITE_ROWS_COMPRESSED_V1 = 166
    MARIADB_UPDATE_ROWS_COMPRESSED_V1 = 167
    MARIADB_DELETE_ROWS_COMPRESSED_V1 = 168
    QUERY_OF_A_SESSION = 0x102
    MARIADB_QUERY_OF_A_SESSION_COMPRESSED = 0x1A5
    """QUERY and MARIADB_QUERY_COMPRESSED with the flag OF_A_SESSION: numbers of our own."""


class UnknownEvent(SourceRefused):
    """The server sent an event that Tailrace does not know, or one that is not whole."""

    usual_fix = "Report it with the server's version; passing over it could lose changes."


@contextmanager
def whole(what: str) -> Iterator[None]:
    """Whatever a truncated or damaged body runs into is an `UnknownEvent`."""
    try:
        yield
    except (struct.error, IndexError, ValueError, OverflowError, zlib.error, zstandard.ZstdError):
        raise UnknownEvent(f"the server sent a {what} event that cannot be read") from None


class Transaction(NamedTuple):
    """The identity of a transaction. MariaDB's have no prefix, and the place where they begin for a number."""

    prefix: str
    number: int
    mariadb: tuple[int, int, int] = (0, 0, 0)
    """MariaDB's domain, server and number."""
    standalone: bool = False
    """MariaDB: one statement without a transaction; it ends with its query."""
    commit_ts: int = 0
    """Microseconds since the Unix epoch; 0: the event does not say."""
    prepares: str | None = None
    """MariaDB: the xid of the XA transaction that it prepares, as statements write it."""
    in_parts: bool = False
    """MariaDB: an ALTER TABLE that was logged when it began, and again when it ended (`binlog_alter_two_phase`)."""


def number(body: bytes, at: int) -> tuple[int, int]:
    """A length-encoded number and the place behind it."""
    first = body[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}.get(first)
    if width is None or at + 1 + width > len(body):
        raise ValueError("not a number")
    return int.from_bytes(body[at + 1 : at + 1 + width], "little"), at + 1 + width


def piece(body: bytes, at: int, length: int) -> tuple[bytes, int]:
    """So many bytes and the place behind them."""
    if at + length > len(body):
        raise ValueError("not whole")
    return body[at : at + length], at + length


def has_checksums(event: bytes) -> bool:
    """Returns for a whole FORMAT_DESCRIPTION event if the events behind it carry a CRC32. Its own is always there."""
    return event[-1 - CHECKSUM_BYTES] == 1


def rotated(body: bytes) -> tuple[str, int]:
    """Name of the file that follows, and the offset in it."""
    with whole("ROTATE"):
        name, offset = body[8:].decode(), int.from_bytes(body[:8], "little")
        if not name.rpartition(".")[2].isdecimal() or offset >> OFFSET_BITS:
            raise ValueError("no place")
        return name, offset


def gtid(body: bytes) -> Transaction:
    if len(body) < _GTID.size:
        raise UnknownEvent("the server sent a GTID event that cannot be read")
    _, raw, gno = _GTID.unpack_from(body)
    when = int.from_bytes(body[GTID_TIME : GTID_TIME + 7], "little") & GTID_TIME_BITS
    return Transaction(prefix_of(raw), gno, commit_ts=when)


@cache
def prefix_of(raw: bytes) -> str:
    """The prefix for a server's uuid; a log has few."""
    return f"{_uuid(raw)}:"


def mariadb_gtid(body: bytes, server: int, begins: int) -> Transaction:
    with whole("GTID"):
        sequence, domain, flags = struct.unpack_from("<QIB", body, 0)
        at = _MARIADB_GTID + (8 if flags & _GROUP_COMMIT else 0)
        xid = _xid(body, at) if flags & _PREPARES else None
        parts = not flags & (_PREPARES | _DECIDES) and bool(int.from_bytes(body[at : at + 1]) & _IN_PARTS)
        standalone = bool(flags & _STANDALONE)
        return Transaction("", begins, (domain, server, sequence), standalone, prepares=xid, in_parts=parts)


def gtid_list(body: bytes) -> str:
    """MariaDB's state of the log before a file, as the server writes it."""
    with whole("GTID_LIST"):
        count = int.from_bytes(body[:4], "little") & _GTID_LIST_COUNT
        return ",".join(f"{d}-{s}-{n}" for d, s, n in struct.iter_unpack("<IIQ", piece(body, 4, 16 * count)[0]))


def _xid(body: bytes, at: int) -> str:
    form, gtrid, bqual = struct.unpack_from("<IBB", body, at)
    data, _ = piece(body, at + 6, gtrid + bqual)
    return f"x'{data[:gtrid].hex()}',x'{data[gtrid:].hex()}',{form}"


def tagged_gtid(body: bytes) -> Transaction:
    """The fields of a GTID_TAGGED event are numbered: 0 flags, 1 uuid, 2 number, 3 tag; what follows is not needed."""
    with whole("GTID_TAGGED"):
        at = 0
        for _ in range(3):  # version, size, last field that must be known
            _, at = _packed(body, at)
        field, at = _packed(body, at)
        if field == 0:
            _, at = _packed(body, at)
            field, at = _packed(body, at)
        uuid = bytearray()
        for _ in range(16):
            byte, at = _packed(body, at)
            uuid.append(byte)
        second, at = _packed(body, at)
        signed, at = _packed(body, at)
        third, at = _packed(body, at)
        if (field, second, third) != (1, 2, 3):
            raise ValueError("unexpected fields")
        length, at = _packed(body, at)
        tag, at = piece(body, at, length)
        prefix = f"{_uuid(bytes(uuid))}:{tag.decode()}:" if tag else f"{_uuid(bytes(uuid))}:"
        return Transaction(prefix, (signed >> 1) ^ -(signed & 1))


def _packed(body: bytes, at: int) -> tuple[int, int]:
    """MySQL's serialized number: the trailing ones of the first byte say how many bytes follow it."""
    first = body[at]
    count = next((n for n in range(8) if not first >> n & 1), 8)
    raw, behind = piece(body, at, count + 1)
    if count == 8:
        return int.from_bytes(raw[1:], "little"), behind
    return int.from_bytes(raw, "little") >> (count + 1), behind


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def begins(body: bytes) -> bool:
    """True if a QUERY event is the BEGIN that most transactions have."""
    at = len(body) - len(_BEGIN)
    return body[-len(_BEGIN) :] == _BEGIN and at == 13 + int.from_bytes(body[11:13], "little") + body[8] + 1


@dataclass(frozen=True)
class QueryContext:
    """The event's words about the session in which its statement ran."""

    sql_mode: int | None = None
    """None: it does not say."""
    collation: int | None = None
    """The number of the text's collation."""
    databases: frozenset[str] | None = None
    """MySQL: of all tables that the statement wrote to, also through views, triggers and functions. None: unknown, or
    foreign keys may have taken it further."""


@dataclass(frozen=True)
class Query:
    schema: str
    """The session's default schema, in which names without one are."""
    text: str
    session: int = 0
    """Its number on the server."""
    of_session: bool = False
    """It uses a temporary table, or something else that only its session has."""
    raw: bytes = b""
    """The text in the session's character set; `text` takes it for UTF-8."""
    context: QueryContext = QueryContext()
    when: int = 0
    """Seconds since the Unix epoch."""
    in_parts: bool = False
    """Part of such a `Transaction`: it may not have been carried out, or not yet."""


def kind_of(kind: int, flags: int) -> int:
    """With the one flag that matters to what an event means."""
    return kind | 0x100 if flags & OF_A_SESSION and kind in (Kind.QUERY, Kind.MARIADB_QUERY_COMPRESSED) else kind


def query(body: bytes, kind: int = Kind.QUERY) -> Query:
    compressed = kind in (Kind.MARIADB_QUERY_COMPRESSED, Kind.MARIADB_QUERY_OF_A_SESSION_COMPRESSED)
    of_session = kind in (Kind.QUERY_OF_A_SESSION, Kind.MARIADB_QUERY_OF_A_SESSION_COMPRESSED)
    with whole("QUERY"):
        schema_length, variables = body[8], int.from_bytes(body[11:13], "little")
        schema, at = piece(body, 13 + variables, schema_length)
        rest = body[at + 1 :]
        statement = _mariadb_unpacked(rest) if compressed else rest
        session = int.from_bytes(body[:4], "little")
        return Query(
            schema.decode(errors="replace"),
            statement.decode(errors="replace"),
            session,
            of_session,
            statement,
            _context(body[13 : 13 + variables]),
        )


_VARIABLE_BYTES = {
    0: 4,
    1: 8,
    3: 4,
    4: 6,
    7: 2,
    8: 2,
    9: 8,
    10: 4,
    13: 3,
    14: 4,
    15: 8,
    16: 1,
    17: 8,
    18: 2,
    19: 1,
    20: 1,
}
"""Bytes of those with a fixed length, by number."""
_SQL_MODE, _TIME_ZONE, _CATALOG, _INVOKER, _CHARSET, _DATABASES = 1, 5, 6, 11, 4, 12
_MANY_DATABASES = 254
"""The number in their place if there are too many, or not all are known."""


def _context(raw: bytes) -> QueryContext:
    """The variables come in the order of their numbers; what stands behind one that is not known is not looked at."""
    found, at = QueryContext(), 0
    while at < len(raw):
        number, at = raw[at], at + 1
        if number == _SQL_MODE:
            found = replace(found, sql_mode=int.from_bytes(raw[at : at + 8], "little"))
        elif number == _CHARSET:
            found = replace(found, collation=int.from_bytes(raw[at : at + 2], "little"))
        if number in _VARIABLE_BYTES:
            at += _VARIABLE_BYTES[number]
        elif number in (_TIME_ZONE, _CATALOG):
            at += 1 + raw[at]
        elif number == _INVOKER:
            at += 1 + raw[at]
            at += 1 + raw[at]
        elif number == _DATABASES:
            count, at = raw[at], at + 1
            if 0 < count < _MANY_DATABASES:
                *names, rest = raw[at:].split(b"\0", count)
                found = replace(found, databases=frozenset(name.decode() for name in names))
                at = len(raw) - len(rest)
        else:
            break
    return found


def load_query(body: bytes) -> Query:
    """EXECUTE_LOAD_QUERY: a QUERY event with 13 bytes about the loaded file in front of its variables."""
    return query(body[:13] + body[_LOADED_FILE:])


def _mariadb_unpacked(data: bytes) -> bytes:
    """One byte (its lower bits: how many bytes the length has), the length, zlib."""
    length_bytes = data[0] & 7
    size = int.from_bytes(data[1 : 1 + length_bytes], "big")
    if size > MAX_PAYLOAD:
        raise ValueError("too large")
    unpacked = zlib.decompress(data[1 + length_bytes :])
    if len(unpacked) != size:
        raise ValueError("another length")
    return unpacked


def uncompressed_rows(body: bytes, images: int) -> bytes:
    """MariaDB's compressed row event as a plain one: what stands behind the columns' bitmaps is compressed."""
    with whole("compressed row"):
        count, at = number(body, 8)
        at += (count + 7) // 8 * images
        return body[:at] + _mariadb_unpacked(body[at:])


def commits_at_once(body: bytes) -> bool:
    """True if an XA_PREPARE commits the transaction in one phase."""
    with whole("XA_PREPARE"):
        return body[0] != 0


def payload(body: bytes) -> Iterator[tuple[int, bytes]]:
    """The events in a TRANSACTION_PAYLOAD: type and body. They carry no checksums. Unpacked while they are taken, for
    all of them together can be much larger than the memory."""
    with whole("TRANSACTION_PAYLOAD"):
        source, size = _payload_source(body)
        unpacked = 0
        while head := _read(source, HEADER.size):
            _, kind, _, length, _, flags = HEADER.unpack(head)
            if length < HEADER.size:
                raise ValueError("no event")
            rest = _read(source, length - HEADER.size)
            if len(rest) != length - HEADER.size:
                raise ValueError("not whole")
            unpacked += length
            yield kind_of(kind, flags), rest
        if size is not None and unpacked != size:
            raise ValueError("another length")


def _read(source: BinaryIO, size: int) -> bytes:
    """So many bytes, or what is left."""
    pieces = list[bytes]()
    while size and (found := source.read(min(size, _UNPACKED_AT_ONCE))):
        pieces.append(found)
        size -= len(found)
    return b"".join(pieces)


def _payload_source(body: bytes) -> tuple[BinaryIO, int | None]:
    """The stream of the events, and their size in bytes; None: it is not given."""
    at, compression, size = 0, _COMPRESSED_NONE, None
    while True:
        field, at = number(body, at)
        if field == 0:
            break
        length, at = number(body, at)
        raw, at = piece(body, at, length)
        value, _ = number(raw, 0)
        if field == 2:
            compression = value
        elif field == 3:
            size = value
    if compression == _COMPRESSED_NONE:
        return io.BytesIO(body[at:]), size
    if compression != _COMPRESSED_ZSTD:
        raise ValueError("unknown compression")
    return zstandard.ZstdDecompressor().stream_reader(memoryview(body)[at:]), size
