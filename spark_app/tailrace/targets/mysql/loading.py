"""Rows into tables of MySQL and MariaDB, by statements of bounded size. Called by the session."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pymysql

from tailrace.databases.mysql.connect import Connection, execute
from tailrace.databases.mysql.faults import number
from tailrace.targets.mysql.literals import inserts, unlabelled_values
from tailrace.targets.sql.session import Definitions, UnfitValue

INSERT_BYTES = 1 << 20
"""Most bytes of a statement, unless a row is larger."""
INSERT_ROWS = 20_000
"""Rows that are written as text together."""
UNFIT = (1264, 1265, 1292, 1366, 1406)
"""A value is out of its column's range, or too long for it."""
_COLUMN = re.compile(r"column (?:`[^`]*`\.`[^`]*`\.)?['`](.+?)['`] at row")


@dataclass(frozen=True)
class Loading:
    connection: Connection
    packet: int
    """The server's max_allowed_packet."""

    def load(self, table: str, columns: Definitions, rows: Iterable[pa.Table], tail: str = "") -> int:
        """See `TargetSession.load`. `tail`: the end of each statement."""
        into = f"INTO {table} ({', '.join(name for name, _ in columns)}) VALUES "
        kinds, size, end = [kind for _, kind in columns], 0, tail.encode()
        with _unfit_values():
            for part in rows:
                for at in range(0, part.num_rows, INSERT_ROWS):
                    some = part.slice(at, INSERT_ROWS)
                    unlabelled = unlabelled_values(some, kinds)
                    head = f"INSERT IGNORE {into}" if unlabelled else f"INSERT {into}"
                    warned = 0
                    for statement in inserts(head.encode(), some, kinds, (INSERT_BYTES, self.packet), end):
                        size += len(statement)
                        self.connection.query(statement)
                        warned += self._warnings() if unlabelled else 0
                    if warned != sum(unlabelled.values()):
                        raise UnfitValue(next(iter(unlabelled)), "a value that its type in the target does not take")
        return size

    def _warnings(self) -> int:
        ((found,),) = execute(self.connection, "SELECT @@warning_count")
        return int(found)


@contextmanager
def _unfit_values() -> Iterator[None]:
    try:
        yield
    except pymysql.MySQLError as error:
        found = _COLUMN.search(str(error.args[-1])) if number(error) in UNFIT else None
        if found is None:
            raise
        raise UnfitValue(found[1], "a value that is too large for its column in the target") from None
