"""Rows of the signal table as the log brings them: the columns of an INSERT, by position, become an event.

Called by the decoder of each product. What a signal asks for the driver finds out (`driver.asking.signals`); here only
those rows are left out that another tool writes for itself.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.changelog.records.signals import SignalReceived
from tailrace.changelog.records.terms import Seq
from tailrace.contract.resources import SourceSpec
from tailrace.sources.findings import Finding

log = logging.getLogger(__name__)

WATERMARKS = ("snapshot-window-open", "snapshot-window-close")
"""Debezium writes rows of these types itself."""
SIGNAL_TABLE = "signal_table"
"""The name of its finding."""
COLUMNS = 3
LONGEST = (255, 255, 65_536)
"""Characters of each column: they go into the journal, the first two into the status as well, which has bounds."""


@dataclass(frozen=True)
class SignalTable:
    """The table that `source.signalTable` names."""

    schema_name: str
    table_name: str

    @classmethod
    def of(cls, source: SourceSpec) -> "SignalTable | None":
        if source.signal_table is None:
            return None
        schema, _, table = source.signal_table.partition(".")
        return cls(schema, table)

    @property
    def name(self) -> str:
        return f"{self.schema_name}.{self.table_name}"

    @property
    def place(self) -> tuple[str, str]:
        return self.schema_name, self.table_name


class SignalTableFault:
    """The faults of the table while the log is read: each is said once, and stops nothing."""

    def __init__(self) -> None:
        self._said = ""

    def found(self, fault: Finding | None) -> None:
        text = "" if fault is None else f"{fault.message}. Fix: {fault.fix}"
        if text and text != self._said:
            log.warning("no signal can be read: %s", text)
        self._said = text


class SignalRow(NamedTuple):
    """An inserted row; either its columns, or the reason why they cannot be read."""

    id: str | None = None
    type: str | None = None
    data: str | None = None
    fault: str | None = None

    def event(self, seq: Seq) -> SignalReceived:
        return SignalReceived(seq=seq, **self._asdict())


def signal_row(values: Sequence[str | None]) -> SignalRow | None:
    """None: a row that Debezium wrote for itself."""
    if len(values) != COLUMNS:
        return wrong_columns(len(values))
    if values[1] in WATERMARKS:
        return None
    long = [i for i, value in enumerate(values) if value is not None and len(value) > LONGEST[i]]
    if long:
        what = f"column {long[0] + 1} has more than {LONGEST[long[0]]} characters"
        return SignalRow(fault=f"{what}. Fix: Shorten it.")
    return SignalRow(*values)


def wrong_columns(count: int) -> SignalRow:
    return SignalRow(fault=f"the signal table has {count} columns. Fix: Give it three: id, type, data, in this order.")
