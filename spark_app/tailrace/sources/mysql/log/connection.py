"""The log connection: COM_BINLOG_DUMP over a connection of PyMySQL's, whole packets read without blocking.

PyMySQL connects, encrypts and authenticates. From the dump command on the socket is ours: packets are framed out of
large reads, and each event's checksum is compared before anything is made of it.
"""

import logging
import ssl
import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError

from tailrace.databases.mysql.faults import START_OVER
from tailrace.databases.readable import readable
from tailrace.errors import PositionLost, Retry, SourceRefused
from tailrace.sources.mysql.gtid import GtidSet
from tailrace.sources.mysql.log.events import (
    CHECKSUM_BYTES,
    HEADER,
    OF_A_SESSION,
    Kind,
    UnknownEvent,
    has_checksums,
    kind_of,
)
from tailrace.sources.mysql.log.framing import FULL_PACKET, Event, EventBatch, events, packets

log = logging.getLogger(__name__)
COM_BINLOG_DUMP, COM_REGISTER_REPLICA, COM_BINLOG_DUMP_GTID = 0x12, 0x15, 0x1E
_THROUGH_GTID, _NON_BLOCKING = 4, 1
"""Flags of COM_BINLOG_DUMP_GTID, and of both: the server ends the stream where its log ends."""
HEARTBEAT = 1.0
"""Seconds of idleness after which the server says where its log ends."""
SILENCE_LIMIT = 60.0
"""Seconds without any packet after which the connection counts as broken."""
READ_BYTES = 1 << 20
_OK, _EOF, _ERROR = 0x00, 0xFE, 0xFF
_SQLSTATE_BYTES = 9
"""Bytes in front of an error's text: its head, number and `#` with five characters."""
_FORMAT_DESCRIPTION = int(Kind.FORMAT_DESCRIPTION)
"""Members of an enum take longer to look up: this is asked of every event."""
_PURGED = (1236, 1789, 1790)
"""Errors that say that the log no longer holds what is asked for, or that the history differs."""
_SAME_ID = 4052
"""MariaDB's error; MySQL's is told by its text."""

Take = Callable[[Event], None]
TakeMany = Callable[[EventBatch], None]
MANY = 64
"""Packets in a row; fewer are read one by one for less."""


@dataclass(frozen=True)
class Request:
    """The request to the server: all that comes behind a state, or its log from a place on."""

    server_id: int
    """Ours, which no other client of the server may have; 0: of a short look, which disturbs no other client."""
    state: str = ""
    """The state whose transactions need not be sent: a GTID set, or MariaDB's position."""
    place: tuple[str, int] | None = None
    """Name of a file and an offset below 4 GiB: from there to the end, whatever the state."""


