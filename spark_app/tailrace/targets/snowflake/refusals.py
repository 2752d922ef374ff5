"""The subject of a refused statement: a table of a batch, a table that another driver has dropped, or a change of
columns that the service does not make. Called by `session`."""

from collections.abc import Iterator
from contextlib import contextmanager

from snowflake.connector import errors

from tailrace.errors import Retry, TailraceError, TargetRefused
from tailrace.targets.api import TableFailed
from tailrace.targets.snowflake.connect import is_of_statement
from tailrace.targets.sql.collected import CollectedChange


@contextmanager
def of_change(change: CollectedChange) -> Iterator[None]:
    """A change that fails concerns its table alone."""
    try:
        yield
    except TailraceError as error:
        if isinstance(error, Retry) and error.away:
            raise
        if change.table_id is not None:
            raise TableFailed(change.table_id, error) from error
        if is_of_statement(error.__cause__):
            raise Retry(error.message, error.fix) from error
        raise


@contextmanager
def not_dropped() -> Iterator[None]:
    """`Retry`: another driver has dropped the table that was to become a copy."""
    try:
        yield
    except TargetRefused as error:
        if error.absent:
            raise Retry(f"a table that was to become a copy is gone: {error.message}") from error
        raise


def is_refused(error: TailraceError) -> bool:
    """A statement is at fault, and neither the way to the service nor a right."""
    cause = error.__cause__
    passing = isinstance(error, Retry) and not error.away and isinstance(cause, errors.Error)
    return passing or is_of_statement(cause)
