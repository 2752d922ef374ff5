"""The input and the result of one batch's work; picklable, because large batches are processed by Spark tasks.

`engine.build.build` gets a `PartInput`, `engine.build.do_part` answers one part of it with a `PartResult`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyroaring import BitMap64

from tailrace.batch.slice import TableSlice
from tailrace.changelog.records.terms import Key
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Columns, Ints
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.model import DataFile, NewFile

ChunkKeyRows = tuple[Ints, Columns]
"""Rising positions in a chunk file, and the keys of its rows there."""


@dataclass(frozen=True)
class PartInput:
    fold: FoldInput
    layout: Layout
    """The layout of the target after `slice.evolve`."""
    lake: FileAccess
    location: str
    files: tuple[DataFile, ...]
    concerned: Mapping[str, ChunkKeyRows] = field(default_factory=dict)
    """The only rows of each chunk file that anything else may concern: the others need no decision. A file that is not
    named here counts with all its rows."""

    @property
    def slice(self) -> TableSlice:
        return self.fold.slice

    @cached_property
    def places(self) -> dict[str, BitMap64]:
        """The contents of the target besides new rows: its files and adopted chunks, with their rows dead so far."""
        files = {} if self.slice.clear else {file.path: file.dead for file in self.files}
        return files | {chunk.path: BitMap64() for chunk in self.slice.chunks if chunk.path is not None}

    @cached_property
    def finished_paths(self) -> dict[str, int]:
        """Chunk files of the snapshots that end here, numbered."""
        paths = dict.fromkeys(path for finished in self.slice.finished for path in finished.paths)
        return {path: number for number, path in enumerate(paths)}

    @cached_property
    def existing_files(self) -> dict[str, int]:
        """Files that are not the own ones of every snapshot that ends here, numbered."""
        own = [set(finished.paths) for finished in self.slice.finished]
        paths = (path for path in self.places if not all(path in paths for paths in own))
        return {path: number for number, path in enumerate(paths)}


@dataclass(frozen=True)
class PartResult:
    """`dead`: positions to mark, by file (live files and adopted chunk files alike)."""

    dead: Mapping[str, BitMap64] = field(default_factory=dict)
    added: tuple[NewFile, ...] = ()
    holes: frozenset[Key] = frozenset()
