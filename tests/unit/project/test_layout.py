"""The layout of the tests: each file is where a reader looks for it, and `make` runs it."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
UNIT = ROOT / "tests" / "unit"
HOMES = {"operator": ROOT / "operator" / "tailrace_operator", "tools": ROOT / "tools"}
"""Folders of `tests/unit` that mirror something else than a room of `tailrace`."""


def module_files(test: Path) -> Iterator[Path]:
    """The files one of which a test file is named after: `test_runner_stopped.py` may be of `runner_stopped` or of
    `runner`; `test_main.py` may be of `__main__`."""
    room, *rest = test.relative_to(UNIT).parent.parts or ("",)
    folder = HOMES.get(room, ROOT / "spark_app" / "tailrace" / room).joinpath(*rest)
    words = test.stem.removeprefix("test_").split("_")
    for number in range(len(words), 0, -1):
        name = "_".join(words[:number])
        yield from (folder / f"{name}.py", folder / name / "__init__.py")
    if words[0] == "main":
        yield folder / "__main__.py"


def test_every_unit_test_file_names_a_module_that_exists() -> None:
    files = [path for path in UNIT.rglob("test_*.py") if path.parent != UNIT / "project"]
    assert len(files) > 80
    lost = [path for path in files if not any(file.exists() for file in module_files(path))]
    assert not lost, f"name them after a module of their room (tests/README.md): {lost}"


def test_no_test_file_lies_beside_the_folders_that_are_run() -> None:
    below = {"unit", "integration", "proof", "soak"}
    found = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")}
    assert found <= below
    assert list((ROOT / "tests" / "integration").glob("test_*.py")) == []


def test_make_runs_every_integration_test_and_every_proof_exactly_once() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "--assume-old=setup", "integration"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=True,
    )
    named = re.findall(r"tests/(?:integration|proof)/[\w/]+\.py", done.stdout)
    files = [*(ROOT / "tests/integration").rglob("test_*.py"), *(ROOT / "tests/proof").rglob("test_*.py")]
    assert sorted(named) == sorted(str(path.relative_to(ROOT)) for path in files)


GENERIC = ("apply", "batch", "capture", "changelog", "driver", "reading", "removal", "snapshot")
SOURCES = (
    r"postgres|psycopg|pgoutput|\bpg_|\blsn\b|\bxids?\b|\battnum|replication slot|\b(?:the|a) slot\b|and publication"
    r"|mysql|mariadb|binlog|gtid"
)
TARGETS = r"\bdelta\b|\biceberg\b|_delta_log|tailrace\.targets\.lake"


@pytest.mark.parametrize("words", [SOURCES, TARGETS], ids=["sources", "targets"])
def test_rooms_that_serve_any_product_use_no_word_of_one(words: str) -> None:
    """What the import contracts cannot see: names, stored fields, messages and comments."""
    files = (path for room in GENERIC for path in (ROOT / "spark_app" / "tailrace" / room).rglob("*.py"))
    lines = [(path, line) for path in files for line in path.read_text().splitlines()]
    assert len(lines) > 5000
    found = [f"{path.relative_to(ROOT)}: {line.strip()}" for path, line in lines if re.search(words, line, re.I)]
    assert not found, "\n".join(found)
