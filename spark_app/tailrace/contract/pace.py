"""The division of `apply.freshness` among the steps of a change's way: capture records it, the driver finds the record,
and the table waits for more changes, which are committed together.
"""

from dataclasses import dataclass, replace
from typing import Self

LONGEST_RECORD, LONGEST_LOOK = 1.2, 0.25
"""Seconds: records stay small and the status moves, however much time there is."""
RECORD_PART = 0.205
"""The part of the promise that a record may take. Each table's share of a record has its price, so few records are
cheap; but a table that always changes is committed behind the last record that comes before its time is up, and longer
records leave more of that time unused: with 1.03 s of 5 s it is committed every fourth record, as soon as that has come
(docs/decisions/0158)."""
LATE_PART = 0.24
"""The part of its delay that a record may take longer, while commits are late."""
SHORTEST_LOOK = 0.02
NOTICE = 0.05
"""Seconds after which a record is noticed at the latest: capture says that it is there."""
MARGIN = 0.05
"""The part of the promise that nothing is planned for."""
WRITING = 0.01
"""Seconds that a record takes from its cut until it is durable."""
FEW_COMMITS = 0.25
"""The part of the time between two commits of a table that those of all tables may take, if each record is committed as
soon as it comes: that is up to a third more commits than to wait for the fourth one."""


@dataclass(frozen=True)
class Pace:
    """Seconds."""

    record: float
    """The longest time that capture lets a finished transaction wait for its record, while commits are in time: see
    `record_when`."""
    look: float
    """The longest time between two looks for tables that are due, while some are applied; when one becomes due, and
    when a record comes, there is one as well. Also between two looks for records, while capture does not answer."""
    hold: float
    """The time from the first sight of a table's change to the end of its commit."""

    @classmethod
    def of(cls, freshness: float) -> Self:
        """The steps add up to less than `freshness`."""
        record = min(LONGEST_RECORD, freshness * RECORD_PART)
        look = max(SHORTEST_LOOK, min(LONGEST_LOOK, freshness / 10))
        return cls(record, look, max(0.0, freshness * (1 - MARGIN) - record - min(look, NOTICE)))

    def for_commits(self, longest: float, together: float) -> Self:
        """The pace where the longest commit of a table takes so many seconds, and those of all that change take
        `together`. If that is little, a change waits in one place only: a record takes what the promise leaves, and is
        committed as soon as it comes. Four records for one commit would cost four times as much, and the first would
        have waited as long (docs/decisions/0155). Not where even the longest record would come too often for that."""
        whole = self.record + self.hold
        record = whole - longest - WRITING
        if together > whole * FEW_COMMITS or not self.record < record <= LONGEST_RECORD:
            return self
        return replace(self, record=record, hold=longest)

    def record_when(self, late: float) -> float:
        """The longest time for a record while commits come so many seconds late: a table's share of each record has its
        price, which buys nothing for a table that is committed less often than records come (docs/decisions/0147)."""
        return min(LONGEST_RECORD, self.record + late * LATE_PART)


AT_ONCE = Pace(record=0.2, look=0.05, hold=0.0)
"""The pace of a run that ends when everything is applied."""
