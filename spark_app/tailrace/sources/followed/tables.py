"""The tables of a follower's own log, and the events of the other log as events of this one. Pure.

Versions of a table's schema count from 1 in each log, so a constant of each table is taken off. It is kept where a
source keeps what its looks have found of a table: in `TableFingerprint`.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from tailrace.changelog.records import Event
from tailrace.changelog.records.tables import (
    Cascaded,
    CopyRemoval,
    SchemaChanged,
    TableAdded,
    TableFingerprint,
    TableRemoved,
    TableStopped,
    Truncated,
)
from tailrace.changelog.records.terms import Seq, TableSchema
from tailrace.changelog.state import LogState, TableLog
from tailrace.contract.resources import ReplicatorSpec
from tailrace.sources.dropped import drops
from tailrace.sources.hidden import must_hide
from tailrace.sources.log.tables import StreamTable, StreamTables
from tailrace.sources.patterns import options_of, selected
from tailrace.sources.resyncs import ending, former_places, renewal_plan, resyncs

log = logging.getLogger(__name__)
PART, SHIFT = "followed", "versions before"
"""The place in a fingerprint that says by how much the other log's versions are ahead."""


@dataclass
class FollowedTable(StreamTable):
    """A table of this log that is captured or stopped."""

    shift: int = 0
    """Its version in the other log less that in this one."""
    versions: dict[int, TableSchema] = field(default_factory=dict)
    """All that rows may still have, by this log's number."""


