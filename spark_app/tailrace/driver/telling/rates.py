"""Rows per second from ever-growing counters, over a sliding window, with the caller's clock."""

from collections import deque
from collections.abc import Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key")


class Rate:
    """Feed `add(now, total)`; `value` is the slope over the last `window` seconds."""

    def __init__(self, window: float = 15.0) -> None:
        self._window = window
        self._points: deque[tuple[float, int]] = deque()

    def add(self, now: float, total: int) -> float:
        if self._points and total < self._points[-1][1]:
            self._points.clear()  # the counter began again
        self._points.append((now, total))
        while len(self._points) > 2 and now - self._points[1][0] >= self._window:
            self._points.popleft()
        return self.value

    @property
    def value(self) -> float:
        (first, low), (last, high) = self._points[0], self._points[-1]
        return (high - low) / (last - first) if last > first else 0.0


class Rates(Generic[Key]):
    """A rate for each key; the keys that are gone are forgotten."""

    def __init__(self) -> None:
        self._rates: dict[Key, Rate] = {}

    def add(self, now: float, totals: Mapping[Key, int]) -> dict[Key, float]:
        """Feed all counters; rows per second of each."""
        self._rates = {key: self._rates.get(key) or Rate() for key in totals}
        return {key: rate.add(now, totals[key]) for key, rate in self._rates.items()}
