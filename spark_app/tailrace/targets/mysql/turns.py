"""One session of Tailrace at a time that defines tables. Called by the session.

A lock by name keeps others out. The members of a Galera cluster have none: there a second connection locks a row, since
each definition ends the transaction of the first.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import pymysql

from tailrace.databases.mysql.connect import Connection, MyConfig, connect, execute
from tailrace.databases.mysql.faults import number
from tailrace.errors import Retry
from tailrace.targets.sql.state import SCHEMA

NAME, SECONDS = "tailrace", 60
TURNS = "turns"
"""The table with the row."""
_PLACE = f"{SCHEMA}.{TURNS}"
IDLE = "SHOW VARIABLES LIKE 'idle%transaction_timeout'"
"""Seconds after which MariaDB ends a session whose transaction rests; 0: never."""
LATE = 1205
"""Somebody else has kept the row locked for so long."""


def join(connection: Connection, place: str) -> None:
    """Have a session at a member of a cluster see what other members have committed: one may have been the target
    before. `Retry`: the member takes no statements, and would only say that a lock lasts too long."""
    if execute(connection, "SHOW STATUS LIKE 'wsrep_ready'") != [("wsrep_ready", "ON")]:
        raise Retry.of_place(
            f"{place} is a member of a cluster and takes no statements",
            "Wait until it has joined the others. If these are gone (`SHOW STATUS LIKE 'wsrep_cluster_status'` says"
            " non-Primary in all that are left), run `SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES'` on one"
            " member only, the one with the highest `wsrep_last_committed`: where others still have a majority, this"
            " makes two clusters whose rows differ.",
        )
    execute(connection, "SET SESSION wsrep_sync_wait = 1")


class Turn(Protocol):
    def take(self) -> bool:
        """Wait until no other session has it; False: one has had it for `SECONDS`."""

    def give_back(self) -> None: ...


@dataclass
class NamedTurn:
    connection: Connection
    is_taken: bool = False

    def take(self) -> bool:
        self.is_taken = self.is_taken or execute(self.connection, f"SELECT GET_LOCK('{NAME}', {SECONDS})") == [(1,)]
        return self.is_taken

    def give_back(self) -> None:
        if self.is_taken:
            self.is_taken = False
            with suppress(pymysql.MySQLError, OSError):
                execute(self.connection, f"DO RELEASE_LOCK('{NAME}')")


@dataclass
class RowTurn:
    """Keeps out the sessions at the same member: those at others have other locks."""

    config: MyConfig
    prepare: Callable[[], None]
    """Creates the table if it is missing."""
    _locking: list[Connection] = field(default_factory=list)

    def take(self) -> bool:
        if self._locking:
            return True
        self.prepare()
        self._locking.append(connect(self.config))
        try:
            execute(self._locking[0], f"SET innodb_lock_wait_timeout = {SECONDS}")
            for name, _ in execute(self._locking[0], IDLE):  # the transaction rests while a table is defined
                execute(self._locking[0], f"SET SESSION {name} = 0")
            if not execute(self._locking[0], f"SELECT number FROM {_PLACE}"):
                execute(self._locking[0], f"INSERT IGNORE INTO {_PLACE} VALUES (1)")
            execute(self._locking[0], "BEGIN")
            execute(self._locking[0], f"SELECT number FROM {_PLACE} WHERE number = 1 FOR UPDATE")
        except BaseException as error:
            self.give_back()
            if isinstance(error, pymysql.MySQLError) and number(error) == LATE:
                return False
            raise
        return True

    def give_back(self) -> None:
        while self._locking:
            with suppress(pymysql.MySQLError, OSError):
                self._locking.pop().close()
