"""The visibility of a PostgreSQL snapshot: the text of `pg_current_snapshot()`, read and asked.

64-bit transaction ids, epoch included. Called by capture when it registers a chunk, through `tailrace.sources.api`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from tailrace.changelog.transactions import TransactionIds
from tailrace.errors import CorruptLog

MAX_XID = 2**64
LOGGED_XID = 2**63
"""Above what the log can hold; no server counts so far."""


@dataclass(frozen=True)
class PgSnapshot:
    """The view of one transaction: everything below `xmin`, nothing from `xmax` on, and between them all but `xip`."""

    xmin: int
    xmax: int
    xip: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        ordered = 0 < self.xmin <= self.xmax < MAX_XID
        if not ordered or any(not self.xmin <= xid < self.xmax for xid in self.xip):
            raise CorruptLog(f"snapshot {self} is not xmin <= xip < xmax", "Report it: no server writes this.")

    @override
    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.xip)))}"

    def sees(self, transactions: TransactionIds) -> NDArray[np.bool_]:
        """Returns for each (committed, top-level) transaction if its rows are visible."""
        running = np.array([xid for xid in self.xip if xid < LOGGED_XID], np.int64)
        return (transactions.number < self.xmax) & ~np.isin(transactions.number, running)

    def past(self, edge: str) -> bool:
        return self.xmin > int(edge)


def parse_snapshot(text: str) -> PgSnapshot:
    """Read `xmin:xmax:xip,xip,…`, the text of `pg_current_snapshot()`."""
    parts = text.split(":")
    fields = [*parts[:2], *(parts[2].split(",") if len(parts) == 3 and parts[2] else [])]
    if len(parts) != 3 or not all(field.isascii() and field.isdigit() for field in fields):
        raise CorruptLog(f"{text!r} is not a snapshot", "Expected xmin:xmax:xip, as pg_current_snapshot() prints it.")
    xmin, xmax, *xip = map(int, fields)
    return PgSnapshot(xmin, xmax, frozenset(xip))
