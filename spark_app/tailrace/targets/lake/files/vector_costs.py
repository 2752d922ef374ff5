"""Costs of the deletion vectors of a table's data files so far, which compaction weighs against the files.

A commit that marks rows of a file writes the file's whole vector again, so the same dead rows are paid for by every
later batch that finds a key there. `LakeTable` counts after each of its commits, and forgets what is no longer live.

Kept in memory alone. A process that finds a table takes the present vectors, which its metadata names, for all that was
written, and counts from the next one on: a restart costs each file at most the rewriting that it puts off.
"""

from collections.abc import Iterable, Sequence

from tailrace.targets.lake.model import DataFile


class VectorCosts:
    """Bytes by data file, since the file was written."""

    def __init__(self) -> None:
        self._spent: dict[str, int] = {}

    def of(self, file: DataFile) -> int:
        return self._spent.get(file.path, file.vector_bytes)

    def wrote(self, files: Sequence[DataFile], marked: Iterable[str]) -> None:
        """`files`: those of the version in which these marked ones got their vectors."""
        paths = set(marked)
        for file in files:
            if file.path in paths:
                self._spent[file.path] = self._spent.get(file.path, 0) + file.vector_bytes

    def keep_only(self, files: Iterable[DataFile]) -> None:
        """`files`: the live ones."""
        live = {file.path for file in files}
        self._spent = {path: spent for path, spent in self._spent.items() if path in live}


NO_COSTS = VectorCosts()
"""Counts nothing: vectors are as dear as the present ones."""
