"""The comparison of a follower's tables with those of the log that it reads: rows arrive as the followed Replicator has
selected them, and chunks are read by the follower's own options. Both must give the same columns and the same rows.

Pure. Asked before a follower makes anything, at each start, and for each table that is added or changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.errors import SourceRefused
from tailrace.sources.api import Table

FIX = (
    "Give this Replicator the options (where, columns, mask, as, key, history, historyPrefix, partitionBy), the maskKey"
    " and the kind of target of the one that it follows; what cannot be the same needs a Replicator that reads the"
    " source."
)
CHOICE = ("where", "history", "historyPrefix", "partitionBy")
"""The options that make `TableSchema.choice`, in its order."""


@dataclass(frozen=True)
class Discrepancy:
    """One way in which a table would be read differently."""

    table: str
    text: str
    certain: bool
    """Only the manifests can be the reason. Else the table may have changed, and the other log may not say so yet."""

    @property
    def refusal(self) -> SourceRefused:
        return SourceRefused(f"{self.table} is not read as in the change log that is followed: {self.text}", FIX)


def discrepancy(own: Table, followed: TableSchema) -> Discrepancy | None:
    """The first one that is certain, else the first; None: there is none."""
    found = list(_discrepancies(own, followed))
    return next((one for one in found if one.certain), found[0] if found else None)


def _discrepancies(own: Table, followed: TableSchema) -> Iterator[Discrepancy]:
    name = followed.name
    if own.stop is not None:
        yield Discrepancy(name, f"with this manifest it cannot be copied: {own.stop.message}", certain=False)
        return
    here, there = own.schema, followed
    for what, mine, other in zip(CHOICE, here.choice, there.choice, strict=True):
        if mine != other:
            yield Discrepancy(name, f"{what} is {mine or 'not set'} here, {other or 'not set'} there", certain=True)
    columns, others = {c.name: c for c in here.columns}, {c.name: c for c in there.columns}
    for column in columns.keys() & others.keys():
        yield from _of_column(name, columns[column], others[column])
    for column in sorted(columns.keys() - others.keys()):
        yield Discrepancy(name, f"column {column!r} is read here, and not there", certain=False)
    for column in sorted(others.keys() - columns.keys()):
        yield Discrepancy(name, f"column {column!r} is read there, and not here", certain=False)
    if here.keyless != there.keyless:
        yield Discrepancy(name, "only one of the two has a key", certain=False)


def _of_column(table: str, here: Column, there: Column) -> Iterator[Discrepancy]:
    if here.mask != there.mask:
        text = f"column {here.name!r} has {_mask(here)} here, {_mask(there)} there"
        yield Discrepancy(table, text, certain=True)
    if here.type != there.type:
        text = f"column {here.name!r} has type {here.type} here, {there.type} there"
        yield Discrepancy(table, text, certain=False)
    if here.key != there.key:
        yield Discrepancy(table, f"column {here.name!r} has another place in the key", certain=False)
    if here.behind != there.behind:
        text = f"column {here.name!r} is read for another kind of target"
        yield Discrepancy(table, text, certain=False)


def _mask(column: Column) -> str:
    """Without the digest of a hash's key."""
    return "no mask" if column.mask is None else f"the mask {column.mask.split()[0]} (method, length and key count)"
