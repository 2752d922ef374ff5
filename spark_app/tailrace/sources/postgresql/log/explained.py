"""A look at the catalog that waits for its marker, and which differences the log itself explains.

Pure; asked by `catalog_poll`. A file that TRUNCATE emptied, or that came empty, needs no rows read again: all that it
holds comes by the stream. Where that is not proven, the difference stands.
"""

from dataclasses import dataclass

from tailrace.changelog.records.tables import WRITTEN
from tailrace.changelog.records.terms import Seq
from tailrace.changelog.state import LogState, TableLog
from tailrace.sources.postgresql.log.differences import Difference, as_change
from tailrace.sources.postgresql.log.rejoin import Rejoin
from tailrace.sources.postgresql.model import PgTable

_XID_BITS = 0xFFFFFFFF


@dataclass(frozen=True)
class PendingLook:
    """One look at the catalog that waits for its marker."""

    token: int
    sent: float
    """When its marker was written, by a monotonic clock."""
    found: dict[int, PgTable]
    edge: str
    """An xid from after the marker: a snapshot that sees everything below it sees all that came before the marker."""
    empty: frozenset[str]
    """Files that are new since the last look and had no page: all that they ever hold comes by the stream."""
    settled: frozenset[str]
    """Those of the new tables and members about which the log connection has decided right (`routes.Routes`)."""
    versions: dict[int, int]
    """Schema versions in force at the look. A table that the stream has taken further since is left to the next look:
    this one may be older than the change."""
    written: frozenset[tuple[int, str]]
    """Partitions that the log had brought rows of, before any look saw them."""
    rejoins: dict[int, Rejoin]
    """Tables that are taken in again; they have been published since before the marker."""


def known_to_the_log(
    difference: Difference, before: TableLog, now: PgTable, look: PendingLook, state: LogState
) -> Difference:
    """A TRUNCATE explains the very files whose catalog rows it wrote if they have not been written since and the file
    is empty, or was not rewritten by the same transaction. And a new file that is empty needs no explanation if it was
    never emptied (its number is still the table's) and the log brought no rows of it."""
    item = difference.item
    if _altered_since(difference, before, now):
        return as_change(difference, "added altered")
    if difference.rule.kind != "file":
        return difference
    if difference.rule.change == "added" and item in look.empty and difference.now == item:
        return as_change(difference, "added empty")
    since = [t for t in before.truncates if t.seq > before.looked_seq]
    by = [t.seq for t in since if int(t.transaction) & _XID_BITS == now.emptied_by.get(item)]
    if difference.rule.change == "changed" and by and (item in look.empty or _same_toast(item, before, now)):
        # The same transaction may have emptied a partition again, which leaves no trace at all.
        whole = item == str(now.oid) or not _followed(max(by), before, state)
        return as_change(difference, "emptied") if whole else difference
    if difference.rule.change == "changed" and difference.before == WRITTEN:
        return as_change(difference, "added")
    return difference


def _altered_since(difference: Difference, before: TableLog, now: PgTable) -> bool:
    """True if the item came with a new column, whose rows the log may have from before its type was altered. What was
    altered below the edge was so before the table was read."""
    altered = now.altered.get(difference.item)
    if altered is None or difference.rule.change != "added":
        return False
    known = (before.fingerprint or {}).get(difference.rule.kind, {})
    own = (item for item, other in now.altered.items() if other.oid == altered.oid)
    return not any(item in known for item in own) and (altered.by - int(before.edge)) & _XID_BITS < _XID_BITS >> 1


def _same_toast(item: str, before: TableLog, now: PgTable) -> bool:
    """True if it is proven that nothing but TRUNCATE made the file. `SET UNLOGGED`, rows and `SET LOGGED` in the same
    transaction, or an ALTER with USING, leave no other trace; a table without TOAST has not even this one."""
    kept = (before.fingerprint or {}).get("toast", {}).get(item, "0")
    return kept != "0" and kept == now.parts["toast"].get(item)


def written(table: TableLog) -> list[str]:
    return [item for item, file in (table.fingerprint or {}).get("file", {}).items() if file == WRITTEN]


def _followed(seq: Seq, table: TableLog, state: LogState) -> bool:
    """True if rows of the table may follow this place in the same transaction."""
    following = state.transactions.first_after(seq)
    end = state.last_seq if following is None else following - 1
    segment = table.segments.ended_through(seq)
    return end > seq and segment < len(table.segments) and table.segments[segment].segment.first_seq <= end
