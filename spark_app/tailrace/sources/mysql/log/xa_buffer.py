"""Rows of XA transactions that are prepared and not decided, by xid. Filled by the assembler."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from tailrace.sources.log.spill import UndecidedTransaction, emptied
from tailrace.sources.mysql.log.blocks import EVENT_OVERHEAD, RowEvent
from tailrace.sources.mysql.log.events import Transaction

MEMORY_LIMIT = 4 << 20
"""Bytes of one transaction before they go to its file."""


@dataclass
class _Transaction(UndecidedTransaction[RowEvent]):
    transaction: Transaction | None = None
    """Set when it is prepared."""
    file: int = 0
    """The file of its place."""
    session: int = 0
    """The number of the session that prepared it."""
    undone: set[bytes] = field(default_factory=set)
    """Forms of rows of which some were rolled back."""


class XaBuffer:
    def __init__(self, directory: Path) -> None:
        """`directory` is emptied: it belongs to this alone."""
        self._directory = emptied(directory)
        self._begun = 0
        self._transactions: dict[str, _Transaction] = {}

    def begin(self, xid: str) -> None:
        self.forget(xid)
        self._begun += 1
        self._transactions[xid] = _Transaction(self._directory / f"{self._begun}.events", MEMORY_LIMIT)

    def add(self, xid: str, event: RowEvent) -> None:
        self._transactions[xid].add(event, len(event.body) + EVENT_OVERHEAD)

    def rolled_back(self, xid: str) -> None:
        """Some of the rows so far are undone; the log does not say which."""
        self._transactions[xid].undone |= {event.form for event in self.rows(xid)}

    def undone(self, xid: str) -> Collection[bytes]:
        """The table maps of rows that may have been rolled back."""
        return self._transactions[xid].undone

    def ended(self, xid: str, session: int) -> None:
        self._transactions[xid].session = session

    def prepare(self, xid: str, transaction: Transaction, file: int) -> None:
        """`file`: of the log; the numbers of files grow."""
        self._transactions[xid].transaction, self._transactions[xid].file = transaction, file

    def session(self, xid: str) -> int:
        """That prepared it."""
        return self._transactions[xid].session

    def prepared(self) -> set[str]:
        return {xid for xid, t in self._transactions.items() if t.transaction is not None}

    def prepared_before(self, file: int) -> set[str]:
        return {xid for xid in self.prepared() if self._transactions[xid].file < file}

    def transaction(self, xid: str) -> Transaction | None:
        """That prepared it; None: it is not held."""
        known = self._transactions.get(xid)
        return None if known is None else known.transaction

    def rows(self, xid: str) -> Iterator[RowEvent]:
        return chain.from_iterable(self._transactions[xid].batches())

    def forget(self, xid: str) -> None:
        gone = self._transactions.pop(xid, None)
        if gone is not None:
            gone.discard()
