"""One word for one thing: no two public classes of the product have the same name."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from support.syntax import tree

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = (ROOT / "spark_app" / "tailrace", ROOT / "operator" / "tailrace_operator")

SAME_THING_TWICE = {
    "JsonFormatter": "one form of log line in two programs; the operator imports nothing of the data plane's logging",
}
"""Names that two classes may share, with the reason."""


def public_classes() -> dict[str, list[str]]:
    """Name -> the modules that define it at their top level."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(path for package in PACKAGES for path in package.rglob("*.py")):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(ROOT)))
    return found


def test_no_two_public_classes_have_the_same_name() -> None:
    found = public_classes()
    assert len(found) > 300
    wrong = [
        f"{name}: {', '.join(modules)}"
        for name, modules in found.items()
        if len(modules) > 1 and name not in SAME_THING_TWICE and not of_different_products(modules)
    ]
    assert not wrong, "give each a name that a reader can tell apart:\n" + "\n".join(wrong)


def of_different_products(modules: list[str]) -> bool:
    """Source products, and the formats of the lake, have the same nouns, and none can import another."""
    products = [m[1] for module in modules if (m := re.search(r"/(?:sources/|lake/(?=delta|iceberg))(\w+)/", module))]
    return len(set(products)) == len(modules)


def test_every_exception_is_still_needed() -> None:
    found = public_classes()
    assert [name for name in SAME_THING_TWICE if len(found[name]) < 2] == []
