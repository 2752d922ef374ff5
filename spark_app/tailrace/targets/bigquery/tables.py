"""Definitions of copies in BigQuery, and their descriptions, which tell the copy's number and the ids of its columns.
Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from typing_extensions import override

from tailrace.targets.bigquery import types
from tailrace.targets.bigquery.values import literal
from tailrace.targets.sql.described import CopyColumn, DescribedTable

DESCRIPTION_CHARACTERS = 16_384
"""Most of a table's description."""


@dataclass(frozen=True)
class CopyTable(DescribedTable):
    """A copy as it is defined."""

    QUOTE = "`"

    @classmethod
    def of_resource(cls, table: Mapping[str, Any]) -> Self | None:
        """None: the table is no copy."""
        try:
            said = json.loads(table.get("description", ""))
            number, ids, key = int(said["tailrace"]), dict(said["columns"]), list(said["key"])
        except (KeyError, TypeError, ValueError):
            return None
        columns = [
            CopyColumn(name, types.statement_type(str(field["type"])), int(ids[name]))
            for field in table.get("schema", {}).get("fields", ())
            if (name := str(field["name"])) in ids
        ]
        return cls(number, columns, [int(id_) for id_ in key])

    @property
    def description(self) -> str:
        ids = {column.name: column.id for column in self.columns}
        return json.dumps({"tailrace": self.number, "columns": ids, "key": list(self.key)}, separators=(",", ":"))

    @override
    def created(self, place: str) -> str:
        """Nothing is NOT NULL: a table that is made out of another one has no column that is."""
        defined = ", ".join(f"`{column.name}` {column.kind}" for column in self.columns)
        return f"CREATE TABLE {place} ({defined}){self._options}"

    @override
    def remade(self, place: str, values: Sequence[str], source: str) -> str:
        pairs = zip(values, self.columns, strict=True)
        selected = ", ".join(f"{value} AS `{column.name}`" for value, column in pairs)
        return f"CREATE OR REPLACE TABLE {place}{self._options} AS SELECT {selected} FROM {source}"

    @property
    def _options(self) -> str:
        by_id = {column.id: column for column in self.columns}
        clustered = [f"`{by_id[i].name}`" for i in self.key if i in by_id and by_id[i].kind in types.CLUSTERED]
        cluster = f" CLUSTER BY {', '.join(clustered[: types.MOST_CLUSTERED])}" if clustered else ""
        return f"{cluster} OPTIONS(description={literal(self.description)})"


def fields(definitions: str) -> list[dict[str, str]]:
    """The columns of a table without marks, as the interface takes them."""
    pairs = (definition.rsplit(" ", 1) for definition in definitions.split(", "))
    return [{"name": name.strip("`"), "type": types.api_type(kind)} for name, kind in pairs]


def names(columns: Iterable[tuple[str, str]]) -> list[str]:
    """The names alone of quoted ones."""
    return [name.strip("`") for name, _ in columns]
