"""The turns of tables: those of snapshots that a round of the runner looks at, in their order. Owned by its thread.

Of thousands of tables few can continue at a time. A round looks at those that something has happened to, then at those
that wait for room to begin, for as long as there is some; once a second, and whenever tables come, at all of them. With
few tables each round looks at all.
"""

import itertools
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

from tailrace.reading.messages import RunKey

FEW = 64
"""Tables that each round looks at."""
LOOK_SECONDS = 1.0
"""Between two looks at all tables: whatever has no wake-up (the end of a pause, a snapshot that is resumed) waits for
one."""


class Room(Enum):
    """Describes what a table lacks to continue at once."""

    TO_BEGIN = "as many tables have begun as can be read soon"
    TO_READ = "as many chunks are being read as may be"
    TO_OPEN = "its target is not open yet"


class TableTurns:
    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._known: dict[RunKey, int] = {}
        """The tables, each with its number as they came."""
        self._of_table: dict[int, set[RunKey]] = {}
        self._awake: set[RunKey] = set()
        self._all = True
        self._looked_at = 0.0
        self._whole = True
        """The present round looks at all."""
        self._order: deque[RunKey] = deque()
        """Those of the present round that are left."""
        self._to_begin: deque[RunKey] = deque()
        """Those that have not begun, in their order."""
        self._gated: list[RunKey] = []
        self._waited = self._no_room = False
        """The one that was brought last has waited for room to begin; there is none for others."""
        self.counted: set[RunKey] = set()
        """Tables of which something may be under way, or ready."""

    def add(self, key: RunKey) -> None:
        self._known[key] = next(self._numbers)
        self._of_table.setdefault(key[1], set()).add(key)
        self._all = True

    def remove(self, key: RunKey) -> None:
        del self._known[key]
        self._awake.discard(key)
        self.counted.discard(key)
        left = self._of_table[key[1]]
        left.discard(key)
        if not left:
            del self._of_table[key[1]]

    def wake(self, key: RunKey) -> None:
        if key in self._known:
            self._awake.add(key)

    def wake_table(self, table_id: int) -> None:
        self._awake |= self._of_table.get(table_id, set())

    def wake_all(self) -> None:
        self._all = True

    def begin(self, now: float) -> None:
        """A round begins: `counted` are those that count in it."""
        self._whole = self._all or len(self._known) <= FEW or now - self._looked_at >= LOOK_SECONDS
        if self._whole:
            self._all, self._looked_at = False, now
            self._awake = set(self._known)
            self._to_begin.clear()
        self.counted |= self._awake

    def sort(self, urgency: Callable[[RunKey], Any]) -> None:
        """Puts those that are looked at in order: by urgency, and then as they came."""
        in_order = sorted(self._awake, key=self._known.__getitem__)
        self._order = deque(sorted(in_order, key=urgency))
        self._awake, self._no_room = set(), False

    def next(self) -> RunKey | None:
        """The next one in this round; None: there is none."""
        self._waited = False
        if self._order:
            return self._order.popleft()
        while self._to_begin and not self._no_room:
            key = self._to_begin.popleft()
            if key in self._known:
                self._waited = True
                self.counted.add(key)
                return key
        return None

    def lacks(self, key: RunKey, room: Room) -> None:
        """The one that was brought last cannot continue now."""
        if room is not Room.TO_BEGIN:
            self._awake.add(key)
        elif self._waited:
            self._to_begin.appendleft(key)
            self._no_room = True
        else:
            self._gated.append(key)

    def end(self) -> None:
        """Those that the round has not come to are looked at in the next."""
        self._to_begin.extend(self._gated)
        if self._whole:
            self._to_begin.extend(self._order)
        else:
            self._awake.update(self._order)
        self._gated.clear()
        self._order.clear()
