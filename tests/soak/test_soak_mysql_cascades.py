"""Random foreign keys of MySQL and MariaDB, with all their actions, among random rows and restarts: the copies become
equal, and at no moment a child in a copy refers to a row that its parent has never had.

`TAILRACE_SOAK_MYSQL_CASCADES_SECONDS` (default 300) of each server from seed `TAILRACE_SOAK_MYSQL_CASCADES_SEED`
(default 0) on.
"""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest

from demo.compare import READERS
from mysql_packages import RELEASES
from support import mysql_shop
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.pipeline import Pipeline
from support.proof.kills import live_and_die
from support.proof.process import Deployment
from support.resources import replicator as document_of
from tailrace.changelog.records.terms import Position

SECONDS = float(os.environ.get("TAILRACE_SOAK_MYSQL_CASCADES_SECONDS", "300"))
SEED = int(os.environ.get("TAILRACE_SOAK_MYSQL_CASCADES_SEED", "0"))
NATIVE = "mysql-9 native"
ACTIONS = ("CASCADE", "SET NULL", "RESTRICT", "NO ACTION")
REFUSED = (1062, 1451, 1452, 1761, 3008)
"""A key that is there, a parent that is not, a child that holds it; an update that reaches its own table; too deep."""
VALUES = 9
"""Different values of a column: few, so that rows refer to each other."""


@dataclass(frozen=True)
class Reference:
    child: str
    columns: tuple[str, ...]
    parent: str
    referenced: tuple[str, ...]


