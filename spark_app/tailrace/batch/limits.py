"""How much one batch takes, and where it ends. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby, islice, takewhile
from operator import itemgetter

from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.state import TableLog


@dataclass(frozen=True)
class BatchLimits:
    """The most that one batch takes, unless a single record has more: bounds memory and the time to a commit."""

    rows: int
    """Change rows."""
    size: int
    """Bytes of their segments."""
    chunk_rows: int
    """Rows of chunks, of which only the keys are read."""
    chunks: int
    """Chunks: each is examined before it is adopted."""


def batch_end(
    tables: Sequence[tuple[TableLog, RecordNumber]],
    through: RecordNumber,
    limits: BatchLimits,
    cuts: Iterable[RecordNumber] = (),
) -> RecordNumber:
    """The last record of the next batch of these tables, each behind the record that it holds (`through` if there are
    none): as many records as the limits allow, at least one. A record that is above a limit by itself is one batch: a
    transaction is applied whole, and capture registers no more chunks in a record than are read at the same time. The
    end of a complete snapshot is a batch's last record: what it removes must not be a row that a later snapshot has
    read. So is a cut."""
    first = min((after for _, after in tables), default=through)
    through = min([through, *(cut for cut in cuts if first < cut)])
    ends = (f.record for table, after in tables for f in table.finishes if f.complete and after < f.record < through)
    through = min(ends, default=through)
    bounds = (limits.rows, limits.size, limits.chunk_rows, limits.chunks)
    taken, last = [0] * len(bounds), first
    record: RecordNumber
    parts = merge(*(_parts(table, after, through) for table, after in tables))
    for record, some in groupby(parts, itemgetter(0)):
        for part in some:
            taken = [so_far + more for so_far, more in zip(taken, part[1:], strict=True)]
        if any(so_far > bound for so_far, bound in zip(taken, bounds, strict=True)):
            return max(RecordNumber(record - 1), last) if last > first else record
        last = record
    return through


def _parts(table: TableLog, after: RecordNumber, through: RecordNumber) -> Iterator[tuple[int, ...]]:
    """(record, change rows, their bytes, chunk rows, chunks) of what may be applied, in order of records."""
    segments = ((record, rows, size, 0, 0) for record, rows, size in table.segments.sizes_after(after))
    first = bisect_right(table.chunks, after, key=lambda logged: logged.record)
    chunks = ((c.record, 0, 0, c.chunk.rows, 1) for c in islice(table.chunks, first, None))
    return takewhile(lambda part: part[0] <= through, merge(segments, chunks))
