"""An undecided transaction as the log brings it: in memory while small, then in a file.

Filled by the assembler of each product. The file is worth nothing after a restart: the server sends such a transaction
again from its beginning.
"""

import pickle
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass
class UndecidedTransaction(Generic[Item]):
    path: Path
    limit: int
    """Bytes before they go to the file (again)."""
    items: list[Item] = field(default_factory=list)
    """Those behind the ones in the file."""
    size: int = 0
    on_disk: bool = False

    def add(self, item: Item, size: int) -> None:
        self.items.append(item)
        self.size += size
        if self.size > self.limit:
            with self.path.open("ab") as file:
                pickle.dump(self.items, file)
            self.items, self.size, self.on_disk = [], 0, True

    def batches(self) -> Iterator[list[Item]]:
        if self.on_disk:
            with self.path.open("rb") as file:
                end = self.path.stat().st_size
                while file.tell() < end:
                    yield pickle.load(file)
        yield self.items

    def discard(self) -> None:
        if self.on_disk:
            self.path.unlink()


def emptied(directory: Path) -> Path:
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    return directory
