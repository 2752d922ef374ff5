"""The input and the result of one batch's work; picklable, because large batches are processed by Spark tasks.

`engine.build.build` gets a `PartInput`, `engine.build.do_part` answers one part of it with a `PartResult`. A part is
the keys that `PartInput.owner` gives to it; key by key, parts do not touch each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tailrace.batch.slice import TableSlice
from tailrace.changelog.records import Key
from tailrace.targets.lake.engine.key_columns import Columns, Ints, words
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.model import DataFile, NewFile


@dataclass(frozen=True)
class MovedKeys:
    """Keys whose values may depend on each other, because an unchanged column moved between them.

    `words` rise; `component` says which of them belong together.
    """

    words: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    component: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def place(self, wanted: Ints) -> tuple[Ints, Ints]:
        """Rows of `wanted` that are linked to others, and their components."""
        at = np.searchsorted(self.words, wanted)
        at[at == len(self.words)] = 0
        rows = np.flatnonzero(self.words[at] == wanted) if len(self.words) else np.empty(0, np.int64)
        return rows.astype(np.int64), self.component[at[rows]]


@dataclass(frozen=True)
class PartInput:
    slice: TableSlice
    layout: Layout
    """The layout of the target after `slice.evolve`."""
    log: FileAccess
    """The change log's root; segments are relative to it."""
    lake: FileAccess
    location: str
    files: tuple[DataFile, ...]
    moved_keys: MovedKeys = MovedKeys()
    parts: int = 1

    @cached_property
    def key_types(self) -> list[pa.DataType]:
        return [self.layout.fields[name].type for name in self.layout.key]

    @cached_property
    def names(self) -> list[str]:
        return [column.name for column in self.layout.schema.columns]

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

    def owner(self, columns: Columns) -> Ints:
        """The part that works each key: by its word, and one part for all keys that are linked."""
        found = words(columns)
        # Multiply first: keys often come in steps, and the low bits of a product hold only low bits.
        parts = ((found.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)) % np.uint64(self.parts)
        owners: Ints = parts.astype(np.int64)
        rows, components = self.moved_keys.place(found)
        owners[rows] = components % self.parts
        return owners


@dataclass(frozen=True)
class PartResult:
    """`dead`: positions to mark, by file (live files and adopted chunk files alike)."""

    dead: Mapping[str, BitMap64] = field(default_factory=dict)
    added: tuple[NewFile, ...] = ()
    holes: frozenset[Key] = frozenset()
