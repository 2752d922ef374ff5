"""Durations, times and sizes, as the resources write them and people read them."""

import re
from datetime import datetime

from tailrace.errors import InvalidManifest

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES = {"Mi": 1 << 20, "Gi": 1 << 30}


def seconds(duration: str) -> float:
    """`1h30m` -> 5400.0."""
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)", duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        raise InvalidManifest(f"{duration!r} is not a duration", "Write 500ms, 30s, 15m, 1h30m or 7d.")
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))


def zoned_time(text: str) -> datetime | None:
    """`2026-11-28T12:00:00Z`; None: it is no time, or has no zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else found


def share(percent: str) -> float:
    """`5%` -> 0.05."""
    return float(percent.removesuffix("%")) / 100


def size(memory: str) -> int:
    """`2Gi` -> bytes."""
    number, unit = memory[:-2], memory[-2:]
    if unit not in _SIZES or not number.isdigit():
        raise InvalidManifest(f"{memory!r} is not a size", "Write 512Mi or 2Gi.")
    return int(number) * _SIZES[unit]


def counted(number: int, one: str, many: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {one if number == 1 else many}"


def size_text(count: float) -> str:
    """Bytes as people read them: `512 bytes`, `3 KiB`, `1.5 GiB`. What is more than nothing is never shown as 0."""
    if count < 1024:
        return f"{count:.0f} bytes"
    for unit in ("KiB", "MiB"):
        count /= 1024
        if count < 1023.5:
            return f"{count:.0f} {unit}"
    count /= 1024
    return f"{count:.1f} GiB" if count < 1023.95 else f"{count / 1024:,.1f} TiB"
