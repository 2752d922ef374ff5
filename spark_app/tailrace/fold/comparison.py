"""Compare rows of a target with those that it should have, exactly, column by column: the end of a verification.

Called by targets, which find the rows: `compared` where they are read, `summary` where the server has compared them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.changelog import keys
from tailrace.changelog.records.snapshots import MOST_EXAMPLES, ComparisonResult, RowDifference
from tailrace.changelog.records.terms import Key
from tailrace.fold.key_columns import Columns, Ints, Mask, group, joined, of_texts, taken
from tailrace.fold.replayed import KeyStates
from tailrace.fold.row_digests import digests


@dataclass(frozen=True)
class Compared:
    """The result with all keys of rows that differ."""

    found: ComparisonResult
    keys: tuple[Key, ...] = ()

    def beyond_chunks(self) -> "Compared":
        """The result for keys that changes alone decide: their chunks have counted those that they have."""
        return Compared(self.found.model_copy(update={"rows": 0, "undecided": 0}), self.keys)

    def __add__(self, other: "Compared") -> "Compared":
        return Compared(self.found + other.found, tuple(dict.fromkeys((*self.keys, *other.keys))))


def withheld(states: Columns, holes: frozenset[Key], types: Sequence[pa.DataType]) -> Mask:
    """The keys among `states` that the target withholds."""
    found = np.zeros(len(states[0]) if states else 0, np.bool_)
    if holes and len(found):
        asked = of_texts(sorted(holes), list(types))
        numbers, count = group(joined([states, asked], list(types)))
        held = np.zeros(count, np.bool_)
        held[numbers[len(found) :]] = True
        found = held[numbers[: len(found)]]
    return found


def compared(states: KeyStates, held: Mask, at: Ints, rows: pa.Table, kinds: Mapping[str, pa.DataType]) -> Compared:
    """`rows`: those of the target that have these keys, of `kinds` (types by source name) or narrower ones; `at`: the
    place of each one's key in `states`; `held`: by place, keys that the target withholds."""
    decided = states.known & ~held
    there = np.bincount(at, minlength=len(decided))
    place = np.cumsum(states.present & states.known) - 1
    differs = np.zeros(len(decided), np.bool_)
    by_column = dict[str, Mask]()
    mine = np.flatnonzero(decided[at] & states.present[at])
    _, first = np.unique(at[mine], return_index=True)
    mine = mine[first]  # of a row that the target has twice, one is compared
    if len(mine):
        one, other = _cast(rows.take(pa.array(mine)), kinds), _cast(states.rows.take(pa.array(place[at[mine]])), kinds)
        unlike = ~_alike(one.columns, other.columns)
        differs[at[mine[unlike]]] = True
        some = pa.array(np.flatnonzero(unlike))
        if len(some):
            one, other = one.take(some), other.take(some)
            for name in one.column_names:
                wrong = np.zeros(len(decided), np.bool_)
                wrong[at[mine[unlike]][~_alike([one.column(name)], [other.column(name)])]] = True
                by_column[name] = wrong
    return summary(
        states.keys,
        decided & states.present,
        missing=decided & states.present & (there == 0),
        extra=np.where(decided, there - states.present, 0).clip(0),
        different=by_column,
        differs=differs,
        undecided=int((~decided).sum()),
    )


def summary(
    named: Columns,
    compared: Mask,
    *,
    missing: Mask,
    extra: Ints,
    different: Mapping[str, Mask],
    differs: Mask,
    undecided: int = 0,
) -> Compared:
    """All by key. `extra`: rows too many; `different`: by column."""
    wrong = np.flatnonzero(missing | (extra > 0) | differs)
    texts = keys.keys(taken(named, wrong.astype(np.int64))) if len(wrong) else []

    def columns(number: int) -> tuple[str, ...]:
        return tuple(name for name, mask in different.items() if mask[number])

    def difference(number: int, key: Key) -> RowDifference:
        if missing[number]:
            return RowDifference(kind="missing", key=key)
        if extra[number]:
            return RowDifference(kind="extra", key=key)
        return RowDifference(kind="different", key=key, columns=columns(number))

    some = zip(wrong[:MOST_EXAMPLES].tolist(), texts[:MOST_EXAMPLES], strict=True)
    found = ComparisonResult(
        rows=int(compared.sum()),
        missing=int(missing.sum()),
        extra=int(extra.sum()),
        different=int(differs.sum()),
        undecided=undecided,
        columns=tuple((name, int(mask.sum())) for name, mask in sorted(different.items()) if mask.any()),
        examples=tuple(difference(number, key) for number, key in some),
    )
    return Compared(found, tuple(texts))


def superfluous(named: Columns) -> Compared:
    """The result for rows of the target that the source has not, by their keys."""
    count = len(named[0])
    none, all_ = np.zeros(count, np.bool_), np.ones(count, np.int64)
    return summary(named, none, missing=none, extra=all_, different={}, differs=none)


def counted(expected: Sequence[tuple[Ints, Ints]], there: Sequence[tuple[Ints, Ints]]) -> ComparisonResult:
    """Rows without a key, by their digests: each block's upper and lower halves. A row that has another value is one
    that is missing and one that is extra."""
    empty = np.empty(0, np.int64)
    upper, lower = (np.concatenate([empty, *(block[half] for block in (*expected, *there))]) for half in (0, 1))
    wanted = sum(len(block[0]) for block in expected)
    pairs, number = np.unique(np.stack([upper, lower], axis=1), axis=0, return_inverse=True)
    number = number.reshape(-1)
    surplus = np.bincount(number[wanted:], minlength=len(pairs)) - np.bincount(number[:wanted], minlength=len(pairs))
    wrong = np.flatnonzero(surplus)[:MOST_EXAMPLES]
    examples = (
        RowDifference(kind="extra" if surplus[at] > 0 else "missing", key=(_hex(*pairs[at].tolist()),)) for at in wrong
    )
    return ComparisonResult(
        rows=wanted,
        missing=int(-surplus.clip(max=0).sum()),
        extra=int(surplus.clip(0).sum()),
        examples=tuple(examples),
    )


def _hex(upper: int, lower: int) -> str:
    return f"{upper % (1 << 64):016x}{lower % (1 << 64):016x}"


def _cast(rows: pa.Table, kinds: Mapping[str, pa.DataType]) -> pa.Table:
    columns = [rows.column(name).cast(kinds[name]) for name in rows.column_names]
    return pa.table(columns, names=rows.column_names)


def _alike(one: Sequence[pa.ChunkedArray], other: Sequence[pa.ChunkedArray]) -> Mask:
    (upper, lower), (upper2, lower2) = digests(one), digests(other)
    alike: Mask = (upper == upper2) & (lower == lower2)
    return alike
