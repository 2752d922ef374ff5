"""Sequences and AUTO_INCREMENT: the numbers that a database gives to new rows, and that no change of a row carries."""

from dataclasses import dataclass

from tailrace.databases.extras import TableName


@dataclass(frozen=True)
class Counter:
    name: TableName
    """Schema and name of the sequence; in MySQL of the table."""
    column: tuple[TableName, str] | None
    """The table and its column that get the numbers; None: programs ask the sequence for them."""
    next: int
    """The number that comes next."""
    step: int = 1

    def is_behind(self, other: "Counter") -> bool:
        """True if it would give numbers again that the other one has given."""
        return (self.next < other.next) if other.step > 0 else (self.next > other.next)

    @property
    def shown(self) -> str:
        """Its name for people."""
        name = ".".join(self.name)
        if self.column is None or self.column[0] == self.name:
            return name
        return f"{name} (of {'.'.join(self.column[0])}.{self.column[1]})"
