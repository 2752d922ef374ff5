"""Every error Tailrace raises on purpose, typed by what the caller must do.

`Stop` ends the process with its exit code and is not retried; `TableStop` stops one table while the others continue;
`Retry` is tried again with back-off; `OutcomeUnknown` must be read back before anything is repeated. The class name is
the error's public name (logs, status, docs/operations.md). All are picklable: Spark ships them between processes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Self

Where = Literal["source", "target", "storage", "capture", "driver"]
"""The part that met an error. `storage`: the change log's place. The others: the database that is read, the tables that
are written, Tailrace's own two processes."""


class TailraceError(Exception):
    """Base: `message` names the value at fault, `fix` says what the reader can do about it."""

    exit_code = 1
    where: Where | None = None
    """Set by the block that it leaves first (`met_at`); None: not known yet."""
    usual_fix = ""
    """The fix of errors that are raised without one."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message, fix)
        self.message = message
        self.fix = fix or self.usual_fix

    @property
    def name(self) -> str:
        return type(self).__name__

    def __str__(self) -> str:  # type: ignore[explicit-override]  # bootstrap imports this before anything is installed
        return error_line(self.name, self.message, self.fix)


@contextmanager
def met_at(where: Where) -> Iterator[None]:
    """Marks every exception that leaves this block, those of libraries included, as having happened there, unless a
    block inside has marked it already."""
    try:
        yield
    except Exception as error:
        if where_of(error) is None:
            error.where = where  # type: ignore[attr-defined]  # any exception may carry it
        raise


def where_of(error: BaseException) -> Where | None:
    """The part in which it, or one of its causes, happened."""
    at: BaseException | None = error
    while at is not None:
        found: Where | None = getattr(at, "where", None)
        if found in ("source", "target", "storage", "capture", "driver"):
            return found
        at = at.__cause__
    return None


CHANGED = "take it over (`tailrace reload -f <manifest>`; on Kubernetes `kubectl apply`)"
"""The step that makes a running driver use a changed manifest: the end of a sentence."""
RESYNC = "resync the table (`tailrace resync -f <manifest> --tables <table>`, or a SnapshotRequest with resync: true)"
REPAIR = (
    "have its rows compared and those that differ read again (`tailrace verify -f <manifest> --repair --tables"
    " <table>`, or a SnapshotRequest with mode: Repair; not for copies with a history)"
)
"""The step for a table whose rows another program changed: cheaper than a resync."""
STOP_FIX = f"To copy the table as it is now, {RESYNC}."
"""The step, for fixes, that restarts a table that is stopped, or whose target cannot be continued. A snapshot does not:
it neither captures a stopped table again nor replaces its target."""


MAKE_ROOM = "Make room there; no restart is needed."
ROOM_FIRST = "Make room there, then start again."
"""The fix for a start, which ends: a run that has started continues by itself."""


def error_line(name: str, message: str, fix: str) -> str:
    """`Name: message. Fix: fix`, as logs and the command line say it."""
    return with_fix(f"{name}: {message}", fix)


def with_fix(message: str, fix: str) -> str:
    """`message. Fix: fix`"""
    return message.rstrip(".") + (f". Fix: {fix}" if fix else "")


class Stop(TailraceError):
    """Restarting does not help; the configuration, the source or the target must be changed first."""


class InvalidManifest(Stop):
    """The manifest or the command line is wrong."""

    exit_code = 2


class RemovalUnconfirmed(InvalidManifest):
    """The manifest no longer selects most of the captured tables, and does not confirm that this is meant."""


class SourceRefused(Stop):
    """The source lacks a setting, a right or a feature."""

    exit_code = 10
    where = "source"


class TargetRefused(Stop):
    """The target cannot be used as configured, or carries the state of another change log."""

    exit_code = 10
    where = "target"
    absent = False
    """True: there is no such database, and none of its tables."""


class CutOver(TargetRefused):
    """Programs may write to the copies by now: a cutover has ended the replication into them."""

    usual_fix = (
        "Delete this Replicator (`tailrace drop -f <manifest>`; in Kubernetes `kubectl delete`): the tables stay."
    )


class RewindRefused(TailraceError):
    """`tailrace rewind` cannot bring the tables back to that moment; none was touched."""


class AuthenticationFailed(Stop):
    """The source refused the user name or the password."""

    exit_code = 11
    where = "source"


class PositionLost(Stop):
    """The source can no longer give the changes after the journal's position, or cannot prove that it can."""

    exit_code = 12
    where = "source"


class Fenced(Stop):
    """Another writer with a higher epoch owns the journal."""

    exit_code = 13
    where = "storage"


class CorruptLog(Stop):
    """The change log has a gap, an unknown record or a record that does not fit its predecessor."""

    where = "storage"
    usual_fix = "Restore the change log, or start a new one and take a snapshot; report it with the log lines."


class Retry(TailraceError):
    """A passing fault: connection, storage or target did not answer as they should."""

    away = False
    """True: the place as a whole does not answer, so that whatever else is asked of it now meets the same."""
    locked = False
    """True: another session has kept locked what was to be changed."""

    @classmethod
    def of_place(cls, message: str, fix: str = "") -> Self:
        """The error of a place that is away."""
        error = cls(message, fix)
        error.away = True
        return error


class OutcomeUnknown(Retry):
    """A write may or may not have happened; read it back first."""


class StorageFull(OutcomeUnknown):
    """No room is left where change log, target or scratch files are written. It is tried again all the time."""

    away = True


class Locked(Retry):
    """Another session holds a lock that a read needs, or a chunk that is being written one that a batch needs: waited
    for, as long as it takes. `message`: which, and who."""

    locked = True


class TableStop(TailraceError):
    """Stops one table; the others continue. `table` is `schema.name`."""

    def __init__(self, table: str, message: str, fix: str = "") -> None:
        super().__init__(message, fix)
        self.table = table
        self.args = (table, message, fix)


class NoKey(TableStop):
    """The table has no usable primary key or replica identity."""


class SchemaChangeUnsupported(TableStop):
    """The table's definition changed in a way that cannot be applied yet."""


class ValueUnsupported(TableStop):
    """A value has no exact representation in the column's target type."""


class ForeignChange(TableStop):
    """Another program changed rows of the target table."""

    where = "target"


class TargetChanged(TableStop):
    """The target table was replaced, emptied or put back to a state that the change log can no longer bring forward."""

    where = "target"


class LogTrimmed(TableStop):
    """The change log no longer holds what the table lacks: it needs a snapshot."""

    where = "storage"


class ReadRefused(TableStop):
    """The source does not give the table as the manifest wants it: a right or its place in the publication is missing,
    it is unlogged, or a row filter, a key or a column named for it is not valid there."""

    where = "source"


class NotVerified(TableStop):
    """A verification of the table could not be finished: its columns changed meanwhile, or what it had read is gone.
    The table itself is not affected."""

    where = "target"


class LogIncomplete(TableStop):
    """The source's log does not carry the table's changes whole: a setting, of the server or of one session, left out
    columns, rows or names."""

    where = "source"


class TableGone(TableStop):
    """The source table was dropped, renamed or re-created under the same name."""

    where = "source"
