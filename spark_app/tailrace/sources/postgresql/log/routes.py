"""The table under which the server sends a table's rows, and when a new connection is needed.

PostgreSQL 14 decides that at a table's first row in a log connection, and stays with it until a publication is altered:
what is attached after that continues as a separate table (not at all, if it is not published), what is detached
continues as a partition. From 15 on the server decides again. So the catalog poll holds what each look showed against
what the connection can have decided. Where that may be another table, the stream continues in a new connection, and the
tables are read again behind the look's marker, by chunks that see all that the connection can have sent wrongly. What
has never had a row by then needs no chunk: the new connection brings them all.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tailrace.changelog.records.tables import Parts
from tailrace.sources.postgresql.model import PgTable

DECIDES_AGAIN = 150000
"""server_version_num."""
SHORTEST_PAUSE = 3.0
"""Seconds from one new connection to the next, at least. Tables may be attached one after the other, and for each
connection the server decodes once more all that came since the oldest open transaction began."""
LONGEST_PAUSE = 120.0
PAUSES_PER_WAY = 4
"""A pause is so many times as long as markers take since the last new connection."""
Item = tuple[int, str]
"""A table, and the oid of one of its files as the fingerprint has it."""


@dataclass(frozen=True)
class _Tree:
    attached_by: Mapping[str, str]
    """Member -> transaction."""
    files: frozenset[str]
    """The table itself, or its leaves."""

    @classmethod
    def of(cls, parts: Parts) -> "_Tree":
        return cls(parts.get("partition", {}), frozenset(parts.get("file", {})))


@dataclass(frozen=True)
class Moved:
    """The decisions of the connection that may have been wrong."""

    undecided: frozenset[int] = frozenset()
    """Another connection must decide about these tables."""
    tables: frozenset[int] = frozenset()
    """Tables of which it can have sent rows wrongly, or kept them back."""


class Routes:
    """The routes of one stream. `kept`: the server keeps what it decided; for others nothing ever differs."""

    def __init__(self, server_version: int, fingerprints: Mapping[int, Parts | None]) -> None:
        """`fingerprints`: of the tables that the log has had."""
        self.kept = server_version < DECIDES_AGAIN
        self._known = {i: _Tree.of(parts) for i, parts in fingerprints.items() if parts is not None}

    def new(self, found: Mapping[int, PgTable]) -> set[str]:
        """The tables and members that no look has shown before. Of these `moved` wants to know which are settled:
        neither attached nor detached since anything can have been decided about them."""
        new = set[str]()
        for table_id, table in found.items() if self.kept else ():
            known, now = self._known.get(table_id), _Tree.of(table.parts)
            new |= {str(table_id), *now.attached_by} if known is None else now.attached_by.keys() - known.attached_by
        return new

    def new_files(self, found: Mapping[int, PgTable]) -> set[str]:
        """The new files of the tables found."""
        new = set[str]()
        for table_id, table in found.items() if self.kept else ():
            known, now = self._known.get(table_id), _Tree.of(table.parts)
            new |= now.files if known is None else now.files - known.files
        return new

    def moved(
        self,
        found: Mapping[int, PgTable],
        brought: Collection[Item],
        settled: Collection[str] = (),
        unwritten: Collection[str] = (),
    ) -> Moved:
        """The tables found that have moved. `brought`: partitions that the log had brought rows of before any look saw
        them; `unwritten`: files that hold no row now, and of which no row can have been sent that still counts."""
        tables, undecided = set[int](), set[int]()
        for table_id, table in found.items() if self.kept else ():
            known, now = self._known.get(table_id), _Tree.of(table.parts)
            before = known or _Tree({}, frozenset())
            gone = {item for i, item in brought if known and i == table_id and item not in now.files}
            members = {*gone, *_changed(before, now)}
            unsettled = self.new({table_id: table}) - set(settled)
            if members or unsettled:
                undecided.add(table_id)
            if members or (unsettled and not now.files - before.files <= set(unwritten)):
                tables |= {table_id, *(m for m in map(int, members) if m in found)}
        return Moved(frozenset(undecided | tables), frozenset(tables))

    def follow(self, found: Mapping[int, PgTable], but: Collection[int] = ()) -> None:
        """Marks those that have moved: their rows are routed correctly from here on, as those of all others. `but`:
        tables for which they are not yet. A table that is not found may have become a partition, and is a new one when
        it comes back."""
        if self.kept:
            known = {i: tree for i, tree in self._known.items() if i in but}
            self._known = known | {i: _Tree.of(table.parts) for i, table in found.items() if i not in but}


class Pauses:
    """Between two new connections. Times are a monotonic clock's."""

    def __init__(self) -> None:
        self._begun: float | None = None
        """The last new connection."""
        self._until = 0.0

    def begin(self, now: float) -> None:
        """The connection is a new one."""
        self._begun, self._until = now, now + SHORTEST_PAUSE

    def arrived(self, sent: float, now: float) -> None:
        """A marker."""
        if self._begun is not None and sent >= self._begun:
            pause = min(LONGEST_PAUSE, PAUSES_PER_WAY * (now - sent))
            self._until = max(self._until, self._begun + pause)

    def over(self, now: float) -> bool:
        return now >= self._until


def _changed(before: _Tree, now: _Tree) -> Iterator[str]:
    """Members that were detached, and perhaps attached again."""
    for member, attached_by in before.attached_by.items():
        if now.attached_by.get(member) != attached_by:
            yield member
