"""A `tailrace` command, or all of Tailrace in one process, as a fork runs it (`support.forks`)."""

import importlib
import os
import sys
from pathlib import Path
from typing import Any

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


def call(module: str, function: str, *arguments: Any) -> int:
    """A program that is none of Tailrace's commands; its function returns the exit code."""
    return int(getattr(importlib.import_module(module), function)(*arguments))


def copies(manifest: str, folder: str, plan: str, level: bool, again: str = "") -> int:
    """All of Tailrace in this process (`support.pipeline`), without a JVM, until it is killed. `level`: the plan of
    seams counts once all tables have been read; before, it counts from the start. `again`: `read` or `resync` all."""
    from support.database_copies import of_manifest

    os.setsid()
    copy = of_manifest(Path(manifest), Path(folder))
    if not level:
        seams._plan = seams._parse(plan)
    copy.start()
    if level:
        copy.until(lambda state: state.snapshots and all(s.ended for s in state.snapshots.values()), work=True)
        seams._plan = seams._parse(plan)
    if again:
        copy._requests = os.getpid()  # a request of a name that was carried out is not again
        copy.ask("*.*", resync=again == "resync")
    while True:
        copy.turn()
