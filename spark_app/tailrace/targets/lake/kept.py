"""The parts of a target table that are kept whatever its versions say: for how long, and which chunk files. Pure.

`LakeTable` passes them to a table's clean-up (`FormatTable.expire`, `sweep`); `cleanup` and the formats go by them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from tailrace.targets.api import NeededChunks

HISTORY_SECONDS = 3600.0
"""A version stays readable for so long after another has replaced it; longer where the table's own property says so."""
SKEW_SECONDS = 600.0
"""How far the clock of a storage and ours may be apart, and how long a file may wait for its commit."""
CHUNK = "chunk-"
"""How the names of chunk files begin."""


def name_of(path: str) -> str:
    """Files are compared by name: names are never used twice, while a scheme (`s3a://`, `file:/`) or an encoding that
    is written in two ways would make a needed file look like one that is not named."""
    return unquote(path.rpartition("/")[2])


def names_of(paths: Iterable[str]) -> set[str]:
    return {name_of(path) for path in paths}


@dataclass(frozen=True)
class KeptChunks:
    """Chunk files that stay, whatever the versions of the table reach."""

    registered: frozenset[str] = frozenset()
    """Names of those that the change log names: not adopted yet, or read again at their snapshot's end."""
    reading: bool = False
    """A snapshot of the table is under way: any chunk file may be one that is about to be registered."""

    @classmethod
    def of(cls, needed: NeededChunks) -> "KeptChunks":
        return cls(frozenset(names_of(needed.paths)), needed.reading)

    def keeps(self, path: str) -> bool:
        name = name_of(path)
        return name in self.registered or (self.reading and name.startswith(CHUNK))


NO_CHUNKS = KeptChunks()
