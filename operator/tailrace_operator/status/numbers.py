"""Numbers that others measured, in the bounds of the status. Pure.

A driver's image may be anybody's: what it says is cut to what the API server takes, and never ends the operator.
"""

import math

MOST = 2**53 - 1
"""The largest whole number that every reader of JSON takes."""
FAR_SECONDS = 365 * 86400.0
"""An end further away than this cannot be estimated."""


def count(value: int) -> int:
    return min(max(value, 0), MOST)


def amount(value: float | None) -> float | None:
    """To milliseconds where it is a time; None for what is no number."""
    return None if value is None or not math.isfinite(value) else round(min(max(value, 0.0), MOST), 3)


def rate(value: float) -> float:
    return amount(value) or 0.0


def left(value: float | None) -> float | None:
    """Seconds until an end; None while it cannot be estimated."""
    found = amount(value)
    return found if found is not None and found <= FAR_SECONDS else None
