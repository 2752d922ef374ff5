"""The block that is being filled: rows of finished transactions, then those of the open one, up to a limit.

Used by the assembler. A transaction larger than the limit goes to segments piece by piece, behind a record of what was
finished before it: the log holds only what is committed.
"""

from collections.abc import Iterable
from typing import Protocol

from tailrace.sources.mysql.log.blocks import EventBlock, Mark, RowEvent
from tailrace.sources.mysql.log.events import Query, Transaction


class Blocks(Protocol):
    """The consumer of the blocks, and of statements; `stream.MysqlStream`."""

    def wants(self, form: bytes) -> bool:
        """True if rows with this table map are of a captured table."""

    def rows(self, block: EventBlock) -> None:
        """Decode the block's rows; they belong to the record being built."""

    def cut(self, rows: bool | None = None) -> None:
        """Make a record up to the assembler's position. `rows`: as in `tailrace.sources.api.Sink.cut`."""

    def statement(self, query: Query) -> list[bytes]:
        """A statement in the log as text, inside its transaction: the tables that it empties. `TableStop`s are the
        stream's own affair."""

    def undone(self, forms: Iterable[bytes] | None) -> None:
        """Rows with these table maps were rolled back, or those of some statements. None: it may be those of any."""

    @property
    def touched(self) -> bool:
        """Statements of the open transaction concern captured tables."""

    def ended(self) -> None:
        """The transaction with the statement is finished. What the statement means goes into the sink before the record
        that moves the position past it: that record is made next."""

    def rotated(self) -> None:
        """Another file of the log begins."""

    def crashed(self) -> None:
        """The server crashed before the file that begins: statements on tables without transactions may have changed
        rows that the log does not have. Those tables count as touched."""


class Filling:
    def __init__(self, sink: Blocks, limit: int) -> None:
        """`limit`: bytes of a block."""
        self._sink = sink
        self._limit = limit
        self._block = EventBlock()
        self._boundary = 0
        """Events of the block that belong to finished transactions."""
        self.divided = False
        """Rows of the transaction that is open, or has just ended, are in segments already."""
        self._given: set[bytes] = set()
        """Forms of those rows."""

    @property
    def has_finished(self) -> bool:
        return self._boundary > 0

    @property
    def full(self) -> bool:
        return self._block.size >= self._limit

    @property
    def room(self) -> int:
        """Bytes."""
        return self._limit - self._block.size

    @property
    def events(self) -> int:
        return len(self._block.events)

    def begin(self, opened: Transaction, timestamp: int) -> None:
        """`timestamp`: of its first event, seconds; what counts if the transaction has no time of its own."""
        self._block.begin(opened.prefix, opened.number, opened.commit_ts or timestamp * 1_000_000)

    def add(self, event: RowEvent) -> None:
        """A row event of the open transaction."""
        self._block.add(event)
        if self.full:
            self._overflow()

    def add_finished(self, rows: list[RowEvent], marks: list[Mark], size: int) -> None:
        """Whole transactions, for which there is room."""
        self._block.marks += marks
        self._block.events += rows
        self._block.size += size
        self._boundary = len(self._block.events)

    def _overflow(self) -> None:
        """The block is full inside a transaction. What is finished gets its record; then the open one gives its
        rows."""
        self.record_finished()
        if self.full:
            full, self._block = self._block, self._block.continuation()
            self.divided = True
            self._given |= {event.form for event in full.events}
            self._sink.rows(full)

    def record_finished(self) -> None:
        """Records what was finished before the open transaction."""
        if self._boundary:
            self.give_finished()
            self._sink.cut(rows=True)

    def give_finished(self) -> None:
        finished, self._block = self._block.split(self._boundary)
        self._boundary = 0
        if finished.events:
            self._sink.rows(finished)

    def open_forms(self) -> set[bytes]:
        """The table maps of the open transaction's rows so far."""
        return self._given | {event.form for event in self._block.events[self._boundary :]}

    def drop_open(self) -> set[bytes]:
        """The open transaction never happened. What segments have of it stays there: the forms of those rows."""
        self._block.drop_from(self._boundary)
        return set(self._given)

    def close(self) -> None:
        """The open transaction is finished."""
        self._given.clear()
        if self._block.marks and self._block.marks[-1].at == self.events and not self.divided:
            self.drop_mark()
        self._boundary = self.events

    def commits_xa(self, number: int) -> None:
        """The open transaction is the XA COMMIT of this one (`visibility.xa_number`)."""
        self._block.marks[-1] = self._block.marks[-1]._replace(xa=number)

    def drop_mark(self) -> None:
        """The open transaction changed nothing that we carry."""
        self._block.marks.pop()
