"""The tables that changes of captured tables reach through foreign keys, below the log: they are read again.

Called by the stream: with each block of rows, whether they may have such effects; outside of transactions, to learn the
foreign keys. A row event says whether the server logged its effects, or had foreign keys switched off: then there is
nothing to read. What is known of a table's foreign keys is part of its fingerprint in the journal: after a restart the
rows before a look are judged by what was known before. A foreign key that is dropped counts until the stream has come
to where the log ended after the look; one that comes to be known otherwise than by a statement in the log has its
table read again, since what it did until then is not known.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow.compute as pc

from tailrace.changelog import keys
from tailrace.changelog.records.tables import Cascaded, ReachedRows, ReachedThrough, TableFingerprint
from tailrace.changelog.records.terms import Key, Position
from tailrace.changelog.segments import DELETE, MOVE, OP
from tailrace.databases.mysql.connect import Connection, source_errors
from tailrace.sources.api import Changes, TableRows
from tailrace.sources.mysql.cascades import Cascade, cascades_of
from tailrace.sources.mysql.log.blocks import UNCERTAIN, EventBlock
from tailrace.sources.mysql.log.definitions import with_cascades
from tailrace.sources.mysql.log.rows import DELETES, UPDATES
from tailrace.sources.mysql.log.tables import Captured, CapturedTables
from tailrace.sources.mysql.model import identity, number_of

_NOTHING_BELOW = 1 << 1 | 1 << 4
"""Flags of a row event: foreign keys were not checked, so they did nothing; the server logs what they do (since MySQL
9.6, without innodb_native_foreign_keys)."""


MOST_VALUES = 10_000
"""Values of one foreign key in a record; if there are more, the whole child is read."""
_EXACT = re.compile(r"int\d+$|decimal|date$")
"""Types whose values are equal to the server if and only if they are to everybody."""


@dataclass
class Reached:
    """Rows of a table that foreign keys have reached."""

    all: bool = False
    """They are not known: it may be any."""
    rows: dict[tuple[int, ...], set[Key]] = field(default_factory=dict)
    """Values by the columns that have them."""
    through: set[ReachedThrough] = field(default_factory=set)

    def event(self, table_id: int, edge: str) -> Cascaded:
        if self.all:
            return Cascaded(table_id=table_id)
        rows = (ReachedRows(columns=columns, values=tuple(sorted(values))) for columns, values in self.rows.items())
        through = sorted(self.through, key=lambda one: (one.parent, one.referenced, one.columns))
        return Cascaded(table_id=table_id, rows=tuple(rows), through=tuple(through), edge=edge)


@dataclass(frozen=True)
class LogEnds:
    position: Callable[[], Position]
    """The stream's."""
    end: Callable[[], Position]


