"""Syntax trees of source files for the tests that read code; each file is parsed once in a process."""

import ast
from functools import cache
from pathlib import Path


@cache
def tree(path: Path) -> ast.Module:
    """The file's syntax tree. It is shared: nobody changes it."""
    return ast.parse(path.read_text("utf-8"))
