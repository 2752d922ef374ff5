"""The differences between two states: the fold shares all that a record does not touch. Pure."""

from collections.abc import Mapping
from itertools import compress
from operator import is_not
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def changed(before: Mapping[K, V], after: Mapping[K, V]) -> list[K]:
    """The keys, in order, whose values are others than before, or new. Of thousands of values it costs microseconds."""
    if before is after:
        return []
    return list(compress(after, map(is_not, after.values(), map(before.get, after))))
