"""Long lists of holes lie in files beside the table's own (`_tailrace/holes-…`); this removes those of older states.

A table's writer tells of every commit that named another list than the one before. The older list stays for an hour,
for a table that is put back a little; what a process leaves behind when it ends stays for good.
"""

import logging
import time
from collections.abc import Callable

from tailrace.errors import Retry, TailraceError
from tailrace.targets.lake.access import FileAccess

log = logging.getLogger(__name__)

KEPT_SECONDS = 3600.0


class SideFiles:
    """Of one table; absolute URIs."""

    def __init__(self, access: FileAccess, clock: Callable[[], float] = time.time) -> None:
        self._access = access
        self._clock = clock
        self._older: list[tuple[float, str]] = []

    def committed(self, before: str | None, now: str | None) -> None:
        """The newest version of the table names `now`; the one before it named `before`."""
        if before is not None and before != now:
            self._older.append((self._clock(), before))
        while self._older and self._clock() - self._older[0][0] > KEPT_SECONDS:
            path = self._older[0][1]
            try:
                # A list that came back is named by a later entry when it goes again.
                if path != now:
                    self._access.delete(path)
            except Retry:
                return  # with the next commit
            except TailraceError as error:  # the commit stands: a list that stays is no reason to stop the table
                log.warning("an older list of holes stays: %s", error)
            self._older.pop(0)
