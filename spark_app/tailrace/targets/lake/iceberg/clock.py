"""A table whose newest version is dated ahead of this computer's clock: why Iceberg refuses every commit to it.

Iceberg dates each version by the JVM's clock, which no caller can replace, and refuses metadata that is dated more than
a minute before the newest it knows. So a clock that was ahead blocks the table until the present one has caught up.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from tailrace.errors import RESYNC, Retry
from tailrace.targets.lake.iceberg.java import Java, is_bad_argument

TOLERATED_MS = 60_000
"""Milliseconds by which Iceberg lets a version be older than the one before it."""


@contextmanager
def clock_named(java: Java, table: Any, name: str) -> Iterator[None]:
    """Around what prepares a commit to `table`: a refusal for its dates says so, and until when."""
    try:
        yield
    except Retry as error:
        if is_bad_argument(error.__cause__):
            now = int(java.jvm.java.lang.System.currentTimeMillis())
            newest = _newest(table.operations().current())
            if newest - now > TOLERATED_MS:
                raise behind(name, newest, now) from error
        raise


def behind(name: str, newest: int, now: int) -> Retry:
    """Times in milliseconds since the Unix epoch."""
    return Retry(
        f"the newest version of {name} is dated {_text(newest)}, {(newest - now) / 1000:.0f} s ahead of this computer's"
        f" clock ({_text(now)}); Iceberg accepts no commit",
        f"Correct this computer's clock. If it is right, commits continue by themselves at"
        f" {_text(newest - TOLERATED_MS)}; to not wait, drop the target table and {RESYNC}.",
    )


def _newest(metadata: Any) -> int:
    """The newest of the dates that Iceberg compares: those of the metadata, of its newest snapshot, of the file before
    it."""
    dated = [*list(metadata.snapshotLog())[-1:], *list(metadata.previousFiles())[-1:]]
    return max(int(metadata.lastUpdatedMillis()), *(int(entry.timestampMillis()) for entry in dated), 0)


def _text(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError):  # beyond the years that Python's dates know
        return f"{milliseconds} ms after 1970"
