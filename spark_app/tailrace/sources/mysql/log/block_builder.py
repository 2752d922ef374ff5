"""The block that is being built, with the forms of the open transaction's rows: some may be rolled back.

Used by the assembler.
"""

from collections.abc import Iterable
from typing import Protocol

from typing_extensions import override

from tailrace.sources.log import blocks
from tailrace.sources.log.blocks import Mark
from tailrace.sources.mysql.log.blocks import EventBlock, RowEvent
from tailrace.sources.mysql.log.events import Query
from tailrace.sources.mysql.visibility import XA


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


class BlockBuilder(blocks.BlockBuilder[EventBlock]):
    def __init__(self, sink: Blocks, limit: int) -> None:
        super().__init__(EventBlock(), limit, sink.rows, sink.cut)
        self._given: set[bytes] = set()
        """Forms of the open transaction's rows that are in segments."""

    @property
    def room(self) -> int:
        """Bytes."""
        return self.limit - self.block.size

    def add_finished(self, rows: list[RowEvent], marks: list[Mark], size: int) -> None:
        """Whole transactions, for which there is room."""
        self.block.marks += marks
        self.block.items += rows
        self.block.size += size
        self.boundary = len(self.block.items)

    @override
    def divide(self) -> None:
        self._given |= {event.form for event in self.block.items}
        super().divide()

    def open_forms(self) -> set[bytes]:
        """The table maps of the open transaction's rows so far."""
        return self._given | {event.form for event in self.block.items[self.boundary :]}

    def drop_open(self) -> set[bytes]:
        """The open transaction never happened. What segments have of it stays there: the forms of those rows."""
        self.block.drop_from(self.boundary)
        return set(self._given)

    @override
    def close(self) -> None:
        self._given.clear()
        super().close()

    def commits_xa(self, number: int) -> None:
        """The open transaction is the XA COMMIT of this one (`visibility.xa_number`)."""
        self.block.marks[-1] = self.block.marks[-1]._replace(also=(XA, number))
