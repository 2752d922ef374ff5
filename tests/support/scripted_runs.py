"""Replicators over the scripted source, and what is compared at their end."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from support.pipeline import Pipeline
from support.resources import replicator as document_of
from support.scripted import ScriptedSource
from support.scripted_database import Change, Database, move
from tailrace.targets.api import Units

KEYS = 60


def manifest(folder: Path, format: str = "delta", **spec: object) -> dict[str, Any]:
    made: dict[str, Any] = {
        "tables": {"include": ["main.*"]},
        "target": {"type": format, "location": (folder / "lake").as_uri()},
        "storage": {"location": (folder / "log").as_uri()},
        "snapshot": {"chunkRows": 7, "parallelism": 2},
    }
    return document_of(**(made | spec))


def filled(*names: str, rows: int = 20) -> Database:
    """Tables of these names with so many rows."""
    database = Database(list(names))
    for table in range(1, len(names) + 1):
        database.commit(*(Change("I", table, i, f"a{i}") for i in range(1, rows + 1)))
    return database


class Copy(Pipeline):
    """A pipeline over a database in memory."""

    def __init__(self, database: Database, folder: Path, format: str = "delta", tables: Units | None = None) -> None:
        super().__init__(manifest(folder, format), ScriptedSource(database), folder, tables)
        self.database = database

    def level(self) -> None:
        """Everything that is committed is copied."""
        self.settle(self.database.end)

    def rows(self, table: int) -> dict[int, str | None]:
        return by_key(self.lake.table("main", self.database.names[table - 1]).rows())

    def equal(self) -> None:
        """After one more change, in every table; and none is failing."""
        self.database.commit(Change("I", 1, 1000 + self.database.end, "+"), Change("U", 1, 2, "++"))
        self.level()
        assert self.driver.faults() == {}
        for number, name in enumerate(self.database.names, 1):
            assert self.rows(number) == self.database.rows(number), name


def by_key(rows: pa.Table) -> dict[int, str | None]:
    """`v` by `id`, each of which stands there once."""
    found = rows.to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["v"] for row in found}


def change(random: Random, database: Database, table: int) -> list[Change]:
    """One or two changes that fit the table as it is."""
    rows, v = database.rows(table), str(random.random())
    new = random.choice([i for i in range(KEYS) if i not in rows] or [KEYS + len(database.log)])
    if not rows or random.random() < 0.3:
        return [Change("I", table, new, v)]
    known = random.choice(list(rows))
    match random.randrange(12):
        case 0:
            return [Change("T", table), Change("I", table, new, v)]
        case 1 | 2 | 3:
            return [Change("D", table, known)]
        case 4 | 5:
            return move(table, known, new, v)
        case _:
            return [Change("U", table, known, v)]


def copied(pipeline: Copy, random: Random, later: str, turns: int = 60) -> None:
    """A run with writers, a table that comes `later`, hidden commits, and a restart in the middle."""
    database = pipeline.database
    for _ in range(30):
        database.commit(*change(random, database, 1))
    pipeline.start()
    waiting: list[int] = []
    for turn in range(turns):
        for _ in range(3):
            hidden = not waiting and random.random() < 0.3
            number = database.commit(*change(random, database, random.randint(1, len(database.names))), hidden=hidden)
            waiting += [number] if hidden else []
        if waiting and random.random() < 0.5:
            database.hidden.discard(waiting.pop())
        if turn == turns // 3:
            database.names.append(later)
        if turn == 2 * turns // 3:
            pipeline.stop()
            pipeline.start()
        pipeline.turn()
    database.hidden.clear()
    pipeline.level()
    state = pipeline.state
    assert len(state.snapshots) >= 2 and sum(len(t.segments) for t in state.tables.values()) > 10
    (acknowledged,) = database.readers.values()
    assert 0 < acknowledged <= state.position
