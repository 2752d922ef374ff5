"""A test that kills at a seam names one that exists."""

import ast
import re
from pathlib import Path

import pytest

from support import seam_names
from support.syntax import tree, walk

TESTS = Path(__file__).resolve().parents[2]
NAME = re.compile(r"([a-z]+)\.[a-z]+(-[a-z]+)+")


def strings() -> dict[str, set[str]]:
    """What stands in the tests, this file aside, and could be the name of a seam -> the files."""
    areas = {name.partition(".")[0] for name in seam_names.defined()}
    found: dict[str, set[str]] = {}
    named = re.compile(rf"\b({'|'.join(sorted(areas))})\.[a-z]+-")  # most files have none: they are not parsed
    files = (path for path in TESTS.rglob("*.py") if path != Path(__file__))
    for path in (path for path in files if named.search(path.read_text())):
        for node in walk(tree(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for item in node.value.split(","):
                    match = NAME.fullmatch(item.strip().partition("=")[0])
                    if match is not None and match[1] in areas:
                        found.setdefault(match[0], set()).add(str(path.relative_to(TESTS)))
    return found


UNKILLED = {
    "iceberg.expired",
    "operator.after-try-pod",
}
"""Seams where no test of CI kills. None may be added: they are to become fewer."""
KILLS = re.compile(r"=kill|\bkilled_at\(|\bkilled_driver\(|\bSEAMS\b|TAILRACE_SEAMS")
FORMATS = ("delta", "iceberg")


def killed() -> set[str]:
    """What stands in those files of CI's tests that kill at seams, as a whole name, or with the area or format before
    it put in by the test."""
    files = [path for path in TESTS.rglob("test_*.py") if TESTS / "soak" not in path.parents and path != Path(__file__)]
    texts = [text for text in (path.read_text() for path in files) if KILLS.search(text)]
    found = set()
    for name in seam_names.defined():
        area, _, step = name.partition(".")
        wanted = {name} | ({f"{{deployment.format}}.{step}"} if area in FORMATS else set())
        # A search for the plain part is fast.
        behind = "|".join(rf"(?<={re.escape(one)})" for one in sorted(wanted))
        whole = re.compile(rf"\.{step}(?:{behind})(?![a-z-])")
        listed = re.compile(rf"\"{step}\"") if area == "operator" else None  # `integration/cluster/test_stream.py`
        near = (text for text in texts if step in text)
        if any(whole.search(text) or (listed is not None and listed.search(text)) for text in near):
            found.add(name)
    return found


def test_at_every_seam_some_test_of_ci_kills() -> None:
    assert seam_names.defined() - killed() == UNKILLED


def test_every_seam_that_a_test_names_exists() -> None:
    named = strings()
    assert len(named) > 20
    unknown = {name: sorted(files) for name, files in named.items() if name not in seam_names.defined()}
    assert not unknown, f"no such seam: {unknown}"


@pytest.mark.parametrize(
    "plan", ["capture.before-akc=kill", "operator.after-applychild", "journal.after-create=kill,x"]
)
def test_a_misspelt_seam_is_refused_when_it_is_armed(plan: str) -> None:
    with pytest.raises(ValueError, match="no such seam"):
        seam_names.checked(plan)
    assert (
        seam_names.checked("operator.after-cancel=kill, journal.after-create=stall:3@2")
        and seam_names.checked("") == ""
    )
