"""Defaults, sequences and indexes: copies are made without, and `tailrace doctor` tells what the source has of them."""

from dataclasses import dataclass

TableName = tuple[str, str]


@dataclass(frozen=True)
class Extra:
    table: TableName
    what: str
    """A text that is equal for equal things in source and copy."""
    columns: frozenset[str]
    statement: str
    """It creates the thing; with the marks below."""

    def created_at(self, table: str, schema: str) -> str:
        """The statement for a copy; both names are quoted."""
        literal = schema.replace("'", "''")
        return self.statement.replace(TABLE, table).replace(SCHEMA, schema).replace(LITERAL, literal)


TABLE, SCHEMA, LITERAL = "\x01", "\x02", "\x03"
"""Marks for names of a copy: its table, its schema, and the latter in a text."""
