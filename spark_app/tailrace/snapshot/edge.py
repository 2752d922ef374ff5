"""What looks at older transactions have shown, for all tables together. Pure; owned by the snapshot runner.

A table's chunks must see what began before its capture (docs/dev/design.md#the-edge). The oldest transaction that runs
never becomes an older one, so one look answers for every table with the same or a smaller edge.
"""

from dataclasses import dataclass

SECONDS = 1.0
"""Between two looks at what is in the way."""


@dataclass(frozen=True)
class EdgeLook:
    edge: int
    waits_for: str | None
    """Who is in the way; None: the edge has passed."""


@dataclass
class Edge:
    passed: int = -1
    """The largest edge that was found passed."""
    waits_for: str | None = None
    """What the last look found."""
    _looked_at: int = -1
    _due: float = 0.0

    def rests(self, edge: int, now: float) -> bool:
        """Whether to wait with a look at this edge: one is under way, or has just found somebody in the way."""
        return edge >= self._looked_at and now < self._due

    def looks(self, edge: int, now: float) -> None:
        """A look begins."""
        self._looked_at, self._due = edge, now + SECONDS

    def saw(self, look: EdgeLook) -> None:
        self.waits_for = look.waits_for
        if look.waits_for is None:
            self.passed, self._due = max(self.passed, look.edge), 0.0
