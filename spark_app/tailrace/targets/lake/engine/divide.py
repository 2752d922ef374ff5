"""Divide a large batch among its parts: every file is read once, whatever the number of parts.

`engine.spread` calls `divide` for some sources on one side of a Spark shuffle and `arrived` for each part on the other.
A source is a segment of the log, or a file of which only the keys matter: chunks, the finished snapshots' chunks, the
target's files that such an end may clear. Pieces are in Spark's shuffle files, so executors need no disk in common, and
Spark itself recomputes lost ones.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa

from tailrace.batch.slice import FinishedSnapshot
from tailrace.changelog.records.terms import Seq
from tailrace.fold.chunk_keys import KEY_ONLY, ChunkKeys, requested
from tailrace.fold.key_columns import Columns, Ints, flat, taken
from tailrace.fold.log_rows import SegmentRows, first_needed, segment_rows
from tailrace.targets.lake.engine.chunk_files import ChunkFiles, key_batches
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.engine.snapshot_end import Placed, alive, among, by_place, chosen, flattened, since
from tailrace.targets.lake.files.index import FileIndex
from tailrace.targets.lake.files.locate import Found

Source = tuple[str, int]
"""Its kind, and its place among those of the kind."""
Piece = tuple[Source, bytes]
"""Rows of a segment, or keys of many sources of one kind, for one part: an Arrow stream."""
SEGMENT, CHUNK, FINISHED, SINCE, EXISTING = "segment", "chunk", "finished", "since", "existing"

PIECE_ROWS = 1000
"""Keys that a piece should have: with many parts those of more files are divided at a time."""
MOST_ROWS = 2_000_000
_PACKED = pa.ipc.IpcWriteOptions(compression="lz4")


def to_divide(work: PartInput) -> list[Source]:
    """The sources that the parts may need; those of a kind stand together."""
    first = first_needed(work.fold)
    found = [(SEGMENT, place) for place, segment in enumerate(work.slice.segments) if segment.last_seq >= first]
    found += [(CHUNK, number) for number in range(len(work.slice.chunks))]
    if work.slice.finished:
        found += [(FINISHED, number) for number in range(len(work.finished_paths))]
        found += [(SINCE, place) for place, segment in enumerate(work.slice.segments) if since(work, segment)]
        found += [(EXISTING, number) for number in range(len(work.existing_files))]
    return found


def divide(work: PartInput, sources: Iterable[Source]) -> Iterator[tuple[int, Piece]]:
    """The sources' rows by the part that works them; of each part in order. Small sources share a piece."""
    for kind, some in groupby(sources, itemgetter(0)):
        for _, place in some if kind == SEGMENT else ():
            for keys, table in _segment(work, place):
                yield from _pieces(work, (SEGMENT, place), keys, table)
        if kind != SEGMENT:
            for numbered in _gathered(work, _numbered(work, kind, (place for _, place in some))):
                yield from _pieces(work, (kind, 0), numbered[2], _table(numbered))


def _pieces(work: PartInput, source: Source, keys: Columns, table: pa.Table) -> Iterator[tuple[int, Piece]]:
    owners = work.fold.owner(keys)
    order = np.argsort(owners, kind="stable")
    sorted_rows = table.take(pa.array(order))
    ends = np.cumsum(np.bincount(owners, minlength=work.fold.parts))
    begins = np.append(0, ends[:-1])
    for part in np.flatnonzero(ends > begins).tolist():
        yield part, (source, _pack(sorted_rows.slice(begins[part], ends[part] - begins[part])))


def _segment(work: PartInput, place: int) -> Iterator[tuple[Columns, pa.Table]]:
    first = first_needed(work.fold)
    for whole in segment_rows(work.fold, [work.slice.segments[place]]):
        block = whole.filter(whole.seq >= first)
        yield block.keys, block.table


def _numbered(work: PartInput, kind: str, places: Iterable[int]) -> Iterator[Placed]:
    """Keys with the place of their source and a number beside each: its position, or its sequence."""
    for place in places:
        for numbers, keys in _since(work, place) if kind == SINCE else _positions(work, kind, place):
            yield np.full(len(numbers), place, np.int64), numbers, keys


def _since(work: PartInput, place: int) -> Iterator[tuple[Ints, Columns]]:
    for block in segment_rows(work.fold, [work.slice.segments[place]], columns=False, unchanged=False):
        yield block.seq, block.keys


