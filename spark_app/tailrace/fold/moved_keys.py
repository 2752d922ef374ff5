"""Keys whose values move between keys: found before the work is divided, and worked by the plain rule.

A key change without a TOAST column's value (`M` with unchanged columns) takes it from the old key. `find_moved_keys`
links such keys, also through chains and swaps. `apply_rule` runs `batch.rule` over few keys, the slow ones; its values
are numbers of rows in a pool of tables, so nothing is converted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from tailrace.batch.rule import UNCHANGED, ApplyRule, Batch, Change, Chunk, Op, TargetState
from tailrace.changelog.records import Segment
from tailrace.fold.chunk_keys import KEY_ONLY
from tailrace.fold.fold_input import FoldInput, MovedKeys
from tailrace.fold.key_columns import Ints, Mask, words
from tailrace.fold.log_rows import DELETE, MOVE, RowChanges, segment_rows
from tailrace.fold.numbered import NumberedKeys


def find_moved_keys(work: FoldInput) -> MovedKeys:
    """Components of keys linked by new key changes that do not carry every column."""
    olds, news = [], []
    before: Ints = np.array([-1, 0], np.int64)
    for block in segment_rows(work, _suspects(work), columns=False):
        found = words(block.keys)
        # The D of a move stands just before it; it may be the last row of the batch before.
        seq, key = np.append(before[0], block.seq), np.append(before[1], found)
        moved = np.zeros(len(block.seq), np.bool_)
        if "_unchanged" in block.table.column_names:
            counts = pc.list_value_length(block.table["_unchanged"]).fill_null(0)
            moved = (block.op == MOVE) & (np.asarray(counts) > 0) & (block.seq > work.slice.start_seq)
        at = np.flatnonzero(moved & (seq[:-1] == block.seq - 1))
        olds.append(key[at])
        news.append(found[at])
        before = np.array([seq[-1], key[-1]], np.int64)
    if not olds or not sum(map(len, olds)):
        return MovedKeys()
    return _components(np.concatenate(olds), np.concatenate(news))


def _suspects(work: FoldInput) -> list[Segment]:
    """Segments with moves that do not carry everything, and those that hold the D of such a segment's first row."""
    new = work.slice.new_segments
    moving = [segment.moves and segment.unchanged for segment in new]
    return [segment for at, segment in enumerate(new) if any(moving[at : at + 2])]


def _components(olds: Ints, news: Ints) -> MovedKeys:
    """Smallest label wins, along both ends of every link, until nothing changes; labels are halved on the way."""
    nodes, ends = np.unique(np.concatenate([olds, news]), return_inverse=True)
    one, other = ends[: len(olds)], ends[len(olds) :]
    label = np.arange(len(nodes), dtype=np.int64)
    while True:
        lower = np.minimum(label[one], label[other])
        following = label.copy()
        np.minimum.at(following, one, lower)
        np.minimum.at(following, other, lower)
        np.minimum.at(following, label[one], lower)
        np.minimum.at(following, label[other], lower)
        following = following[following]
        if np.array_equal(following, label):
            return MovedKeys(nodes, label)
        label = following


@dataclass(frozen=True)
class Underneath:
    """Rows underneath the log's, as pool rows: the target's by key number, the chunks' by row of `ChunkKeys`."""

    target: dict[int, int]
    chunk: dict[int, int]


def apply_rule(work: FoldInput, numbered: NumberedKeys, chosen: Mask, under: Underneath) -> TargetState[int]:
    """The rule over the chosen keys (by number). Values are pool rows; the result has the rows and the holes."""
    columns = len(work.names)
    rows = np.flatnonzero(chosen[numbered.key])
    history = [logged_change(numbered.changes, int(row), int(numbered.key[row]), columns) for row in rows]
    history += [Change(seq, "T") for seq in work.slice.truncates]
    history.sort(key=lambda change: change.seq)
    chunks = [_chunk(work, number, numbered, chosen, under) for number in range(len(work.slice.chunks))]
    target = TargetState(
        {number: (row,) * columns for number, row in under.target.items() if chosen[number]},
        work.slice.applied.applied_seq,
        work.slice.through_record - 1,
        frozenset(np.flatnonzero(numbered.hole & chosen).tolist()),
    )
    batch = Batch(work.slice.through_record, work.slice.through_seq, history, chunks, repair=work.slice.repair)
    return ApplyRule[int](columns).apply(target, batch)


def logged_change(changes: RowChanges, row: int, key: int, columns: int) -> Change[int]:
    letter: Op = "D" if changes.deletes[row] else chr(changes.op[row])  # type: ignore[assignment]  # only these letters
    if changes.op[row] == DELETE:
        return Change(int(changes.seq[row]), letter, key)
    values = tuple(
        UNCHANGED if place in changes.unchanged and changes.unchanged[place][row] else row for place in range(columns)
    )
    return Change(int(changes.seq[row]), letter, key, values)


def _chunk(work: FoldInput, number: int, numbered: NumberedKeys, chosen: Mask, under: Underneath) -> Chunk[int]:
    mine = np.flatnonzero((numbered.chunk_keys.chunk == number) & chosen[numbered.chunk_key]).tolist()
    asked = {int(numbered.chunk_key[row]) for row in mine if numbered.chunk_keys.position[row] == KEY_ONLY}
    held = {int(numbered.chunk_key[row]): row for row in mine if numbered.chunk_keys.position[row] != KEY_ONLY}
    rows = {key: (under.chunk[row],) * len(work.names) for key, row in held.items()}
    return Chunk(work.slice.through_record, work.slice.chunks[number].replay_point, rows, frozenset(asked))


def value_rows(rows: Sequence[tuple[object, ...]], columns: int) -> list[Ints]:
    """The pool row of each value, by column."""
    matrix = np.array([list(row) for row in rows], np.int64).reshape(len(rows), columns)
    return [np.ascontiguousarray(matrix[:, place]) for place in range(columns)]


def moving(changes: RowChanges) -> Ints:
    """Rows that place a whole row without carrying all of it."""
    mask = np.zeros(changes.count, np.bool_)
    for unchanged in changes.unchanged.values():
        mask |= unchanged
    places = np.isin(changes.op, np.array([MOVE, ord("I")], np.int64))
    found: Ints = np.flatnonzero(mask & places)
    return found
