"""Which field of the target is which column of the source, kept in a property of the target table. Pure.

A source column's identity is its `Column.id`, never its name: so a rename keeps its data, and a column dropped and
added again under one name is a new one, which does not show its predecessor's values.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.changelog.types import inner_types
from tailrace.errors import TargetChanged

COLUMNS = "tailrace.columns"
"""Table property: schema version, field id and physical name of each source column's number, dropped ones included."""


@dataclass(frozen=True)
class Columns:
    """Which schema version the table has; field id and physical name of each column ever seen.

    The physical name, in Parquet files, never changes: rows are read back from files of all ages by it.
    """

    version: int
    ids: Mapping[int, int]
    names: Mapping[int, str]
    inner: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Field ids of a list's elements (Delta's tables do not need them) and of a struct's fields, in their order, by the
    column's number."""

    @property
    def highest(self) -> int:
        """Field id; 0: there is none."""
        return max([0, *self.ids.values(), *chain.from_iterable(self.inner.values())])

    def to_json(self) -> str:
        fields = {
            str(column_id): [id_, self.names[column_id], *self.inner.get(column_id, ())]
            for column_id, id_ in self.ids.items()
        }
        return json.dumps({"version": self.version, "fields": fields}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Columns":
        doc = json.loads(text)
        fields = {int(column_id): field for column_id, field in doc["fields"].items()}
        return cls(
            doc["version"],
            {column_id: found[0] for column_id, found in fields.items()},
            {column_id: found[1] for column_id, found in fields.items()},
            {column_id: tuple(found[2:]) for column_id, found in fields.items() if len(found) > 2},
        )

    def extended(
        self, schema: TableSchema, last_id: int, physical: Callable[[Column, int], str] | None = None
    ) -> "Columns":
        """With ids for new columns, numbered in order after the last one used, as Iceberg will number them when they
        are added, each followed by what is in it. `physical`: the new columns' names in data files; None: the source's,
        where no other column has them."""
        ids, names, inner = dict(self.ids), dict(self.names), dict(self.inner)
        for column in schema.columns:
            if column.id not in ids:
                last_id += 1
                ids[column.id] = last_id
                taken = set(names.values())
                names[column.id] = _free(column.name, last_id, taken) if physical is None else physical(column, last_id)
                if inside := len(inner_types(column.type)):
                    inner[column.id] = tuple(range(last_id + 1, last_id + inside + 1))
                    last_id += inside
        return Columns(max(schema.version, self.version), ids, names, inner)


def claimed(table: str, column: str, by: str) -> TargetChanged:
    """A column that the source has dropped, renamed or given another type cannot be followed in the target: others'
    definitions name it."""
    return TargetChanged(
        table,
        f"the source dropped, renamed or retyped column {column!r} of {table}, and {by} of the target table needs it",
        "Remove that from the target table (ALTER TABLE); Tailrace then continues by itself.",
    )


def _free(name: str, field_id: int, taken: set[str]) -> str:
    while name in taken:
        name = f"{name}_{field_id}"
    return name
