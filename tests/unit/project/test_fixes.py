"""What errors advise can be done where they are read: in Kubernetes some fields cannot be changed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import tailrace
from support.syntax import tree, walk
from tailrace.contract.base import Model
from tailrace.contract.places import SourceSpec, StorageSpec
from tailrace.contract.target import TargetSpec

ROOT = Path(tailrace.__file__).parent
ADVICE = re.compile(r"\b([Cc]orrect|[Ss]et|[Uu]se|[Nn]ame|[Rr]emove|[Cc]hoose|[Pp]oint|[Gg]ive)\b")


def immutable() -> set[str]:
    """Paths of fields that a CRD's rules keep as they are."""
    said: list[str] = ["storage.location is immutable"]
    for model in (SourceSpec, TargetSpec, StorageSpec):
        said += re.findall(r"[a-zA-Z.]+ is immutable", str(model.model_config))
    return {text.partition(" ")[0] for text in said}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """String literals, docstrings left out; values of f-strings as `{}`."""
    parsed = tree(path)
    plain = {node.value for node in walk(parsed) if isinstance(node, ast.Expr)}
    inner = {part for node in walk(parsed) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in walk(parsed):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in plain | inner:
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values)


def test_the_immutable_fields_are_known() -> None:
    assert issubclass(SourceSpec, Model)
    assert {"source.database", "source.postgresql.slot", "target.type", "storage.location"} <= immutable()


def test_advice_to_change_an_immutable_field_says_what_to_do_in_kubernetes() -> None:
    fields = [name for name in immutable() if name != "source.type"]
    missing = []
    for path in sorted(ROOT.rglob("*.py")):
        if path.is_relative_to(ROOT / "contract"):
            continue
        for line, text in texts(path):
            named = any(field in text for field in fields)
            if named and ADVICE.search(text) and "Kubernetes" not in text:
                missing.append(f"{path.relative_to(ROOT)}:{line}: {text}")
    assert not missing, "\n".join(missing)


def test_advice_to_run_a_command_says_what_to_do_in_kubernetes() -> None:
    """There is no manifest file there, and where no driver runs, no shell that could run anything."""
    missing = []
    for path in sorted(ROOT.rglob("*.py")):
        if path.is_relative_to(ROOT / "cli"):
            continue
        for line, text in texts(path):
            command = re.search(r"`tailrace (snapshot|resync|doctor|drop)\b", text)
            if command and "Kubernetes" not in text and "SnapshotRequest" not in text:
                missing.append(f"{path.relative_to(ROOT)}:{line}: {text}")
    assert not missing, "\n".join(missing)
