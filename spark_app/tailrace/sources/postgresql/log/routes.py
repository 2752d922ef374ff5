"""Under which table the server sends a partition's rows, and when it must be asked anew.

PostgreSQL 14 decides that at a partition's first row in a log connection, and stays with it: what is attached after
that goes on as a table by itself (not at all, if it is not published), what is detached goes on as a partition. From 15
on the server decides again. So the catalog poll holds what each look showed against what the connection began with. A
difference is acted on behind the look's marker: the tables are read again, by chunks that see all that the connection
can have sent wrongly, and the stream goes on in a new connection.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tailrace.changelog.records import Parts
from tailrace.sources.postgresql.model import PgTable

DECIDES_AGAIN = 150000
"""server_version_num."""


@dataclass(frozen=True)
class _Tree:
    attached_by: Mapping[str, str]
    """Member -> transaction."""
    leaves: frozenset[str]

    @classmethod
    def of(cls, parts: Parts) -> "_Tree":
        return cls(parts.get("partition", {}), frozenset(parts.get("file", {})))


NOTHING = _Tree({}, frozenset())


class Routes:
    """Of one stream. `kept`: the server is one that stays with what it decided; for others nothing ever differs."""

    def __init__(self, server_version: int, fingerprints: Mapping[int, Parts | None]) -> None:
        """`fingerprints`: of the tables that the log has had; none: it begins now, so nothing was decided before."""
        self.kept = server_version < DECIDES_AGAIN
        self._begun = bool(fingerprints)
        self._known = {i: _Tree.of(parts) for i, parts in fingerprints.items() if parts is not None}
        self.outdated: set[int] = set()
        """Tables whose changes may have been sent wrongly, and that are not read again yet."""

    def begin(self, found: Mapping[int, PgTable]) -> None:
        """The first look."""
        if self.kept and not self._begun:
            self._begun = True
            self._known = {table_id: _Tree.of(table.parts) for table_id, table in found.items()}

    def differ(self, found: Mapping[int, PgTable]) -> bool:
        """Whether `follow` has anything to do."""
        return bool(self._moved(found, frozenset()))

    def follow(self, found: Mapping[int, PgTable], untouched: Collection[str]) -> bool:
        """Act on a look. `untouched`: new files that nobody had written to. True: `outdated` has grown, and the stream
        must go on in a new connection."""
        if not self.kept:
            return False
        moved = self._moved(found, untouched)
        self.outdated |= moved
        self._known |= {table_id: _Tree.of(table.parts) for table_id, table in found.items()}
        return bool(moved)

    def forget(self, but: Collection[int]) -> None:
        """Tables that are no longer captured."""
        self.outdated.intersection_update(but)

    def _moved(self, found: Mapping[int, PgTable], untouched: Collection[str]) -> set[int]:
        """The roots, and tables that were members of theirs."""
        moved = set[int]()
        for table_id, table in found.items() if self.kept else ():
            members = _moved_members(self._known.get(table_id, NOTHING), table, untouched)
            if members:
                moved |= {table_id, *(m for m in map(int, members) if m in found)}
        return moved


def _moved_members(before: _Tree, table: PgTable, untouched: Collection[str]) -> set[str]:
    """Those of which the connection may have decided something else. Not what was made as a partition of it; and not
    what was attached before its first row."""
    now = _Tree.of(table.parts)
    both = before.attached_by.keys() & now.attached_by.keys()
    moved = {member for member in both if before.attached_by[member] != now.attached_by[member]}
    moved |= before.attached_by.keys() - now.attached_by.keys()
    if not now.leaves - before.leaves <= set(untouched):
        moved |= table.attached_later - before.attached_by.keys()
    return moved
