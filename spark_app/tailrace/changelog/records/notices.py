"""The events of notifications: what is told of no other record, and how far all of it was sent."""

from typing import Literal

from pydantic import Field

from tailrace.changelog.records.terms import Closed, RecordNumber, is_false
from tailrace.errors import Where


class CopiesStopped(Closed):
    """Copies that can no longer be brought forward: requires action. Capture of their tables continues."""

    kind: Literal["copies-stopped"] = "copies-stopped"
    id: str
    """The id of the stop."""
    tables: dict[int, RecordNumber]
    """The record that added the table, by table id: a table that starts over is no longer meant."""
    error: str
    message: str
    fix: str
    where: Where
    """The part that met it."""
    away: bool = Field(default=False, exclude_if=is_false)
    """The place as a whole does not answer: tables that meet the same later belong to this stop. Absent in the record
    if false."""
    later: bool = Field(default=False, exclude_if=is_false)
    """Such tables: the stop is known and nobody is told again. Absent in the record if false."""


class CopiesResumed(Closed):
    """The end of such a stop: none of its tables is stopped by this error any longer."""

    kind: Literal["copies-resumed"] = "copies-resumed"
    id: str
    tables: tuple[int, ...]
    """Those whose copies are brought forward again. The others have started over, are no longer captured, or are
    stopped for another reason."""
    error: str
    where: Where
    shared: bool = Field(default=False, exclude_if=is_false)
    """The stop was told as one of several tables. Absent in the record if false."""


class Notified(Closed):
    """All notifications about records up to this one were sent, or dropped."""

    kind: Literal["notified"] = "notified"
    record: RecordNumber


NoticeEvent = CopiesStopped | CopiesResumed | Notified
