"""The replay point of a chunk: from which sequence the log must be applied again over the chunk's rows.

The rule is in docs/design.md#the-chunk-rule.

Capture calls both when it registers a chunk, with the snapshot that the chunk was read under and the transactions that
the journal still holds: the greater of `replay_point` and what follows `seen_through` counts. Pure; 64-bit transaction
ids, epoch included, as `pg_current_snapshot()` prints them.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from tailrace.changelog.state import TableLog, TransactionLog
from tailrace.errors import CorruptLog

MAX_XID = 2**64
LOGGED_XID = 2**63
"""Above what the log can hold; no server counts so far."""


@dataclass(frozen=True)
class Snapshot:
    """What one transaction can see: everything below `xmin`, nothing from `xmax` on, and between them all but `xip`."""

    xmin: int
    xmax: int
    xip: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        ordered = 0 < self.xmin <= self.xmax < MAX_XID
        if not ordered or any(not self.xmin <= xid < self.xmax for xid in self.xip):
            raise CorruptLog(f"snapshot {self} is not xmin <= xip < xmax", "Report it: no server writes this.")

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.xip)))}"


def parse_snapshot(text: str) -> Snapshot:
    """Read `xmin:xmax:xip,xip,…`, the text of `pg_current_snapshot()`."""
    parts = text.split(":")
    fields = [*parts[:2], *(parts[2].split(",") if len(parts) == 3 and parts[2] else [])]
    if len(parts) != 3 or not all(field.isascii() and field.isdigit() for field in fields):
        raise CorruptLog(f"{text!r} is not a snapshot", "Expected xmin:xmax:xip, as pg_current_snapshot() prints it.")
    xmin, xmax, *xip = map(int, fields)
    return Snapshot(xmin, xmax, frozenset(xip))


def sees(snapshot: Snapshot, xid: int) -> bool:
    """Whether rows of the (committed, top-level) transaction are visible under the snapshot."""
    return xid < snapshot.xmax and xid not in snapshot.xip


def replay_point(snapshot: Snapshot, transactions: TransactionLog, next_seq: int) -> int:
    """First sequence of the first logged transaction that the snapshot does not see; none: the next sequence.

    `transactions` is all that the journal holds, in log order, not only what came since a restart. Later transactions
    that the snapshot does see are replayed as well: that is right (a key's visible changes are a prefix of its
    history), only slower.
    """
    running = np.array([xid for xid in snapshot.xip if xid < LOGGED_XID], np.int64)
    for lines in transactions.rows.pieces():
        unseen = (lines[:, 0] >= snapshot.xmax) | np.isin(lines[:, 0], running)
        if unseen.any():
            return int(lines[int(unseen.argmax()), 1])
    return next_seq


def seen_through(table: TableLog, columns: Collection[str], planned: int) -> int:
    """The last sequence up to which a chunk sees every change of its table, because it saw a change of the schema.

    An ALTER waits for the table's writers and a chunk for the ALTER; so a chunk that has a version's columns, or whose
    snapshot was planned after that version was recorded, sees what came before the version. Such rows must not be
    replayed: the ALTER changed them without row events (`ADD COLUMN … DEFAULT`), and the chunk has them as they became.
    """
    versions = [s.after_seq for s in table.schemas if s.record < planned]
    own = next((s.after_seq for s in table.schemas if {c.name for c in s.table.columns} == set(columns)), 0)
    return max([own, *versions])
