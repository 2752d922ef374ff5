"""The log connection: START_REPLICATION, batches of messages, and status updates that acknowledge.

Used by capture alone. A status update reports one position as written, flushed and applied: the one that a durable
journal record holds. The server's own end of log is never reported, or events still in our hands would be lost (it
sends keep-alives while we work).
"""

import re
import struct
import time
from collections.abc import Callable, Collection

import psycopg
from psycopg import pq

from tailrace.changelog.records.terms import Position
from tailrace.databases.postgresql.connect import (
    Connection,
    PgConfig,
    connect,
    error_text,
    source_errors,
    take_unchecked_text,
)
from tailrace.databases.readable import readable
from tailrace.errors import PositionLost, Retry, SourceRefused
from tailrace.sources.postgresql.log.pgoutput import COMMIT, POSTGRES_EPOCH
from tailrace.sources.postgresql.too_large import LIMIT, PROGRAM_LIMIT_EXCEEDED, SHORTEN, too_large

DATA, KEEPALIVE, STATUS = b"wkr"
DATA_HEADER = 25
SILENCE_LIMIT = 30.0
"""Seconds without a byte from the server, though asked for an answer, until the connection counts as dead."""
ASK_AFTER = 10.0
"""Seconds of silence after which an answer is asked for."""
TAKEOVER_WAIT = 15.0
"""Seconds that the backend of our dead predecessor gets to let go of the slot."""
_UNDECODABLE = "could not map filen"
"""("filenode" in PostgreSQL 14 and 15, then "filenumber"; never translated.) The server's picture of its catalog lacks
a TRUNCATE or rewrite whose commit was logged, and not yet visible, when the slot was made: however often it is asked,
it fails at the same transaction."""
_CHANGE = re.compile(r"\bchange\b")
"""Callback of the output plugin that sends a row; the server's context names it untranslated."""
_STREAMED = "stream_change"
"""The callback that an error comes from whose transaction is sent before it has ended (never translated)."""
UNDEFINED_OBJECT, INSUFFICIENT_PRIVILEGE = "42704", "42501"
"""SQLSTATEs."""
CREATE_SLOT = "SELECT pg_create_logical_replication_slot('{}', 'pgoutput')"
_KEEPALIVE = struct.Struct(">BQqB")
_STATUS = struct.Struct(">BQQQqB")


