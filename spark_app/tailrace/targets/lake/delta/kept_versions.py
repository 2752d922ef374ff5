"""The versions of a Delta table that cuts keep: the files that they need, and their part of the log.

For `DeltaCleaner`, which deletes nothing of theirs. A version stays readable with a checkpoint of its own: then the log
around it can go.
"""

import sys
import time
from collections.abc import Callable, Iterable

import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.targets.lake.delta import checkpoint, state
from tailrace.targets.lake.delta.cleanup import files_of
from tailrace.targets.lake.delta.direct_log import DirectLog
from tailrace.targets.lake.delta.protocol import is_direct
from tailrace.targets.lake.delta.replay import State
from tailrace.targets.lake.delta.state import DOMAIN
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.kept import names_of


class KeptVersions:
    """See `cleanup.Versions`."""

    def __init__(self, access: FileAccess, location: str, clock: Callable[[], float] = time.time) -> None:
        self._access, self._location, self._clock = access, location, clock
        self._log = DirectLog(access, location)
        self._names: dict[int, frozenset[str] | None] = {}
        """The names of the files of each version; None: not looked up yet."""
        self._present: tuple[int, frozenset[str]] | None = None

    def present(self, version: int, files: Iterable[str]) -> None:
        """These are the files of the present version: one that is kept now need not be looked up later."""
        if self._present is None or self._present[0] != version:
            self._present = version, frozenset(map(sys.intern, names_of(files)))

    def keep(self, versions: Iterable[int]) -> None:
        known = self._names if self._present is None else {**self._names, self._present[0]: self._present[1]}
        self._names = {version: known.get(version) for version in versions}

    @property
    def numbers(self) -> set[int]:
        return set(self._names)

    def names(self) -> set[str] | None:
        for version, known in self._names.items():
            if known is None:
                found = self._log.read(version)
                if found is None or found.version != version:
                    self._names[version] = frozenset()  # it has gone, with the log or the table
                elif found.state is None:
                    return None
                else:
                    self._names[version] = frozenset(map(sys.intern, self._files(found.state)))
        return {name for names in self._names.values() for name in names or ()}

    def _files(self, found: State) -> set[str]:
        files = {path for add in found.files for path in files_of(add, self._location)}
        text = found.domains.get(DOMAIN)
        if text is not None:
            holes = state.decode(text, lambda _: b"[]", self._location).holes_file
            files |= {holes} if holes else set()
        return names_of(files)

    def secure(self, version: int) -> bool:
        try:
            found = self._log.read(version)
            if found is None or found.version != version:
                return True  # nothing is left of it
            if found.state is None or not is_direct(found.state.protocol, found.state.metadata):
                return False
            checkpoint.write(self._access, self._location, version, found.state, self._clock())
        except (TailraceError, OSError, pa.ArrowException):
            return False
        return True
