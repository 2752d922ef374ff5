"""A `tailrace` command, as a fork runs it (`support.forks`)."""

import importlib
import os
import sys

from tailrace import seams
from tailrace.cli import main


def run(arguments: list[str], environment: dict[str, str], errors: str | None) -> int:
    """`errors`: the file for its standard error, if the log is not. In a session of its own."""
    os.setsid()
    if errors is not None:
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    os.environ.clear()
    os.environ.update(environment)
    importlib.reload(seams)  # it reads the environment as a program starts
    sys.argv[1:] = arguments
    main.entry()
    return 1  # it never returns
