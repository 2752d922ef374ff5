"""The seam of sources is real: a source in memory that knows `tailrace.sources.api` alone runs through capture, change
log, chunks and apply into both table formats, and through doctor and drop. (`tests/unit/sources/test_api.py`: without
Spark.)
"""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from support.clear_values import found_in
from support.pipeline import lake
from support.scripted import READER, ScriptedSource
from support.scripted_database import Change, Database
from support.scripted_runs import Copy, by_key, copied, filled, manifest
from support.versions import turns
from tailrace import sources
from tailrace.cli import main as cli
from tailrace.contract.resources import Replicator

# Threads of apply leave their connections to the JVM to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_a_source_in_memory_is_copied_while_it_is_written_and_after_a_restart(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    tables = lake(Replicator.model_validate(manifest(tmp_path, format)), spark)
    copy = Copy(filled("orders", rows=0), tmp_path, format, tables)
    try:
        copied(copy, Random(3), "items", turns=24)
        assert copy.driver.faults() == {}
    finally:
        copy.stop()
    for number, name in enumerate(copy.database.names, 1):
        found = spark.read.format(format).load(str(tmp_path / "lake" / "main" / name))
        assert by_key(found.toArrow().select(["id", "v"])) == copy.database.rows(number), name


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_a_masked_column_is_clear_in_no_file_of_log_or_lake(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """Nor in what the formats say of their files: bounds of columns, in Delta's log and Iceberg's manifests."""
    marker = "clear-Ada-7f3a"
    database = Database(["orders"])
    database.commit(*(Change("I", 1, i, f"{marker}-{i}") for i in range(1, 31)))
    document = manifest(tmp_path, format)
    document["spec"]["options"] = [{"match": "main.*", "mask": [{"column": "v", "method": "Truncate", "length": 6}]}]
    copy = Copy(database, tmp_path, format, lake(Replicator.model_validate(document), spark))
    copy.document = document
    for turn in range(2):  # with a restart between
        with copy.running():
            copy.level()
            database.commit(Change("U", 1, 1 + turn, f"{marker}+"), Change("I", 1, 100 + turn, f"{marker}+"))
            copy.level()
            assert copy.driver.faults() == {}
    found = spark.read.format(format).load(str(tmp_path / "lake" / "main" / "orders"))
    assert by_key(found.toArrow().select(["id", "v"])) == dict.fromkeys(database.rows(1), "clear-")
    assert found_in(tmp_path, marker) == [] and found_in(tmp_path / "lake", "clear-") != []


def test_doctor_and_drop_reach_it_by_the_same_seam(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database, document = filled("orders", rows=1), manifest(tmp_path)
    monkeypatch.setattr(sources, "open", lambda *_: ScriptedSource(database))
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    run: Callable[..., int] = lambda *words: cli.main([*words, "-f", str(path)])  # noqa: E731  # used like a command
    assert run("doctor") == 0
    copy = Copy(database, tmp_path, tables=lake(Replicator.model_validate(document), spark))
    with copy.running():
        copy.level()
    assert run("doctor") == 0
    assert "continues after record" in capsys.readouterr().out
    assert run("drop", "--data", "--run-dir", str(tmp_path / "run")) == 0
    assert f"{READER}: dropped" in capsys.readouterr().out
    assert database.readers == {} and not (tmp_path / "lake").exists()
