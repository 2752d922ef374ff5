"""The input of the fold: what one batch of one table brings. Picklable; knows no target.

A part is the keys that `FoldInput.owner` gives to it; key by key, parts do not touch each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from tailrace.batch.slice import TableSlice
from tailrace.changelog.bundles import ObjectAccess
from tailrace.fold.key_columns import Columns, Ints, words


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
class FoldInput:
    slice: TableSlice
    types: Mapping[str, pa.DataType]
    """The target's type of each column after the batch, by source name."""
    log: ObjectAccess
    """The change log's root; segments are relative to it."""
    moved_keys: MovedKeys = MovedKeys()
    parts: int = 1

    @cached_property
    def key(self) -> list[str]:
        """Names of the key columns in key order."""
        return [column.name for column in self.slice.schema.key_columns]

    @cached_property
    def key_types(self) -> list[pa.DataType]:
        return [self.types[name] for name in self.key]

    @cached_property
    def names(self) -> list[str]:
        return [column.name for column in self.slice.schema.columns]

    def owner(self, columns: Columns) -> Ints:
        """The part that works each key: by its word, and one part for all keys that are linked."""
        found = words(columns)
        # Multiply first: keys often come in steps, and the low bits of a product hold only low bits.
        parts = ((found.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)) % np.uint64(self.parts)
        owners: Ints = parts.astype(np.int64)
        rows, components = self.moved_keys.place(found)
        owners[rows] = components % self.parts
        return owners
