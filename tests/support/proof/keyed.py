"""Two tables whose rows refer to each other, with unique values: keys move, and keys and values are swapped, in
transactions that keep all constraints at their ends."""

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import psycopg
import pymysql
import pytest
from typing_extensions import override

from support.database_copies import begin, of_manifest, settle
from support.mysql import MysqlServer
from support.postgres import PostgresServer
from support.proof.process import forked_copies
from support.proof.sums import Copies, Reader, Server

NAMES = ("proof.item", "proof.visit")
TABLES = (
    "CREATE TABLE proof.item (id int PRIMARY KEY, code int, part_of int, v int)",
    "CREATE TABLE proof.visit (id int PRIMARY KEY, item int, place int)",
)
KEYS = (
    "ALTER TABLE proof.item ADD CONSTRAINT code_once UNIQUE (code){0}",
    "ALTER TABLE proof.visit ADD CONSTRAINT place_once UNIQUE (item, place){0}",
    "ALTER TABLE proof.item ADD CONSTRAINT of_item FOREIGN KEY (part_of) REFERENCES proof.item (id){0}",
    "ALTER TABLE proof.visit ADD CONSTRAINT of_visit FOREIGN KEY (item) REFERENCES proof.item (id){0}",
)
ORPHANS = """SELECT (SELECT count(*) FROM proof.visit v LEFT JOIN proof.item i ON i.id = v.item
        WHERE v.item IS NOT NULL AND i.id IS NULL)
    + (SELECT count(*) FROM proof.item p LEFT JOIN proof.item i ON i.id = p.part_of
        WHERE p.part_of IS NOT NULL AND i.id IS NULL)"""
IDS, CODES, PLACES = range(1, 16), range(1, 30), range(1, 5)
AWAY = -1
"""A key that no row has at the end of a transaction."""


class KeyedRows:
    """Draws statements, and knows what the tables have then."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._codes: dict[int, int | None] = {}
        """By the key of an item."""
        self._visits: dict[int, tuple[int, int]] = {}
        """Item and place."""

    def transaction(self) -> list[str]:
        return [line for _ in range(self._random.randint(1, 3)) for line in self._draw()]

    def _draw(self) -> list[str]:
        kinds: tuple[Callable[[], list[str]], ...] = (
            *(self._added, self._moved, self._keys_swapped, self._codes_swapped, self._codes_turned, self._removed),
            *(self._visited, self._visited, self._repointed, self._visits_swapped, self._left),
        )
        return self._random.choice(kinds)()

    def _items(self, count: int) -> list[int]:
        """Of those that are there; fewer: none."""
        return self._random.sample(sorted(self._codes), count) if len(self._codes) >= count else []

    def _free(self) -> int | None:
        free = [number for number in IDS if number not in self._codes]
        return self._random.choice(free) if free else None

    def _added(self) -> list[str]:
        new = self._free()
        if new is None:
            return []
        code = self._random.choice([None, *(c for c in CODES if c not in self._codes.values())])
        whole = self._random.choice([None, new, *self._codes])
        self._codes[new] = code
        values = ", ".join("NULL" if v is None else str(v) for v in (new, code, whole, self._random.randrange(99)))
        return [f"INSERT INTO proof.item VALUES ({values})"]

    def _moved(self) -> list[str]:
        """The key, and with it all that refers to it, before or after."""
        new = self._free()
        if new is None or not self._codes:
            return []
        (old,) = self._items(1)
        self._codes[new] = self._codes.pop(old)
        self._visits = {k: (new if item == old else item, place) for k, (item, place) in self._visits.items()}
        lines = [
            f"UPDATE proof.item SET id = {new} WHERE id = {old}",
            f"UPDATE proof.item SET part_of = {new} WHERE part_of = {old}",
            f"UPDATE proof.visit SET item = {new} WHERE item = {old}",
        ]
        self._random.shuffle(lines)
        return lines

    def _keys_swapped(self) -> list[str]:
        if len(self._codes) < 2:
            return []
        one, other = self._items(2)
        self._codes[one], self._codes[other] = self._codes[other], self._codes[one]
        steps = ((AWAY, one), (one, other), (other, AWAY))
        return [f"UPDATE proof.item SET id = {new} WHERE id = {old}" for new, old in steps]

    def _codes_swapped(self) -> list[str]:
        return self._given_codes(self._items(2))

    def _codes_turned(self) -> list[str]:
        return self._given_codes(self._items(3))

    def _given_codes(self, items: Sequence[int]) -> list[str]:
        """Each the next one's."""
        if not items:
            return []
        codes = [self._codes[item] for item in items]
        turned = dict(zip(items, [*codes[1:], codes[0]], strict=True))
        self._codes |= turned
        away = f"UPDATE proof.item SET code = NULL WHERE id IN ({', '.join(map(str, items))})"
        given = [f"UPDATE proof.item SET code = {c} WHERE id = {i}" for i, c in turned.items() if c is not None]
        return [away, *given]

    def _removed(self) -> list[str]:
        if not self._codes:
            return []
        (item,) = self._items(1)
        del self._codes[item]
        self._visits = {k: visit for k, visit in self._visits.items() if visit[0] != item}
        lines = [
            f"DELETE FROM proof.item WHERE id = {item}",
            f"UPDATE proof.item SET part_of = NULL WHERE part_of = {item}",
            f"DELETE FROM proof.visit WHERE item = {item}",
        ]
        self._random.shuffle(lines)
        return lines

    def _unvisited(self) -> tuple[int, int] | None:
        free = [(i, p) for i in self._codes for p in PLACES if (i, p) not in self._visits.values()]
        return self._random.choice(free) if free else None

    def _visited(self) -> list[str]:
        where, free = self._unvisited(), [number for number in IDS if number not in self._visits]
        if where is None or not free:
            return []
        new = self._random.choice(free)
        self._visits[new] = where
        return [f"INSERT INTO proof.visit VALUES ({new}, {where[0]}, {where[1]})"]

    def _repointed(self) -> list[str]:
        where = self._unvisited()
        if where is None or not self._visits:
            return []
        visit = self._random.choice(sorted(self._visits))
        self._visits[visit] = where
        return [f"UPDATE proof.visit SET item = {where[0]}, place = {where[1]} WHERE id = {visit}"]

    def _visits_swapped(self) -> list[str]:
        """By their keys, or by what they have."""
        if len(self._visits) < 2:
            return []
        one, other = self._random.sample(sorted(self._visits), 2)
        here, there = self._visits[one], self._visits[other]
        self._visits[one], self._visits[other] = there, here
        if self._random.random() < 0.5:
            steps = ((AWAY, one), (one, other), (other, AWAY))
            return [f"UPDATE proof.visit SET id = {new} WHERE id = {old}" for new, old in steps]
        return [
            f"UPDATE proof.visit SET place = NULL WHERE id = {one}",
            f"UPDATE proof.visit SET item = {here[0]}, place = {here[1]} WHERE id = {other}",
            f"UPDATE proof.visit SET item = {there[0]}, place = {there[1]} WHERE id = {one}",
        ]

    def _left(self) -> list[str]:
        if not self._visits:
            return []
        visit = self._random.choice(sorted(self._visits))
        del self._visits[visit]
        return [f"DELETE FROM proof.visit WHERE id = {visit}"]


