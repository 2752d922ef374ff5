"""The meaning of each difference between two looks at a table: one table, and the comparison that uses it.

Called by the catalog's poll with the fingerprint of the journal and that of the look, and by `tables.compare` with the
schema version in force. docs/postgresql.md shows the same table; a test compares the two. The order of the rules is the
order of importance: the first one that stops gives the stop.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from tailrace.changelog.records.tables import Parts
from tailrace.changelog.records.terms import TableSchema
from tailrace.errors import STOP_FIX, SchemaChangeUnsupported, TableGone, TableStop
from tailrace.selection.filters import HISTORY_CHANGED, WHERE_CHANGED, shown, shown_history
from tailrace.selection.masks import described
from tailrace.sources.postgresql.model import number


class Action(StrEnum):
    HARMLESS = "nothing"
    """The rows mean what they meant; what the log brings is all there is."""
    READ_AGAIN = "read again"
    """Rows changed, or changes went past, without a row event: a complete snapshot replaces the rows."""
    STOP = "stops"
    """It cannot be followed: the table stops by name."""


Change = Literal["added", "removed", "changed", "emptied", "added empty", "added altered"]
"""`emptied` and `added empty`: a file that changed, or came, in a way that the log reports. `added altered`: of a type
that a column may have had already when it was altered."""


@dataclass(frozen=True)
class DifferenceRule:
    kind: str
    change: Change
    action: Action
    text: str
    """With {table}, {column}, {item}, {before}, {now}."""
    error: type[TableStop] = SchemaChangeUnsupported


WRITTEN_BY = " @"
"""A separator in a value: the transaction that wrote the catalog's row follows."""

_H, _R, _S = Action.HARMLESS, Action.READ_AGAIN, Action.STOP
DIFFERENCES: tuple[DifferenceRule, ...] = (
    DifferenceRule("name", "changed", _S, "{table} was renamed to {now}", TableGone),
    DifferenceRule("column", "removed", _S, "column {column!r} of {table} was dropped"),
    DifferenceRule("column", "changed", _S, "column {column!r} of {table} was renamed to {now!r}"),
    DifferenceRule("type", "changed", _S, "column {column!r} of {table} changed its type from {before} to {now}"),
    DifferenceRule(
        "copied as", "changed", _S, "column {column!r} of {table} is to be copied as {now}, not as {before}"
    ),
    DifferenceRule("row filter", "changed", _S, WHERE_CHANGED),
    DifferenceRule("history", "changed", _S, HISTORY_CHANGED),
    DifferenceRule("key", "changed", _S, "the key of {table} changed at column {column!r}"),
    DifferenceRule("key", "removed", _S, "the key of {table} changed at column {column!r}"),
    DifferenceRule("key", "added", _S, "the key of {table} now contains the column {column!r}"),
    DifferenceRule("column", "added", _H, "{table} has the new column {now!r}"),
    DifferenceRule("file", "changed", _R, "file {item} of {table} was rewritten, or a partition truncated"),
    DifferenceRule("file", "removed", _R, "file {item} of {table} is gone: a partition was dropped or detached"),
    DifferenceRule("file", "added", _R, "file {item} of {table} is new and not empty: a partition was attached"),
    DifferenceRule("file", "emptied", _H, "file {item} of {table} was emptied by TRUNCATE, which the log holds"),
    DifferenceRule("file", "added empty", _H, "partition {item} of {table} is new and empty"),
    DifferenceRule("toast", "changed", _H, "{table} has another TOAST table: whether it was rewritten, its file says"),
    DifferenceRule("partition", "changed", _R, "partition {item} of {table} was detached and attached again"),
    DifferenceRule("partition", "added", _H, "partition {item} of {table} is new: its file says whether it has rows"),
    DifferenceRule("partition", "removed", _H, "partition {item} of {table} was removed"),
    DifferenceRule("membership", "changed", _R, "{table} was removed from the publication and added again"),
    DifferenceRule("publication", "changed", _R, "the publication of {table} was altered or re-created"),
    DifferenceRule("enum label", "changed", _R, "enum label {before} of a column of {table} was renamed to {now}"),
    DifferenceRule("enum label", "removed", _R, "enum label {before} of a column of {table} was removed"),
    DifferenceRule("enum label", "added", _H, "a column of {table} has the new enum label {now}"),
    DifferenceRule(
        "enum label",
        "added altered",
        _R,
        "a column of {table} has the new enum label {now}, of a type that was altered",
    ),
    DifferenceRule("composite type", "changed", _R, "a composite type of a column of {table} has other attributes"),
    DifferenceRule("composite type", "added", _H, "a column of {table} has a new composite type"),
    DifferenceRule(
        "composite type", "added altered", _R, "a column of {table} has a new composite type, which was altered"
    ),
    DifferenceRule("composite type", "removed", _H, "no column of {table} has composite type {item} any longer"),
    DifferenceRule("key order", "changed", _R, "the index of the key of {table} has another order"),
    DifferenceRule(
        "key index",
        "changed",
        _R,
        "the index of the key of {table} was re-created: rows may have had the same key before",
    ),
    DifferenceRule("replica identity", "changed", _H, "a replica identity of {table} changed, and still holds its key"),
    DifferenceRule("attributes", "changed", _H, "{table} has {now} columns, dropped ones included, not {before}"),
    DifferenceRule("selection", "changed", _H, "other columns of {table} are to be copied: their own lines judge"),
    DifferenceRule(
        "name in the log", "changed", _H, "column {before!r} of {table} is {now!r} in the log: its own line judges"
    ),
    DifferenceRule(
        "row security", "changed", _H, "row-level security of {table} changed: the log holds all rows, reads refuse"
    ),
)
_RULES: Mapping[tuple[str, Change], DifferenceRule] = {(rule.kind, rule.change): rule for rule in DIFFERENCES}
IMPLIED = frozenset(
    (kind, change)
    for kind in ("type", "copied as", "replica identity", "toast", "name in the log")
    for change in ("added", "removed")
)
"""They come with a difference of a column or a file, which has its own rule."""


