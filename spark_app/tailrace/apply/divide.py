"""Divide the log rows of a large batch among its parts: every segment is read once, whatever the number of parts.

`apply.spread` calls `divide` for each segment on one side of a Spark shuffle and `arrived` for each part on the other.
Pieces lie in Spark's shuffle files, so executors need no disk in common, and Spark itself makes lost ones again.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from tailrace.apply.changes import Block, blocks, first_needed
from tailrace.apply.work import Work

Piece = tuple[int, bytes]
"""Rows of one segment for one part: the segment's place in the slice, an Arrow stream."""

_PACKED = pa.ipc.IpcWriteOptions(compression="lz4")


def to_divide(work: Work) -> list[int]:
    """Places in the slice of the segments that the parts may need."""
    first = first_needed(work)
    return [place for place, segment in enumerate(work.slice.segments) if segment.last_seq >= first]


def divide(work: Work, place: int) -> Iterator[tuple[int, Piece]]:
    """A segment's rows by the part that works them; of each part in order of sequence."""
    first = first_needed(work)
    for whole in blocks(work, [work.slice.segments[place]]):
        block = whole.filter(whole.seq >= first)
        owners = work.owner(block.keys)
        order = np.argsort(owners, kind="stable")
        table = block.table.take(pa.array(order))
        ends = np.cumsum(np.bincount(owners, minlength=work.parts))
        begins = np.append(0, ends[:-1])
        for part in np.flatnonzero(ends > begins).tolist():
            yield part, (place, _pack(table.slice(begins[part], ends[part] - begins[part])))


def arrived(work: Work, pieces: Iterable[Piece]) -> Iterator[Block]:
    """The pieces of one part, in whatever order they come."""
    for place, packed in pieces:
        with pa.ipc.open_stream(packed) as stream:
            yield Block.of(work, work.slice.segments[place], stream.read_all())


def _pack(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_PACKED) as stream:
        stream.write_table(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed
