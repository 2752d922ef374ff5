"""Keys that cannot name rows: two of them would be the same text, or the server does not compare them as its index
orders them. Asked by the catalog."""

from collections.abc import Sequence

from tailrace.errors import ReadRefused
from tailrace.sources.mysql import charsets
from tailrace.sources.mysql.model import MysqlColumn

MOST_SORTED = 8192
"""Bytes of a text that the server certainly sorts by whole: in the form that it compares, eight times as many
(`connect.SORTED`)."""
_MOST_MEMBERS = 63


def refused(table: str, columns: Sequence[MysqlColumn]) -> ReadRefused | None:
    """The error of a table with these columns; None: its key is fit."""
    for column in columns:
        unfit = _unfit(column) if column.key is not None else None
        if unfit is not None:
            what, why, fix = unfit
            message = f"column {column.name!r} in the key of {table} has {what}, {why}"
            return ReadRefused(table, message, f"{fix}, or exclude the table.")
    return None


def _unfit(column: MysqlColumn) -> tuple[str, str, str] | None:
    """The feature that makes the column unfit for a key, the reason, and the fix."""
    kind, labels = column.type, column.type.labels
    if kind.charset in charsets.AMBIGUOUS:
        why = "which has characters with two codes: different keys can become the same text"
        return f"the character set {kind.charset}", why, "Convert the column to utf8mb4"
    if any("?" in label for label in labels):
        why = "which is what the server shows for characters beyond U+FFFF: its rows cannot be named by their keys"
        return "a label with `?` in it", why, "Rename the label"
    if "" in labels:
        why = "which is also the text of a value without a label: different keys can become the same text"
        return "an empty label", why, "Rename the label"
    if kind.name == "set" and len(labels) > _MOST_MEMBERS:
        # Its number is compared as a signed one and ordered as an unsigned one: chunks would lose rows.
        return f"{len(labels)} members", "which the server does not compare as its index orders them", "Drop a member"
    return None