class ForeignKeys:
    def __init__(
        self, connection: Connection, tables: CapturedTables, ends: LogEnds, may_be_read: Callable[[int], bool]
    ) -> None:
        self._connection = connection
        self._tables = tables
        self._ends = ends
        self._may_be_read = may_be_read
        self._due: dict[int, Reached] = {}
        self._compared: dict[int, tuple[Captured, bool]] | None = None
        """The tables, and whether each was stopped, at the last look; None: something may have changed since."""
        self._leaving: dict[tuple[int, Cascade], Position] = {}
        """Those that a look no longer found -> where the log ended then."""
        self._by_parent: dict[int, list[tuple[int, Cascade]]] = {}
        self._derive()

    def look(self, stated: bool = False) -> list[TableFingerprint]:
        """Learns them, if they may be others than at the last look. `stated`: because of a statement in the log, so
        that new ones have done nothing before."""
        if self._is_unchanged() and not self._leaving and not stated:
            return []
        self._compared = {table_id: (known, known.stopped) for table_id, known in self._tables.known.items()}
        events: list[TableFingerprint] = []
        for table_id, known in self._tables.known.items():
            if not known.stopped and (found := self._of(table_id, known)) != known.cascades:
                # A change log of an older version does not name the child's columns.
                new = {replace(c, child_columns=()) for c in found} - {
                    replace(c, child_columns=()) for c in known.cascades
                }
                if new and not stated and self._may_be_read(table_id):
                    self._reach_all(table_id)
                known.cascades = found
                known.parts = with_cascades(known.parts, found)
                events.append(TableFingerprint(table_id=table_id, parts=known.parts))
        self._derive()
        return events

    def _is_unchanged(self) -> bool:
        """False also if a table was removed and added again."""
        known, compared = self._tables.known, self._compared
        return (
            compared is not None
            and compared.keys() == known.keys()
            and all(known[i] is table and table.stopped == stopped for i, (table, stopped) in compared.items())
        )

    def _of(self, table_id: int, known: Captured) -> frozenset[Cascade]:
        with source_errors("looking at foreign keys"):
            now = cascades_of(self._connection, (known.schema.schema_name, known.schema.table_name))
        if now is None:
            self._compared = None
        found = {cascade for cascade in now or () if isinstance(cascade, Cascade)}
        whole = now is not None and len(found) == len(now)
        missing = set(known.cascades) if not whole else {c for c in known.cascades - found if self._stays(table_id, c)}
        for cascade in found:
            self._leaving.pop((table_id, cascade), None)
        return frozenset(c for c in found | missing if self._tables.is_captured(_parent(c)))

    def _stays(self, table_id: int, cascade: Cascade) -> bool:
        """Rows that were logged before it was dropped may be still to come."""
        left = (table_id, cascade)
        if left not in self._leaving:
            self._leaving[left] = self._ends.end()
        if self._ends.position() < self._leaving[left]:
            return True
        del self._leaving[left]
        return False

    def _derive(self) -> None:
        known = self._tables.known
        self._leaving = {left: end for left, end in self._leaving.items() if left[0] in known}
        self._by_parent = {}
        for table_id, table in known.items():
            for cascade in table.cascades:
                self._by_parent.setdefault(_parent(cascade), []).append((table_id, cascade))

    def saw(self, block: EventBlock, changes: Changes) -> None:
        """Rows go into the record that is being built."""
        if not self._by_parent:
            return
        numbers: dict[bytes, int] = {}
        deleted, updated, moved, unclear = set[int](), set[int](), set[int](), set[int]()
        for given, form, body in block.items:
            kind = given & ~UNCERTAIN
            if (kind in DELETES or kind in UPDATES) and not int.from_bytes(body[6:8], "little") & _NOTHING_BELOW:
                number = numbers.get(form)
                if number is None:
                    number = numbers[form] = self._tables.number(form)
                (deleted if kind in DELETES else updated).add(number)
                if given != kind:  # its rows do not show it
                    unclear.add(number)
        moved = unclear | {t.schema.table_id for t in changes.tables if pc.any(pc.equal(t.rows[OP], MOVE)).as_py()}
        for parent in (deleted | updated) & self._by_parent.keys():
            gone = [t for t in changes.tables if t.schema.table_id == parent]
            for child, cascade in self._by_parent[parent]:
                by_key = self._by_key(parent, cascade)
                on_delete = parent in deleted and "ON DELETE" in cascade.rule
                on_update = parent in updated and "ON UPDATE" in cascade.rule
                if on_delete or (on_update and (parent in moved or not by_key)):
                    reference = self._reference(parent, child, cascade) if by_key and parent not in unclear else None
                    self._reach(child, reference, cascade, gone)

    def _reach(self, child: int, reference: ReachedThrough | None, cascade: Cascade, gone: Sequence[TableRows]) -> None:
        """Rows with these deleted keys have had children, which may have children."""
        due = self._due.setdefault(child, Reached())
        if reference is not None:
            known = due.rows.setdefault(reference.columns, set())
            for table in gone:
                if not set(cascade.columns) <= set(table.rows.column_names):  # of another version
                    due.all = True
                    continue
                rows = table.rows.filter(pc.equal(table.rows[OP], DELETE))
                known |= set(keys.keys([rows[name].combine_chunks() for name in cascade.columns]))
            due.all |= len(known) > MOST_VALUES
        if reference is None or due.all:
            self._reach_all(child)
            return
        ahead, seen = [child], {child}
        while ahead:
            parent = ahead.pop()
            for below, through in self._by_parent.get(parent, ()):
                reference = self._reference(parent, below, through)
                if reference is None:
                    self._reach_all(below)
                    continue
                self._due.setdefault(below, Reached()).through.add(reference)
                if below not in seen:
                    seen.add(below)
                    ahead.append(below)

    def _reach_all(self, table_id: int) -> None:
        for reached in (table_id, *self._below(table_id)):
            self._due.setdefault(reached, Reached()).all = True

    def _reference(self, parent: int, child: int, cascade: Cascade) -> ReachedThrough | None:
        """The foreign key, if its rows can be found in the child's copy by the parent's values: these are the same in
        both, whatever a collation takes for equal, and only rows that the copy has are reached."""
        above, below = self._tables.known.get(parent), self._tables.known.get(child)
        if above is None or below is None or below.schema.keyless or below.schema.where is not None:
            return None
        theirs, own = ({c.name: c for c in t.schema.columns} for t in (above, below))
        if len(cascade.columns) != len(cascade.child_columns) or not (
            set(cascade.columns) <= theirs.keys() and set(cascade.child_columns) <= own.keys()
        ):
            return None
        pairs = [(theirs[one], own[other]) for one, other in zip(cascade.columns, cascade.child_columns, strict=True)]
        exact = all(a.type == b.type and _EXACT.match(a.type) and a.mask is None and b.mask is None for a, b in pairs)
        changes_key = "ON UPDATE" in cascade.rule and any(b.key is not None for _, b in pairs)
        if not exact or changes_key:
            return None
        return ReachedThrough(
            parent=parent, referenced=tuple(a.id for a, _ in pairs), columns=tuple(b.id for _, b in pairs)
        )

    def _by_key(self, parent: int, cascade: Cascade) -> bool:
        """Only a key change changes what it references."""
        known = self._tables.known.get(parent)
        return known is not None and set(cascade.columns) <= {c.name for c in known.schema.key_columns}

    def _below(self, table_id: int) -> set[int]:
        """Reachable tables, from this one; itself, if they lead back to it."""
        reached, ahead = set[int](), [table_id]
        while ahead:
            new = {child for child, _ in self._by_parent.get(ahead.pop(), ())} - reached
            reached |= new
            ahead += new
        return reached

    def take_due(self) -> dict[int, Reached]:
        """The captured tables that changes so far have reached, once."""
        due, self._due = self._due, {}
        return {table_id: due[table_id] for table_id in sorted(due) if self._tables.is_captured(table_id)}


def _parent(cascade: Cascade) -> int:
    return number_of(identity(*cascade.parent))