class LogConnection:
    """One replication connection in streaming mode."""

    def __init__(self, config: PgConfig, slot: str, publication: str, position: Position) -> None:
        """`position`: the journal's; the server sends every commit that ends behind it."""
        self.durable = position
        """The position that status updates acknowledge; raised by capture after each durable record."""
        self._slot = slot
        self._heard = self._acknowledged = time.monotonic()
        self._reply_wanted = False
        self._connection = connect(config, replication=True)
        with source_errors("preparing the log connection"):
            take_unchecked_text(self._connection)
        self._pgconn = self._connection.pgconn
        self._start(slot, publication)

    def _start(self, slot: str, publication: str) -> None:
        options = f"proto_version '2', streaming 'on', messages 'true', publication_names '\"{publication}\"'"
        command = f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(self.durable)} ({options})'
        result = self._pgconn.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            message = " ".join(self._pgconn.get_error_message().split())
            state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
            self.close()
            raise start_error(slot, state, message)
        self._pgconn.nonblocking = 1

    def fileno(self) -> int:
        return self._pgconn.socket

    def read(
        self,
        data: Callable[[list[bytes]], None],
        keepalive: Callable[[Position], None],
        max_bytes: int,
        max_seconds: float,
    ) -> bool:
        """Hand over what is there, at most so much, in order: `data` gets payloads, `keepalive` the server's sent
        position. True: the server has nothing more to send right now."""
        # In local variables: this runs once per message, and so does nothing else in here.
        count = size = 0
        ended = False
        payloads: list[bytes] = []
        # The newest keep-alive behind a commit, and the number of payloads before it. The server sends one behind each
        # transaction while it has no other: to hand over each by itself would cost more than the transaction.
        idle: tuple[int, bytes] | None = None
        get = self._pgconn.get_copy_data
        deadline = time.monotonic() + max_seconds
        while True:
            try:
                length, view = get(1)
            except psycopg.OperationalError as error:
                raise _broken(error) from None
            if length > 0:
                count += 1
                size += length
                if view[0] == DATA:
                    payloads.append(bytes(view[DATA_HEADER:]))
                elif view[0] == KEEPALIVE and payloads and payloads[-1][0] == COMMIT:
                    idle = len(payloads), bytes(view)
                    self._reply_wanted |= bool(view[-1])
                else:
                    self._hand_over(payloads, idle, data, keepalive)
                    payloads, idle = [], None
                    self._keepalive(bytes(view), keepalive)
                if size >= max_bytes or (count & 1023 == 0 and time.monotonic() > deadline):
                    break
            elif length == 0:
                if not self._more():
                    ended = True
                    break
            else:
                self._hand_over(payloads, idle, data, keepalive)
                self._ended()
        self._hand_over(payloads, idle, data, keepalive)
        now = time.monotonic()
        if count:
            self._heard = now
        if self._reply_wanted:
            self.acknowledge()
        return ended

    def _hand_over(
        self,
        payloads: list[bytes],
        idle: tuple[int, bytes] | None,
        data: Callable[[list[bytes]], None],
        keepalive: Callable[[Position], None],
    ) -> None:
        """The position of an older keep-alive behind a commit says nothing more than that of the newest."""
        if idle is None:
            data(payloads)
            return
        at, message = idle
        data(payloads[:at])
        self._keepalive(message, keepalive)
        data(payloads[at:])

    def _more(self) -> bool:
        if not readable(self._pgconn.socket, seconds=0):
            return False
        try:
            self._pgconn.consume_input()
        except psycopg.OperationalError as error:
            raise _broken(error) from None
        return True

    def _keepalive(self, message: bytes, keepalive: Callable[[Position], None]) -> None:
        if message[0] != KEEPALIVE:
            raise Retry(f"the log connection delivered an unknown frame {chr(message[0])!r}")
        _, position, _clock, wanted = _KEEPALIVE.unpack_from(message)
        self._reply_wanted |= bool(wanted)
        keepalive(Position(position))

    def _ended(self) -> None:
        # Why stands in the result that ends the stream, and only there.
        result = self._pgconn.get_result()
        message = " ".join((result.get_error_message() if result is not None else "").split())
        state = ((result.error_field(pq.DiagnosticField.SQLSTATE) if result is not None else None) or b"").decode()
        if too_large(state, message):
            raise unsendable(state, message, self._slot)
        if "publication" in message and "does not exist" in message:
            raise lost(f"the log stream ended: {message}")
        if _UNDECODABLE in message:
            raise lost(f"the server cannot decode its log from where the slot begins ({message})", self._slot)
        raise Retry(f"the server ended the log stream: {message or 'no reason given'}")

    def acknowledge(self, position: Position | None = None) -> None:
        """Send a status update; `position` is durable in the journal (None: no news, a sign of life)."""
        if position is not None:
            self.durable = max(self.durable, position)
        clock = time.time_ns() // 1000 - POSTGRES_EPOCH
        ask = time.monotonic() - self._heard > ASK_AFTER
        message = _STATUS.pack(STATUS, self.durable, self.durable, self.durable, clock, ask)
        try:
            self._pgconn.put_copy_data(message)
            self._pgconn.flush()
        except psycopg.OperationalError as error:
            raise _broken(error) from None
        self._reply_wanted = False
        self._acknowledged = time.monotonic()

    def keep_alive(self) -> None:
        """To be called at least every few seconds: signs of life, and the limit of silence."""
        now = time.monotonic()
        if now - self._heard > SILENCE_LIMIT:
            raise Retry(f"the source has been silent for {SILENCE_LIMIT:.0f} s")
        if now - self._acknowledged > 5.0:
            self.acknowledge()

    def heard(self) -> None:
        """We were busy and did not listen: silence counts from now."""
        self._heard = time.monotonic()

    def close(self) -> None:
        self._connection.close()


def _broken(error: psycopg.Error) -> Retry:
    return Retry(f"the log connection broke: {error_text(error)}")


