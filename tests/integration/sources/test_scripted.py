"""The seam of sources is real: a source in memory that knows `tailrace.sources.api` alone runs through capture, change
log, chunks and apply into both table formats, and through doctor and drop."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.ddl.lake import QuickLake, QuickTarget
from support.pipeline import Pipeline, Targets, lake
from support.resources import replicator as document_of
from support.scripted import READER, Change, Database, ScriptedSource
from tailrace import sources
from tailrace.changelog.state import TableLog
from tailrace.cli import main as cli
from tailrace.contract.resources import Replicator
from tailrace.storage.store import Storage

# Threads of apply leave their connections to the JVM to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
TABLES = ["orders", "items"]
KEYS = 60


def manifest(folder: Path, format: str) -> dict[str, Any]:
    return document_of(
        tables={"include": ["main.*"]},
        target={"type": format, "location": (folder / "lake").as_uri()},
        storage={"location": (folder / "log").as_uri()},
        snapshot={"chunkRows": 7, "parallelism": 2},
    )


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
            return [Change("M", table, known, v, to=new)]
        case _:
            return [Change("U", table, known, v)]


def read(spark: SparkSession, folder: Path, format: str, table: str) -> dict[int, str]:
    place = str(folder / "lake" / "main" / table)
    found = spark.read.format(format).load(place).collect()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["v"] for row in found}


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_source_in_memory_is_copied_while_it_is_written_and_after_a_restart(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    replicator = Replicator.model_validate(manifest(tmp_path, format))
    database = copied(replicator, tmp_path, lake(replicator, spark), Random(3))
    for number, name in enumerate(TABLES, 1):
        assert read(spark, tmp_path, format, name) == database.rows(number), name


def in_memory(replicator: Replicator, folder: Path) -> tuple[Targets, Callable[[str], dict[int, str]]]:
    """Tables without a format, and what a reader sees in them."""
    kept, log = QuickLake(folder / "lake"), Storage.open(replicator.spec.storage)

    def target(table: TableLog) -> QuickTarget:
        first = table.schemas[0].table
        return QuickTarget(kept.table(first.schema_name, first.table_name), log)

    def rows(name: str) -> dict[int, str]:
        found = kept.table("main", name).rows().to_pylist()
        assert len({row["id"] for row in found}) == len(found)
        return {row["id"]: row["v"] for row in found}

    return target, rows


@pytest.mark.parametrize("seed", range(3))
def test_the_same_without_server_and_jvm(tmp_path: Path, seed: int) -> None:
    replicator = Replicator.model_validate(manifest(tmp_path, "delta"))
    target, rows = in_memory(replicator, tmp_path)
    database = copied(replicator, tmp_path, target, Random(seed))
    for number, name in enumerate(TABLES, 1):
        assert rows(name) == database.rows(number), name


def test_what_is_in_the_log_and_not_yet_visible_to_a_chunk_is_applied_over_it(tmp_path: Path) -> None:
    replicator = Replicator.model_validate(manifest(tmp_path, "delta"))
    target, rows = in_memory(replicator, tmp_path)
    database = Database(TABLES[:1], [[Change("I", 1, i, "old")] for i in range(1, 11)])
    pipeline = Pipeline(replicator, ScriptedSource(database), tmp_path, target)
    pipeline.start()
    pipeline.until(lambda state: bool(state.tables))
    database.commit(Change("U", 1, 3, "new"), Change("D", 1, 4), Change("I", 1, 11, "new"), hidden=True)
    database.commit(Change("U", 1, 5, "new"))
    try:
        pipeline.until(lambda state: state.position == len(database.log))
        pipeline.settle(len(database.log))
    finally:
        pipeline.stop()
    assert rows(TABLES[0]) == database.rows(1)


def copied(replicator: Replicator, folder: Path, tables: Targets, random: Random) -> Database:
    """A run with writers, a table that comes later, and a restart in the middle."""
    database = Database(TABLES[:1])
    for _ in range(30):
        database.commit(*change(random, database, 1))
    pipeline = Pipeline(replicator, ScriptedSource(database), folder, tables)
    pipeline.start()
    waiting: list[int] = []
    for turn in range(60):
        for _ in range(3):
            hidden = not waiting and random.random() < 0.3
            number = database.commit(*change(random, database, random.randint(1, len(database.names))), hidden=hidden)
            waiting += [number] if hidden else []
        if waiting and random.random() < 0.5:
            database.show(waiting.pop())
        if turn == 20:
            database.names.append(TABLES[1])
        if turn == 40:
            pipeline.stop()
            pipeline.start()
        pipeline.turn()
    for number in waiting:
        database.show(number)
    try:
        pipeline.settle(len(database.log))
    finally:
        pipeline.stop()
    state = pipeline.journal.state
    assert len(state.snapshots) >= 2 and sum(len(t.segments) for t in state.tables.values()) > 10
    (acknowledged,) = database.readers.values()
    assert 0 < acknowledged <= state.position
    return database


def test_doctor_and_drop_reach_it_by_the_same_seam(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database = Database(TABLES[:1], [[Change("I", 1, 1, "a")]])
    source, document = ScriptedSource(database), manifest(tmp_path, "delta")
    monkeypatch.setattr(sources, "open", lambda *_: source)
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    run: Callable[..., int] = lambda *words: cli.main([*words, "-f", str(path)])  # noqa: E731  # used like a command
    assert run("doctor") == 0
    replicator = Replicator.model_validate(document)
    pipeline = Pipeline(replicator, source, tmp_path, lake(replicator, spark))
    pipeline.start()
    pipeline.settle(len(database.log))
    pipeline.stop()
    assert run("doctor") == 0
    assert "continues after record" in capsys.readouterr().out
    assert run("drop", "--data", "--run-dir", str(tmp_path / "run")) == 0
    assert f"{READER}: dropped" in capsys.readouterr().out
    assert database.readers == {} and not (tmp_path / "lake").exists()