class Family:
    """Tables with a key of one or two columns, a unique pair besides, and columns that refer to one of these."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.keys = {f"t{i}": random.choice([("k",), ("k", "l")]) for i in range(random.randrange(1, 5))}
        self.references = list(self._drawn())

    def _drawn(self) -> Iterator[Reference]:
        number, names = count(), list(self.keys)
        for child in names:
            for _ in range(self._random.randrange(3)):
                parent = self._random.choice(names)  # also itself, and a later one: circles
                referenced = self._random.choice([self.keys[parent], ("u", "v")])
                yield Reference(child, tuple(f"f{next(number)}" for _ in referenced), parent, referenced)

    def columns(self, table: str) -> list[str]:
        return [*self.keys[table], "u", "v", *(c for r in self.references if r.child == table for c in r.columns)]

    def creation(self) -> Iterator[str]:
        for table, key in self.keys.items():
            kinds = (f"{c} int{' NOT NULL' if c in key else ''}" for c in self.columns(table))
            yield f"CREATE TABLE c.{table} ({', '.join(kinds)}, PRIMARY KEY ({', '.join(key)}), UNIQUE (u, v))"
        for ref in self.references:
            on_delete, on_update = (self._random.choice(ACTIONS) for _ in range(2))
            yield (
                f"ALTER TABLE c.{ref.child} ADD FOREIGN KEY ({', '.join(ref.columns)}) REFERENCES c.{ref.parent}"
                f" ({', '.join(ref.referenced)}) ON DELETE {on_delete} ON UPDATE {on_update}"
            )

    def statement(self) -> str:
        random, table = self._random, self._random.choice(list(self.keys))
        where = f"{self.keys[table][0]} = {random.randrange(VALUES)}"
        columns = self.columns(table)
        match random.randrange(6):
            case 0:
                return f"DELETE FROM c.{table} WHERE {where}"
            case 1:
                changed = random.choice(columns)
                value = (
                    "NULL" if changed not in self.keys[table] and random.random() < 0.3 else random.randrange(VALUES)
                )
                return f"UPDATE c.{table} SET {changed} = {value} WHERE {where}"
            case _:
                free = (str(random.randrange(VALUES)) if random.random() < 0.6 else "NULL" for _ in columns)
                values = (str(random.randrange(VALUES)) if c in self.keys[table] else next(free) for c in columns)
                return f"INSERT INTO c.{table} VALUES ({', '.join(values)})"


class Round:
    def __init__(self, server: MysqlServer, folder: Path, seed: int) -> None:
        self._server, self._random = server, Random(seed)
        self._family = Family(self._random)
        server.script("DROP DATABASE IF EXISTS c", "CREATE DATABASE c")
        self.trace = list(self._family.creation())
        server.script(*self.trace)
        self._had: dict[Reference, set[tuple[Any, ...]]] = {ref: set() for ref in self._family.references}
        document = document_of(
            source=mysql_shop.spec(server),
            tables={"include": ["c.*"]},
            target={"type": "delta", "location": (folder / "lake").as_uri()},
            storage={"location": (folder / "log").as_uri()},
            snapshot={"chunkRows": 4, "parallelism": 2},
        )
        self._copy = Pipeline(document, mysql_shop.source(server), folder)

    def play(self) -> None:
        self._write(60)
        try:
            self._copy.start()
            for _ in range(40):
                self._write(self._random.randrange(6))
                self._copy.turn()
                self._require_parents()
                if self._random.random() < 0.06:
                    self.trace.append("-- restart")
                    self._copy.stop()
                    self._write(self._random.randrange(20))
                    self._copy.start()
            with self._copy.source.session() as session:
                end = session.log_end()
            self._copy.settle(Position(end))
            self._require_parents()
            assert self._copy.driver.faults() == {}
            for table in self._family.keys:
                columns = self._family.columns(table)
                asked = self._server.execute(f"SELECT {', '.join(columns)} FROM c.{table}")
                assert sorted(map(repr, asked)) == sorted(map(repr, self._copied(table, columns))), table
        finally:
            self._copy.stop()

    def _write(self, statements: int) -> None:
        for _ in range(statements):
            statement = self._family.statement()
            try:
                self._server.execute(statement)
            except pymysql.MySQLError as error:
                assert error.args[0] in REFUSED, (statement, error)
                continue
            self.trace.append(statement)
            for ref, had in self._had.items():
                had |= set(self._server.execute(f"SELECT {', '.join(ref.referenced)} FROM c.{ref.parent}"))
                # MySQL 9.7.4 takes (k, l, f, g) = (3, 4, 3, 3) though (f, g) refers to (k, l) and no row has (3, 3).
                had |= set(self._server.execute(f"SELECT {', '.join(ref.columns)} FROM c.{ref.child}"))

    def _copied(self, table: str, columns: list[str]) -> list[tuple[Any, ...]]:
        rows = self._copy.lake.table("c", table).rows().select(columns)
        return [tuple(row.values()) for row in rows.to_pylist()]

    def _require_parents(self) -> None:
        there = {table.schema.table_name for table in self._copy.state.tables.values() if table.applied_record >= 0}
        for ref, had in self._had.items():
            if ref.child in there:
                found = {row for row in self._copied(ref.child, list(ref.columns)) if None not in row}
                assert found <= had, (ref, found - had)


@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("name", [*RELEASES, NATIVE])
def test_copies_of_children_are_equal_under_random_foreign_keys(name: str, tmp_path: Path) -> None:
    end, seed = time.monotonic() + SECONDS, SEED
    release, _, native = name.partition(" ")
    with MysqlServer(release, **({"innodb_native_foreign_keys": "ON"} if native else {})) as server:
        while time.monotonic() < end:
            folder = tmp_path / str(seed)
            folder.mkdir()
            played = Round(server, folder, seed)
            try:
                played.play()
            except BaseException:
                print("\n".join([f"seed {seed}", *played.trace]))
                raise
            seed += 1
    print(f"{name}: {seed - SEED} rounds")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [MYSQL, NATIVE, MARIADB_NEWEST])
def test_copies_of_children_are_equal_whoever_is_killed(name: str, tmp_path: Path) -> None:
    """Between the parent's change, the plan of the keys to read, the read and its commit: any process, at any time."""
    random = Random(SEED)
    families = (Family(Random(seed)) for seed in count(SEED))
    family = next(f for f in families if len(f.references) > 3)
    release, _, native = name.partition(" ")
    with MysqlServer(release, **({"innodb_native_foreign_keys": "ON"} if native else {})) as server:
        server.script("CREATE DATABASE c", *family.creation())
        spec: dict[str, object] = {"tables": {"include": ["c.*"]}, "snapshot": {"chunkRows": 4, "parallelism": 2}}
        deployment = Deployment(tmp_path / "proof", mysql_shop.spec(server), "delta", spec)
        deployment.write_manifest()
        ending, written, kills = threading.Event(), [0], 0
        writer = threading.Thread(target=_write, args=(server, family, ending, written))
        writer.start()
        try:
            kills = sum(live_and_die(deployment, "c.*", random, life) for life in range(4))
        finally:
            ending.set()
            writer.join()
            deployment.close()
        deployment.once(600)
        for table in family.keys:
            columns = family.columns(table)
            asked = server.execute(f"SELECT {', '.join(columns)} FROM c.{table}")
            copied = READERS["delta"](deployment.lake / "c" / table).select(columns).to_pylist()
            assert sorted(map(repr, asked)) == sorted(repr(tuple(row.values())) for row in copied), table
    print(f"{name}: {kills} kills, {written[0]} statements, {len(family.references)} foreign keys")
    assert kills and written[0]


def _write(server: MysqlServer, family: Family, ending: threading.Event, written: list[int]) -> None:
    while not ending.wait(0.02):
        try:
            server.execute(family.statement())
            written[0] += 1
        except pymysql.MySQLError as error:
            if error.args[0] not in REFUSED:
                raise
