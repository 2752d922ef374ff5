"""Definitions of copies in Snowflake, and their comments, which tell a copy's number and its columns. Pure."""

import json
from dataclasses import dataclass
from typing import Self

from typing_extensions import override

from tailrace.targets.snowflake import types
from tailrace.targets.sql.described import CopyColumn, DescribedTable
from tailrace.targets.sql.session import Alteration

EXACT = "DEFAULT_DDL_COLLATION=''"
"""Texts that differ are different, whatever the database's collation says."""


@dataclass(frozen=True)
class SnowflakeCopy(DescribedTable):
    """A copy as it is defined. Nothing is NOT NULL, and there are no keys: the optimizer would believe them."""

    QUOTE = '"'

    @classmethod
    def of_comment(cls, comment: str) -> Self | None:
        """None: the table is no copy."""
        try:
            said = json.loads(comment)
            columns = [CopyColumn(str(name), str(kind), int(id_)) for name, kind, id_ in said["columns"]]
            return cls(int(said["tailrace"]), columns, [int(id_) for id_ in said["key"]])
        except (KeyError, TypeError, ValueError):
            return None

    @property
    def comment(self) -> str:
        columns = [[column.name, column.kind, column.id] for column in self.columns]
        return json.dumps({"tailrace": self.number, "columns": columns, "key": list(self.key)}, separators=(",", ":"))

    @override
    def created(self, place: str) -> str:
        defined = ", ".join(f"{name} {column.kind}" for name, column in zip(self.names(), self.columns, strict=True))
        return f"CREATE TABLE {place} ({defined}) {EXACT} COMMENT={literal(self.comment)}"

    def altering(self, change: Alteration) -> list[str] | None:
        """Actions of ALTER TABLE that give a table other columns, and read none of its rows. None: rows have to be
        written again."""
        steps = self.steps(change, types.widens)
        if steps is None:
            return None
        return [
            *(f'DROP COLUMN "{name}"' for name in steps.dropped),
            *(f'RENAME COLUMN "{old}" TO "{new}"' for old, new in steps.renamed),
            *(f'ADD COLUMN "{column.name}" {column.kind}' for column in steps.added),
            *(f'ALTER COLUMN "{column.name}" SET DATA TYPE {column.kind}' for column in steps.widened),
            f"SET COMMENT = {literal(self.altered(change)[0].comment)}",
        ]


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
