"""The division of a table's keys into the chunks of a snapshot. Pure; used by the state machine in `chunks`.

The ranges of a table part its whole key space, so that "no chunk has this key" means "the source had no such row":
`(max key, open)` is ordinal 0 and is read first, which bounds the tail of a table that grows; then the walk from the
lowest key to the largest, ordinals 1, 2, … in key order. Of a table that fits into one chunk, ordinal 0 is the whole.
Keys are never compared here: order is the order of ordinals, and neighbours are recognised by equal bounds. A list of
keys is cut into chunks of keys instead.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from typing_extensions import override

from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import Key
from tailrace.changelog.state import SnapshotTable
from tailrace.errors import privacy

KEYS_PER_CHUNK = 1000
"""A list of keys goes to the source as parameters of one statement."""
BEGIN_AGAIN = "Restart the driver: it then takes up the snapshot as the change log has it."
"""The fix for a driver whose ranges are not those of the journal."""


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
            return "1 key" if len(self.keys) == 1 else f"{len(self.keys)} keys"
        if self.lower is None and self.upper is None:
            return "all rows"
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
    """The gaps that the walk (ordinals from 1) still has. A gap between two registered chunks has exactly the ordinals
    that were planned for it, so that ordinals stay in key order however often a snapshot is resumed."""
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


def misfit(chunk: ChunkRegistered, known: SnapshotTable, asked: Iterable[ChunkRegistered]) -> str | None:
    """The reason why a chunk that is to be registered cannot be one of the ranges that part the table's keys; None: it
    can. The journal would keep it, and `gaps_of` never take it. `asked`: more of the table that are to be registered
    with it."""
    if chunk.chunk == 0:
        return None if (chunk.lower, chunk.upper) == (known.max_key, None) else "it does not begin at the largest key"
    if known.max_key is None or chunk.upper is None or known.max_key == chunk.lower:
        return "it goes beyond the largest key"
    if chunk.upper == known.max_key and known.next_chunk > chunk.chunk + 1:
        return "it ends at the largest key, and is not the last one"
    asked = tuple(asked)
    before = None if chunk.chunk == 1 else _numbered(chunk.chunk - 1, known, asked)
    after = _numbered(chunk.chunk + 1, known, asked)
    begins = chunk.lower is None if chunk.chunk == 1 else chunk.lower is not None
    if not begins or (before is not None and before.upper != chunk.lower):
        return "it does not begin where the one before it ends"
    return None if after is None or after.lower == chunk.upper else "it does not end where the next one begins"


def _numbered(ordinal: int, known: SnapshotTable, asked: Sequence[ChunkRegistered]) -> ChunkRegistered | None:
    """Most were registered just now: of many thousands, few are looked at."""
    registered = ordinal < known.next_chunk and ordinal not in known.missing
    chunks = chain(asked, reversed(known.chunks)) if registered else asked
    return next((c for c in chunks if c.chunk == ordinal), None)
