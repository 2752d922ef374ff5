"""A table whose every commit its writer keeps, with the time that the server's log has for it; and the versions of its
rows that a copy with all versions must have."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from threading import Event, Thread

import psycopg

from support.postgres import PostgresServer

TABLE = """
CREATE SCHEMA proof;
CREATE TABLE proof.kept (id int PRIMARY KEY, v int, big text);
ALTER TABLE proof.kept ALTER big SET STORAGE EXTERNAL;
"""
SLOT = "versions_told"
KEYS = 40
Values = tuple[int | None, str | None]
Version = tuple[int, int | None, str | None, datetime, datetime | None]
"""Key, values, beginning and end."""


@dataclass
class KeptCommits:
    """One writer at random, whose transactions are in the server's log in the order in which it made them."""

    server: PostgresServer
    random: Random
    rows: dict[int, Values] = field(default_factory=dict)
    commits: list[tuple[int, dict[int, Values | None]]] = field(default_factory=list)
    """Of each transaction its number and, by key, what it left of each row that it touched."""
    fleeting: set[int] = field(default_factory=set)
    """Keys whose last transaction changed them several times and left no row: no version has the last values."""
    _ending: Event = field(default_factory=Event)
    _thread: Thread | None = None
    _fault: BaseException | None = None

    def __post_init__(self) -> None:
        self.server.execute(TABLE)
        self.server.execute(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'test_decoding')")

    def begin(self, pause: float) -> None:
        self._ending.clear()
        self._thread = Thread(target=self._run, args=(pause,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        assert self._thread is not None
        self._ending.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._fault is not None:
            raise self._fault

    def _run(self, pause: float) -> None:
        try:
            with self.server.connect() as connection:
                while not self._ending.wait(pause):
                    self.commit(connection)
        except BaseException as fault:
            self._fault = fault

    def commit(self, connection: psycopg.Connection) -> None:
        """One transaction of a few changes."""
        rows, touched, often = dict(self.rows), dict[int, Values | None](), set[int]()
        with connection.transaction():
            for _ in range(self.random.choice((1, 1, 2, 5))):
                for key in self._change(connection, rows):
                    often |= {key} & touched.keys()
                    touched[key] = rows.get(key)
            found = connection.execute("SELECT pg_current_xact_id_if_assigned()::text").fetchone()
        if found is not None and found[0] is not None and touched:
            self.commits.append((int(found[0]) % 2**32, touched))
        self.fleeting -= touched.keys()
        self.fleeting |= {key for key in often if touched[key] is None}
        self.rows = rows

    def _change(self, connection: psycopg.Connection, rows: dict[int, Values]) -> Sequence[int]:
        """Returns the keys that it touched."""
        random, key, kind = self.random, self.random.randrange(KEYS), self.random.random()
        if kind < 0.01:
            connection.execute("TRUNCATE proof.kept")
            gone = list(rows)
            rows.clear()
            return gone
        if key not in rows:
            rows[key] = random.randrange(1000), random.choice("abc") * random.choice((3, 3000))
            connection.execute("INSERT INTO proof.kept VALUES (%s, %s, %s)", (key, *rows[key]))
            return [key]
        if kind < 0.25:
            connection.execute("DELETE FROM proof.kept WHERE id = %s", (key,))
            del rows[key]
            return [key]
        if kind < 0.4:
            other = random.randrange(KEYS)
            if other not in rows and len(rows[key][1] or "") < 1000:  # or a reading may leave out versions of it
                connection.execute("UPDATE proof.kept SET id = %s WHERE id = %s", (other, key))
                rows[other] = rows.pop(key)
                return [key, other]
        if kind < 0.5:
            rows[key] = rows[key][0], random.choice("abc") * random.choice((3, 3000))
            connection.execute("UPDATE proof.kept SET big = %s WHERE id = %s", (rows[key][1], key))
            return [key]
        rows[key] = random.randrange(1000), rows[key][1]
        connection.execute("UPDATE proof.kept SET v = %s WHERE id = %s", (rows[key][0], key))
        return [key]

    def versions(self) -> list[Version]:
        """All versions that there ever were."""
        times, found = self._times(), list[Version]()
        there = dict[int, tuple[Values, datetime]]()
        for number, touched in self.commits:
            time = times[number]
            for key, values in touched.items():
                if key in there:
                    former, begun = there.pop(key)
                    found += [(key, *former, begun, time)] if begun != time else []
                if values is not None:
                    there[key] = values, time
        assert {key: values for key, (values, _) in there.items()} == self.rows
        return [*found, *((key, *values, begun, None) for key, (values, begun) in there.items())]

    def _times(self) -> dict[int, datetime]:
        """The times of commits, by number of transaction, as the server's log has them."""
        options = f"'{SLOT}', NULL, NULL, 'include-timestamp', 'on', 'include-xids', 'on'"
        told = self.server.execute(
            "SELECT xid::text, substring(data from 'at (.*)\\)')::timestamptz"
            f" FROM pg_logical_slot_peek_changes({options}) WHERE data LIKE 'COMMIT%'"
        )
        return {int(number): time for number, time in told}


def differing(found: Sequence[Version], wanted: Sequence[Version], whole: datetime) -> list[str]:
    """The versions in which they differ, from a moment on at which the first snapshot had ended: what began before has
    the same values and the same end."""
    one, other = ({repr(row) for row in _from(rows, whole)} for rows in (found, wanted))
    assert len(list(_from(found, whole))) == len(one), "a version is there twice"
    return sorted(f"only in the copy: {row}" for row in one - other) + sorted(f"missing: {row}" for row in other - one)


def _from(rows: Sequence[Version], whole: datetime) -> Iterator[tuple[object, ...]]:
    for key, v, big, begun, ended in rows:
        if ended is None or ended > whole:
            shown = None if big is None else (big[0], len(big))
            yield (key, v, shown, begun if begun > whole else None, ended)
