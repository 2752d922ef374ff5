"""Pauses of this process's batches, as the target's product allows no more: told in the status where changes are late.
Set by targets, read by the driver."""

from collections.abc import Iterator
from contextlib import contextmanager


class TargetPauses:
    """Thread-safe: one assignment each."""

    def __init__(self) -> None:
        self.why: str | None = None
        """None: nothing waits."""

    @contextmanager
    def told(self, why: str) -> Iterator[None]:
        self.why = why
        try:
            yield
        finally:
            self.why = None


PAUSES = TargetPauses()
"""The pauses of this process."""
