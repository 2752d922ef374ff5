"""Definitions of copies in a warehouse, whose tables have no keys, and the text beside each table that tells what it is
a copy of: its number and its columns. Pure. Called by `sql.collected` and by products."""

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from tailrace.targets.sql.session import Alteration

_ID = "/* column "
"""The beginning of a comment with a column's id, behind its definition."""
_DEFINITION = re.compile(
    r'(?P<quote>[`"])(?P<name>(?:(?!(?P=quote)).|(?P=quote){2})+)(?P=quote)'
    r" (?P<kind>[A-Z0-9_]+(?:\([0-9,]+\))?)(?: NOT NULL)? /\* column (?P<id>-?\d+) \*/",
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

    @abstractmethod
    def remade(self, place: str, values: Sequence[str], source: str) -> str:
        """The statement that makes the table, whole or not at all, of these expressions over another, or over itself
        as it was."""

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

    def _quoted(self, column: CopyColumn) -> str:
        return f"{self.QUOTE}{column.name}{self.QUOTE}"


def mark(column_id: int) -> str:
    return f" {_ID}{column_id} */"


def columns_of(definitions: str) -> list[CopyColumn]:
    return [CopyColumn(found["name"], found["kind"], int(found["id"])) for found in _DEFINITION.finditer(definitions)]
