"""The names of errors that a person can meet, taken from the code: what the documents must explain and repair."""

import importlib
import pkgutil

import tailrace
from tailrace.errors import TailraceError

NEVER_SHOWN = {
    "AlreadyExists", "CaptureGone", "CommitConflict", "Conflict", "Interrupted", "LogGap", "MissingTable", "NotFound",
    "ProgramFailed", "RecordRefused", "ServerFailed", "Stop", "TableStop", "TailraceError", "TargetNotOpen",
    "Unknown",
}  # fmt: skip
"""Bases, errors that are handled where they are raised or have the name of their base, answers to a wrong id, and
those of the demo's own server."""
MADE_UP = {"CaptureEnded", "InternalError", "SnapshotFailed"}
"""Of a status, without an exception."""


def all_kinds() -> set[type[TailraceError]]:
    """Those of the data plane, and those of whatever else has been imported."""
    for module in pkgutil.walk_packages(tailrace.__path__, "tailrace."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found: set[type[TailraceError]] = set()
    left = [TailraceError]
    while left:
        found.add(kind := left.pop())
        left += kind.__subclasses__()
    return found


def kinds() -> set[type[TailraceError]]:
    return {kind for kind in all_kinds() if kind.__module__.startswith("tailrace.")}


def shown() -> set[str]:
    """What a person can meet."""
    return ({kind.__name__ for kind in kinds()} - NEVER_SHOWN) | MADE_UP
