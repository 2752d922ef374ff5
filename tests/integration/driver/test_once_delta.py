"""The whole path for Delta: real PostgreSQL, the real command, source and target compared row by row."""

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support import lineage
from support.proof import process, tables
from support.proof.harness import SMALL, Begin, Proof
from support.proof.process import status


@pytest.mark.timeout(1500)
@pytest.mark.turn(0, 2)  # whole drivers: nearly a minute of CPU
def test_once_ends_while_writers_go_on_and_the_next_run_catches_up_and_takes_requests(
    prove: Begin, catalog: lineage.Receiver, hook: lineage.Receiver, tmp_path: Path
) -> None:
    """So many writers that there is never a moment without a hole."""
    told = {"namespace": "prod", "configFile": str(lineage.configuration(tmp_path, catalog.url))}
    (tmp_path / "key").write_text("a key of more than sixteen bytes")
    asked = {"url": f"{hook.url}/hook", "credentials": {"file": str(tmp_path / "key")}}
    proof = prove("delta", seed=1, snapshot={"chunkRows": 60, "parallelism": 3}, lineage=told, notifications=asked)
    writers = proof.writers(seed=1, count=6)
    try:
        proof.deployment.once()
    finally:
        writers.stop()
    proof.assert_nothing_acknowledged_early()
    assert_told(catalog, ["START", "COMPLETE"])
    run = proof.deployment.start()
    run.until(proof.level, 200, "what was written meanwhile")
    writers = proof.writers(seed=2, count=3)
    proof.ask("again", tables=["proof.single", "proof.typed"])
    # Keys as people write them, one that is not there among them.
    proof.ask("some", tables=["proof.single"], keys=[[" 01"], ["+7"], ["999999"]])
    proof.ask("few", tables=["proof.composite"], where="true /* all of them */ -- and a comment")
    proof.server.execute("CREATE TABLE proof.later (id int PRIMARY KEY, v text)")
    proof.server.execute("INSERT INTO proof.later SELECT n, 'v' || n FROM generate_series(1, 100) n")
    run.until(lambda: completed(proof) >= {"again", "some", "few"}, 200, "all of them")
    run.until(lambda: not proof.differences("proof.later"), 200, "the table that came later")
    # A JVM that cannot use the archive of classes maps none of it.
    assert "classes.jsa" in Path(f"/proc/{run.child('java').pid}/maps").read_text()
    proof.server.execute("UPDATE proof.later SET v = 'after' WHERE id % 2 = 0")
    writers.stop()
    proof.settle(run, "proof.later")
    assert_notified(hook)
    proof.assert_nothing_acknowledged_early()
    assert_told(catalog, ["START", "COMPLETE", "START", "ABORT"])


@pytest.mark.timeout(900)
@pytest.mark.turn(1, 2)
def test_few_changes_need_no_jvm_and_what_a_run_without_java_leaves_is_done_by_the_next(
    prove: Begin, java_started: Path
) -> None:
    proof = prove("delta", seed=1, rows=SMALL, snapshot={"chunkRows": SMALL})
    proof.deployment.once()
    java_started.unlink(missing_ok=True)
    proof.deployment.once()
    proof.server.execute("UPDATE proof.single SET v = v + 1")
    proof.deployment.once()
    proof.assert_equal()
    assert not java_started.exists()
    # It says so. Small tables are read without Java.
    java = Path(process.ENVIRONMENT["JAVA_HOME"]) / "bin" / "java"
    working = java.read_text()
    java.write_text(f"#!/bin/sh\ntouch '{java_started}'\nexit 1\n")
    proof.server.execute("CREATE TABLE proof.newest (id int PRIMARY KEY, v text)")
    proof.server.execute("INSERT INTO proof.newest SELECT n, repeat(md5(n::text), 40) FROM generate_series(1, 1500) n")
    run = proof.deployment.start("--once")
    assert run.wait(120) != 0 and java_started.exists(), run.tail()
    java.write_text(working)
    proof.deployment.once()
    proof.assert_equal("proof.newest")


def assert_told(catalog: lineage.Receiver, ends: Sequence[str]) -> None:
    """Every event is valid; these are the Replicator's own, and of each table; what the last one says is so."""
    lineage.check_all(catalog.events)
    jobs = {event["job"]["name"] for event in catalog.events}
    (replicator,) = (name for name in jobs if "." not in name)
    assert catalog.kinds(replicator) == ends and len(jobs) > len(tables.TABLES)
    single = catalog.of(f"{replicator}.proof.single")
    assert [event["eventType"] for event in single if event["eventType"] != "RUNNING"] == ends
    ((source,), (target,)) = single[-1]["inputs"], single[-1]["outputs"]
    assert source["namespace"].startswith("postgres://") and source["name"].endswith(".proof.single")
    assert target["namespace"] == "file" and Path(target["name"], "_delta_log").is_dir()
    newest = max(int(path.stem) for path in Path(target["name"], "_delta_log").glob("*.json") if path.stem.isdigit())
    assert 0 < int(target["facets"]["version"]["datasetVersion"]) <= newest
    written = target["outputFacets"]["outputStatistics"]
    assert written["rowCount"] > 0 and 0 < written["fileCount"] < written["size"]


def assert_notified(hook: lineage.Receiver) -> None:
    """Each event has one id; those of two runs are here, by now."""
    assert len({event["id"] for event in hook.events}) == len({json.dumps(event) for event in hook.events})
    by_type: defaultdict[str, list[lineage.Json]] = defaultdict(list)
    for event in hook.events:
        by_type[event["type"].removeprefix("dev.tailrace.")].append(event["data"])
    added = {data["table"].partition(".")[2] for data in by_type["table.added"]}
    assert {"later", *(table.name for table in tables.TABLES)} <= added
    for kind in ("snapshot.started", "snapshot.progress", "snapshot.completed"):
        requests = {data["request"] for data in by_type[kind]}
        assert requests >= {None, "again", "few"} and "some" not in requests, "none tells of single keys"


def completed(proof: Proof) -> set[str]:
    """Names of the running process's snapshots that are."""
    document = status(proof.deployment) or {"snapshots": []}
    return {shot["name"] for shot in document["snapshots"] if shot["state"] == "Completed"}


@pytest.fixture
def catalog() -> Iterator[lineage.Receiver]:
    with lineage.receiver() as made:
        yield made


@pytest.fixture
def hook() -> Iterator[lineage.Receiver]:
    """The receiver of notifications."""
    with lineage.receiver() as made:
        yield made


@pytest.fixture
def java_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the file that tells that Java was started."""
    home, said = tmp_path / "watched", tmp_path / "java-was-started"
    real = f"{os.environ['JAVA_HOME']}/bin/java" if "JAVA_HOME" in os.environ else shutil.which("java") or ""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ntouch '{said}'\nexec '{real}' \"$@\"\n")
    java.chmod(0o755)
    (home / "release").symlink_to(
        Path(real).resolve().parents[1] / "release"
    )  # by which the archive of classes is known
    changed = {"JAVA_HOME": str(home), "PATH": f"{java.parent}{os.pathsep}{os.environ['PATH']}"}
    monkeypatch.setattr(process, "ENVIRONMENT", process.ENVIRONMENT | changed)
    return said
