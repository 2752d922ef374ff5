"""The names of all seams: a test that arms one which does not exist would pass without a kill."""

import ast
from functools import cache
from pathlib import Path

from support.syntax import tree

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (ROOT / "spark_app" / "tailrace", ROOT / "operator" / "tailrace_operator")


@cache
def defined() -> frozenset[str]:
    """Every name that the product calls `seam` with. `ValueError`: one is put together at run time."""
    found = set()
    paths = [path for package in PACKAGES for path in package.rglob("*.py")]
    for path in (path for path in paths if "seam(" in path.read_text()):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "seam":
                (name,) = node.args
                if not isinstance(name, ast.Constant):
                    raise ValueError(f"{path}:{node.lineno}: the name of a seam is a plain string")
                found.add(str(name.value))
    return frozenset(found)


def checked(plan: str) -> str:
    """The plan (`TAILRACE_SEAMS`) if each of its seams exists, else `ValueError`."""
    named = {item.partition("=")[0].strip() for item in plan.split(",") if item.strip()}
    if named - defined():
        raise ValueError(f"no such seam: {', '.join(sorted(named - defined()))}")
    return plan
