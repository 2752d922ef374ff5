"""Places in the binary log of one server: number of the file, and the offset in it."""

from tailrace.changelog.records import Position

OFFSET_BITS = 40
"""A file can be as large as one transaction: larger than 4 GiB, less than 1 TiB."""


def of(file: str, offset: int) -> Position:
    """`binlog.000012`, 1234: the number grows past six digits, so it is compared as a number."""
    return Position((int(file.rpartition(".")[2]) << OFFSET_BITS) | offset)


def text(position: Position) -> str:
    """`000012:1234`, without the files' common name."""
    return f"{position >> OFFSET_BITS:06}:{position & ((1 << OFFSET_BITS) - 1)}"
