"""The check that the log of another server continues what was read of the one before it. Called by `admission`.

What was read is applied; what was not is applied after it, in the new log's order. So in the new log nothing that was
not read may stand before something that was: `Unread before read` (docs/decisions/0068). Two things may, for they do
not concern the same rows: what the server before wrote itself, because it stood behind all that was read there; and
transactions that one server wrote, because replicas change the order only of those that are independent. MariaDB sends
nothing of a domain that stands before our place in it: there neither may.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from tailrace.databases.mysql.connect import Connection, connect, execute, server_of, source_errors
from tailrace.databases.readable import readable
from tailrace.errors import Retry
from tailrace.sources.api import Interrupted
from tailrace.sources.mysql import sql
from tailrace.sources.mysql.gtid import GtidSet, MariaPosition
from tailrace.sources.mysql.log import anchor, events
from tailrace.sources.mysql.log.connection import LogConnection, Request
from tailrace.sources.mysql.log.events import Kind, Transaction
from tailrace.sources.mysql.log.framing import Event
from tailrace.sources.mysql.position import OWN
from tailrace.sources.mysql.source_config import SourceConfig

Writer = tuple[str, str]
"""MariaDB's domain (MySQL: empty), and the server that wrote the transaction."""
_HEAD_EVENTS = 5
"""The state of a log before a file stands among the file's first events."""
_STATES = ("Previous_gtids", "Gtid_list")
_WRAP = 1 << 32
"""Ends in event headers have 32 bits; files can be larger."""
_ENCRYPTION_HEADER = 512
"""Bytes before all that positions count, in the size that the server tells of an encrypted file."""
_READ_BYTES, _READ_SECONDS = 1 << 22, 1.0


@dataclass(frozen=True)
class NewLog:
    """The log of the server that is to be followed."""

    config: SourceConfig
    connection: Connection
    stopping: threading.Event | None = None
    """Set: `Interrupted`. A file of the log can be as large as the server likes."""

    def check(self) -> None:
        if self.stopping is not None and self.stopping.is_set():
            raise Interrupted("capture was stopped while it read the log of a new server")


class ReadBefore(Protocol):
    """The transactions that were read, compared with the state of a log at some place."""

    @property
    def former(self) -> str:
        """The server that it was read from."""

    def unread(self, state: str) -> Mapping[Writer, str]:
        """The unread transactions before the place: by their writer, as people name it."""

    def missing(self, state: str) -> Set[Writer]:
        """The writers of transactions that were read and are not before the place."""

    def writer(self, transaction: Transaction) -> Writer: ...

    def name(self, transaction: Transaction) -> str: ...

    def has(self, transaction: Transaction) -> bool:
        """True if it was read."""


@dataclass(frozen=True)
class MysqlRead:
    read: GtidSet
    former: str
    purged: GtidSet
    """The transactions that the new server has purged: all of them were read."""

    def unread(self, state: str) -> dict[Writer, str]:
        left = GtidSet(state) - self.read
        return {("", server): str(gtids) for server, gtids in left.by_server().items()}

    def missing(self, state: str) -> Set[Writer]:
        left = self.read - (GtidSet(state) | self.purged)
        return {("", server) for server in left.by_server()}

    def writer(self, transaction: Transaction) -> Writer:
        return "", transaction.prefix.partition(":")[0]

    def name(self, transaction: Transaction) -> str:
        return f"{transaction.prefix}{transaction.number}"

    def has(self, transaction: Transaction) -> bool:
        return self.read.contains(transaction.prefix, transaction.number)


@dataclass(frozen=True)
class MariadbRead:
    read: Mapping[tuple[int, int], int]
    """The last number by domain and server."""
    former: str

    def unread(self, state: str) -> dict[Writer, str]:
        there = MariaPosition(state).numbers()
        return {(str(d), str(s)): f"{d}-{s}-{n}" for (d, s), n in there.items() if n > self.read.get((d, s), 0)}

    def missing(self, state: str) -> Set[Writer]:
        there = MariaPosition(state).numbers()
        return {(str(d), str(s)) for (d, s), n in self.read.items() if there.get((d, s), 0) < n}

    def writer(self, transaction: Transaction) -> Writer:
        domain, server, _ = transaction.mariadb
        return str(domain), str(server)

    def name(self, transaction: Transaction) -> str:
        return "-".join(map(str, transaction.mariadb))

    def has(self, transaction: Transaction) -> bool:
        domain, server, number = transaction.mariadb
        return number <= self.read.get((domain, server), 0)


def disordered(unread: Mapping[Writer, str], behind: Set[Writer], former: str) -> list[str]:
    """The unread transactions that may not come before something by one of `behind` that was read."""
    return [name for writer, name in unread.items() if any(_clash(writer, other, former) for other in behind)]


def _clash(unread: Writer, read: Writer, former: str) -> bool:
    (domain, server), (other_domain, other) = unread, read
    return server not in (former, other) or (domain != "" and domain == other_domain)


def unread_before_read(log: NewLog, history: ReadBefore, now: str) -> list[str]:
    """Names of transactions that were not read and stand in the log before ones that were; empty: it leads on. `now`:
    the log's state at its end. Reads the heads of files from the newest back to one before which all was read, and one
    file, seldom more."""
    places = list(_places(log, history, now))
    for (file, size, before), (_, _, behind) in pairwise(reversed(places)):
        unread = history.unread(behind)
        found = disordered(unread, history.missing(behind), history.former)
        if not found and disordered(unread, history.missing(before), history.former):
            found = _in_file(log, (file, size), history, before)
        if found:
            return found
    return []