class FollowedTables(StreamTables[FollowedTable]):
    def __init__(self, spec: ReplicatorSpec, state: LogState) -> None:
        super().__init__()
        self._spec = spec
        for table in state.tables.values():
            if not table.removed:
                self._take(table)

    def _take(self, table: TableLog) -> None:
        schemas = [s.table for s in table.schemas]
        shift = int((table.fingerprint or {}).get(PART, {}).get(SHIFT, "0"))
        versions = {s.version: s for s in schemas}
        stopped = table.stopped is not None
        self.known[table.table_id] = FollowedTable(schemas[-1], stopped, shift, versions, history=schemas[:-1])

    def selects(self, schema: TableSchema) -> bool:
        return selected(self._spec.read_tables, schema.schema_name, schema.table_name)

    def version_there(self, table_id: int, version: int) -> TableSchema | None:
        """The schema that rows of this version of the other log have here; None: the table is not captured."""
        table = self.known.get(table_id)
        return None if table is None else table.versions.get(version - table.shift)

    # ---- what the other log says ----

    def events(self, found: Iterable[Event], shift: int, state: LogState) -> list[Event]:
        """Those of one record, in order. `shift`: the other log's sequences less this one's."""
        passed: list[Event] = []
        for event in found:
            passed += self._passed(event, shift, state)
        return passed

    def _passed(self, event: Event, shift: int, state: LogState) -> list[Event]:
        match event:
            case TableAdded():
                return self._added(event, state)
            case TableRemoved(table_id=table_id) if table_id in self.known:
                schema = self.known.pop(table_id).schema
                drop = event.drop and drops(self._spec, schema.schema_name, schema.table_name)
                return [event.model_copy(update={"drop": drop})]
            case TableStopped(table_id=table_id) if self.is_captured(table_id):
                self.stop(table_id)
                return [event.model_copy(update={"seq": Seq(event.seq - shift)})]
            case SchemaChanged(table=schema) if self.is_captured(schema.table_id):
                table = self.known[schema.table_id]
                now = schema.model_copy(update={"version": schema.version - table.shift})
                table.evolve(now)
                table.versions[now.version] = now
                return [event.model_copy(update={"table": now, "seq": Seq(event.seq - shift)})]
            case Truncated(table_id=table_id) if self.is_captured(table_id):
                return [event.model_copy(update={"seq": Seq(event.seq - shift)})]
            case Cascaded(table_id=table_id) if self.is_captured(table_id):
                known = all(through.parent in self.known for through in event.through)
                # What the rows of a table that is not here have reached, nothing here tells: all are read.
                return [event if known else Cascaded(table_id=table_id, edge=event.edge)]
            case CopyRemoval(step="free") if _is_dropped(state, event):
                return [event]
            case _:  # the other log's snapshots, cuts, signals, and how far its own target is
                return []

    def _added(self, event: TableAdded, state: LogState) -> list[Event]:
        if not self.selects(event.table) or self.is_captured(event.table.table_id):
            return []
        # A table that starts over there starts over here: it was removed in the same record.
        return self.begin(event.table, event.edge, state, hides=event.must_hide)

    # ---- what this Replicator's manifest, or a request to it, says ----

    def begin(
        self, there: TableSchema, edge: str, state: LogState, *, hides: bool = False, resync: str | None = None
    ) -> list[Event]:
        """The table from here on. `there`: as the other log has it."""
        before = state.tables.get(there.table_id)
        version = 1 if before is None else before.schema.version + 1
        now = there.model_copy(update={"version": version})
        shift = there.version - version
        self.known[now.table_id] = FollowedTable(now, shift=shift, versions={version: now})
        again = before is not None or (now.schema_name, now.table_name) in former_places(state)
        wanted = (self._spec.snapshot.initial or again) and resync is None
        hidden = hides or self._hides(state, now)
        parts = {PART: {SHIFT: str(shift)}}
        log.info("%s is captured as the change log that is followed has it", now.name)
        return [
            TableAdded(table=now, edge=edge, snapshot=wanted, resync=resync, must_hide=hidden),
            TableFingerprint(table_id=now.table_id, parts=parts),
        ]

    def _hides(self, state: LogState, now: TableSchema) -> bool:
        """A column that is no longer copied counts as hidden, for it may still be there in the source."""
        names = {column.name for column in now.columns}
        options = options_of(self._spec.options, now.schema_name, now.table_name)
        chosen = options is not None and options.columns is not None
        return must_hide(state, now, lambda column: column.name not in names, chosen)

    def joined(self, there: LogState, state: LogState) -> list[Event]:
        """The tables of the other log that this one lacks, as of the other one's newest record. A stream that starts
        over covers them all."""
        events: list[Event] = []
        read: list[int] = []
        asked = None if state.renewal is None else state.renewal.id
        for table in self.missing(there):
            resync = asked if table.stopped is None else None
            begun = self.begin(table.schema, table.edge, state, resync=resync)
            if table.stopped is None:
                read.append(table.table_id)
            else:
                self.stop(table.table_id)
                begun[0] = begun[0].model_copy(update={"snapshot": False})
                begun.append(table.stopped.model_copy(update={"seq": state.last_seq}))
            events += begun
        if state.renewal is not None:
            events.append(renewal_plan(state.renewal, read))
        return events

    def missing(self, there: LogState) -> list[TableLog]:
        live = (table for table in there.tables.values() if not table.removed)
        return [t for t in live if t.table_id not in self.known and self.selects(t.schema)]

    def left(self) -> list[Event]:
        """The end of the tables that the manifest no longer selects."""
        gone = [table.schema for table in self.known.values() if not self.selects(table.schema)]
        for schema in gone:
            self.remove(schema.table_id)
        return [TableRemoved(table_id=s.table_id, reason="the manifest no longer includes it") for s in gone]

    def read_again(self, state: LogState) -> list[Event]:
        """Tables that a resync of this Replicator asks for end and begin, in one record. The chunks that are to come
        see what is left of the log before: a transaction that one does not see lies after its end, or it is read
        again."""
        events: list[Event] = []
        for table_id, snapshot in resyncs(state).items():
            if not self.is_captured(table_id):
                continue
            table = self.known[table_id]
            there = table.schema.model_copy(update={"version": table.schema.version + table.shift})
            edge = state.tables[table_id].edge
            events += [ending(table_id, snapshot), *self.begin(there, edge, state, resync=snapshot)]
        return events


def _is_dropped(state: LogState, event: CopyRemoval) -> bool:
    return any(one.place == (event.schema_name, event.table_name) for one in state.dropped)
