"""Definitions of copies in BigQuery, and their descriptions, which tell the copy's number and the ids of its columns.
Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from typing_extensions import override

from tailrace.targets.bigquery import names as written_names
from tailrace.targets.bigquery import types
from tailrace.targets.bigquery.values import literal
from tailrace.targets.sql.described import CopyColumn, DescribedTable
from tailrace.targets.sql.session import Alteration, UnfitColumn

DESCRIPTION_CHARACTERS = 16_384
"""Most of a table's description."""
MOST_AT_ONCE = 3
"""Changes of a table's definition by one script: BigQuery allows five updates of a table in ten seconds, and counts the
statements of the batch behind it, which delete and insert."""


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
            CopyColumn(name, types.kind_of(field), int(ids[name]))
            for field in table.get("schema", {}).get("fields", ())
            if (name := str(field["name"])) in ids
        ]
        return cls(number, columns, [int(id_) for id_ in key])

    @property
    def description(self) -> str:
        return self._telling(self._ids)

    @property
    def _ids(self) -> dict[str, int]:
        return {column.name: column.id for column in self.columns}

    def _telling(self, ids: Mapping[str, int]) -> str:
        return json.dumps({"tailrace": self.number, "columns": ids, "key": list(self.key)}, separators=(",", ":"))

    @override
    def created(self, place: str) -> str:
        """Nothing is NOT NULL: a table that is made out of another one has no column that is."""
        defined = ", ".join(f"`{column.name}` {column.kind}" for column in self.columns)
        return f"CREATE TABLE {place} ({defined}){self._options}"

    def remade(self, place: str, values: Sequence[str], source: str) -> str:
        """The statement that makes the table, whole or not at all, of these expressions over another, or over itself
        as it was."""
        pairs = zip(values, self.columns, strict=True)
        selected = ", ".join(f"{value} AS `{column.name}`" for value, column in pairs)
        return f"CREATE OR REPLACE TABLE {place}{self._options} AS SELECT {selected} FROM {source}"

    def altering(self, place: str, change: Alteration) -> list[str] | None:
        """Statements that give the table other columns, and read none of its rows. Whichever of them is the last that
        is run, the description tells the ids of the columns that are there: before columns get names, it has the new
        names beside the former ones. None: rows have to be written again."""
        steps, (after, _) = self.steps(change, types.widens), self.altered(change)
        if steps is None:
            return None
        touched = {*steps.dropped, *(old for old, _ in steps.renamed), *(column.name for column in steps.widened)}
        if touched.intersection(self._clustered) or steps.given.intersection(map(str.casefold, steps.dropped)):
            return None  # BigQuery changes no column that it sorts by, and keeps the name of a dropped one for days
        told, passing = self._ids, {name: id_ for name, id_ in self._ids.items() if name not in steps.dropped}
        passing |= after._ids
        actions = [", ".join(f"DROP COLUMN `{name}`" for name in steps.dropped)]
        if steps.given:
            told = passing
            actions.append(_described(self._telling(passing)))
        actions.append(", ".join(f"RENAME COLUMN `{old}` TO `{new}`" for old, new in steps.renamed))
        actions.append(", ".join(f"ADD COLUMN `{column.name}` {column.kind}" for column in steps.added))
        actions += [
            f"ALTER COLUMN `{column.name}` SET DATA TYPE {types.api_type(column.kind)}" for column in steps.widened
        ]
        if told != after._ids:
            actions.append(_described(after.description))
        statements = [f"ALTER TABLE {place} {action}" for action in actions if action]
        too_long = len(self._telling(passing)) > DESCRIPTION_CHARACTERS
        return None if too_long or len(statements) > MOST_AT_ONCE else statements

    @property
    def _clustered(self) -> list[str]:
        by_id = {column.id: column for column in self.columns}
        sortable = [by_id[i].name for i in self.key if i in by_id and by_id[i].kind in types.CLUSTERED]
        return sortable[: types.MOST_CLUSTERED]

    @property
    def _options(self) -> str:
        clustered = [f"`{name}`" for name in self._clustered]
        cluster = f" CLUSTER BY {', '.join(clustered)}" if clustered else ""
        return f"{cluster} OPTIONS(description={literal(self.description)})"


def _described(description: str) -> str:
    return f"SET OPTIONS(description={literal(description)})"


def require_same_lists(before: CopyTable, after: Iterable[CopyColumn]) -> None:
    """`UnfitColumn`: a column gets arrays, or had them. The rows that are there would have an empty one each, which is
    not what the source has, and no cast makes an array of a text."""
    there = {column.id: column.kind for column in before.columns}
    for column in after:
        kinds = there.get(column.id), column.kind
        if kinds[0] != kinds[1] and any(kind is not None and types.element_kind(kind) is not None for kind in kinds):
            now = "is new" if kinds[0] is None else f"is {kinds[0]} in the target"
            name = written_names.read(column.name)
            raise UnfitColumn(name, f"{now} and is to be {column.kind}, for which all rows have to be read")


def protected(table: Mapping[str, Any]) -> list[str]:
    """The columns of a table that not everybody who may read it sees."""
    found = table.get("schema", {}).get("fields", ())
    return [str(one["name"]) for one in found if one.get("policyTags", {}).get("names") or one.get("dataPolicies")]


def fields(definitions: str) -> list[dict[str, str]]:
    """The columns of a table without marks, as the interface takes them."""
    pairs = (definition.rsplit(" ", 1) for definition in definitions.split(", "))
    return [types.field_of(name.strip("`"), kind) for name, kind in pairs]


def names(columns: Iterable[tuple[str, str]]) -> list[str]:
    """The names alone of quoted ones."""
    return [name.strip("`") for name, _ in columns]
