"""The events of signals: rows that people insert into the source's signal table, and what became of each."""

from typing import Literal

from pydantic import Field

from tailrace.changelog.records.terms import Closed, Seq, is_none


class SignalReceived(Closed):
    """A row was inserted into the signal table. Its sequence is its identity: it is carried out once."""

    kind: Literal["signal-received"] = "signal-received"
    seq: Seq
    id: str | None = Field(default=None, exclude_if=is_none)
    """The first column; None: NULL."""
    type: str | None = Field(default=None, exclude_if=is_none)
    """The second column."""
    data: str | None = Field(default=None, exclude_if=is_none)
    """The third column."""
    fault: str | None = Field(default=None, exclude_if=is_none)
    """The reason why the row cannot be read; its columns are then missing."""


class SignalAnswered(Closed):
    """The signal was carried out: what it asked for is in the same record."""

    kind: Literal["signal-answered"] = "signal-answered"
    seq: Seq
    outcome: Literal["done", "ignored"]
    message: str = ""
    """The reason why it, or a part of it, is ignored, with the fix."""


SignalEvent = SignalReceived | SignalAnswered
