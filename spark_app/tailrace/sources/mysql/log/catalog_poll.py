"""Looks at the catalog every few seconds, and when a statement in the log says so: tables that come, go or change.

Called by the stream. A new table is added at once: its edge is what the stream has had until now, which its chunks must
see. Any other difference waits until the stream has come to where the log ended after the look: what explains it has
come by then. What the log says by itself (names in table maps, statements) is acted on where it stands.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tailrace.changelog.records import Event
from tailrace.changelog.records.tables import CopyRemoval, SchemaChanged, TableAdded, TableFingerprint, TableRemoved
from tailrace.changelog.records.terms import Position, Seq, TableSchema
from tailrace.changelog.state import TableLog
from tailrace.contract.resources import Replicator
from tailrace.databases.mysql.connect import Connection, source_errors
from tailrace.errors import LogIncomplete, ReadRefused, TableStop
from tailrace.sources.api import StreamContext
from tailrace.sources.dropped import drops
from tailrace.sources.hidden import must_hide
from tailrace.sources.mysql.catalog import PRIMARY, TRANSACTIONAL, discover, hidden, of_other_case, table_by_id
from tailrace.sources.mysql.log.definitions import announced, with_announced
from tailrace.sources.mysql.log.in_place import alike, step
from tailrace.sources.mysql.log.statements import ColumnAction, Effect
from tailrace.sources.mysql.log.tables import Captured, CapturedTables, followed
from tailrace.sources.mysql.model import MysqlTable, quoted
from tailrace.sources.mysql.signal_table import obstacle
from tailrace.sources.patterns import selected
from tailrace.sources.resyncs import ending, former_places, renewal_plan, resyncs
from tailrace.sources.signals import SignalTable, SignalTableFault
from tailrace.sources.stops import EVOLVED, is_mended, starts_over, stopped, stopping

log = logging.getLogger(__name__)
_SHOWN_LATER = 0.5
"""Seconds in which MySQL's catalog shows a statement that its log has already."""
_GONE = "it was dropped, or tables.include no longer selects it"
Found = Mapping[int, MysqlTable]


@dataclass(frozen=True)
class StreamProgress:
    """The progress of the stream."""

    position: Callable[[], Position]
    edge: Callable[[], str]
    """The transactions that it has had, as `Visibility.past` compares them."""
    end: Callable[[], Position]
    """The present end of the log."""


