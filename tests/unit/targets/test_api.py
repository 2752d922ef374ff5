"""The protocols of targets suffice for a database: all of Tailrace but Spark moves tables of one in memory together."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from typing_extensions import override

from support.scripted_database import Change, Database
from support.scripted_runs import Copy, change
from support.scripted_target import MemoryDatabase, MemoryUnits
from tailrace.errors import TargetChanged
from tailrace.storage.store import Storage

MARK = 10_000
"""The key of a row in which every transaction writes its number, in every table."""
TURNS = 70


class Killed(BaseException):
    """Ends a thread of the driver."""


class ToDatabase(Copy):
    """A pipeline into a database in memory."""

    def __init__(self, database: Database, folder: Path) -> None:
        super().__init__(database, folder)
        self.target = MemoryDatabase()
        self._tables = MemoryUnits(self.target, Storage.open(self.replicator.spec.storage))

    @override
    def rows(self, table: int) -> dict[int, str | None]:
        return {int(key[0]): values[1] for key, values in self.target.rows(table).items()}


def transaction(random: Random, database: Database) -> list[Change]:
    """Changes of some tables, and its number in all of them."""
    numbers = range(1, len(database.names) + 1)
    changes = [c for t in random.sample(numbers, min(2, len(numbers))) for c in other_rows(random, database, t)]
    emptied = {c.table for c in changes if c.op == "T"}
    marked = {t: MARK in database.rows(t) and t not in emptied for t in numbers}
    return [*changes, *(Change("U" if marked[t] else "I", t, MARK, str(database.end + 1)) for t in numbers)]


def other_rows(random: Random, database: Database, table: int) -> list[Change]:
    """Not of the row with the numbers."""
    while True:
        found = change(random, database, table)
        if not any(MARK in (c.id, c.old) for c in found):
            return found


@dataclass
class Reader:
    """Looks at the target after each commit: what is level shows one moment of the source."""

    levels: list[int] = field(default_factory=list)
    """How many tables were level, commit by commit."""

    def look(self, target: MemoryDatabase) -> None:
        level = [i for i in target.members if target.tables[i].applied.applied_record <= target.record]
        shown = {dict(target.rows(i)).get((str(MARK),), (0, None))[1] for i in level}
        assert len(shown) <= 1, f"at record {target.record} tables {level} show {shown}"
        self.levels.append(len(level))


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[ToDatabase]:
    one = ToDatabase(Database(["orders", "items", "people"]), tmp_path)
    yield one
    one.target.at_seam = lambda _: None
    one.stop()


@dataclass
class Killer:
    """Kills the driver at some seams: nothing is committed any more until another has begun."""

    copy: ToDatabase
    random: Random
    dead: bool = False
    kills: int = 0

    def at_seam(self, name: str) -> None:
        self.dead = self.dead or self.random.random() < 0.04
        if self.dead:
            raise Killed(name)

    def bury(self) -> None:
        if self.dead:
            self.copy.stop()
            self.dead, self.kills = False, self.kills + 1
            self.copy.start()


def restarted(copy: ToDatabase, exclude: list[str]) -> None:
    copy.stop()
    copy.document["spec"]["tables"]["exclude"] = exclude
    copy.start()


@pytest.mark.parametrize("seed", range(3))
def test_tables_are_moved_together_through_kills_and_faults_of_single_ones(copy: ToDatabase, seed: int) -> None:
    random, reader, database, target = Random(seed), Reader(), copy.database, copy.target
    target.committed = reader.look
    for _ in range(20):
        database.commit(*transaction(random, database))
    copy.start()
    waiting: list[int] = []
    killer = Killer(copy, Random(seed))
    for turn in range(TURNS):
        for _ in range(3):
            hidden = not waiting and random.random() < 0.2
            number = database.commit(*transaction(random, database), hidden=hidden)
            waiting += [number] if hidden else []
        if waiting and random.random() < 0.5:
            database.hidden.discard(waiting.pop())
        match turn:
            case 15:
                database.names.append("later")
            case 18:
                target.at_seam = killer.at_seam
            case 22:
                target.failing[2] = TargetChanged("main.items", "somebody changed it", "")
            case 30:
                target.failing.clear()
            case 34:
                database.differing.add(1)
            case 40 | 50:  # a table is no longer captured, and comes back
                restarted(copy, ["main.people"] if turn == 40 else [])
            case 55:
                copy.ask("main.*")
            case _:
                pass
        copy.turn()
        killer.bury()
    database.hidden.clear()
    target.at_seam = lambda _: None
    copy.level()
    assert copy.driver.faults() == {}
    for number, name in enumerate(database.names, 1):
        assert copy.rows(number) == database.rows(number), name
    assert killer.kills > 0 and max(reader.levels) == 4 and min(reader.levels[-10:]) > 1