class LogConnection:
    """Reads events in stretches that the caller bounds."""

    def __init__(self, connection: "Connection[Any]", request: Request, mariadb: bool) -> None:
        """`connection` is taken over."""
        self._connection = connection
        self.ended_with: int | None = None
        """The server's error when it ended the stream; 0: without one."""
        self.damaged = False
        """An event is not what the server wrote, or none begins where the reading began."""
        self._buffer = bytearray()
        self._awaited = 0
        """Bytes that the buffer must have for another packet to be whole: by TLS one of 16 MB comes in 1,000 parts."""
        self._long: list[bytes] = []
        """Full packets of an event that is not whole yet."""
        self._heard = time.monotonic()
        self._checksums = self._prepare(mariadb, request)
        self._dump(request, mariadb)
        self._socket: Any = connection._sock  # type: ignore[attr-defined]  # PyMySQL has no public name for it
        self._socket.setblocking(False)

    def _prepare(self, mariadb: bool, request: Request) -> bool:
        period = int(HEARTBEAT * 1e9)
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("SELECT @@global.binlog_checksum")
                checksums = bool((cursor.fetchone() or ("NONE",))[0] != "NONE")
                # Events are stored with their checksums: asking for none would not strip them.
                for name in ("master", "source"):
                    cursor.execute(f"SET @{name}_binlog_checksum = @@global.binlog_checksum")
                    cursor.execute(f"SET @{name}_heartbeat_period = {period}")
                if mariadb:
                    cursor.execute("SET @mariadb_slave_capability = 4, @slave_gtid_strict_mode = 0")
                    if request.place is None:
                        cursor.execute("SET @slave_connect_state = %s", (request.state,))
                else:
                    cursor.execute("SET @replica_uuid = uuid(), @slave_uuid = @replica_uuid")
        except MySQLError as error:
            raise _broken(error) from None
        return checksums

    def _dump(self, request: Request, mariadb: bool) -> None:
        if request.place is not None:
            file, offset = request.place
            command, body = COM_BINLOG_DUMP, struct.pack("<IHI", offset, _NON_BLOCKING, 0) + file.encode()
        elif mariadb:
            command, body = COM_BINLOG_DUMP, struct.pack("<IHI", 4, 0, request.server_id)
        else:
            gtids = GtidSet(request.state).encoded()
            head = struct.pack("<HIIQI", _THROUGH_GTID, request.server_id, 0, 4, len(gtids))
            command, body = COM_BINLOG_DUMP_GTID, head + gtids
        try:
            if request.server_id:
                register = struct.pack("<IBBBHII", request.server_id, 0, 0, 0, 0, 0, 0)
                self._connection._execute_command(COM_REGISTER_REPLICA, register)  # type: ignore[attr-defined]  # no public name
                self._connection._read_ok_packet()  # type: ignore[attr-defined]  # no public name
            self._connection._execute_command(command, body)  # type: ignore[attr-defined]  # no public name
        except MySQLError as error:
            raise _broken(error) from None

    def fileno(self) -> int:
        return int(self._socket.fileno())

    def read(self, take: Take, most_bytes: int, most_seconds: float, take_many: TakeMany | None = None) -> bool:
        """Hand over the events that are there, at most so much. True: there is no more right now. `take_many` gets them
        where there are many at once."""
        until, taken = time.monotonic() + most_seconds, 0
        while taken < most_bytes and time.monotonic() < until:
            data = self._receive()
            if data is None:
                return True
            self._buffer += data
            taken += len(data)
            if len(self._buffer) < self._awaited:
                continue
            if take_many is not None and not self._long:
                self._frame_many(take_many)
            self._frame(take)
        return False

    def _receive(self) -> bytes | None:
        """None: nothing is there."""
        try:
            data: bytes = self._socket.recv(READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        except OSError as error:
            raise Retry(f"the log connection broke: {error.strerror or type(error).__name__}") from None
        if not data:
            raise Retry("the server closed the log connection")
        self._heard = time.monotonic()
        return data

    def _frame_many(self, take: TakeMany) -> None:
        data = bytes(self._buffer)
        places = packets(data)
        found = events(data, places, self._checksums) if len(places) > MANY else None
        if found is not None:
            del self._buffer[: places[-1]]
            take(found)

    def _frame(self, take: Take) -> None:
        """Runs once for every event: written for few steps."""
        buffer, at, end = bytes(self._buffer), 0, len(self._buffer)
        while end - at >= 4:
            length = int.from_bytes(buffer[at : at + 3], "little")
            begins, at = at + 4, at + 4 + length
            if at > end:
                at = begins - 4
                break
            if length == FULL_PACKET or self._long:
                self._long.append(buffer[begins:at])
                if length != FULL_PACKET:
                    packet, self._long = b"".join(self._long), []
                    take(self._event(packet, 0, len(packet)))
            else:
                take(self._event(buffer, begins, at))
        del self._buffer[:at]
        self._awaited = 4 + int.from_bytes(self._buffer[:3], "little")

    def _event(self, data: bytes, at: int, end: int) -> Event:
        """The event of a packet that stands in the data."""
        if at == end or data[at] != _OK:
            self.ended_with = _code(data[at:end])
            raise _ended(data[at:end])
        if end - at < 1 + HEADER.size:
            raise UnknownEvent("the server sent an event that is not whole")
        timestamp, kind, server, size, log_end, flags = HEADER.unpack_from(data, at + 1)
        if size != end - at - 1:
            raise UnknownEvent(f"the server sent an event of type {kind} that is not whole")
        if kind == _FORMAT_DESCRIPTION:
            self._checksums = has_checksums(data[at:end])
        if flags & OF_A_SESSION:
            kind = kind_of(kind, flags)
        if not self._checksums:
            return kind, timestamp, server, size, log_end, data[at + 1 + HEADER.size : end]
        checked = end - CHECKSUM_BYTES
        if zlib.crc32(memoryview(data)[at + 1 : checked]) != int.from_bytes(data[checked:end], "little"):
            self.damaged = True
            raise Retry(f"an event of type {kind} has a wrong checksum")
        return kind, timestamp, server, size, log_end, data[at + 1 + HEADER.size : checked]

    def heard(self) -> None:
        """We were busy and did not listen: silence counts from now."""
        self._heard = time.monotonic()

    def keep_alive(self) -> None:
        """`Retry` after too long a silence: a server without changes sends heartbeats."""
        if time.monotonic() - self._heard > SILENCE_LIMIT and not readable(self._socket.fileno(), seconds=0):
            raise Retry(f"the source has been silent for {SILENCE_LIMIT:.0f} s")

    def close(self) -> None:
        self._connection._force_close()  # type: ignore[attr-defined]  # the server would answer COM_QUIT with events


def _code(packet: bytes) -> int:
    """The server's error; 0: the packet is none."""
    return int.from_bytes(packet[1:3], "little") if packet[:1] == bytes([_ERROR]) else 0


def _ended(packet: bytes) -> Exception:
    if packet[:1] == bytes([_EOF]):
        return Retry("the server ended the log stream")
    if packet[:1] != bytes([_ERROR]) or len(packet) < 3:
        return UnknownEvent("the server sent a packet that is no event")
    code = _code(packet)
    text = packet[_SQLSTATE_BYTES if packet[3:4] == b"#" else 3 :].decode(errors="replace")
    return _refused(code, text)


def _refused(code: int, text: str) -> Exception:
    if code == 1236 and "anonymous transaction" in text:  # it names GTID_MODE, too, which may be ON again
        return lost(f"the log has transactions without GTIDs, which the server cannot send ({text.rstrip('.')})")
    if code == 1236 and "GTID_MODE" in text:
        fix = "Set gtid_mode = ON and enforce_gtid_consistency = ON on the server, and keep them in its configuration."
        return SourceRefused(text.rstrip("."), fix)
    if code in _PURGED and any(word in text.lower() for word in ("purged", "gtid", "could not find", "not in the")):
        return lost(text)
    if code == _SAME_ID or "same server_uuid/server_id" in text:
        fix = (
            "Find the other reader with SHOW PROCESSLIST (`Binlog Dump`), and give one of the two another server id"
            " (of a Replicator: source.mysql.serverId; in Kubernetes it stays: create another), then restart it."
        )
        return Retry(f"another client reads the log under the same server id: {text.rstrip('.')}", fix)
    if code == 1236 and "truncated in the middle of event" in text:  # never so in the file that is being written
        return lost(f"a crash of the server has cut off the end of its log ({text.rstrip('.')})")
    if code == 1236 and "max_allowed_packet" in text:  # whatever it is set to, no server sends more than 1 GiB
        return lost(f"the server cannot send an event of its log that is larger than 1 GiB ({text.rstrip('.')})")
    if code in (1227, 1045):
        return SourceRefused(text, "Grant REPLICATION SLAVE; docs/mysql.md has the statement.")
    return Retry(f"the server ended the log stream: {text}")


def _broken(error: MySQLError) -> Exception:
    code, *rest = error.args or (0,)
    return _refused(code if isinstance(code, int) else 0, str(rest[0]) if rest else type(error).__name__)


def lost(finding: str) -> PositionLost:
    """With the guided way back."""
    return PositionLost(f"{finding.rstrip('.')}; the changes in between can no longer be recovered", START_OVER)
