"""The turns in which drivers restart with a new default image. Asked before each decision, notified of the result.

Its knowledge is in the statuses (`rolloutSince`), written before the restart: a new operator finds those of the
former one there. Between two of its calls for one decision nothing else runs, so that no turn is given twice.
"""

from collections.abc import Callable

from tailrace_operator.observe.index import Index
from tailrace_operator.observe.model import ObjectKey


class Turns:
    def __init__(self, index: Index, limit: int, watched: Callable[[ObjectKey], bool] = lambda _: True) -> None:
        """`watched`: false for those whose restart nobody can follow; they hold up nobody."""
        self._index = index
        self._watched = watched
        self._limit = limit
        self._taken: set[ObjectKey] | None = None
        """None: the statuses have not been looked at."""

    def free(self, key: ObjectKey) -> bool:
        return sum(map(self._watched, self._known() - {key})) < self._limit

    def note(self, key: ObjectKey, taken: bool) -> None:
        known = self._known()
        if taken:
            known.add(key)
        else:
            known.discard(key)

    def _known(self) -> set[ObjectKey]:
        if self._taken is None:
            found = {key: self._index.get(key) or {} for key in self._index.keys("Replicator")}
            self._taken = {key for key, document in found.items() if document.get("status", {}).get("rolloutSince")}
        return self._taken
