"""Rows that a batch or a comparison brings to the server: temporary tables, or expressions that stand for them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Columns, Ints
from tailrace.targets.sql.session import NUMBER, Definitions, TargetSession
from tailrace.targets.sql.staged import NUMBERED, StagedChunks, defined
from tailrace.targets.sql.state import SCHEMA


def in_key_order(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows sorted by their key, so that each page of the key and, in many tables, of the rows is visited once; that
    the server may sort some types otherwise does not matter."""
    places = [rows.schema.get_field_index(name) for name in key]  # a name such as `.id` would be taken for a path
    if any(pa.types.is_nested(rows.schema.field(place).type) for place in places):
        return rows
    return rows.take(pc.sort_indices(rows, [(place, "ascending") for place in places]))


@dataclass(frozen=True)
class Staging:
    session: TargetSession
    work: FoldInput
    made: list[str] = field(default_factory=list)
    """Tables of this session to be dropped at the end."""
    loaded: dict[str, str] = field(default_factory=dict)
    """Those of the keys of chunks whose rows are in the copy itself, by their paths."""

    def keys(self, columns: Columns, numbers: Ints) -> str:
        """A table of keys, with their numbers."""
        rows = pa.table([pa.array(numbers), *columns], names=[NUMBER, *self.work.key])
        return self.rows("keys", [NUMBERED, *self.key_columns()], in_key_order(rows, self.work.key))

    def key_columns(self) -> Definitions:
        schema, session = self.work.slice.schema, self.session
        return [(session.quote(c.name), session.type_of(schema, c)) for c in schema.key_columns]

    def numbers(self, name: str, numbers: Ints) -> str:
        """A table of numbers, by which it is searched."""
        return self.rows(name, [NUMBERED], pa.table([pa.array(numbers)], names=[NUMBER]), (NUMBER,))

    def rows(self, name: str, columns: Definitions, rows: pa.Table, key: Sequence[str] = ()) -> str:
        """A table of these rows, or what stands for one: a temporary table wears on the server's catalog and, until the
        end of the transaction, on its table of locks."""
        listed = self.session.listed(columns, rows)
        if listed is not None:
            return listed
        made = self.empty(name, columns, key)
        self.session.load(made, columns, [rows])
        return made

    def empty(self, name: str, columns: Definitions, key: Sequence[str] = ()) -> str:
        made = self.session.temporary(f"_tailrace_{name}_{len(self.made)}", defined(columns), key)
        self.made.append(made)
        return made

    def keyed(self, chunk: ChunkRegistered, chunks: StagedChunks) -> str:
        """A table that has the chunk's keys, under the names that they had in it."""
        path = str(chunk.path)
        if path not in chunks.in_copy:
            return f"{SCHEMA}.{self.session.quote(path)}"
        if path not in self.loaded:
            names = chunks.key_names(chunk)
            kinds = (kind for _, kind in self.key_columns())
            columns = [(self.session.quote(name), kind) for name, kind in zip(names, kinds, strict=True)]
            made = self.empty("loaded", columns)
            self.session.load(made, columns, (pa.table(keys, names=names) for _, keys in chunks.stored_keys(chunk)))
            self.loaded[path] = made
        return self.loaded[path]

    def drop(self) -> None:
        for name in self.made:
            self.session.drop_temporary(name)
        self.made.clear()
        self.loaded.clear()
