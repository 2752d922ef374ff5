"""Which chunks can be ranges of a snapshot that the journal has begun."""

import random

import pytest

from support import states
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import Key
from tailrace.changelog.state import SnapshotTable
from tailrace.snapshot.ranges import IllegalEvent, Range, gaps_of, misfit

Bounds = tuple[int, int | None, int | None]
"""Ordinal, lower and upper end."""


def key(end: int | None) -> Key | None:
    return None if end is None else (str(end),)


def chunk(number: int, lower: int | None, upper: int | None) -> ChunkRegistered:
    return states.chunk(7, number, lower=key(lower), upper=key(upper))


def logged(*chunks: Bounds, largest: int | None = 9) -> SnapshotTable:
    table = SnapshotTable(table_id=7, started=True, max_key=key(largest))
    for found in (chunk(*bounds) for bounds in chunks):
        ordinals = table.ordinals_with(found.chunk)
        assert ordinals is not None
        known = {"chunks": table.chunks.append(found), "next_chunk": ordinals[0], "missing": ordinals[1]}
        table = table.model_copy(update=known)
    return table


@pytest.mark.parametrize(
    ("known", "new"),
    [
        ((), (0, 9, None)),
        ((), (1, None, 4)),
        ((), (1, None, 9)),
        (((1, None, 4),), (2, 4, 9)),
        (((1, None, 4),), (3, 6, 9)),
        (((1, None, 4), (3, 6, 9)), (2, 4, 6)),
        (((1, None, 4), (4, 7, 9)), (2, 4, 7)),
        (((3, 6, 9), (0, 9, None)), (2, 5, 6)),
    ],
)
def test_a_range_that_joins_the_others_fits(known: tuple[Bounds, ...], new: Bounds) -> None:
    assert misfit(chunk(*new), logged(*known), ()) is None


@pytest.mark.parametrize(
    ("known", "new", "why"),
    [
        ((), (0, None, None), "largest key"),
        ((), (0, 8, None), "largest key"),
        ((), (1, None, None), "beyond"),
        ((), (1, 2, 4), "begin"),
        ((), (2, None, 4), "begin"),
        ((), (2, 9, 4), "beyond"),
        (((1, None, 4),), (2, 5, 9), "begin"),
        (((1, None, 4), (3, 6, 9)), (2, 4, 5), "next one"),
        (((1, None, 4), (3, 6, 9)), (2, 4, 9), "not the last"),
        (((1, None, 9),), (2, 9, 12), "beyond"),
    ],
)
def test_a_range_that_does_not_join_the_others_is_told(known: tuple[Bounds, ...], new: Bounds, why: str) -> None:
    found = misfit(chunk(*new), logged(*known), ())
    assert found is not None and why in found
    *others, last = (*known, new)
    told = misfit(chunk(*last), logged(), [chunk(*bounds) for bounds in others])
    assert told is not None or "not the last" in why


def test_a_table_without_a_largest_key_is_one_open_range() -> None:
    assert misfit(chunk(0, None, None), logged(largest=None), ()) is None
    assert misfit(chunk(1, None, 4), logged(largest=None), ()) is not None


@pytest.mark.parametrize("seed", range(200))
def test_what_fits_never_keeps_a_snapshot_from_being_resumed(seed: int) -> None:
    """Whoever sends it. The numbers of the ends of ranges grow with their ordinals, as keys do."""
    rng = random.Random(seed)
    table, fit = logged(), 0
    for _ in range(60):
        ordinal = rng.randrange(0, 6)
        low, high = sorted(rng.choices(range(10), k=2))
        new = (ordinal, rng.choice([low, low, None]), rng.choice([high, high, None]))
        if table.ordinals_with(ordinal) is None or misfit(chunk(*new), table, ()) is not None:
            continue
        before = [(c.chunk, number(c.lower), number(c.upper)) for c in table.chunks]
        table, fit = logged(*before, new), fit + 1
        gaps_of(table.chunks, ("9",))
    assert fit


def number(end: Key | None) -> int | None:
    return None if end is None else int(end[0])


def test_what_does_not_fit_would_have() -> None:
    with pytest.raises(IllegalEvent):
        gaps_of([chunk(1, None, 4), chunk(2, 5, 9)], ("9",))


@pytest.mark.parametrize(("number", "told"), [(1, "1 key"), (2, "2 keys")])
def test_a_range_of_keys_tells_how_many_they_are(number: int, told: str) -> None:
    keys = tuple((str(n),) for n in range(number))
    assert str(Range(0, None, None, keys)) == told
