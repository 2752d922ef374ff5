"""The operator's program, as a fork runs it (`support.forks`)."""

import importlib
import os

from tailrace import seams
from tailrace_operator.__main__ import main


def run(arguments: list[str], environment: dict[str, str], folder: str) -> int:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    importlib.reload(seams)  # it reads the environment as a program starts
    return main(arguments)
