"""Asks the server for one event of its log by the place where it begins. Called by `admission` and `stream`, with a
connection of its own that reads as `mysqlbinlog` does: without a server id, so that no other reader is disturbed.
"""

import time
from contextlib import closing

from pymysql.err import MySQLError

from tailrace.changelog.records.terms import Position
from tailrace.databases.mysql import faults
from tailrace.databases.mysql.connect import Connection, connect, execute, server_of, source_errors
from tailrace.databases.readable import readable
from tailrace.errors import PositionLost, Retry
from tailrace.sources.mysql import sql
from tailrace.sources.mysql.log.connection import LogConnection, Request
from tailrace.sources.mysql.log.events import UnknownEvent
from tailrace.sources.mysql.log.framing import Event
from tailrace.sources.mysql.position import Numbering, file_of, offset_of
from tailrace.sources.mysql.source_config import SourceConfig
from tailrace.sources.mysql.state import Anchor

_ENDS = ("Stop", "Rotate")
TORN = 1220
"""The server's error for a file that ends inside an event."""
_NEAR = 1000
"""Events."""
FIRST = 4
"""Offset of a file's first event."""
PATIENCE = 60.0
"""Seconds."""
_LOOK_BYTES = 1 << 16
_UNREADABLE = 1236
"""The server's error for a place that it does not have, or at which no event begins."""


def files(connection: Connection, numbering: Numbering) -> dict[int, tuple[str, int]]:
    """The files of the log by number: their names and sizes."""
    with source_errors("looking at the source's binary logs"):
        found = execute(connection, "SHOW BINARY LOGS")
    return {file_of(numbering.of(str(row[0]), 0)): (str(row[0]), int(row[1])) for row in found}


def anchor_at(config: SourceConfig, file: str, at: Position) -> Anchor | None:
    """Reads the event that begins there in this file; None: none does. `Retry`: the server did not get so far. Behind
    the file's end it returns None, too: compare the size first."""
    connection = connect(config)
    with closing(connection):
        mariadb = server_of(connection).product != "mysql"
        place = file, offset_of(at)
        with closing(LogConnection(connection, Request(0, place=place), mariadb)) as log:
            event = _first(log)
    return None if event is None else Anchor.of(at, event)


def ended(connection: Connection, file: str, at: Position) -> bool:
    """True if the server has closed this file, which a crash leaves open. `at`: where an event near its end begins; if
    many follow, the answer is no."""
    offset = offset_of(at)
    with source_errors("looking at the end of a binary log"):
        try:
            rest = execute(connection, f"SHOW BINLOG EVENTS IN {sql.text(file)} FROM {offset} LIMIT {_NEAR}")
        except MySQLError as error:
            if faults.number(error) != TORN:
                raise
            return False
    return bool(rest) and rest[-1][2] in _ENDS


def _first(log: LogConnection) -> Event | None:
    """The first event that has a place in the file: those before it the server makes up for a reader that begins."""
    found: list[Event] = []
    until = time.monotonic() + PATIENCE

    def take(event: Event) -> None:
        if event[4]:
            found.append(event)

    while not found:
        if time.monotonic() > until:
            raise Retry("the server does not send its binary log")
        readable(log.fileno(), seconds=1.0)
        try:
            log.read(take, _LOOK_BYTES, 1.0)
        except UnknownEvent:  # in the middle of an event anything can be read
            break
        except (Retry, PositionLost):
            # A server that shuts down ends the stream, too: then nothing is known.
            if not found and log.ended_with != _UNREADABLE and not log.damaged:
                raise
            break
    return found[0] if found else None
