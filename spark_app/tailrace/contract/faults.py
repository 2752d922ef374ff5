"""The report of a process on the error that it met: the fault in its status, and its termination message when it ends.

Called by every part that continues after an error, and by the command line for one that ended it. In a pod of the
operator's the container's termination message holds `LastWords` as JSON, so that no log needs to be parsed.
"""

import os
from pathlib import Path

from tailrace.contract.driver import DropReport, LastWords, RetainedLog
from tailrace.contract.status import Fault
from tailrace.errors import MAKE_ROOM, LogTrimmed, Stop, StorageFull, TableStop, TailraceError, Where, foreign, where_of
from tailrace.errors.privacy import error_text

TERMINATION_VARIABLE = "TAILRACE_TERMINATION_MESSAGE"
"""Environment variable: path of the container's termination message, in a pod of the operator's."""


def in_a_pod() -> bool:
    """True in a pod of the operator, where a container that ends is restarted at once."""
    return bool(os.environ.get(TERMINATION_VARIABLE))


def fault_of(error: BaseException, now: float, where: Where = "driver") -> Fault:
    """The fault of an error, as the status shows it. `where`: the part, if the error does not name it."""
    place = where_of(error) or where
    if isinstance(error, LogTrimmed) and not error.fix:
        fix = "Read it again: `tailrace snapshot -f <manifest> --tables <table>`, or a SnapshotRequest without where."
        return Fault(name=error.name, message=error.message, fix=fix, where=place, since=now)
    if not isinstance(error, TableStop | Stop) and foreign.full(error):
        text = error.message if isinstance(error, TailraceError) else error_text(error)
        return Fault(name=StorageFull.__name__, message=text, fix=MAKE_ROOM, where=place, since=now)
    if isinstance(error, TailraceError):
        return Fault(name=error.name, message=error.message, fix=error.fix, where=place, since=now)
    at = foreign.place(error)
    text = error_text(error) + (f" at {at}" if at else "")
    fix = "See the log; report the error if it persists."
    return Fault(name="InternalError", message=text, fix=fix, where=place, since=now)


def leave_fault(error: BaseException, now: float) -> None:
    """Writes the error that ended the container into its termination message. What it dropped before stays among
    them."""
    _leave(fault=fault_of(error, now))


def leave_report(report: DropReport) -> None:
    """Writes what the container dropped into its termination message. The operator reads it when the driver no longer
    answers."""
    _leave(drop=report)


def leave_retained(found: RetainedLog) -> None:
    """Writes the amount of log that the source keeps into the container's termination message; the operator asks for it
    while no driver runs."""
    _leave(retained=found)


def _leave(**said: Fault | DropReport | RetainedLog) -> None:
    place = os.environ.get(TERMINATION_VARIABLE)
    if not place:
        return
    path = Path(place)
    before = LastWords.of_message(path.read_text("utf-8")) if path.exists() else None
    words = (before or LastWords()).model_copy(update=said)
    path.write_text(words.to_message(), encoding="utf-8")
