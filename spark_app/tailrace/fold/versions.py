"""The versions that one part of a batch ends: each state that a key had between two changes of different times.

A state begins with the time of its commit and ends with that of the key's next change. Changes of one time are one
state, the last. Keys that stand alone are worked with arrays (`fold.newest`), the slow ones (`fold.decide`) by the
plain rule, change by change. What the target had before the batch is ended by each key's first change; its rows are
the target's to read and to write again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.batch.rule import ApplyRule, Change, Row, TargetState
from tailrace.changelog.history import VALID_FROM, named
from tailrace.fold.decide import Folded, OutputRows
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Ints, Mask
from tailrace.fold.moved_keys import logged_change, value_rows
from tailrace.fold.newest import KeyedRows, newest
from tailrace.fold.numbered import NumberedKeys

NO_CHANGE = np.iinfo(np.int64).min
"""Instead of a time."""


@dataclass(frozen=True)
class EndedVersions:
    rows: OutputRows
    """States that began in this batch and ended in it: a key may have many."""
    ends: Ints
    """The time at which each ended, microseconds since the Unix epoch; before its beginning, if the clock went back."""
    first: Ints
    """The time of the first change, by key number, which ends the target's row; `NO_CHANGE`: there is none."""


def real_ends(begins: Ints, ends: Ints) -> tuple[Mask, Ints]:
    """The rows that end with their ends, and those ends. One of no change, or that began at the very time at which it
    ends, is not there: the last change of a time counts. A clock that went back makes no end before the beginning."""
    kept = (ends != NO_CHANGE) & (ends != begins)
    return kept, np.maximum(ends, begins)[kept]


def ended_versions(work: FoldInput, numbered: NumberedKeys, folded: Folded, present: Ints) -> EndedVersions:
    """`work`: of a slice of changes alone. `present`: the keys that have a row in the target."""
    times = _times(work, numbered)
    new = numbered.changes.seq > work.slice.start_seq
    first = np.full(numbered.count, NO_CHANGE, np.int64)
    rows = np.flatnonzero(new)[::-1]
    first[numbered.key[rows]] = times[rows]
    plain, ends = _plain(work, numbered, new & ~folded.slow[numbered.key], times, present)
    slow = list(_slow(work, numbered, folded, times)) if folded.slow.any() else []
    more = value_rows([values for _, values, _ in slow], len(work.names))
    return EndedVersions(
        OutputRows(
            np.concatenate([plain.key, np.array([key for key, _, _ in slow], np.int64)]),
            [np.concatenate(pair) for pair in zip(plain.values, more, strict=True)],
        ),
        np.concatenate([ends, np.array([end for _, _, end in slow], np.int64)]),
        first,
    )


def _times(work: FoldInput, numbered: NumberedKeys) -> Ints:
    """The time of each change."""
    column = numbered.changes.rows.column(work.names.index(named(work.slice.schema, VALID_FROM))).cast(
        pa.timestamp("us", "UTC")
    )
    return np.asarray(column.cast(pa.int64())).astype(np.int64)


def _plain(
    work: FoldInput, numbered: NumberedKeys, counts: Mask, times: Ints, present: Ints
) -> tuple[OutputRows, Ints]:
    rows = np.flatnonzero(counts)
    rows = rows[np.argsort(numbered.key[rows], kind="stable")]
    stops = np.zeros(len(counts), np.bool_)
    if len(rows):
        another = np.append(np.diff(numbered.key[rows]) != 0, True)
        later = np.append(np.diff(times[rows]) != 0, True)
        stops[rows] = another | later
    changes = KeyedRows(numbered.key, numbered.changes.op, numbered.changes.unchanged, len(work.names))
    states = newest(changes, counts, stops)
    has_base = np.zeros(numbered.count, np.bool_)
    has_base[present] = True
    lost = states.partial & (states.reset | ~has_base[states.keys])
    begins = times[states.rows]
    ended = np.append(np.diff(states.keys) == 0, False)[: len(states.keys)] & ~states.deleted & ~lost
    at = np.flatnonzero(ended)
    return (
        OutputRows(states.keys[at], [column[at] for column in states.values]),
        begins[at + 1] if len(at) else np.empty(0, np.int64),
    )


def _slow(
    work: FoldInput, numbered: NumberedKeys, folded: Folded, times: Ints
) -> Iterator[tuple[int, tuple[object, ...], int]]:
    """Yields the key, the pool rows of the values, and the end."""
    columns = len(work.names)
    rule = ApplyRule[int](columns)
    start = TargetState(
        {number: (row,) * columns for number, row in folded.under.items() if folded.slow[number]},
        work.slice.start_seq,
        holes=frozenset(np.flatnonzero(numbered.hole & folded.slow).tolist()),
    )
    state = rule.stream(start, [], work.slice.repair)
    new = np.flatnonzero((numbered.changes.seq > work.slice.start_seq) & folded.slow[numbered.key])
    began: dict[int, tuple[int, Row | None]] = {}
    for piece in _pieces([(int(row), logged_change(numbered.changes, int(row), int(numbered.key[row]), columns))
                          for row in new]):  # fmt: skip
        rule.fold(state, [change for _, change in piece], moves=True)
        for row, change in piece:
            key, time = int(numbered.key[row]), int(times[row])
            assert key == change.key
            before = began.get(key)
            if before is not None and before[0] != time and before[1] is not None and before[1].complete:
                yield key, before[1].values, time
            began[key] = time, state.get(key)


def _pieces(rows: list[tuple[int, Change[int]]]) -> Iterator[list[tuple[int, Change[int]]]]:
    """A move follows the deletion under its old key, and comes with it."""
    piece: list[tuple[int, Change[int]]] = []
    for row, change in rows:
        follows = piece and piece[-1][1].op == "D" and change.op == "M" and piece[-1][1].seq == change.seq - 1
        if piece and not follows:
            yield piece
            piece = []
        piece.append((row, change))
    if piece:
        yield piece