def _places(log: NewLog, history: ReadBefore, now: str) -> Iterator[tuple[str, int, str]]:
    """File, its size, the log's state before it: newest first, beginning with the log's end."""
    yield "", 0, now
    for _, (file, size) in sorted(anchor.files(log.connection, OWN).items(), reverse=True):
        log.check()
        before = state_before(log.connection, file)
        yield file, size, before
        if not history.unread(before):
            return


def state_before(connection: Connection, file: str) -> str:
    """Which transactions stand in the log before this file, as the server writes it."""
    with source_errors("looking at the source's binary logs"):
        head = execute(connection, f"SHOW BINLOG EVENTS IN {sql.text(file)} LIMIT {_HEAD_EVENTS}")
    found = next((str(row[5]) for row in head if row[2] in _STATES), None)
    if found is None:
        raise Retry(f"the binary log {file} does not say which transactions stand before it")
    return "".join(found.split()).strip("[]")


def first_sent(connection: Connection, files: Mapping[int, tuple[str, int]], done: str) -> int:
    """The file with which a MySQL begins that is asked by GTIDs: the newest one before which all was read."""
    for number in sorted(files, reverse=True):
        before = state_before(connection, files[number][0])
        if execute(connection, f"SELECT GTID_SUBSET({sql.text(before)}, {sql.text(done)})")[0][0]:
            return number
    return min(files)


def read_over(log: NewLog, history: ReadBefore, done: str) -> None:
    """MySQL: the files that it passes over, from the newest one on in which something stands that was read. What was
    written while its `gtid_mode` was off has no GTID: the server does not send it, and the stream ends as lost."""
    files = anchor.files(log.connection, OWN)
    passed = [number for number in files if number < first_sent(log.connection, files, done)]
    for number in sorted(passed, reverse=True):
        log.check()
        _each(log, files[number], lambda _: False)
        if history.missing(state_before(log.connection, files[number][0])):
            return


def _in_file(log: NewLog, file: tuple[str, int], history: ReadBefore, before: str) -> list[str]:
    unread, found = dict(history.unread(before)), list[str]()

    def take(transaction: Transaction) -> bool:
        writer = history.writer(transaction)
        if not history.has(transaction):
            unread.setdefault(writer, history.name(transaction))
            return False
        found.extend(disordered(unread, {writer}, history.former))
        return bool(found)

    _each(log, file, take)
    return found


def first_numbers(log: NewLog, domains: Set[int]) -> dict[int, int]:
    """MariaDB: of each of these domains a number that its log had come to where it begins; without those of which there
    is no transaction."""
    _, (file, size) = min(anchor.files(log.connection, OWN).items())
    found: dict[int, int] = {}
    for (domain, _), number in MariaPosition(state_before(log.connection, file)).numbers().items():
        found[domain] = max(number, found.get(domain, 0))

    def take(transaction: Transaction) -> bool:
        domain, _, number = transaction.mariadb
        found.setdefault(domain, number)
        return domains <= found.keys()

    if not domains <= found.keys():
        _each(log, (file, size), take)
    return found


class _Over(Exception):
    """Enough was seen of the log."""


def _each(new: NewLog, file: tuple[str, int], take: Callable[[Transaction], bool]) -> None:
    """The transactions of one file, in its order, until `take` says that it is enough."""
    with closing(connect(new.config)) as connection:
        mariadb = server_of(connection).product != "mysql"
        encrypted = dict(execute(connection, "SHOW VARIABLES LIKE 'binlog_encryption'")).get("binlog_encryption")
        hidden = _ENCRYPTION_HEADER if encrypted == "ON" else 0
        place = file[0], anchor.FIRST
        with closing(LogConnection(connection, Request(0, place=place), mariadb)) as log:
            reader = _Reader(file, take)
            try:
                while True:
                    new.check()
                    readable(log.fileno(), seconds=1.0)
                    log.read(reader.take, _READ_BYTES, _READ_SECONDS)
                    log.keep_alive()
            except _Over:
                return
            except Retry:
                if log.ended_with != 0 or reader.end < (file[1] - hidden) % _WRAP:  # else: that is where the log ends
                    raise


class _Reader:
    def __init__(self, file: tuple[str, int], take: Callable[[Transaction], bool]) -> None:
        self._file, self._size = file
        self._take = take
        self.end = 0

    def take(self, event: Event) -> None:
        kind, _, server, _, end, body = event
        if kind == Kind.ROTATE and events.rotated(body)[0] != self._file:
            raise _Over
        self.end = max(self.end, end)
        transaction = _transaction(kind, server, body)
        if transaction is not None and self._take(transaction):
            raise _Over


def _transaction(kind: int, server: int, body: bytes) -> Transaction | None:
    if kind == Kind.GTID:
        return events.gtid(body)
    if kind == Kind.GTID_TAGGED:
        return events.tagged_gtid(body)
    return events.mariadb_gtid(body, server, 0) if kind == Kind.MARIADB_GTID else None
