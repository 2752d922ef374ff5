"""Definitions of copies in a warehouse, whose tables have no keys, and the text beside each table that tells what it is
a copy of: its number and its columns. Pure. Called by `sql.collected` and by products."""

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from tailrace.targets.sql.session import Alteration

_ID = "/* column "
"""The beginning of a comment with a column's id, behind its definition."""
_DEFINITION = re.compile(
    r'(?P<quote>[`"])(?P<name>(?:(?!(?P=quote)).|(?P=quote){2})+)(?P=quote)'
    r" (?P<kind>(?:ARRAY<)?[A-Z0-9_]+(?:\([0-9,]+\))?>?)(?: NOT NULL)? /\* column (?P<id>-?\d+) \*/",
    re.DOTALL,
)
_KEY = re.compile(r"PRIMARY KEY \((.*)\)$", re.DOTALL)
_NAME = re.compile(r'([`"])((?:(?!\1).|\1{2})+)\1', re.DOTALL)


@dataclass(frozen=True)
class CopyColumn:
    name: str
    """The name as it is between quotes."""
    kind: str
    id: int


@dataclass(frozen=True)
class ColumnSteps:
    """Changes of columns that no row has to be read for, in this order."""

    dropped: Sequence[str]
    renamed: Sequence[tuple[str, str]]
    added: Sequence[CopyColumn]
    widened: Sequence[CopyColumn]
    """Under their new names."""

    @property
    def given(self) -> set[str]:
        """Names that columns get, in one case."""
        return {name.casefold() for name in (*(new for _, new in self.renamed), *(one.name for one in self.added))}


@dataclass(frozen=True)
class DescribedTable:
    """A copy as it is defined."""

    QUOTE: ClassVar[str]

    number: int
    columns: Sequence[CopyColumn]
    key: Sequence[int]
    """Ids of the key's columns."""

    @classmethod
    def of_definitions(cls, number: int, definitions: str) -> Self:
        columns = columns_of(definitions)
        key, ids = _KEY.search(definitions), {column.name: column.id for column in columns}
        return cls(number, columns, [ids[found[2]] for found in _NAME.finditer(key[1])] if key else [])

    @abstractmethod
    def created(self, place: str) -> str:
        """The statement that makes the table, without rows."""

    def names(self) -> list[str]:
        """The columns, quoted."""
        return [self._quoted(column) for column in self.columns]

    def altered(self, change: Alteration) -> tuple[Self, list[str]]:
        """The table with other columns, and the expressions over it as it is that are their values."""
        altered = {each.old: each for each in change.changed}
        columns, values = list[CopyColumn](), list[str]()
        for column in self.columns:
            name = self._quoted(column)
            each = altered.get(name)
            if name not in change.dropped:
                columns += [column] if each is None else columns_of(each.definition)
                values.append(name if each is None or each.kind is None else f"CAST({name} AS {each.kind})")
        for column in columns_of(", ".join(change.added)):
            columns.append(column)
            values.append(f"CAST(NULL AS {column.kind})")
        return replace(self, columns=columns), values

    def steps(self, change: Alteration, widens: Callable[[str, str], bool]) -> ColumnSteps | None:
        """The changes one by one; None: rows have to be written again, as a column gets a name that another one has, or
        a type that `widens` does not know to hold all values of the former one."""
        after, _ = self.altered(change)
        before, now = ({column.id: column for column in each.columns} for each in (self, after))
        kept = [(before[id_], column) for id_, column in now.items() if id_ in before]
        steps = ColumnSteps(
            [column.name for id_, column in before.items() if id_ not in now],
            [(old.name, new.name) for old, new in kept if old.name != new.name],
            [column for id_, column in now.items() if id_ not in before],
            [new for old, new in kept if old.kind != new.kind],
        )
        taken = {old.name.casefold() for old, _ in kept}
        wide = all(old.kind == new.kind or widens(old.kind, new.kind) for old, new in kept)
        return steps if wide and not taken & steps.given else None

    def _quoted(self, column: CopyColumn) -> str:
        return f"{self.QUOTE}{column.name}{self.QUOTE}"


def mark(column_id: int) -> str:
    return f" {_ID}{column_id} */"


def columns_of(definitions: str) -> list[CopyColumn]:
    return [CopyColumn(found["name"], found["kind"], int(found["id"])) for found in _DEFINITION.finditer(definitions)]
