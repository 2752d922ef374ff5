"""How a snapshot parts a table's keys into chunks. Pure; used by the state machine in `chunks`.

The ranges of a table part its whole key space, so that "no chunk has this key" means "the source had no such row":
`(max key, open)` is ordinal 0 and is read first, which bounds the tail of a table that grows; then the walk from the
lowest key to the largest, ordinals 1, 2, … in key order. Of a table that fits into one chunk, ordinal 0 is the whole.
Keys are never compared here: order is the order of ordinals, and neighbours are recognised by equal bounds. A list of
keys is cut into chunks of keys instead.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from typing_extensions import override

from tailrace import privacy
from tailrace.changelog.records import ChunkRegistered, Key

KEYS_PER_CHUNK = 1000
"""A list of keys goes to the source as parameters of one statement."""


class IllegalEvent(RuntimeError):
    """A mistake in the runner: the event does not fit the phase, or the chunks not each other."""


@dataclass(frozen=True)
class Range:
    """One chunk: keys in (`lower`, `upper`], None open; or exactly `keys`."""

    ordinal: int
    lower: Key | None
    upper: Key | None
    keys: tuple[Key, ...] | None = None

    @override
    def __str__(self) -> str:
        if self.keys is not None:
            return f"{len(self.keys)} keys"
        lower, upper = ("…" if end is None else privacy.key(end) for end in (self.lower, self.upper))
        return f"({lower}, {upper}]"


@dataclass(frozen=True)
class Gap:
    """A stretch that still has to be cut into chunks: ordinals `first` … `last` (None: as many as it takes)."""

    lower: Key | None
    upper: Key
    first: int
    last: int | None


def key_lists(keys: tuple[Key, ...]) -> Iterator[Range]:
    """The chunks of a list of keys."""
    for ordinal, first in enumerate(range(0, len(keys), KEYS_PER_CHUNK)):
        yield Range(ordinal, None, None, keys[first : first + KEYS_PER_CHUNK])


def gaps_of(registered: Sequence[ChunkRegistered], max_key: Key) -> tuple[Gap, ...]:
    """What the walk (ordinals from 1) still lacks. A gap between two registered chunks has exactly the ordinals that
    were planned for it, so that ordinals stay in key order however often a snapshot is resumed."""
    gaps: list[Gap] = []
    lower: Key | None = None
    expected = 1
    for chunk in sorted((c for c in registered if c.chunk > 0), key=lambda c: c.chunk):
        if chunk.lower != lower:
            if chunk.lower is None or chunk.chunk == expected:
                raise IllegalEvent(f"chunk {chunk.chunk} does not begin where the one before it ends")
            gaps.append(Gap(lower, chunk.lower, expected, chunk.chunk - 1))
        lower, expected = chunk.upper, chunk.chunk + 1
    if lower != max_key:
        gaps.append(Gap(lower, max_key, expected, None))
    return tuple(gaps)
