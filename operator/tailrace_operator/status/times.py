"""Times between floats (seconds since the Unix epoch) and RFC 3339 texts, as the API server writes them. Pure."""

from datetime import UTC, datetime

LAST_SECOND = 253_402_300_799.0
"""The last second of the year 9999."""


def text(seconds: float) -> str:
    """To whole seconds, in UTC; what no calendar has becomes its first or last day."""
    known = min(max(seconds, 0.0), LAST_SECOND)
    return datetime.fromtimestamp(int(known), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_text(seconds: float) -> str:
    """With microseconds, as Leases and Events want them."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds(value: str | None) -> float | None:
    """None for none, and for what is not a time."""
    if not value:
        return None
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def span(value: float) -> str:
    """A duration for people: `0.4s`, `12s`, `3m`, `5h`, `2d`."""
    if value < 9.95:
        return f"{value:.1f}s"
    for limit, unit, letter in ((120, 1, "s"), (7200, 60, "m"), (172_800, 3600, "h")):
        if value < limit:
            return f"{value / unit:.0f}{letter}"
    return f"{value / 86400:.0f}d"
