"""Rows that foreign keys have reached below the source's log: found in the copies, then read by their keys.

The journal names, for a child, old referenced values (`Cascaded.rows`), and through which other tables further rows
were reached (`Cascaded.through`). A row that was reached still has, in its copy, the value that it had before the first
change that nothing reports: whatever changed it since by the log had to be found by that change's own event. So it is
found by that value in a copy that holds the record of the event. What the copy has is read again by its key, and what
the source does not bring is removed, as in every snapshot by keys. No row gets a new key in this way: such foreign keys
have the whole child read.

A row that was reached may be a parent: its referenced values are looked for in its children. If the log has changed it
in or after the record of the event, the copy shows other values by now: only keys stay what they are, so references to
anything else have the whole child read then.

Called by the snapshot runner, on one of its threads. Dying before the plans are recorded has the rows looked for again.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.capture.client import CaptureClient
from tailrace.changelog import keys
from tailrace.changelog.journal import read_record
from tailrace.changelog.logged import LoggedCascade
from tailrace.changelog.records import Event, Record
from tailrace.changelog.records.snapshots import ChunkRegistered, SnapshotPlanned
from tailrace.changelog.records.tables import CascadesLooked, ReachedThrough, SchemaChanged, TableAdded, Truncated
from tailrace.changelog.records.terms import Key, RecordNumber
from tailrace.changelog.segments import segment_batches
from tailrace.changelog.state import LogState, TableLog
from tailrace.reading.steps import Tools
from tailrace.seams import seam
from tailrace.snapshot.planner import MAX_REPAIR_KEYS, failed_lately
from tailrace.storage.store import NotFound, Storage
from tailrace.targets.api import Look

log = logging.getLogger(__name__)

MOST_KEYS = 50_000
"""Rows of a table that are read by their keys at once; of more, the whole table is read."""
MOST_LEVELS = 15
"""Children of children: InnoDB follows foreign keys no further."""
MOST_RECORDS = 1_000
"""Records that are read to learn what has changed since; of more, the whole table is read."""

Holds = Callable[[int, RecordNumber], bool]
"""(table, record): whether the table's copy holds the record; without waiting."""
Group = Mapping[int, LoggedCascade]
"""The cascades of one record, by table."""


def due(state: LogState, holds: Holds, among: Iterable[TableLog] | None = None) -> dict[RecordNumber, Group]:
    """The cascades, by record, whose rows can be looked for now. `among`: the tables that may have some; None: all."""
    groups: dict[RecordNumber, dict[int, LoggedCascade]] = defaultdict(dict)
    for table in state.tables.values() if among is None else among:
        if not table.removed and table.stopped is None:
            for cascade in table.cascades:
                if cascade.is_looked_for:
                    groups[cascade.record][table.table_id] = cascade
    return {record: group for record, group in groups.items() if all(_ready(state, holds, i, record) for i in group)}


def _ready(state: LogState, holds: Holds, table_id: int, record: RecordNumber) -> bool:
    """Those that come while others are being read are looked for together."""
    table = state.tables[table_id]
    under_way = any(cascade.snapshots for cascade in table.cascades)
    return not under_way and holds(table_id, record) and not failed_lately(state, table)


def look(tools: Tools, client: CaptureClient, holds: Holds) -> None:
    """Look for the rows of all cascades that are due, and have their snapshots recorded."""
    state = tools.journal.refresh()
    groups = due(state, holds)
    copies = {i: found for i in {i for group in groups.values() for i in group} if (found := tools.look(i)) is not None}
    ready = {r: group for r, group in groups.items() if all(i in copies and copies[i][1] >= r for i in group)}
    if not ready:
        return
    search = _Search(tools, {i: copy for i, (copy, _) in copies.items()})
    search.run(ready)
    plans, ends, added = list[SnapshotPlanned](), list[CascadesLooked](), dict[int, RecordNumber]()
    for table_id in sorted({i for group in ready.values() for i in group}):
        own = list(_plans(state, search, table_id))
        plans += own
        records = tuple(sorted(r for r, group in ready.items() if table_id in group))
        ids = tuple(plan.snapshot_id for plan in own)
        ends.append(CascadesLooked(table_id=table_id, records=records, snapshots=ids))
        added[table_id] = state.tables[table_id].added_record
    # Dying here has them looked for again.
    client.append([*plans, *ends], added)
    seam("snapshot.after-plan")
    for plan in plans:
        what = "is" if plan.keys is None else f"has {_rows(len(plan.keys))}"
        log.info("%s %s read again: foreign keys have reached it", state.tables[plan.tables[0]].schema.name, what)


def _rows(number: int) -> str:
    return "1 row that is" if number == 1 else f"{number} rows that are"


def _plans(state: LogState, search: "_Search", table_id: int) -> Iterator[SnapshotPlanned]:
    name = f"cascade-{table_id}-{state.number}"
    if table_id in search.whole:
        yield SnapshotPlanned(snapshot_id=name, reason="repair", tables=(table_id,))
        return
    found = sorted(search.found[table_id])
    for number, at in enumerate(range(0, len(found), MAX_REPAIR_KEYS)):
        some = tuple(found[at : at + MAX_REPAIR_KEYS])
        yield SnapshotPlanned(snapshot_id=f"{name}-{number}", reason="repair", tables=(table_id,), keys=some)