class KeyedWriter(threading.Thread):
    """One session. Foreign keys hold at the ends of its transactions: MySQL has no other way than not to look."""

    def __init__(self, source: Server, rows: KeyedRows) -> None:
        super().__init__(daemon=True)
        self._source, self._rows = source, rows
        self._ending = threading.Event()
        self.errors: list[BaseException] = []
        self.transactions = 0

    @override
    def run(self) -> None:
        try:
            while not self._ending.is_set():
                self.write(50)
        except BaseException as error:
            self.errors.append(error)

    def write(self, transactions: int) -> None:
        with closing(self._source.connect(autocommit=False)) as connection, connection.cursor() as cursor:
            if isinstance(self._source, MysqlServer):
                cursor.execute("SET SESSION foreign_key_checks = 0")
            for _ in range(transactions):
                for line in self._rows.transaction():
                    cursor.execute(line)
                connection.commit()
                self.transactions += 1
                if self._ending.wait(0.01):
                    return

    def end(self) -> None:
        self._ending.set()
        self.join()
        assert not self.errors, self.errors


def create(source: Server) -> None:
    if isinstance(source, MysqlServer):
        source.script("CREATE DATABASE proof", *TABLES, *(key.format("") for key in KEYS))
    else:
        keys = [key.format(" DEFERRABLE INITIALLY DEFERRED" if "REFERENCES" in key else "") for key in KEYS]
        source.execute(f"CREATE SCHEMA proof; {'; '.join([*TABLES, *keys])}")


def add_keys(server: Server, kind: str) -> None:
    """To the copies. `kind`: of a PostgreSQL's."""
    for key in KEYS:
        if isinstance(server, MysqlServer):
            server.execute(key.format(""))
        else:
            server.execute(key.format(kind), dbname="copy")


def play(copies: Copies, folder: Path, seed: int, kills: Sequence[str], username: str | None = None) -> int:
    """Kill at these seams, one after the other, while rows change; returns the number of looks at the copies.
    `username`: of a PostgreSQL; without the right to switch constraints off, they are deferred."""
    create(copies.source)
    writer = KeyedWriter(copies.source, KeyedRows(Random(seed)))
    writer.write(40)
    copy = begin(copies.place, copies.server, folder, username, chunk_rows=5, include="proof.*")
    with copy.running():
        settle(copy)
    add_keys(copies.server, "" if username is None else " DEFERRABLE")
    with Reader(copies, ORPHANS, ("item", "visit")) as reader:
        writer.start()
        for plan in kills:
            died = forked_copies(copy.manifest, folder, plan, level=True, again="read" if "snapshot" in plan else "")
            assert died.wait(120) == -9, f"{plan} was never reached\n{died.tail()}"
        last = of_manifest(copy.manifest, folder)
        with last.running():
            before = len(reader.sums)
            last.until(lambda _: len(reader.sums) > before + 10, work=True)
            writer.end()
            settle(last)
    assert set(reader.sums) == {0}
    assert not copies.differences(*NAMES)
    assert_they_hold(copies.server)
    return len(reader.sums)


def assert_they_hold(server: Server) -> None:
    """The constraints are still there."""
    doubled = "INSERT INTO proof.item VALUES (1001, 7777, 1, 1), (1002, 7777, 1, 1)"
    orphan = "INSERT INTO proof.visit VALUES (1001, 7777, 1)"
    for statement in (doubled, orphan):
        with pytest.raises((psycopg.IntegrityError, pymysql.err.IntegrityError)):
            if isinstance(server, PostgresServer):
                server.execute(statement, dbname="copy")
            else:
                server.execute(statement)
