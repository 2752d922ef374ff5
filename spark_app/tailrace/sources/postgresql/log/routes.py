"""Under which table the server sends a table's rows, and when it must be asked anew.

PostgreSQL 14 decides that at a table's first row in a log connection, and stays with it until a publication is altered:
what is attached after that goes on as a table by itself (not at all, if it is not published), what is detached goes on
as a partition. From 15 on the server decides again. So the catalog poll holds what each look showed against what the
connection can have decided. Where that may be another table, the tables are read again behind the look's marker, by
chunks that see all that the connection can have sent wrongly, and the stream goes on in a new connection.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tailrace.changelog.records import Parts
from tailrace.sources.postgresql.model import PgTable

DECIDES_AGAIN = 150000
"""server_version_num."""
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


class Routes:
    """Of one stream. `kept`: the server is one that stays with what it decided; for others nothing ever differs."""

    def __init__(
        self, server_version: int, fingerprints: Mapping[int, Parts | None], *, begins: bool, ours: bool
    ) -> None:
        """`fingerprints`: of the tables that the log has had. `begins`: the log begins in this process, so nothing was
        decided before the first look. `ours`: the publication; that a table is put into it has the server decide
        again."""
        self.kept = server_version < DECIDES_AGAIN
        self._begins = begins
        self._ours = ours
        self._known = {i: _Tree.of(parts) for i, parts in fingerprints.items() if parts is not None}

    def begin(self, found: Mapping[int, PgTable]) -> None:
        """The first look."""
        if self.kept and self._begins:
            self._known = {table_id: _Tree.of(table.parts) for table_id, table in found.items()}
        self._begins = False

    def moved(
        self, found: Mapping[int, PgTable], brought: Collection[Item], untouched: Collection[str] = ()
    ) -> set[int]:
        """The tables whose rows may come under another one, of those found. `brought`: partitions that the log had
        brought rows of before any look saw them; `untouched`: files that nobody had written to, so that nothing was
        decided about them."""
        moved = set[int]()
        for table_id, table in found.items() if self.kept else ():
            known, now = self._known.get(table_id), _Tree.of(table.parts)
            if known is None:
                if not self._ours and not now.files <= set(untouched):
                    moved.add(table_id)
                continue
            gone = {item for i, item in brought if i == table_id and item not in now.files}
            members = {*gone, *_changed(known, now)}
            if members or not now.files - known.files <= set(untouched):
                moved |= {table_id, *(m for m in map(int, members) if m in found)}
        return moved

    def follow(self, found: Mapping[int, PgTable]) -> None:
        """The tables that have moved are read again, and the connection is a new one."""
        if self.kept:
            self._known |= {table_id: _Tree.of(table.parts) for table_id, table in found.items()}


def _changed(before: _Tree, now: _Tree) -> Iterator[str]:
    """Members that were detached, and perhaps attached again."""
    for member, attached_by in before.attached_by.items():
        if now.attached_by.get(member) != attached_by:
            yield member
