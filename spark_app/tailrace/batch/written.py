"""The data files that commits have added to a target table. Pure. Tested with `driver.telling.lineage.runs`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WrittenFiles:
    """A number of data files and their size: since the table was opened, or of one of its commits."""

    count: int = 0
    size: int = 0
    """Bytes."""

    def __add__(self, other: "WrittenFiles") -> "WrittenFiles":
        return WrittenFiles(self.count + other.count, self.size + other.size)

    def since(self, before: "WrittenFiles") -> "WrittenFiles":
        """Those that were added since; all, if counting has begun again."""
        if self.count < before.count:
            return self
        return WrittenFiles(self.count - before.count, self.size - before.size)


NO_FILES = WrittenFiles()
