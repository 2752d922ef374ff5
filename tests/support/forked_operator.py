"""The operator's program, as a fork runs it (`support.forks`)."""

import importlib
import os

from tailrace import seams
from tailrace_operator.__main__ import main


def run(arguments: list[str], environment: dict[str, str], folder: str, timers: dict[str, float]) -> int:
    """`timers`: constants of modules of `tailrace_operator`, by path, and the seconds that they have here."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    importlib.reload(seams)  # it reads the environment as a program starts
    for path, seconds in timers.items():
        module, _, name = path.rpartition(".")
        constants = importlib.import_module(f"tailrace_operator.{module}").__dict__
        assert name in constants, path
        constants[name] = seconds
    return main(arguments)
