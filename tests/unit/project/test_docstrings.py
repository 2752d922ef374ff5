"""A docstring starts with a noun and its article, or with a verb: "The time of the first failure.", "Reads one chunk."

A docstring that starts with "Of" or "By" has no subject, one that starts with "What" or "Whether" makes a subject of a
clause; both must be read twice. Attribute docstrings count, too.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.syntax import tree, walk

ROOT = Path(__file__).parents[3]
REFUSED = re.compile(r"(Of|By|As|What|Whether|Where|Who|Whose|From|In|For|Likewise|The same)\b")
ROOMS = ("operator/tailrace_operator", "spark_app/tailrace", "tools")


def docstrings(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring: modules, classes, functions, attributes."""
    for node in walk(module):
        body = getattr(node, "body", None)
        statements: list[ast.stmt] = body if isinstance(body, list) else []
        for number, statement in enumerate(statements):
            documents = (
                isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                if number == 0
                else isinstance(statements[number - 1], ast.Assign | ast.AnnAssign)
            )
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))) if documents:
                    yield statement.lineno, text.strip()


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_start_with_a_noun_or_a_verb(room: str) -> None:
    top = ROOT / room
    found = [(path, line, text) for path in (sorted(top.rglob("*.py"))) for line, text in docstrings(tree(path))]
    assert found
    wrong = [f"{path.relative_to(ROOT)}:{line}: {text[:60]}" for path, line, text in found if REFUSED.match(text)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("text", ["Of the pods.", "The same by time.", "What stops it.", "Whose it is."])
def test_a_docstring_without_a_subject_is_found(text: str) -> None:
    modules = [
        f'"""{text}"""',
        f'A = 1\n"""{text}"""',
        f'class A:\n    a: int = 1\n    """{text}"""',
        f'def a():\n    """{text}"""',
    ]
    for source in modules:
        assert [REFUSED.match(found) is not None for _, found in docstrings(ast.parse(source))] == [True]