def _positions(work: PartInput, kind: str, place: int) -> Iterator[tuple[Ints, Columns]]:
    if kind == CHUNK:
        chunk = work.slice.chunks[place]
        if chunk.keys:
            yield np.full(len(chunk.keys), KEY_ONLY, np.int64), requested(work.fold, chunk)
        yield from ChunkFiles(work).keys(chunk)
        return
    path = list(work.finished_paths if kind == FINISHED else work.existing_files)[place]
    for at, keys in key_batches(work, path):
        rows = np.arange(at, at + len(keys[0]), dtype=np.int64)
        if kind == EXISTING:
            here = np.flatnonzero(alive(work, path, rows)).astype(np.int64)
            yield rows[here], taken(keys, here)
        else:
            yield rows, keys


def _gathered(work: PartInput, some: Iterable[Placed]) -> Iterator[Placed]:
    """The pieces, as many at a time as make good ones."""
    enough, held, count = min(work.fold.parts * PIECE_ROWS, MOST_ROWS), list[Placed](), 0
    for placed in some:
        held.append(placed)
        count += len(placed[0])
        if count >= enough:
            yield flattened(work, held)
            held, count = [], 0
    if held:
        yield flattened(work, held)


def _table(placed: Placed) -> pa.Table:
    columns = {f"k{at}": column for at, column in enumerate(placed[2])}
    return pa.table({"place": pa.array(placed[0]), "at": pa.array(placed[1])} | columns)


@dataclass
class ShuffledKeys:
    """The pieces of one part, sorted out; `segment_rows` are unpacked when they are asked for."""

    work: PartInput
    segments: list[Piece] = field(default_factory=list)
    keys: dict[str, list[Placed]] = field(default_factory=lambda: defaultdict(list))

    def segment_rows(self) -> Iterator[SegmentRows]:
        for (_, place), packed in self.segments:
            yield SegmentRows.of(self.work.fold, self.work.slice.segments[place], _unpack(packed))

    def chunk_keys(self) -> ChunkKeys:
        chunk, position, keys = flattened(self.work, self.keys.pop(CHUNK, []))
        # Pieces come in any order; a chunk's rows stand before the keys that it was asked for.
        order = np.lexsort((position, position == KEY_ONLY, chunk)).astype(np.int64)
        return ChunkKeys(chunk[order], position[order], taken(keys, order))

    def existing(self, finished: FinishedSnapshot) -> Iterator[Placed]:
        own = np.array([number for path, number in self.work.existing_files.items() if path in finished.own], np.int64)
        for placed in self.keys[EXISTING]:
            yield chosen(placed, ~np.isin(placed[0], own)) if len(own) else placed

    def finished(self, finished: FinishedSnapshot) -> Iterator[Columns]:
        alone = len(self.work.slice.finished) == 1
        own = np.array([self.work.finished_paths[path] for path in finished.paths], np.int64)
        for placed in self.keys[FINISHED]:
            yield placed[2] if alone else chosen(placed, np.isin(placed[0], own))[2]

    def since(self, seq: Seq) -> Iterator[Columns]:
        """Keys that changed at or after this sequence."""
        for placed in self.keys[SINCE]:
            yield chosen(placed, placed[1] >= seq)[2]

    def located(self, wanted: Columns) -> dict[str, Found] | None:
        """The live rows of these keys, from what has arrived; None: only the end of a snapshot brings all keys of the
        target."""
        if not self.work.slice.finished:
            return None
        index, live = FileIndex.build(wanted), {file.path: file.dead for file in self.work.files}
        found: dict[str, Found] = {}
        for kind, paths in ((EXISTING, list(self.work.existing_files)), (FINISHED, list(self.work.finished_paths))):
            hits = [(*index.search(keys), place, at) for place, at, keys in self.keys[kind]]
            if not hits:
                continue
            place, at = (np.concatenate([hit[number][hit[1]] for hit in hits]) for number in (2, 3))
            rows = np.concatenate([hit[0] for hit in hits])
            for number, here in by_place(place):
                path = paths[number]
                if path in live and path not in found:
                    living = here[~among(at[here], np.array(live[path].to_array(), np.int64))]
                    order = living[np.argsort(at[living], kind="stable")]
                    found[path] = Found(at[order], rows[order])
        return {path: hits for path, hits in found.items() if len(hits.positions)}


def shuffled_keys(work: PartInput, pieces: Iterable[Piece]) -> ShuffledKeys:
    """The pieces of one part, in whatever order they come."""
    out = ShuffledKeys(work)
    for source, packed in pieces:
        if source[0] == SEGMENT:
            out.segments.append((source, packed))
        else:
            place, at, *keys = (flat(column) for column in _unpack(packed).columns)
            out.keys[source[0]].append((np.asarray(place), np.asarray(at), keys))
    return out


def _unpack(packed: bytes) -> pa.Table:
    with pa.ipc.open_stream(packed) as stream:
        return stream.read_all()


def _pack(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_PACKED) as stream:
        stream.write_table(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed
