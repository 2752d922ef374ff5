"""`tailrace run --once` with a Java that cannot start: what needs none."""

import os
from pathlib import Path

import pytest

from support.proof import process
from support.proof.harness import Begin


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the file that tells that Java was started."""
    java, said = tmp_path / "no-java" / "bin" / "java", tmp_path / "java-was-started"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ntouch '{said}'\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setattr(process, "ENVIRONMENT", process.ENVIRONMENT | {
        "JAVA_HOME": str(java.parents[1]), "PATH": f"{java.parent}{os.pathsep}{os.environ['PATH']}"
    })  # fmt: skip
    return said


@pytest.mark.timeout(900)
def test_a_run_with_nothing_to_do_or_few_changes_of_a_delta_table_starts_no_jvm(
    prove: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    proof = prove("delta", seed=1)
    proof.deployment.once()
    started: Path = request.getfixturevalue("no_java")
    proof.deployment.once()
    assert not started.exists()
    proof.server.execute("UPDATE proof.single SET v = v + 1")
    proof.deployment.once()
    assert not started.exists()
    proof.assert_equal()
    proof.server.execute("CREATE TABLE proof.later (id int PRIMARY KEY, v text)")
    proof.server.execute("INSERT INTO proof.later VALUES (1, 'one')")
    run = proof.deployment.start("--once")
    assert run.wait(120) != 0, "a new table is read by Spark"
    assert started.exists()
    monkeypatch.undo()
    proof.deployment.once()
    proof.assert_equal("proof.later")
