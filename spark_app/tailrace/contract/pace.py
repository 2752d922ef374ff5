"""The division of `apply.freshness` among the steps of a change's way: capture records it, the driver finds the record,
and the table waits for more changes, which are committed together.
"""

from dataclasses import dataclass
from typing import Self

LONGEST_RECORD, LONGEST_LOOK = 1.0, 0.25
"""Seconds: records stay small and the status moves, however much time there is."""
SHORTEST_LOOK = 0.02
MARGIN = 0.1
"""The part of the promise that nothing is planned for."""


@dataclass(frozen=True)
class Pace:
    """Seconds."""

    record: float
    """The longest time that capture lets a finished transaction wait for its record."""
    look: float
    """The time between two looks for new records, and for tables that are due."""
    hold: float
    """The time from the first sight of a table's change to the end of its commit."""

    @classmethod
    def of(cls, freshness: float) -> Self:
        """The steps add up to less than `freshness`: a look finds the record, the next micro-batch begins the work."""
        record = min(LONGEST_RECORD, freshness / 5)
        look = max(SHORTEST_LOOK, min(LONGEST_LOOK, freshness / 10))
        return cls(record, look, max(0.0, freshness * (1 - MARGIN) - record - 2 * look))


AT_ONCE = Pace(record=0.2, look=0.05, hold=0.0)
"""The pace of a run that ends when everything is applied."""
