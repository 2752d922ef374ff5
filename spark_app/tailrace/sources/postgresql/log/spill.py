"""Streamed transactions that are not decided yet, kept by top-level xid.

Filled by `assembler.Assembler` between Stream Start and Stop. A Stream Abort of a subtransaction discards its
messages, of the top level everything; at Stream Commit what remains is replayed in order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.sources.log.spill import UndecidedTransaction, emptied
from tailrace.sources.postgresql.log import pgoutput
from tailrace.sources.postgresql.log.blocks import TAKEN_BACK

MEMORY_LIMIT = 256 * 1024
"""Bytes of one transaction before it goes to its file (again)."""


@dataclass
class StreamedTransaction(UndecidedTransaction[bytes]):
    """One undecided transaction. Messages are kept as they came, with the xid behind the kind."""

    aborted: set[bytes] = field(default_factory=set)
    """Xids as they stand in the messages."""
    relation_arrivals: list[int] = field(default_factory=list)
    """Arrival number of each Relation message, in order (see `assembler.Relations`)."""

    def replay(self) -> Iterator[list[bytes]]:
        """Batch by batch, without their xids, the messages of subtransactions that were not aborted, and every
        Relation: an aborted subtransaction may have announced a form that later rows of the stream rely on. A row of
        one directly behind a Relation leaves the mark of its root: the server does not describe that partition again,
        and what follows may be another root's row."""
        described = False
        for batch in self.batches():
            if not self.aborted:
                yield [m[:1] + m[5:] for m in batch]
                continue
            kept = []
            for message in batch:
                if message[0] == pgoutput.RELATION or message[1:5] not in self.aborted:
                    kept.append(message[:1] + message[5:])
                elif described and message[0] in pgoutput.ROWS:
                    kept.append(bytes([TAKEN_BACK]) + message[5:9])
                described = message[0] == pgoutput.RELATION
            yield kept


class Spill:
    """All undecided transactions."""

    def __init__(self, directory: Path) -> None:
        """`directory` is emptied: it belongs to the spill alone."""
        self._directory = emptied(directory)
        self._transactions: dict[int, StreamedTransaction] = {}

    def transaction(self, xid: int) -> StreamedTransaction:
        """The transaction with this top-level xid, new if it was not known."""
        known = self._transactions.get(xid)
        if known is None:
            known = self._transactions[xid] = self._new(xid)
        return known

    def _new(self, xid: int) -> StreamedTransaction:
        return StreamedTransaction(self._directory / f"{xid}.messages", MEMORY_LIMIT)

    def abort(self, top: int, xid: int) -> None:
        if top == xid:
            gone = self._transactions.pop(top, None)
            if gone is not None:
                gone.discard()
        elif top in self._transactions:
            self._transactions[top].aborted.add(xid.to_bytes(4, "big"))

    def take(self, xid: int) -> StreamedTransaction:
        """The committed transaction; the caller replays it, then calls its `discard`."""
        return self._transactions.pop(xid, None) or self._new(xid)

    @property
    def oldest_arrival(self) -> int | None:
        """The arrival of the oldest Relation message of undecided transactions."""
        return min((t.relation_arrivals[0] for t in self._transactions.values() if t.relation_arrivals), default=None)

    @property
    def undecided(self) -> int:
        return len(self._transactions)
