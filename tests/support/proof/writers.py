"""Writers of many kinds, each a thread with its own connection and seed, until `stop()`.

An error that concurrency explains (unique violation, deadlock, serialization, a cut connection) is counted and
survived; any other fails the test at `stop()`.
"""

import threading
import time
from collections.abc import Callable
from random import Random

import psycopg
from psycopg import sql
from typing_extensions import override

from support.proof.tables import TABLES, ProofTable, insert

Connect = Callable[[], psycopg.Connection]
_EXPECTED = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.LockNotAvailable,
    psycopg.OperationalError,
)


def _has_slot(connection: psycopg.Connection) -> bool:
    """PostgreSQL may be unable to decode a log whose slot was made during a TRUNCATE: `capture/test_undecodable.py`."""
    made = "SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn IS NOT NULL"
    return connection.execute(made).fetchone() is not None


class Writers:
    """Threads that write at random into the proof tables over `keys` keys each."""

    def __init__(
        self, connect: Connect, *, count: int, keys: int, seed: int, pause: float = 0.01, truncate: bool = False
    ) -> None:
        self._connect = connect
        self._keys = keys
        self._pause = pause
        self._truncate = truncate
        self._stop = threading.Event()
        self._faults: list[BaseException] = []
        self.transactions = 0
        self.conflicts = 0
        self._threads = [threading.Thread(target=self._run, args=(seed * 1000 + i,), daemon=True) for i in range(count)]

    def start(self) -> "Writers":
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """End all writers; raise what was not expected."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a writer hangs"
        if self._faults:
            raise self._faults[0]
        assert self.transactions, "the writers wrote nothing"

    def _run(self, seed: int) -> None:
        random = Random(seed)
        connection: psycopg.Connection | None = None
        while not self._stop.is_set():
            try:
                if connection is None or connection.closed:
                    connection = self._connect()
                    connection.autocommit = True
                    connection.execute("SET lock_timeout = '2s'")
                self._transaction(connection, random)
                self.transactions += 1
            except _EXPECTED:
                self.conflicts += 1
            except BaseException as fault:
                self._faults.append(fault)
                break
            time.sleep(random.random() * 2 * self._pause)
        if connection is not None:
            connection.close()

    def _transaction(self, connection: psycopg.Connection, random: Random) -> None:
        kind = random.random()
        with connection.transaction():
            if self._truncate and kind < 0.004 and _has_slot(connection):
                connection.execute(sql.SQL("TRUNCATE {}").format(random.choice(TABLES).identifier))
            for _ in range(1 if kind < 0.6 else random.randint(2, 8)):
                if kind > 0.85:
                    self._savepoint(connection, random)
                else:
                    self._change(connection, random)
            if kind > 0.97:
                time.sleep(random.random() * 0.5)
            if kind > 0.93:
                raise psycopg.Rollback

    def _savepoint(self, connection: psycopg.Connection, random: Random) -> None:
        """Changes in subtransactions, some of them rolled back."""
        with connection.transaction():
            self._change(connection, random)
            if random.random() < 0.4:
                raise psycopg.Rollback

    def _change(self, connection: psycopg.Connection, random: Random) -> None:
        table = random.choice(TABLES)
        key = table.key(random.randrange(self._keys))
        kind = random.random()
        if kind < 0.25:
            insert(connection, table, key, random)
        elif kind < 0.65:
            columns = random.sample(table.values, random.randint(1, len(table.values)))
            _update(connection, table, key, {c: table.value(c, random) for c in columns})
        elif kind < 0.75:
            column = random.choice(table.bigs)
            _update(connection, table, key, {column: table.value(column, random)})
        elif kind < 0.88:
            connection.execute(sql.SQL("DELETE FROM {} WHERE {}").format(table.identifier, table.where()), key)
        else:
            other = table.key(random.randrange(self._keys))
            values: dict[str, object] = dict(zip(table.keys, other, strict=True))
            if random.random() < 0.3:
                values["v"] = table.value("v", random)
            _update(connection, table, key, values)


def _update(
    connection: psycopg.Connection, table: ProofTable, key: tuple[object, ...], values: dict[str, object]
) -> None:
    connection.execute(
        sql.SQL("UPDATE {} SET {} WHERE {}").format(
            table.identifier,
            sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(c)) for c in values),
            table.where(),
        ),
        (*values.values(), *key),
    )


class StalledCommits(threading.Thread):
    """Switches a synchronous standby that never answers on and off: commits are in the log and not visible (A1)."""

    def __init__(self, connect: Connect, seed: int) -> None:
        super().__init__(daemon=True)
        self._connect = connect
        self._random = Random(seed)
        self._end = threading.Event()

    @override
    def run(self) -> None:
        with self._connect() as connection:
            connection.autocommit = True
            while not self._end.is_set():
                for setting in ("'ghost'", "''"):
                    connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = {setting}".encode())
                    connection.execute("SELECT pg_reload_conf()")
                    time.sleep(0.03 + self._random.random() * 0.1)

    def stop(self) -> None:
        self._end.set()
        self.join(30)
        assert not self.is_alive(), "the stalling thread hangs"