@dataclass
class _Search:
    tools: Tools
    copies: Mapping[int, Look]
    found: dict[int, set[Key]] = field(default_factory=lambda: defaultdict(set))
    """The keys of the rows that were reached, by table."""
    whole: set[int] = field(default_factory=set)
    """Tables of which more was reached, or where it is not known what."""
    children: dict[int, set[tuple[int, ReachedThrough]]] = field(default_factory=lambda: defaultdict(set))

    def run(self, groups: Mapping[RecordNumber, Group]) -> None:
        wanted: Wanted = defaultdict(set)
        for group in groups.values():
            for table_id, cascade in group.items():
                for rows in cascade.rows:
                    wanted[table_id, rows.columns] |= set(rows.values)
                for through in cascade.through:
                    self.children[through.parent].add((table_id, through))
        for group in groups.values():
            for table_id, cascade in group.items():
                if any(through.parent not in group for through in cascade.through):  # it was added again since
                    self._give_up(table_id)
        if self.children:
            self._add_changed(wanted, min(groups))
        looked: Wanted = defaultdict(set)
        for _ in range(MOST_LEVELS + 1):
            following: Wanted = defaultdict(set)
            for place, values in wanted.items():
                new = values - looked[place]
                looked[place] |= new
                if new and place[0] not in self.whole:
                    self._find(place, new, following)
            wanted = following
        for table_id, _ in wanted:
            self._give_up(table_id)

    def _find(self, place: tuple[int, tuple[int, ...]], values: set[Key], following: "Wanted") -> None:
        """Find the rows that have one of the values, and what refers to them."""
        table_id, columns = place
        schema = self.copies[table_id].schema
        names, own = {c.id: c.name for c in schema.columns}, [c.id for c in schema.key_columns]
        children = self.children.get(table_id, set())
        taken = list(dict.fromkeys([*own, *(i for _, through in children for i in through.referenced)]))
        if not names.keys() >= {*taken, *columns}:
            self._give_up(table_id)
            return
        searched = [names[i] for i in columns]
        copy = self.copies[table_id].find(searched, sorted(values), [names[i] for i in taken], MOST_KEYS)
        rows = copy.rows.rename_columns([str(i) for i in taken])
        if rows.num_rows <= MOST_KEYS:
            self.found[table_id] |= _values(rows, own)
        if max(rows.num_rows, len(self.found[table_id])) > MOST_KEYS:
            self._give_up(table_id)
            return
        for child, through in children:
            following[child, through.columns] |= _values(rows, through.referenced)
            # A row that is withheld may have been reached as well.
            self._refer(following, (child, through), copy.applied.holes, own)

    def _refer(
        self, wanted: "Wanted", reference: tuple[int, ReachedThrough], parents: Collection[Key], own: Sequence[int]
    ) -> None:
        """Rows that refer to these keys of parents may have been reached. `own`: the ids of the parents' key."""
        child, through = reference
        if set(through.referenced) <= set(own):
            at = [own.index(column) for column in through.referenced]
            wanted[child, through.columns] |= {tuple(key[place] for place in at) for key in parents}
        elif parents:
            self._give_up(child)

    def _add_changed(self, wanted: "Wanted", since: RecordNumber) -> None:
        """Parents that the log, or a reading, has changed since: their copies no longer show what referred to them."""
        state = self.tools.journal.refresh()
        records = _records(self.tools.journal.storage, since, state.number)
        for parent, children in self.children.items():
            changed = None if records is None else _changed(self.tools.journal.storage, state, parent, records)
            for child, through in children:
                if changed is None:
                    self._give_up(child)
                else:
                    own = [c.id for c in state.tables[parent].schema.key_columns]
                    self._refer(wanted, (child, through), changed, own)

    def _give_up(self, table_id: int) -> None:
        """Read all of it, and of what refers to it."""
        if table_id not in self.whole:
            self.whole.add(table_id)
            for child, _ in self.children.get(table_id, ()):
                self._give_up(child)


Wanted = dict[tuple[int, tuple[int, ...]], set[Key]]
"""Values, by table and columns."""


def _values(rows: pa.Table, columns: Sequence[int]) -> set[Key]:
    """Those without NULLs: these refer to nothing."""
    found = [rows[str(column)].combine_chunks() for column in columns]
    filled = reduce(pc.and_, (column.is_valid() for column in found))
    return set(keys.keys([column.filter(filled) for column in found]))


def _records(storage: Storage, first: RecordNumber, last: RecordNumber) -> list[Record] | None:
    """None: they are too many, or some are gone."""
    if last - first >= MOST_RECORDS:
        return None
    try:
        return [read_record(storage, RecordNumber(number)) for number in range(first, last + 1)]
    except NotFound:
        return None


def _changed(storage: Storage, state: LogState, table_id: int, records: Iterable[Record]) -> set[Key] | None:
    """The keys of a table's rows that these records change. None: they are not known, or too many."""
    found = set[Key]()
    for record in records:
        for event in record.events:
            if isinstance(event, ChunkRegistered) and event.table_id == table_id and event.keys is not None:
                found |= set(event.keys)
            elif _touches(event, state, table_id):
                return None
        for segment in record.segments:
            if segment.table_id == table_id:
                versions = {logged.table.version: logged.table for logged in state.tables[table_id].schemas}
                if segment.schema_version not in versions:
                    return None
                names = [c.name for c in versions[segment.schema_version].key_columns]
                for rows in segment_batches(storage, segment, names):
                    found |= set(keys.keys([rows[name].combine_chunks() for name in names]))
        if len(found) > MOST_KEYS:
            return None
    return found


def _touches(event: Event, state: LogState, table_id: int) -> bool:
    """True if it may change any row of the table."""
    match event:
        case ChunkRegistered() if event.table_id == table_id:
            snapshot = state.snapshots.get(event.snapshot_id)
            return snapshot is None or not snapshot.plan.verify
        case Truncated():
            return event.table_id == table_id
        case TableAdded() | SchemaChanged():
            return event.table.table_id == table_id
        case _:
            return False
