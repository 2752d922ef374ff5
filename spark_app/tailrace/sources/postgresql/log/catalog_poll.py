"""Looks at the catalog every few seconds: new tables, gone tables, changes that the stream does not report.

Called by the stream. A new table is added at once: publication, then the edge X, then its record, all before
another message is read. Every other difference is tied to a place among the commits: the poll writes a marker (a
transactional logical message) and acts when the stream brings it back, behind everything that was committed before the
poll looked.
"""

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tailrace.changelog.records import Event, Heartbeat
from tailrace.changelog.records.tables import (
    WRITTEN,
    CopyRemoval,
    SchemaChanged,
    TableAdded,
    TableFingerprint,
    TableRemoved,
)
from tailrace.changelog.state import TableLog
from tailrace.contract.resources import Replicator
from tailrace.databases.postgresql.connect import Connection
from tailrace.errors import ReadRefused
from tailrace.sources.api import StreamContext
from tailrace.sources.dropped import drops
from tailrace.sources.hidden import must_hide
from tailrace.sources.postgresql import objects as slots
from tailrace.sources.postgresql.admission import publication_lost
from tailrace.sources.postgresql.catalog import of_other_case, table_by_oid
from tailrace.sources.postgresql.fingerprint import UNSETTLED, look
from tailrace.sources.postgresql.log.differences import Action, differences
from tailrace.sources.postgresql.log.explained import PendingLook, known_to_the_log, written
from tailrace.sources.postgresql.log.rejoin import name_is_free, rejoins
from tailrace.sources.postgresql.log.routes import Moved, Pauses, Routes
from tailrace.sources.postgresql.log.tables import CapturedTables, ColumnChanges
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.names import Names
from tailrace.sources.postgresql.publication import Publication
from tailrace.sources.postgresql.relations import empty, exists, is_taken, settled, unwritten
from tailrace.sources.postgresql.signal_table import SignalPoll
from tailrace.sources.postgresql.trees import Trees
from tailrace.sources.resyncs import former_places, renewal_plan, resyncs
from tailrace.sources.stops import is_mended, stopped, stopping

log = logging.getLogger(__name__)
SENT_WRONGLY = "PostgreSQL 14 may have sent rows of partitions as before they were attached or detached"


def _waits(table: PgTable, holder: str) -> PgTable:
    stop = ReadRefused(table.name, f"{table.name} is locked: {holder}", "None needed: it is captured once it is free.")
    return replace(table, stop=stop)


@dataclass(frozen=True)
class PollContext:
    """The connection and the settings that a look uses."""

    replicator: Replicator
    connection: Connection
    names: Names