def unsendable(state: str, message: str, slot: str) -> Exception:
    """A row of the log that the server cannot send, now or later. One of a transaction that has not ended is met, too,
    and never again once that is rolled back. What asks for so much memory elsewhere than at a change is no row: some
    versions do after very much DDL, and an upgrade heals it."""
    finding = f"a row cannot be read from the log: {LIMIT} ({message})"
    if _STREAMED in message:
        never = lost(finding, slot, SHORTEN).fix
        return Retry(finding, f"Capture continues by itself if the transaction is rolled back. Else: {never}")
    if state != PROGRAM_LIMIT_EXCEEDED and not _CHANGE.search(message):
        return Retry(f"the server ended the log stream: {message}", "Upgrade the server to its newest minor version.")
    return lost(finding, slot, SHORTEN)


def lost(finding: str, useless: str | None = None, before: str = "") -> PositionLost:
    """With the guided way back. `useless`: a slot that never gives the changes again. A resync replaces one of
    Tailrace's; one that the manifest names is not ours to drop. `before`: what must be done first, or the same comes
    again."""
    first = f"{before} " if before else ""
    if useless is not None:
        again = f"SELECT pg_drop_replication_slot('{useless}'); {CREATE_SLOT.format(useless)}"
        first += f"If source.postgresql.slot of the manifest names the slot, first re-create it: {again}. "
    return PositionLost(
        f"{finding}; the changes in between can no longer be recovered",
        f"{first}Run `tailrace resync -f <manifest> --all`, then start; in Kubernetes, set spec.recover, or create a"
        " SnapshotRequest with resync: true and tables: ['*.*']. With a new slot every table is read again"
        " (docs/operations.md).",
    )


def start_error(slot: str, state: str, message: str) -> Exception:
    """The error for the server's SQLSTATE, because its message may be in any language. A slot that has lost its log
    comes as a `Retry`: the next start asks the catalog, which says so."""
    if state == UNDEFINED_OBJECT:
        return lost(f"slot {slot!r}: {message}")
    if state == INSUFFICIENT_PRIVILEGE:
        return SourceRefused(f"slot {slot!r}: {message}", "Grant the missing rights; docs/postgresql.md lists them.")
    return Retry(f"slot {slot!r}: {message}")


def release_slot(
    connection: Connection,
    slot: str,
    application_names: Collection[str],
    sleep: Callable[[float], None],
    admit: Callable[[], None] = lambda: None,
) -> None:
    """Take over a slot that the backend of our own dead process still holds.

    Tailrace's is recognised by its names, which contain the log's id, and by its user; any other holder is refused,
    never ended. `admit` is called once a holder was seen, and before it is ended: who takes the log over begins an
    epoch before it reads the slot, so a holder that was seen before a look at the log which finds no such epoch is none
    of its.
    """
    deadline = time.monotonic() + TAKEOVER_WAIT
    while True:
        with source_errors(f"looking at slot {slot!r}"):
            row = connection.execute(
                "SELECT s.active_pid, a.application_name, a.usename = current_user, a.client_addr::text"
                " FROM pg_catalog.pg_replication_slots s"
                " LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid"
                " WHERE s.slot_name = %s AND s.active_pid IS NOT NULL",
                (slot,),
            ).fetchone()
        if row is None:
            return
        admit()
        pid, name, same_user, address = row
        if same_user is None and time.monotonic() < deadline:
            sleep(0.2)  # it is ending, and in no list any more
            continue
        if name not in application_names or not same_user:
            raise SourceRefused(
                f"slot {slot!r} is in use by backend {pid} ({name!r} from {address or 'a local socket'})",
                "Stop that client, or give each Replicator its own slot.",
            )
        with source_errors(f"ending backend {pid} of the previous process"):
            connection.execute("SELECT pg_catalog.pg_terminate_backend(%s)", (pid,))
        if time.monotonic() > deadline:
            raise Retry(f"backend {pid} of the previous process does not release slot {slot!r}")
        sleep(0.2)


def lsn_text(position: Position) -> str:
    """`16/B374D848`."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def lsn_value(text: str) -> Position:
    high, low = text.split("/")
    return Position((int(high, 16) << 32) | int(low, 16))
