"""Streamed transactions that are not decided yet: kept by top-level xid, in memory while small, then in files.

Filled by `transactions.Assembler` between Stream Start and Stop. A Stream Abort of a subtransaction discards its
messages, of the top level everything; at Stream Commit what remains is replayed in order. The files are worth nothing
after a restart: the server streams every undecided transaction again from its beginning.
"""

import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.sources.postgresql import pgoutput

MEMORY_LIMIT = 256 * 1024
"""Bytes of one transaction before it goes to its file (again)."""
READ_SIZE = 4 * 1024 * 1024
_FRAME = struct.Struct(">II")


@dataclass
class StreamedTransaction:
    """One undecided transaction."""

    path: Path
    pending: bytearray = field(default_factory=bytearray)
    on_disk: int = 0
    """Bytes in the file."""
    aborted: set[int] = field(default_factory=set)
    relation_arrivals: list[int] = field(default_factory=list)
    """Arrival number of each Relation message, in order (see `transactions.Relations`)."""

    def add(self, xid: int, message: bytes) -> None:
        self.pending += _FRAME.pack(len(message), xid)
        self.pending += message
        if len(self.pending) > MEMORY_LIMIT:
            self._write()

    def _write(self) -> None:
        with self.path.open("ab") as file:
            file.write(self.pending)
        self.on_disk += len(self.pending)
        self.pending = bytearray()

    def replay(self) -> Iterator[bytes]:
        """Messages of subtransactions that were not aborted, and every Relation: an aborted subtransaction may have
        announced a form that later rows of the stream rely on."""
        rest = b""
        for piece in self._pieces():
            data = rest + piece
            at = 0
            while at + _FRAME.size <= len(data):
                length, xid = _FRAME.unpack_from(data, at)
                end = at + _FRAME.size + length
                if end > len(data):
                    break
                if xid not in self.aborted or data[at + _FRAME.size] == pgoutput.RELATION:
                    yield data[at + _FRAME.size : end]
                at = end
            rest = data[at:]

    def _pieces(self) -> Iterator[bytes]:
        if self.on_disk:
            with self.path.open("rb") as file:
                while piece := file.read(READ_SIZE):
                    yield piece
        yield bytes(self.pending)

    def discard(self) -> None:
        if self.on_disk:
            self.path.unlink()


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
            self._transactions[top].aborted.add(xid)

    def take(self, xid: int) -> StreamedTransaction:
        """The committed transaction; the caller replays it, then calls its `discard`."""
        return self._transactions.pop(xid, None) or StreamedTransaction(self._directory / f"{xid}.messages")

    @property
    def undecided(self) -> int:
        return len(self._transactions)

    @property
    def bytes_on_disk(self) -> int:
        return sum(t.on_disk for t in self._transactions.values())