class CatalogPoll:
    def __init__(
        self,
        replicator: Replicator,
        connection: Connection,
        tables: CapturedTables,
        context: StreamContext,
        progress: StreamProgress,
    ) -> None:
        self._replicator = replicator
        self._connection = connection
        self._tables = tables
        self._sink = context.sink
        self._settle = context.settle
        self._progress = progress
        self._signals = SignalTableFault()
        self.of_other_case = list[str]()
        """Sentences about patterns whose case is not the catalog's, at the last look."""
        self._since: dict[int, tuple[TableSchema | None, Position]] = {}
        """Table -> its form, and where the log ended when a look first found it in that. None: it is gone."""
        self._forms: dict[int, tuple[TableSchema, Position]] = {}
        """Table that is to start over -> its form, and where the log ended when a look first found it in that."""

        self._not_found: set[tuple[str, str]] = set()
        """Names of dropped tables that the last look did not find again."""
        self._vanished: dict[int, Position] = {}
        """Stopped table that a look no longer found -> where the log ended then."""

    def poll(self) -> None:
        found, state = self._look(), self._sink.state
        self._note_case(found)
        self._note_signals()
        asked = {i: snapshot for i, snapshot in resyncs(state).items() if i in self._tables.known and i in found}
        anew = [i for i in self._starting_over(found) if i not in asked]
        fresh = [t for i, t in found.items() if i not in asked and self._is_fresh(t)]
        gone = self._gone(found, {(t.schema_name, t.table_name) for t in fresh})
        if asked or anew or fresh or gone or state.renewal is not None:
            self._settle()
            events = [event for i, snapshot in asked.items() for event in self._again(found[i], snapshot)]
            events += [event for i in anew for event in (self._removed(i, EVOLVED), *self._added(found[i]))]
            self._record([*(self._removed(i, _GONE) for i in gone), *events, *self._begin(fresh)])
        if self._due(found):
            self._settle()
            # Rows that were just decoded may have brought the new version, or stopped the table.
            self._record([event for i in self._due(found) for event in self._compared(i, found.get(i))])
        self._record([*self._left_out(found), *self._freed(found)])

    def _note_case(self, found: Found) -> None:
        spec, before = self._replicator.spec, self.of_other_case
        with source_errors("looking at the catalog"):
            self.of_other_case = of_other_case(self._connection, spec.tables, spec.options, found.values())
        for text in self.of_other_case:
            if text not in before:
                log.warning("%s", text)

    def _note_signals(self) -> None:
        signals = SignalTable.of(self._replicator.spec.source)
        if signals is not None:
            self._signals.found(obstacle(self._connection, signals))

    def _freed(self, found: Found) -> list[Event]:
        """Names of dropped tables that no other table has at the second look after: one that has is captured first, and
        the log may bring a drop right before a look."""
        names = {(table.schema_name, table.table_name) for table in found.values()}
        not_found = {dropped.place for dropped in self._sink.state.dropped if not dropped.free} - names
        free, self._not_found = sorted(not_found & self._not_found), not_found
        return [CopyRemoval(schema_name=schema, table_name=table, step="free") for schema, table in free]

    def _left_out(self, found: Found) -> list[Event]:
        """The catalog has had every column that was announced: one that is in no version now is not copied. Or the
        options leave it out since: before its rows go past, that is recorded."""
        events: list[Event] = []
        for table_id, known in self._tables.known.items():
            if known.stopped:
                continue
            if known.announced and not _differs(known, found.get(table_id)):
                known.announced.clear()
            if announced(known.parts) - {c.name for c in known.schema.columns} != known.announced:
                events += _announced(known)
        return events

    def statement(
        self, touched: Mapping[int, Effect], actions: Mapping[int, Sequence[ColumnAction]], written: str = ""
    ) -> None:
        """A statement in the log concerned these captured tables; its transaction is finished and not recorded. The
        events go into its record: after a restart the statement would not be read again. `actions`: what it does to
        columns. `written`: the statement, if it may have changed rows."""
        found, events = self._look(), list[Event]()
        for table_id, effect in touched.items():
            known = self._tables.known.get(table_id)
            if known is None:
                continue
            stated = actions.get(table_id, ()) if effect in (Effect.ALTERED, Effect.HARMLESS) else ()
            is_doubtful = bool(stated) and self._progress.position() <= known.looked
            now = found.get(table_id)
            if is_doubtful:
                events += self._stated(known, Effect.REREAD, now, written)
            else:
                events += self._in_place(known, now, stated) or self._stated(known, effect, now, written)
        self._sink.add(*events)

    def _in_place(self, known: Captured, now: MysqlTable | None, stated: Sequence[ColumnAction]) -> list[Event]:
        """Empty: more than that may have happened. In what the catalog shows later statements may have a part that the
        log has before its end: the first one that is found has the table read again."""
        before, added = known.table, {action.after for action in stated if action.before is None}
        if now is None or before is None or not stated or known.stopped or known.reread or known.announced - added:
            return []
        until = time.monotonic() + _SHOWN_LATER
        while alike(before, now) and time.monotonic() < until:
            time.sleep(_SHOWN_LATER / 20)
            now = self._lookup(now.id) or now
        done = step(known.schema, before, now, stated)
        if done is None or not self._tables.allows(known, done):
            return []
        is_same = done.schema is known.schema
        self._tables.follow(known, done.schema, now, self._progress.end())
        fingerprint = TableFingerprint(table_id=now.id, parts=known.look_again(now))
        if is_same:
            return [fingerprint]
        log.info("%s has schema version %d: its columns are followed in place", done.schema.name, done.schema.version)
        return [self._version_of(done.schema, done.reread), fingerprint]

    def without_transactions(self) -> list[int]:
        """The captured tables whose engine has none."""
        found = self._look().values()
        return [t.id for t in found if t.id in self._tables.known and t.engine not in TRANSACTIONAL]

    def _stated(self, known: Captured, effect: Effect, now: MysqlTable | None, written: str) -> list[Event]:
        schema = known.schema
        if effect is Effect.KEYED:
            by_primary_key = now is not None and now.key_index == PRIMARY
            effect = Effect.HARMLESS if by_primary_key else Effect.REREAD
        match effect:
            case Effect.REPLACED | Effect.DROPPED:
                drop = effect is Effect.DROPPED and self._drops(schema, now)
                gone = [self._removed(schema.table_id, "another table took its name, or it was dropped", drop)]
                return [*gone, *(self._added(now) if now is not None else [])]
            case _ if known.stopped:
                return []
            case Effect.WRITTEN:
                what = f"rows of {schema.name} may have been changed by a statement that the log has as text: {written}"
                fix = "Set binlog_format = ROW for the server and for that session; then resync the table."
                return self._stopped(schema.table_id, LogIncomplete(schema.name, what, fix))
            case Effect.REREAD | Effect.ALTERED | Effect.HARMLESS:
                self._since[schema.table_id] = _form(now), self._progress.end()
                return _announced(known) if effect is Effect.HARMLESS else self._reread(known, now)
            case _:  # EMPTIED has its place among the rows
                return []

    def _reread(self, known: Captured, now: MysqlTable | None) -> list[Event]:
        """At once, and again with the columns that the statement may have brought, unless they are there already."""
        table_id = known.schema.table_id
        known.reread = True
        if now is not None and self._progress.position() >= self._since[table_id][1]:
            return self._compared(table_id, now)
        marked = self._tables.marked(known, known.table)
        log.info("%s has schema version %d; it is read again", marked.name, marked.version)
        return [self._version_of(marked, reread=True)]

    def _look(self) -> dict[int, MysqlTable]:
        spec = self._replicator.spec
        with source_errors("looking at the catalog"):
            return {t.id: t for t in discover(self._connection, spec.read_tables, spec.read_options)}

    def _lookup(self, table_id: int) -> MysqlTable | None:
        with source_errors("looking at a table"):
            return table_by_id(self._connection, table_id, self._replicator.spec.read_options)

    def _record(self, events: list[Event]) -> None:
        if events:
            self._sink.add(*events)
            self._settle()

    def _is_fresh(self, table: MysqlTable) -> bool:
        known = self._sink.state.tables.get(table.id)
        if known is None or table.id not in self._tables.known:
            return True
        return is_mended(known, table.stop)

    def _due(self, found: Found) -> list[int]:
        return [i for i, known in self._tables.known.items() if not known.stopped and self._is_due(i, found)]

    def _is_due(self, table_id: int, found: Found) -> bool:
        """True if the catalog has another table than the log, also after all that was written before a look showed it
        as it is now: older rows do not have what came since."""
        known, form = self._tables.known[table_id], _form(found.get(table_id))
        differs = _differs(known, found.get(table_id))
        if not known.reread and not differs:
            self._since.pop(table_id, None)
            return False
        if table_id not in self._since or self._since[table_id][0] != form:
            self._since[table_id] = form, self._progress.end()
        if self._progress.position() < self._since[table_id][1]:
            return False
        if not differs:
            known.reread = False
            del self._since[table_id]
        return differs

    def _starting_over(self, found: Found) -> list[int]:
        """Stopped tables whose form changed, once all that was written before a look showed their new one is behind."""
        state = self._sink.state
        stops = [i for i, known in self._tables.known.items() if known.stopped and i in state.tables and i in found]
        due = [i for i in stops if found[i].stop is None and self._starts_over(state.tables[i], found[i])]
        for i in due:
            if i not in self._forms or self._forms[i][0] != found[i].schema:
                self._forms[i] = found[i].schema, self._progress.end()
        self._forms = {i: self._forms[i] for i in due}
        return [i for i in due if self._progress.position() >= self._forms[i][1]]

    def _starts_over(self, table: TableLog, now: MysqlTable) -> bool:
        return starts_over(table, self._replicator.spec, now.schema)

    def _compared(self, table_id: int, now: MysqlTable | None) -> list[Event]:
        del self._since[table_id]
        known = self._tables.known[table_id]
        if now is None:
            return self._missing(known.schema)
        try:
            evolved = self._tables.followed(known, now)
        except TableStop as stop:
            return self._stopped(table_id, stop)
        if evolved is None:
            evolved = known.schema.model_copy(update={"version": known.schema.version + 1})
        reread = known.reads_again(evolved)
        log.info("%s has schema version %d%s", evolved.name, evolved.version, "; it is read again" if reread else "")
        self._tables.evolve(evolved, now)
        known.announced.clear()
        return [self._version_of(evolved, reread), TableFingerprint(table_id=table_id, parts=known.look_again(now))]

    def _gone(self, found: Found, fresh: Collection[tuple[str, str]]) -> list[int]:
        """Tables whose place in the log no longer matters: stopped ones, and those that had a number which a table of
        the same name no longer has (`model.identity`)."""
        missing = [known for table_id, known in self._tables.known.items() if table_id not in found]
        stops = [known.schema.table_id for known in missing if known.stopped]
        # The statement that dropped it comes first: it alone says so.
        end = self._progress.end() if stops else Position(0)
        self._vanished = {i: self._vanished.get(i, end) for i in stops}
        reached = {i for i, since in self._vanished.items() if self._progress.position() >= since}
        return [
            known.schema.table_id
            for known in missing
            if (known.schema.schema_name, known.schema.table_name) in fresh
            or (known.schema.table_id in reached and not self._is_hidden(known.schema))
        ]

    def _is_hidden(self, schema: TableSchema) -> bool:
        """The server hides the table from users without a right on it, or would not show it if it were there."""
        name = schema.schema_name, schema.table_name
        with source_errors("looking at the catalog"):
            return selected(self._replicator.spec.read_tables, *name) and hidden(self._connection, *name)

    def _missing(self, schema: TableSchema) -> list[Event]:
        if not self._is_hidden(schema):
            return [self._removed(schema.table_id, _GONE)]
        what = f"the user no longer has a right on {schema.name}"
        table = f"{quoted(schema.schema_name)}.{quoted(schema.table_name)}"
        fix = f"Run `GRANT SELECT ON {table} TO …`; the table is read again then. If it was dropped: exclude it."
        return self._stopped(schema.table_id, ReadRefused(schema.name, what, fix))

    def _version_of(self, schema: TableSchema, reread: bool) -> SchemaChanged:
        edge = self._progress.edge() if reread else None
        return SchemaChanged(table=schema, seq=Seq(self._sink.next_seq - 1), reread=reread, edge=edge)

    def _stopped(self, table_id: int, stop: TableStop) -> list[Event]:
        self._tables.stop(table_id)
        return [stopping(table_id, Seq(self._sink.next_seq - 1), stop)]

    def _drops(self, schema: TableSchema, now: MysqlTable | None) -> bool:
        """True if the copy of a table is to be dropped, which the log says was dropped, and which has not been hidden
        from the user since."""
        wanted = drops(self._replicator.spec, schema.schema_name, schema.table_name)
        return wanted and (now is not None or not self._is_hidden(schema))

    def _removed(self, table_id: int, reason: str, drop: bool = False) -> TableRemoved:
        log.info("%s is no longer captured: %s", self._tables.known[table_id].schema.name, reason)
        self._tables.remove(table_id)
        self._since.pop(table_id, None)
        return TableRemoved(table_id=table_id, reason=reason, drop=drop)

    def _again(self, table: MysqlTable, snapshot: str) -> list[Event]:
        """It ends and begins as it is now, because a resync asks for it."""
        ended = ending(table.id, snapshot)
        return [self._removed(table.id, ended.reason), *self._added(table, snapshot)]

    def _begin(self, fresh: list[MysqlTable]) -> list[Event]:
        renewal = self._sink.state.renewal
        events: list[Event] = []
        for table in fresh:
            asked = renewal.id if renewal is not None and table.stop is None else None
            events += self._added(table, asked)
        if renewal is not None:
            events.append(renewal_plan(renewal, [t.id for t in fresh if t.stop is None]))
        return events

    def _added(self, table: MysqlTable, resync: str | None = None) -> list[Event]:
        """The table in its present form, from now on."""
        state = self._sink.state
        before = state.tables.get(table.id)
        version = 1 if before is None else self._version(table.id, before.schema.version) + 1
        schema = table.schema.model_copy(update={"version": version})
        again = (table.schema_name, table.table_name) in former_places(state)
        wanted = (self._replicator.spec.snapshot.initial or again) and table.stop is None and resync is None
        edge = self._progress.edge()
        self._tables.add(schema, table.stop is not None, table)
        left_out = {column.name for column in table.columns if not column.copied}
        hides = must_hide(state, schema, lambda column: column.name in left_out, bool(left_out))
        added = TableAdded(table=schema, edge=edge, snapshot=wanted, resync=resync, must_hide=hides)
        if table.stop is not None:
            log.warning("%s is not captured: %s", table.name, table.stop)
            return [added, stopped(table.id, state.last_seq, table.stop)]
        log.info("%s is captured", table.name)
        return [added, TableFingerprint(table_id=table.id, parts=self._tables.known[table.id].look_again(table))]

    def _version(self, table_id: int, recorded: int) -> int:
        known = self._tables.known.get(table_id)
        return recorded if known is None else max(recorded, known.schema.version)


def _announced(known: Captured) -> list[Event]:
    """The columns that a statement added are recorded with it: a restart may come before the look that finds them. And
    that they are forgotten: they may be copied later."""
    parts = with_announced(known.parts, known.announced)
    if parts == known.parts:
        return []
    known.parts = parts
    return [TableFingerprint(table_id=known.schema.table_id, parts=parts)]


def _form(table: MysqlTable | None) -> TableSchema | None:
    return None if table is None else table.schema


def _differs(known: Captured, now: MysqlTable | None) -> bool:
    if now is None:
        return True
    try:
        return followed(known.schema, now) is not None
    except TableStop:
        return True
