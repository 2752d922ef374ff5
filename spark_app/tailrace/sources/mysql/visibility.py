"""The content of a chunk: `gtid:` and the GTID set that MySQL had executed before the chunk, or `maria:` and the place
that MariaDB's snapshot had then, with the XA transactions that it still listed as prepared afterwards (`/1,2`); behind
an `@` the server that was read, as the change log counts its files.

Both are read before the chunk's snapshot: a transaction is in the log before others see it, and in the executed set,
or below the snapshot's position, only after. What ends between the two reads is replayed behind the chunk. The number
of a MariaDB transaction is the position where it begins.

MariaDB's engines carry out an XA COMMIT only after the log and the snapshot's position have it, if another session than
the one that prepared the transaction sends it (MySQL's do it before). It lists the transaction until then: a listed one
was not seen, wherever it was committed. So an XA COMMIT in MariaDB's log has a second id, made of its xid.
"""

from collections.abc import Collection
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from tailrace.changelog.records.terms import Position
from tailrace.changelog.transactions import TransactionIds
from tailrace.errors import CorruptLog, Retry
from tailrace.sources.mysql.gtid import GtidSet
from tailrace.sources.mysql.position import OWN, Numbering
from tailrace.sources.visibility import Visibility

GTIDS, POSITION = "gtid:", "maria:"
XA = "xa:"
"""Prefix of the second id of an XA COMMIT."""


@dataclass(frozen=True)
class VisibleGtids:
    executed: GtidSet

    def sees(self, transactions: TransactionIds) -> NDArray[np.bool_]:
        visible = np.zeros(len(transactions), np.bool_)
        for place, prefix in enumerate(transactions.prefixes):
            of_it = transactions.prefix == place
            visible[of_it] = self.executed.contain(prefix, transactions.number[of_it])
        return visible

    def past(self, edge: str) -> bool:
        return self.executed >= GtidSet(edge)


@dataclass(frozen=True)
class SeenPosition:
    position: Position
    listed: frozenset[int] = frozenset()
    """XA transactions (`xa_number`) that were listed as prepared after the position was read."""

    def sees(self, transactions: TransactionIds) -> NDArray[np.bool_]:
        prefixes = np.array([prefix == XA for prefix in transactions.prefixes], np.bool_)
        unlisted = ~np.isin(transactions.number, list(self.listed))
        visible: NDArray[np.bool_] = np.where(
            prefixes[transactions.prefix], unlisted, transactions.number < self.position
        )
        return visible

    def past(self, edge: str) -> bool:
        """The XA transactions of an edge may have been committed before it."""
        before = _position(edge)
        return before.position <= self.position and not before.listed & self.listed


def xa_number(xid: str) -> int:
    """The number of an XA transaction, as `Transaction.prepares` names it; fits into int64."""
    return int.from_bytes(blake2b(xid.encode(), digest_size=8).digest()) >> 1


def position_text(position: Position, listed: Collection[str]) -> str:
    """The text of a place in MariaDB's log, and of the xids that were listed as prepared after it was read."""
    numbers = ",".join(map(str, sorted(map(xa_number, listed))))
    return f"{position}/{numbers}" if listed else str(position)


def _position(text: str) -> SeenPosition:
    """The reverse; an empty text is before everything."""
    position, _, listed = text.partition("/")
    return SeenPosition(Position(int(position or 0)), frozenset(map(int, filter(None, listed.split(",")))))


def snapshot_text(visible: str, server: str, numbering: Numbering) -> str:
    """`ChunkRead.snapshot`: what was seen, and on which server. One that comes back after another counts its files
    otherwise than before."""
    return f"{visible}@{numbering.shift} {server}"


def visibility(text: str, server: str | None = None, numbering: Numbering = OWN) -> Visibility:
    """The visibility in the text `ChunkRead.snapshot`; `CorruptLog` if it is no such text. `Retry` unless it was seen
    on this server (None: any will do): it may hold what this one has never had."""
    visible, _, where = text.partition("@")
    if server is not None and text != snapshot_text(visible, server, numbering):
        raise Retry(
            f"the chunk was read from another server ({where.partition(' ')[2] or 'unnamed'}) than {server}, which the"
            " change log is read from now",
            "The chunk is read again.",
        )
    try:
        if visible.startswith(GTIDS):
            return VisibleGtids(GtidSet(visible.removeprefix(GTIDS)))
        if visible.startswith(POSITION):
            return _position(visible.removeprefix(POSITION))
    except ValueError:
        pass
    raise CorruptLog(f"the change log has a chunk that saw {visible!r}")
