"""A docstring starts with a noun and its article, or with a verb: "The time of the first failure.", "Reads one chunk."

A docstring that starts with "Of" or "By" has no subject, one that starts with "What" or "Whether" makes a subject of a
clause; both must be read twice. Attribute docstrings count, too.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
REFUSED = re.compile(r"(Of|By|As|What|Whether|Where|Who|Whose|From|In|For|Likewise|The same)\b")
DONE = (
    "operator/tailrace_operator",
    "tools",
    "spark_app/tailrace/apply",
    "spark_app/tailrace/batch",
    "spark_app/tailrace/capture",
    "spark_app/tailrace/changelog",
    "spark_app/tailrace/cli",
    "spark_app/tailrace/contract",
    "spark_app/tailrace/driver",
    "spark_app/tailrace/reading",
    "spark_app/tailrace/removal",
    "spark_app/tailrace/snapshot",
    "spark_app/tailrace/sources/postgresql",
    "spark_app/tailrace/spark",
    "spark_app/tailrace/storage",
    "spark_app/tailrace/targets",
    "spark_app/tailrace/backoff.py",
    "spark_app/tailrace/conditions.py",
    "spark_app/tailrace/demand.py",
    "spark_app/tailrace/errors.py",
    "spark_app/tailrace/faults.py",
    "spark_app/tailrace/foreign.py",
    "spark_app/tailrace/logs.py",
    "spark_app/tailrace/masking.py",
    "spark_app/tailrace/privacy.py",
    "spark_app/tailrace/types.py",
    "spark_app/tailrace/sources/api.py",
    "spark_app/tailrace/sources/as_types.py",
    "spark_app/tailrace/sources/client_certificate.py",
    "spark_app/tailrace/sources/concealed.py",
    "spark_app/tailrace/sources/dropped.py",
    "spark_app/tailrace/sources/findings.py",
    "spark_app/tailrace/sources/masks.py",
    "spark_app/tailrace/sources/numerals.py",
    "spark_app/tailrace/sources/patterns.py",
    "spark_app/tailrace/sources/resyncs.py",
    "spark_app/tailrace/sources/row_filters.py",
    "spark_app/tailrace/sources/secret_files.py",
    "spark_app/tailrace/sources/stops.py",
    "spark_app/tailrace/sources/unfit.py",
    "spark_app/tailrace/sources/visibility.py",
)
"""Rooms in which every docstring follows the rule."""


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring: modules, classes, functions, attributes."""
    for node in ast.walk(ast.parse(source)):
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


@pytest.mark.parametrize("room", DONE)
def test_docstrings_start_with_a_noun_or_a_verb(room: str) -> None:
    top = ROOT / room
    found = [
        (path, line, text)
        for path in ([top] if top.is_file() else sorted(top.rglob("*.py")))
        for line, text in docstrings(path.read_text())
    ]
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
        assert [REFUSED.match(found) is not None for _, found in docstrings(source)] == [True]
