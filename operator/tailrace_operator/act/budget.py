"""The budget of status writes: so many in a second, over all objects. Who has to wait gets the next free place.

An object has one place at a time, and what it writes then is its newest state: of five hundred snapshots none is ahead
of another by more than a write. Writes that may not wait take their place at once, and the others move back.
"""

from collections.abc import Callable

BURST_SECONDS = 2.0
"""Unused places of so many seconds are kept: a few objects never wait."""
MOST_DEBT_SECONDS = 5.0
"""Writes that do not wait move the others back by no more, or the start of thousands of objects would silence progress
for minutes after it."""


class Budget:
    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._gap = 1 / per_second
        self._clock = clock
        self._next = 0.0
        """The time of the next free place."""
        self._places: dict[str, float] = {}

    def take(self, uid: str) -> bool:
        """True: it is this object's turn, and the place is used. Else it has a place, or gets one."""
        if uid not in self._places:
            self._places[uid] = self._spend()
        if self._places[uid] > self._clock():
            return False
        del self._places[uid]
        return True

    def force(self, uid: str) -> None:
        """A write that does not wait; it uses the place that the object has."""
        if self._places.pop(uid, None) is None and self._next - self._clock() < MOST_DEBT_SECONDS:
            self._spend()

    def wait(self, uid: str) -> float:
        """Seconds until the object's turn; 0: now, or it has no place."""
        return max(self._places.get(uid, 0.0) - self._clock(), 0.0)

    def forget(self, uid: str) -> None:
        self._places.pop(uid, None)

    def _spend(self) -> float:
        at = max(self._next, self._clock() - BURST_SECONDS)
        self._next = at + self._gap
        return at
