"""What a chunk contains: `gtid:` and the GTID set that MySQL had executed before the chunk, or `maria:` and the place
that MariaDB's snapshot had then; behind an `@` the server that was read, as the change log counts its files.

Both are read before the chunk's snapshot: a transaction is in the log before others see it, and in the executed set,
or below the snapshot's position, only after. What ends between the two reads is replayed behind the chunk. The number
of a MariaDB transaction is the position where it begins.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailrace.changelog.records import Position
from tailrace.changelog.transactions import TransactionIds
from tailrace.errors import CorruptLog, Retry
from tailrace.sources.mysql.gtid import GtidSet
from tailrace.sources.mysql.position import OWN, Numbering
from tailrace.sources.visibility import Visibility

GTIDS, POSITION = "gtid:", "maria:"


@dataclass(frozen=True)
class SeenGtids:
    executed: GtidSet

    def sees(self, transactions: TransactionIds) -> NDArray[np.bool_]:
        seen = np.zeros(len(transactions), np.bool_)
        for place, prefix in enumerate(transactions.prefixes):
            of_it = transactions.prefix == place
            seen[of_it] = self.executed.contain(prefix, transactions.number[of_it])
        return seen

    def past(self, edge: str) -> bool:
        return self.executed >= GtidSet(edge)


@dataclass(frozen=True)
class SeenPosition:
    position: Position

    def sees(self, transactions: TransactionIds) -> NDArray[np.bool_]:
        seen: NDArray[np.bool_] = transactions.number < self.position
        return seen

    def past(self, edge: str) -> bool:
        return not edge or int(edge) <= self.position


def seen_on(seen: str, server: str, numbering: Numbering) -> str:
    """`ChunkRead.snapshot`: what was seen, and on which server. One that comes back after another counts its files
    otherwise than before."""
    return f"{seen}@{numbering.shift} {server}"


def visibility(text: str, server: str | None = None, numbering: Numbering = OWN) -> Visibility:
    """Of `ChunkRead.snapshot`; `CorruptLog` if it is no such text. `Retry` unless it was seen on this server (None: any
    will do): it may hold what this one has never had."""
    seen, _, where = text.partition("@")
    if server is not None and text != seen_on(seen, server, numbering):
        raise Retry(
            f"the chunk was read from another server ({where.partition(' ')[2] or 'unnamed'}) than {server}, which the"
            " change log is read from now",
            "The chunk is read again.",
        )
    try:
        if seen.startswith(GTIDS):
            return SeenGtids(GtidSet(seen.removeprefix(GTIDS)))
        if seen.startswith(POSITION):
            return SeenPosition(Position(int(seen.removeprefix(POSITION))))
    except ValueError:
        pass
    raise CorruptLog(f"the change log has a chunk that saw {seen!r}")
