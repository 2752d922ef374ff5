"""Rows that a server of PostgreSQL has sent, in the binary format of COPY, into tables that have their columns. See
`targets.sql.session.Wire`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.databases.postgresql.wire import PRODUCT
from tailrace.databases.wire import WireRows
from tailrace.targets.postgresql.binary import Pieces
from tailrace.targets.sql.session import NUMBER

Load = Callable[[str, Sequence[str], Iterable[bytes]], int]
"""Loads rows into a table's columns."""


@dataclass(frozen=True)
class PgWire:
    _load: Load
    product: str = PRODUCT

    def load(self, table: str, columns: Sequence[str], rows: Iterable[WireRows]) -> int:
        return self._load(table, columns, (part.data for part in rows))

    def load_numbered(self, table: str, columns: Sequence[str], rows: Iterable[WireRows]) -> int:
        return self._load(table, [NUMBER, *columns], _numbered(rows, len(columns) + 1))


def _numbered(rows: Iterable[WireRows], columns: int) -> Iterator[bytes]:
    at = 0
    for part in rows:
        yield numbered(part, at, columns)
        at += len(part.ends)


def numbered(rows: WireRows, at: int, columns: int) -> bytes:
    """The rows with a bigint more in front, counted from `at`; `columns` includes it."""
    count = len(rows.ends)
    made = Pieces(count)
    numbers = np.arange(at, at + count, dtype=np.int64)
    made.side_by_side(np.array([columns], ">i2"), np.array([8], ">i4"), numbers.astype(">i8"))
    made.joined(_values(rows))
    return made.together()


def _values(rows: WireRows) -> pa.LargeBinaryArray:
    """The bytes of each row behind the count of its columns. The counts are values as well, which are not taken."""
    bounds = np.empty(2 * len(rows.ends), np.int64)
    bounds[1::2] = rows.ends
    bounds[0] = 2
    bounds[2::2] = rows.ends[:-1] + 2
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(rows.data)]
    both = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)
    return both.take(pa.array(np.arange(0, len(bounds) - 1, 2)))
