"""The results of looks at older transactions, for all tables together. Pure; owned by the snapshot runner.

A table's chunks must see what began before its capture (docs/dev/design.md#the-edge). Only the source can compare
edges; tables that were added together have the same one, so one look answers for all of them.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

SECONDS = 1.0
"""Between two looks at what is in the way, whatever the number of edges."""


@dataclass(frozen=True)
class EdgeLook:
    edge: str
    waits_for: str | None
    """The obstacle; None: the edge has passed."""


@dataclass
class Edges:
    _passed: set[str] = field(default_factory=set)
    _waits_for: dict[str, str] = field(default_factory=dict)
    """The obstacle that the last look found, by edge."""
    _due: dict[str, float] = field(default_factory=dict)

    def passed(self, edge: str) -> bool:
        return edge in self._passed

    def waits_for(self, edge: str) -> str | None:
        """None: there is none, or no look has found one yet."""
        return self._waits_for.get(edge)

    def is_waiting(self, edge: str, now: float) -> bool:
        """True if the next look at this edge must wait: one is under way, or has just found an obstacle."""
        return now < self._due.get(edge, 0.0)

    def looks(self, edge: str, now: float) -> None:
        """A look begins."""
        self._due[edge] = now + SECONDS * len({*self._waits_for, edge})

    def saw(self, look: EdgeLook, present: AbstractSet[str]) -> None:
        """`present`: the edges of all tables; others are forgotten."""
        if look.waits_for is None:
            self._passed = (self._passed | {look.edge}) & present
            self._waits_for.pop(look.edge, None)
            self._due.clear()  # what has ended may have been in the way of the others, too
        else:
            self._waits_for = {e: who for e, who in self._waits_for.items() if e in present}
            self._waits_for[look.edge] = look.waits_for
