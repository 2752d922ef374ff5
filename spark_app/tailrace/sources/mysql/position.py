"""Places in the binary log: number of the file, and the offset in it.

Files are counted on over the servers that a change log has been read from, so that positions only grow: a file's number
here is the server's own plus its `Numbering.shift`, which the origin keeps (`admission.failed_over`).
"""

from dataclasses import dataclass

from tailrace.changelog.records.terms import Position

OFFSET_BITS = 40
"""A file can be as large as one transaction: larger than 4 GiB, less than 1 TiB."""


@dataclass(frozen=True)
class Numbering:
    """How one server's files are counted."""

    shift: int = 0

    def of(self, file: str, offset: int) -> Position:
        """`binlog.000012`, 1234: the number grows past six digits, so it is compared as a number."""
        return Position((int(file.rpartition(".")[2]) + self.shift << OFFSET_BITS) | offset)

    def text(self, position: Position) -> str:
        """`000012:1234`, as the server counts, without the files' common name."""
        return f"{file_of(position) - self.shift:06}:{offset_of(position)}"


OWN = Numbering()
"""The server's own numbering."""


def file_of(position: Position) -> int:
    """The number of its file, counted on."""
    return position >> OFFSET_BITS


def offset_of(position: Position) -> int:
    return position & ((1 << OFFSET_BITS) - 1)
