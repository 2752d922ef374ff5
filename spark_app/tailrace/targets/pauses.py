"""Pauses of this process's batches, as the target's product allows no more: told in the status where changes are late.
Set by targets, read by the driver."""

from collections.abc import Iterator
from contextlib import contextmanager


class TargetPauses:
    """Thread-safe: one operation of a list each."""

    def __init__(self) -> None:
        self._whys = list[str]()

    @property
    def why(self) -> str | None:
        """None: nothing waits."""
        return next(iter(self._whys), None)

    @contextmanager
    def told(self, why: str) -> Iterator[None]:
        self._whys.append(why)
        try:
            yield
        finally:
            self._whys.remove(why)


PAUSES = TargetPauses()
"""The pauses of this process."""
