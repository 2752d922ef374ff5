"""A machine whose Python, Java or Go is too old is told which version it needs."""

import ast
from pathlib import Path

import pytest
import toolchain

TOOLS = Path(__file__).resolve().parents[3] / "tools"


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that is the whole path."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def program(folder: Path, name: str, *answers: tuple[str, str]) -> None:
    """A program that prints an answer by its first argument, on standard error, as Java does."""
    cases = "\n".join(f"{argument}) echo '{text}' >&2 ;;" for argument, text in answers)
    (folder / name).write_text(f"#!/bin/sh\ncase $1 in\n{cases}\nesac\n")
    (folder / name).chmod(0o755)


def test_what_is_missing_is_named_with_the_version_needed(programs: Path) -> None:
    assert toolchain.java_missing() == (
        "Java 17 or newer, for Spark and for fetching jars (there is none on the path): apt-get install"
        " openjdk-17-jre-headless"
    )
    said = toolchain.go_missing("s3")
    assert said == "Go 1.24 or newer, for the S3 test server (there is none on the path): https://go.dev/dl"


def test_too_old_a_version_is_named_beside_the_one_needed(programs: Path) -> None:
    program(programs, "go", ("version", "go version go1.19.8 linux/amd64"), ("env", ""))
    program(programs, "java", ("-version", 'openjdk version "11.0.20" 2023-07-18'))
    for part in ("kubernetes", "helm"):
        assert "Go 1.26 or newer" in (said := toolchain.go_missing(part) or "") and "is 1.19)" in said
    assert "Java 17 or newer" in (said := toolchain.java_missing() or "") and "is 11)" in said
    program(programs, "java", ("-version", 'java version "1.8.0_391"'))
    assert "is 8)" in (toolchain.java_missing() or "")
    assert toolchain.python_missing((3, 9)) == (
        "Python 3.11 or newer (this is 3.9): apt-get install python3.11 python3.11-venv"
    )


@pytest.mark.parametrize(("choice", "told"), [("auto", False), ("local", True)])
def test_a_go_that_fetches_a_newer_one_is_new_enough(programs: Path, choice: str, told: bool) -> None:
    program(programs, "go", ("version", "go version go1.22.1 linux/amd64"), ("env", choice))
    assert (toolchain.go_missing("helm") is not None) == told


def test_versions_that_are_new_enough_pass(programs: Path) -> None:
    program(programs, "go", ("version", "go version go1.26.1 linux/amd64"), ("env", "local"))
    program(programs, "java", ("-version", 'openjdk version "17.0.9" 2023-10-17'))
    assert [toolchain.go_missing(part) for part in toolchain.GO] == [None, None, None]
    assert toolchain.java_missing() is None and toolchain.python_missing((3, 11)) is None


@pytest.mark.parametrize("name", ["bootstrap.py", "toolchain.py"])
def test_an_old_python_can_read_the_file_that_refuses_it(name: str) -> None:
    ast.parse((TOOLS / name).read_text(), feature_version=(3, 8))
