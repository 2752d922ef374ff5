"""Syntax trees for the tests that read code: each file is parsed, and each tree walked, once in a process."""

import ast
from functools import cache
from pathlib import Path


@cache
def tree(path: Path) -> ast.Module:
    """The file's syntax tree. It is shared: nobody changes it."""
    return ast.parse(path.read_text("utf-8"))


@cache
def walk(node: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree of `tree`, or of a part of it: many tests look at all of them."""
    return tuple(ast.walk(node))