class CatalogPoll:
    def __init__(self, place: PollContext, tables: CapturedTables, context: StreamContext) -> None:
        self._place = place
        self._tables = tables
        self._sink = context.sink
        self._nonce = context.nonce
        self._settle = context.settle
        self._tokens = 0
        self._looks: dict[str, PendingLook] = {}
        self._trees = Trees()
        self._signals = SignalPoll(place.replicator.spec.source, place.names.publication_is_ours)
        self.of_other_case = list[str]()
        """Sentences about patterns whose case is not the catalog's, at the last look."""
        state = context.sink.state
        fingerprints = {i: log.fingerprint for i, log in state.tables.items() if not log.removed}
        self._routes = Routes(place.connection.info.server_version, fingerprints)
        self._decides_since = slots.oldest_undecided(place.connection, place.names.slot) if self._routes.kept else None
        """Older transactions had ended before the position at which the log connection begins."""
        self._pauses = Pauses()
        self.held: frozenset[int] = frozenset()
        """Tables that the last look was not acted upon for: they wait for a new log connection."""
        self.sent_wrongly = False
        """The server must be asked in a new log connection (`connected`)."""
        self._locked: frozenset[int] = frozenset()
        self.took = 0.0
        """Seconds of the last look, mostly the server's."""
        self.acted_on = 0
        """The newest token whose marker has come back."""

    def begin(self) -> None:
        """Before the first row is read: what the options leave out now goes past, also if they change again before a
        look is acted on."""
        for table_id, known in self._tables.known.items():
            before = self._sink.state.tables[table_id].fingerprint
            if before is not None and not known.stopped and self._tables.reselected(table_id):
                parts = {**before, "selection": {"columns": UNSETTLED}}
                self._tables.looked(table_id, parts)
                self._sink.add(TableFingerprint(table_id=table_id, parts=parts))

    def poll(self, always_mark: bool = False) -> int:
        """Look now. Returns the token of the look; `always_mark`: its marker is written even if nothing differs."""
        found, publication = self._look()
        self._note_case(found)
        due = rejoins(self._sink.state, self._tables.known, found, self._place.replicator.spec)
        fresh = {t.oid for t in found.values() if t.oid not in due and self._is_fresh(t)}
        # A table that lost its key and stayed published could not be updated at the source any more.
        signals = self._signals.oid
        wrong = not all(self._tables.is_captured(i) or i in due or i == signals for i in publication.members)
        wrong |= self._signals.waits
        joins = any(i not in publication.members for i in due if found[i].stop is None)
        begins = self._sink.state.renewal is not None
        locked: frozenset[int] = frozenset()
        if fresh or begins or (self._place.names.publication_is_ours and (wrong or joins)):
            found, locked = self._add(fresh, due, found)
            due = {i: rejoin for i, rejoin in due.items() if i in found and i not in locked}
        self._sink.add(*self._freed())
        placed = self._settled(found)
        if always_mark or (not self._looks and (self.held or self._differs(found, placed))):
            self._tokens += 1
            content = f"{self._nonce}:{self._tokens}"
            # Without a version the table is left to the next look.
            versions = {i: known.schema.version for i, known in self._tables.known.items() if i not in locked}
            slots.emit(self._place.connection, content, transactional=True)
            new = [int(item) for i, table in found.items() for item in self._new_files(i, table)]
            still_empty = frozenset(map(str, empty(self._place.connection, new))) if new else frozenset[str]()
            edge = slots.edge(self._place.connection)
            self._looks[content] = PendingLook(
                self._tokens, time.monotonic(), found, edge, still_empty, placed, versions, self._brought(), due
            )
        return self._tokens

    def _note_case(self, found: Mapping[int, PgTable]) -> None:
        spec, before = self._place.replicator.spec, self.of_other_case
        self.of_other_case = of_other_case(self._place.connection, spec.tables, spec.options, found.values())
        for text in self.of_other_case:
            if text not in before:
                log.warning("%s", text)

    def _brought(self) -> frozenset[tuple[int, str]]:
        return frozenset((i, item) for i in self._tables.known for item in written(self._log_of(i)))

    def _settled(self, found: Mapping[int, PgTable]) -> frozenset[str]:
        new = [int(item) for item in self._routes.new(found)]
        return frozenset(map(str, settled(self._place.connection, new, self._decides_since))) if new else frozenset()

    def _moved(self, look: PendingLook) -> Moved:
        """All that the log connection has sent is settled. What has no row now can have none in there."""
        moved = self._routes.moved(look.found, look.written, look.settled)
        if not moved.tables:
            return moved
        files = [int(file) for file in self._routes.new_files(look.found)]
        without = frozenset(map(str, unwritten(self._place.connection, files)))
        return self._routes.moved(look.found, look.written, look.settled, without)

    def _look(self) -> tuple[dict[int, PgTable], Publication]:
        """The tables selected; what is not published, or not whole, carries that as its `stop`."""
        spec, names, begun = self._place.replicator.spec, self._place.names, time.monotonic()
        catalog = look(self._place.connection, spec.read_tables, spec.read_options, names.publication, self._trees)
        if catalog.publication is None:
            raise publication_lost(names.publication)
        found = dict(catalog.tables)
        fit = [t for t in found.values() if t.stop is None]
        stops = {t.oid: catalog.publication.stop(t) for t in fit if catalog.publication.membership(t)}
        outside = [t for t in fit if t.oid not in stops]
        gone = [t for t in outside if self._tables.is_captured(t.oid)]
        stops |= {t.oid: catalog.publication.harmful(t) or slots.left_out(t, names.publication) for t in gone}
        others = [t for t in outside if t.oid not in stops]
        stops |= slots.unpublishable(self._place.connection, names.publication, others, names.publication_is_ours)
        found |= {i: replace(found[i], stop=stop) for i, stop in stops.items() if stop is not None}
        self._signals.look(self._place.connection, catalog.publication)
        self.took = time.monotonic() - begun
        return found, catalog.publication

    def marker(self, content: str) -> None:
        """Our message came back: everything committed before the look is in the log now."""
        look = self._looks.pop(content, None)
        if look is None:
            return  # of an earlier process
        self._settle()
        self._pauses.arrived(look.sent, time.monotonic())
        moved = self._moved(look)
        self.held = frozenset() if self._pauses.over(time.monotonic()) else moved.undecided
        self._routes.follow(look.found, self.held)
        self.sent_wrongly |= bool(moved.undecided - self.held)
        if self.sent_wrongly:
            # What this connection sent until now may be wrong, or be missing.
            look = replace(look, edge=slots.edge(self._place.connection))
        # The new connection begins at the journal's position, which must lie behind the look.
        events: list[Event] = [Heartbeat()] if self.sent_wrongly else []
        leaving: list[int] = []
        asked = resyncs(self._sink.state)
        for table_id, known in list(self._tables.known.items()):
            if table_id in self.held:
                continue
            if known.schema.version != look.versions.get(table_id):
                if table_id in moved.tables and not known.stopped:
                    events.append(self._read_again(table_id, look))
                continue
            if table_id in look.rejoins:
                # A resync that was stopped since has nobody left who would read the rows: the next look decides.
                if look.rejoins[table_id].resync in (None, asked.get(table_id)):
                    leaving.append(table_id)
            else:
                events += self._events(table_id, look, table_id in moved.tables)
        events += self._rejoin(leaving, look)
        if events:
            self._sink.add(*events)
            self._settle()
        self.acted_on = look.token

    def connected(self) -> None:
        """There is a new log connection."""
        self.sent_wrongly = False
        self._pauses.begin(time.monotonic())

    def _is_fresh(self, table: PgTable) -> bool:
        known = self._sink.state.tables.get(table.oid)
        if known is None or table.oid not in self._tables.known:
            return name_is_free(self._tables.known, table)
        return known.schema.name == table.name and is_mended(known, table.stop)

    def _publish(self, found: Mapping[int, PgTable], fresh: Collection[int]) -> Mapping[int, str]:
        """Exactly what is captured. A table without a usable key must stay out: its updates would fail at the
        source. Returns those that are locked, by whom: they are left to a later look."""
        names = self._place.names
        if not names.publication_is_ours:
            return {}
        fit = [t for t in found.values() if t.stop is None and (t.oid in fresh or self._tables.is_captured(t.oid))]
        fit += self._signals.tables
        locked = slots.ensure_publication(self._place.connection, names.publication, fit, ours=True)
        for table_id in (locked.keys() - self._locked) & found.keys():
            log.warning("%s is not captured yet: %s", found[table_id].name, locked[table_id])
        self._locked = frozenset(locked)
        return locked

    def _add(
        self, fresh: set[int], due: Collection[int], found: dict[int, PgTable]
    ) -> tuple[dict[int, PgTable], frozenset[int]]:
        """Publish what is fresh or due, and take the fresh in. Returns what a new look shows (the tables' membership is
        what we have just made), and the tables that are locked."""
        self._settle()
        locked = self._publish(found, {*fresh, *due})
        again, _ = self._look()
        renewal = self._sink.state.renewal
        waiting = [_waits(again[i], locked[i]) for i in sorted(fresh & locked.keys() & again.keys())]
        fresh = fresh - locked.keys()
        if not fresh and renewal is None:
            return again, frozenset(locked)
        edge = slots.edge(self._place.connection)
        new = [again[i] for i in sorted(fresh & again.keys())]
        read = [table.oid for table in new if table.stop is None]
        events: list[Event] = []
        former = former_places(self._sink.state)
        for table in new:
            asked = renewal.id if renewal is not None and table.oid in read else None
            events += self._added(table, edge, former, asked)
        if renewal is not None:
            # What is locked joins the request at a later look: it is not complete before those rows are there.
            for table in waiting:
                events += self._added(table, edge, former)
            events.append(renewal_plan(renewal, [*read, *(table.oid for table in waiting)]))
        # One record: dying before it leaves the stream without tables, and the request open.
        self._sink.add(*events)
        self._settle()
        return again, frozenset(locked)

    def _added(
        self, table: PgTable, edge: str, former: Collection[tuple[str, str]], resync: str | None = None
    ) -> list[Event]:
        """The table in its present form, from now on. `former`: `former_places`."""
        before = self._sink.state.tables.get(table.oid)
        version = 1 if before is None else before.schema.version + 1
        schema = table.schema.model_copy(update={"version": version})
        again = before is not None or (table.schema_name, table.table_name) in former
        initial = self._place.replicator.spec.snapshot.initial or again
        wanted = initial and table.stop is None and resync is None
        hides = must_hide(self._sink.state, schema, table.leaves_out, bool(table.left_out))
        added = TableAdded(table=schema, edge=edge, snapshot=wanted, resync=resync, must_hide=hides)
        events: list[Event] = [added]
        if table.stop is not None:
            log.warning("%s is not captured: %s", table.name, table.stop)
            events.append(stopped(table.oid, self._sink.state.last_seq, table.stop))
        else:
            log.info("%s is captured; its chunks wait for transaction %s", table.name, edge)
            events.append(TableFingerprint(table_id=table.oid, parts=table.parts))
        self._tables.add(schema, stopped=table.stop is not None, parts=table.parts)
        return events

    def _rejoin(self, leaving: list[int], look: PendingLook) -> list[Event]:
        """First all of them end, then those whose name is free begin; the others are new tables to the next look. One
        record holds it all: dying before it leaves the tables as they were, to be looked at again."""
        events: list[Event] = []
        for table_id in leaving:
            reason = look.rejoins[table_id].reason
            log.info("%s is captured again: %s", self._tables.known[table_id].schema.name, reason)
            self._tables.remove(table_id)
            events.append(TableRemoved(table_id=table_id, reason=reason))
        former = former_places(self._sink.state)
        for table_id in leaving:
            now, resync = look.found[table_id], look.rejoins[table_id].resync
            if name_is_free(self._tables.known, now):
                events += self._added(now, look.edge, former, resync)
        return events

    def _differs(self, found: dict[int, PgTable], placed: Collection[str]) -> bool:
        if rejoins(self._sink.state, self._tables.known, found, self._place.replicator.spec):
            return True
        if self._routes.kept and self._routes.moved(found, self._brought(), placed).undecided:
            return True
        for table_id, known in self._tables.known.items():
            now = found.get(table_id)
            if now is None:
                return True
            if known.stopped:
                continue
            if (
                self._tables.compare(table_id, now) != ColumnChanges()
                or self._log_of(table_id).fingerprint != now.parts
            ):
                return True
        self._routes.follow(found)
        return False

    def _new_files(self, table_id: int, table: PgTable) -> list[str]:
        known = self._sink.state.tables.get(table_id)
        if known is None or known.fingerprint is None or "file" not in known.fingerprint:
            return []
        before = known.fingerprint["file"]
        return [item for item, file in table.parts["file"].items() if before.get(item) != file]

    def _read_again(self, table_id: int, look: PendingLook) -> SchemaChanged:
        """Whatever else has changed: a later look judges that."""
        known, log_of = self._tables.known[table_id].schema, self._log_of(table_id)
        evolved = known.model_copy(update={"version": known.version + 1})
        self._tables.evolve(evolved)
        edge = slots.later_edge(log_of.edge, look.edge)
        return SchemaChanged(table=evolved, seq=self._sink.state.last_seq, reread=True, edge=edge)

    def _events(self, table_id: int, look: PendingLook, moved: bool) -> list[Event]:
        known, now = self._tables.known[table_id], look.found.get(table_id)
        last_seq = self._sink.state.last_seq
        if now is None:
            return [self._removed(table_id)]
        if known.stopped:
            return []
        # A partition that the stream brought while the look waited may be younger than the look: the next one judges.
        young = {i for i in written(self._log_of(table_id)) if (table_id, i) not in look.written}
        files = {**dict.fromkeys(sorted(young), WRITTEN), **now.parts["file"]}
        now = replace(now, parts={**now.parts, "file": files})
        difference = self._tables.compare(table_id, now)
        if difference.stop is not None:
            self._tables.stop(table_id)
            return [stopping(table_id, last_seq, difference.stop)]
        reasons = [SENT_WRONGLY] if moved else []
        reasons += self._reasons(self._log_of(table_id), now, look)
        reread = difference.reread or bool(reasons)
        recorded: list[Event] = []
        if self._log_of(table_id).fingerprint != now.parts:
            recorded.append(TableFingerprint(table_id=table_id, parts=now.parts))
            self._tables.looked(table_id, now.parts)
        evolved = difference.evolved
        if evolved is None and reread:
            evolved = known.schema.model_copy(update={"version": known.schema.version + 1})
        if evolved is None:
            return recorded
        because = (
            f"; it is read again: {', '.join(reasons) or 'older rows have values in new columns'}" if reread else ""
        )
        log.info("%s has schema version %d after sequence %d%s", known.schema.name, evolved.version, last_seq, because)
        self._tables.evolve(evolved)
        # Where no ALTER kept writers and chunks apart, rows from behind the change lie before this place: the chunks
        # must see them.
        edge = slots.later_edge(self._log_of(table_id).edge, look.edge) if reasons or difference.older else None
        return [SchemaChanged(table=evolved, seq=last_seq, reread=reread, edge=edge), *recorded]

    def _reasons(self, before: TableLog, now: PgTable, look: PendingLook) -> list[str]:
        """Why rows must be read again; none: they need not."""
        if before.fingerprint is None:
            return []
        state = self._sink.state
        found = (known_to_the_log(d, before, now, look, state) for d in differences(before.fingerprint, now.parts))
        columns = {str(c.attnum): c.name for c in now.columns}
        return [d.text(now.name, columns) for d in found if d.rule.action is Action.READ_AGAIN]

    def _log_of(self, table_id: int) -> TableLog:
        return self._sink.state.tables[table_id]

    def _removed(self, table_id: int) -> TableRemoved:
        schema = self._tables.known[table_id].schema
        now = table_by_oid(self._place.connection, table_id)
        reason = "it was dropped" if now is None else "no pattern of tables selects it"
        log.info("%s is no longer captured: %s", schema.name, reason)
        self._tables.remove(table_id)
        place = schema.schema_name, schema.table_name
        # The whole catalog, which no right hides: a table may have become something else, such as a view.
        drop = (
            now is None and drops(self._place.replicator.spec, *place) and not exists(self._place.connection, table_id)
        )
        return TableRemoved(table_id=table_id, reason=reason, drop=drop)

    def _freed(self) -> list[Event]:
        """Names of dropped tables that no other table has at a later look: one that has is captured first."""
        waiting = [dropped.place for dropped in self._sink.state.dropped if not dropped.free]
        gone = [place for place in waiting if not is_taken(self._place.connection, *place)]
        return [CopyRemoval(schema_name=schema, table_name=table, step="free") for schema, table in gone]
