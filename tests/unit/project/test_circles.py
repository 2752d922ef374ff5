"""No file imports, directly or through others, a file that imports it.

Imports inside functions and those for type checkers only count, too.
"""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOPS = [ROOT / "spark_app", ROOT / "operator", ROOT / "tools"]


def modules(top: Path) -> dict[str, Path]:
    """The files below `top` by the names under which they are imported."""
    found = {}
    for path in top.rglob("*.py"):
        parts = path.relative_to(top).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def named(path: Path, name: str) -> Iterator[tuple[str, str]]:
    """Each imported name as its longest and its shorter form: `from a import b` may mean the module `a.b` or `a`."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: 1 - node.level or None] if node.level else []
            base = ".".join([*parents, *filter(None, [node.module])])
            yield from ((f"{base}.{alias.name}", base) for alias in node.names)


def imports(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """The files that each file imports, of those given."""
    found = {}
    for name, path in files.items():
        wanted = (longer if longer in files else shorter for longer, shorter in named(path, name))
        found[name] = {module for module in wanted if module in files}
    return found


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle, its first file at both ends; none: empty."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_files_import_each_other() -> None:
    files = {name: path for top in TOPS for name, path in modules(top).items()}
    graph = imports(files)
    assert sum(map(len, graph.values())) > 1000
    assert circle(graph) == []


@pytest.mark.parametrize(
    "back",
    [
        "import room.upper",
        "from room import upper",
        "from . import upper",
        "from .upper import NAME",
        "def later() -> None:\n    from room.upper import NAME",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from room.upper import NAME",
    ],
)
def test_a_circle_is_found(back: str, tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    for file, text in {"__init__": "", "upper": "from room import middle", "middle": "from .lower import A"}.items():
        (tmp_path / "room" / f"{file}.py").write_text(text)
    lower = tmp_path / "room" / "lower.py"
    lower.write_text("A = 1")
    assert circle(imports(modules(tmp_path))) == []
    lower.write_text(back)
    assert set(circle(imports(modules(tmp_path)))) == {"room.upper", "room.middle", "room.lower"}
