"""Waits of tests, each with an end and with words for the one that comes to it."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(
    look: Callable[[], Found | None],
    what: str | Callable[[], str],
    seconds: float = 60.0,
    *,
    pause: float = 0.05,
) -> Found:
    """What `look` finds, as soon as it finds something. A `what` that is called says what it knows at the end."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"not within {seconds:g} s: {what if isinstance(what, str) else what()}"
        time.sleep(pause)
    return found
