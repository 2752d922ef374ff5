"""Streamed transactions that are not decided yet: kept by top-level xid, in memory while small, then in files.

Filled by `transactions.Assembler` between Stream Start and Stop. A Stream Abort of a subtransaction discards its
messages, of the top level everything; at Stream Commit what remains is replayed in order. The files are worth nothing
after a restart: the server streams every undecided transaction again from its beginning.
"""

import shutil
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tailrace.sources.postgresql.log import pgoutput
from tailrace.sources.postgresql.log.blocks import TAKEN_BACK

MEMORY_LIMIT = 256 * 1024
"""Bytes of one transaction before it goes to its file (again)."""


@dataclass
class StreamedTransaction:
    """One undecided transaction. Messages are kept as they came, with the xid behind the kind.

    The file is a sequence of batches: two 32-bit numbers (messages, bytes), each message's length, the messages.
    """

    path: Path
    pending: list[bytes] = field(default_factory=list)
    pending_size: int = 0
    on_disk: int = 0
    """Bytes in the file."""
    aborted: set[bytes] = field(default_factory=set)
    """Xids as they stand in the messages."""
    relation_arrivals: list[int] = field(default_factory=list)
    """Arrival number of each Relation message, in order (see `transactions.Relations`)."""

    def add(self, message: bytes) -> None:
        self.pending.append(message)
        self.pending_size += len(message)
        if self.pending_size > MEMORY_LIMIT:
            self._write()

    def _write(self) -> None:
        head = array("I", (len(self.pending), self.pending_size))
        lengths = array("I", map(len, self.pending))
        with self.path.open("ab") as file:
            file.write(head.tobytes() + lengths.tobytes())
            file.write(b"".join(self.pending))
        self.on_disk += (len(head) + len(lengths)) * head.itemsize + self.pending_size
        self.pending, self.pending_size = [], 0

    def replay(self) -> Iterator[list[bytes]]:
        """Batch by batch, without their xids, the messages of subtransactions that were not aborted, and every
        Relation: an aborted subtransaction may have announced a form that later rows of the stream rely on. A row of
        one directly behind a Relation leaves the mark of its root: the server does not describe that partition again,
        and what follows may be another root's row."""
        described = False
        for batch in self._batches():
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

    def _batches(self) -> Iterator[list[bytes]]:
        if self.on_disk:
            with self.path.open("rb") as file:
                while head := _numbers(file, 2):
                    lengths, data = _numbers(file, head[0]), file.read(head[1])
                    batch, at = [], 0
                    for length in lengths:
                        batch.append(data[at : at + length])
                        at += length
                    yield batch
        yield self.pending

    def discard(self) -> None:
        if self.on_disk:
            self.path.unlink()


def _numbers(file: BinaryIO, count: int) -> "array[int]":
    numbers = array("I")
    numbers.frombytes(file.read(count * numbers.itemsize))
    return numbers


class Spill:
    """All undecided transactions."""

    def __init__(self, directory: Path) -> None:
        """`directory` is emptied: it belongs to the spill alone."""
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True)
        self._directory = directory
        self._transactions: dict[int, StreamedTransaction] = {}

    def transaction(self, xid: int) -> StreamedTransaction:
        """The transaction with this top-level xid, new if it was not known."""
        known = self._transactions.get(xid)
        if known is None:
            known = self._transactions[xid] = StreamedTransaction(self._directory / f"{xid}.messages")
        return known

    def abort(self, top: int, xid: int) -> None:
        if top == xid:
            gone = self._transactions.pop(top, None)
            if gone is not None:
                gone.discard()
        elif top in self._transactions:
            self._transactions[top].aborted.add(xid.to_bytes(4, "big"))

    def take(self, xid: int) -> StreamedTransaction:
        """The committed transaction; the caller replays it, then calls its `discard`."""
        return self._transactions.pop(xid, None) or StreamedTransaction(self._directory / f"{xid}.messages")

    @property
    def oldest_arrival(self) -> int | None:
        """The arrival of the oldest Relation message of undecided transactions."""
        return min((t.relation_arrivals[0] for t in self._transactions.values() if t.relation_arrivals), default=None)

    @property
    def undecided(self) -> int:
        return len(self._transactions)