@dataclass(frozen=True)
class Difference:
    rule: DifferenceRule
    item: str
    before: str
    now: str

    def text(self, table: str, columns: Mapping[str, str]) -> str:
        """A text for people: without the transactions that values are told apart by."""
        before, now = (value.rpartition(WRITTEN_BY)[0] or value for value in (self.before, self.now))
        column = columns.get(self.item, self.item)
        return self.rule.text.format(table=table, column=column, item=self.item, before=before, now=now)


def differences(before: Parts, now: Parts) -> Iterator[Difference]:
    """A kind that one side did not look at is passed over: it belongs to another version of Tailrace."""
    for kind in before.keys() & now.keys():
        for item in before[kind].keys() | now[kind].keys():
            old, new = before[kind].get(item), now[kind].get(item)
            if old == new:
                continue
            change: Change = "added" if old is None else "removed" if new is None else "changed"
            if (kind, change) not in IMPLIED:
                yield Difference(_RULES[(kind, change)], item, old or "", new or "")


def as_change(difference: Difference, change: Change) -> Difference:
    """The difference with the details that are known in addition."""
    return Difference(_RULES[(difference.rule.kind, change)], difference.item, difference.before, difference.now)


def schema_parts(schema: TableSchema) -> Parts:
    """The columns as the journal knows them without a fingerprint."""
    return {
        "name": {"": schema.name},
        "column": {str(number(c)): c.name for c in schema.columns},
        "type": {str(number(c)): c.source_type for c in schema.columns},
        "copied as": {str(number(c)): described(c.type, c.mask) for c in schema.columns},
        "row filter": {"": shown(schema.where)},
        "history": {"": shown_history(schema)},
        "key": {str(number(c)): str(c.key) for c in schema.columns if c.key is not None},
    }


def first_stop(schema: TableSchema, now: TableSchema) -> TableStop | None:
    """The most important difference of the columns that cannot be followed."""
    found = [d for d in differences(schema_parts(schema), schema_parts(now)) if d.rule.action is Action.STOP]
    if not found:
        return None
    first = min(found, key=lambda d: (DIFFERENCES.index(d.rule), int(d.item or 0)))
    names = {str(number(c)): c.name for c in (*now.columns, *schema.columns)}
    return first.rule.error(schema.name, first.text(schema.name, names), STOP_FIX)
