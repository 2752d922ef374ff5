"""The binary log as a `ChangeStream`: connection, assembler, decoder and the looks at the catalog, wired up.

    LogConnection ─> Assembler ─> Decoder ─> Sink
                            │ statements          ^
                            └──> CatalogPoll ─────┘

Made by `sources.mysql.subscription` for capture's loop, whose thread does all of it.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tailrace.changelog.records.tables import SchemaChanged
from tailrace.changelog.records.terms import Position, ResumePoint, Seq
from tailrace.contract.resources import Replicator
from tailrace.databases.mysql.connect import Connection, connect, execute, server_of, source_errors
from tailrace.databases.mysql.faults import START_OVER
from tailrace.errors import Retry, SourceRefused
from tailrace.sources.api import Distance, StreamContext
from tailrace.sources.log.stream import LogStream
from tailrace.sources.mysql.catalog import table_by_id
from tailrace.sources.mysql.facts import is_replica, observe
from tailrace.sources.mysql.gtid import GtidSet
from tailrace.sources.mysql.log import events, texts
from tailrace.sources.mysql.log.anchor import FIRST, ended, files
from tailrace.sources.mysql.log.assembler import Assembler
from tailrace.sources.mysql.log.blocks import EventBlock
from tailrace.sources.mysql.log.catalog_poll import CatalogPoll, StreamProgress
from tailrace.sources.mysql.log.collations import charsets
from tailrace.sources.mysql.log.connection import LogConnection, Request, lost
from tailrace.sources.mysql.log.decode import Decoder
from tailrace.sources.mysql.log.executed import Executed
from tailrace.sources.mysql.log.foreign_keys import ForeignKeys, LogEnds
from tailrace.sources.mysql.log.framing import Event, EventBatch
from tailrace.sources.mysql.log.log_position import StartingPoint
from tailrace.sources.mysql.log.signal_rows import SignalRows
from tailrace.sources.mysql.log.statements import (
    STRENGTH,
    ColumnAction,
    Effect,
    KnownTables,
    Name,
    added_columns,
    changes_rows,
    cleaned,
    column_actions,
    effects,
)
from tailrace.sources.mysql.log.table_map import YEARS_HAVE_A_SIGN, head_of
from tailrace.sources.mysql.log.tables import CapturedTables
from tailrace.sources.mysql.log.temporary import TemporaryTables
from tailrace.sources.mysql.log.xa_buffer import XaBuffer
from tailrace.sources.mysql.log_end import current_snapshot, log_end, prepared
from tailrace.sources.mysql.model import MysqlTable
from tailrace.sources.mysql.position import file_of, offset_of
from tailrace.sources.mysql.preflight import UNLOGGED
from tailrace.sources.mysql.source_config import SourceConfig
from tailrace.sources.mysql.state import SourceState
from tailrace.sources.mysql.visibility import position_text
from tailrace.sources.signals import SignalTable
from tailrace.sources.stops import evolves, stands_still

log = logging.getLogger(__name__)


class MysqlStream(LogStream[LogConnection]):
    _assembler: Assembler
    _tables: CapturedTables

    def __init__(
        self,
        config: SourceConfig,
        connection: Connection,
        replicator: Replicator,
        server_id: int,
        context: StreamContext,
    ) -> None:
        """`config`: of the log connection; `connection`: for everything that is asked in SQL. `server_id`: ours, which
        no other client of the server may have."""
        self._config = config
        self._connection = connection
        self._server_id = server_id
        self._sink = context.sink
        self._options = replicator.spec.read_options
        server = server_of(connection)
        self._mariadb = server.product != "mysql"
        self._charsets = charsets(connection)
        early = not self._mariadb and server.version < YEARS_HAVE_A_SIGN
        self._tables = CapturedTables(
            self._lookup,
            self._charsets,
            self._mariadb,
            self._options,
            early,
            evolves=lambda schema: evolves(schema, replicator.spec),
            stands_still=lambda schema: stands_still(schema, replicator.spec),
            unread=self._is_unread,
            signals=SignalTable.of(replicator.spec.source),
        )
        self._take_over()
        state = context.sink.state
        self._known = SourceState.read(state.source_state)
        self._executed = Executed(self._known.done, self._mariadb)
        held = XaBuffer(context.scratch)
        start = StartingPoint(state.position, config.numbering, self._unended(), self._known.exact)
        self._assembler = Assembler(
            self, self._executed, held, context.memory, start, may_have_lost=self._may_have_lost
        )
        self._decoder = Decoder(self._tables, SignalRows(self._charsets))
        self._poll = CatalogPoll(
            replicator, connection, self._tables, context, StreamProgress(lambda: self.position, self._edge, self._end)
        )
        self._foreign_keys = ForeignKeys(
            connection, self._tables, LogEnds(lambda: self.position, self._end), self._may_be_read
        )
        self._temporary = TemporaryTables()
        self._touched: dict[int, Effect] = {}
        self._actions: dict[int, tuple[ColumnAction, ...]] = {}
        """The actions of the statement that touched a table on its columns. Empty: it does more, or another one did."""
        self._written = ""
        """The statement of the open transaction that may have changed rows of any table, for messages."""
        self._plain: frozenset[Name] | None = None
        """Tables without triggers, for statements behind `_plain_since`. None: another look is needed."""
        self._plain_since = Position(0)
        self._looks: dict[int, Position] = {}
        """Table -> where the log ended when a chunk asked for a look."""
        self._owes_look = False
        """A look was due inside a transaction."""
        self._unknown: dict[str, Position] = {}
        """XA transaction that the log prepares and the server lacks -> where the log ended when that was seen."""
        self._purged = ""
        """The transactions that the server does not have in its log any more, as it said last."""
        self._purged_before: Position | None = None
        """The end of the log then. None: they are known."""
        facts = observe(connection, ())
        self._may_lose_xa = facts.may_lose_xa
        self._may_differ_after_crash = facts.may_differ_after_crash
        self._hides = not facts.logs_what_it_applies
        """True if, as a replica, the server would not log what it applies."""

    def _take_over(self) -> None:
        for table in self._sink.state.tables.values():
            if not table.removed:
                self._tables.take_over(table)

    def _unended(self) -> Position | None:
        """The file that was read last, if the server has not closed it, or no longer has it."""
        at, known = self._sink.state.position, self._known.anchor
        if known is None:
            return None
        at = known.at if file_of(known.at) == file_of(at) else Position(at - offset_of(at) + FIRST)
        file, _ = files(self._connection, self._config.numbering).get(file_of(at), ("", 0))
        return None if file and ended(self._connection, file, at) else Position(at - offset_of(at))

    def _is_unread(self, table_id: int) -> bool:
        """Its first snapshot is still to come, or not complete: nothing relies on its rows."""
        table = self._sink.state.tables.get(table_id)
        wanted = table is not None and (table.initial_snapshot or table.resync is not None)
        return wanted and table is not None and table.read_record <= table.added_record

    def _may_be_read(self, table_id: int) -> bool:
        """True if a snapshot has read it since it was added, or has begun to."""
        state = self._sink.state
        table = state.tables.get(table_id)
        if table is None:
            return False
        parts = (s.tables[table_id] for s in state.snapshots.values() if s.ended is None and table_id in s.tables)
        return table.read_record > table.added_record or any(part.started for part in parts)

    def _lookup(self, table_id: int) -> MysqlTable | None:
        with source_errors("looking at a table"):
            return table_by_id(self._connection, table_id, self._options)

    def _edge(self) -> str:
        """The edge. Of XA transactions that are listed, those that the log has as decided may not be carried out
        yet."""
        if not self._mariadb:
            return self._executed.state
        return position_text(self.position, prepared(self._connection) - self._assembler.prepared())

    def start(self) -> None:
        self._look()
        self._assembler.tables_changed()
        request = Request(self._server_id, self._executed.place)
        self._log = LogConnection(connect(self._config), request, self._mariadb)
        log.info("reading the log of %s", self._config.place)

    def read(self, most_bytes: int, most_seconds: float) -> bool:
        if self._owes_look:
            return self._connected.read(self._feed_until_look, most_bytes, most_seconds, self._feed_many_until_look)
        return self._connected.read(self._assembler.feed, most_bytes, most_seconds, self._assembler.feed_many)

    def _feed_until_look(self, event: Event) -> None:
        self._assembler.feed(event)
        if self._owes_look and not self._assembler.inside:
            self.poll_catalog()

    def _feed_many_until_look(self, batch: EventBatch) -> None:
        fed = self._assembler.feed_to_end(batch)
        if self._owes_look and not self._assembler.inside:
            self.poll_catalog()
        self._assembler.feed_many(batch.behind(fed))

    def wants(self, form: bytes) -> bool:
        """A table that a statement of the open transaction re-created begins behind the transaction."""
        number = self._tables.number(form)
        if not self._tables.is_captured(number):
            return self._tables.has_signals(form)
        return self._touched.get(number) not in (Effect.REPLACED, Effect.DROPPED)

    def rows(self, block: EventBlock) -> None:
        changes = self._decoder.decode(block, self._sink.next_seq)
        self._foreign_keys.saw(block, changes)
        self._sink.rows(changes)

    def statement(self, query: events.Query) -> list[bytes]:
        """The tables that it empties; what else it does to captured tables is kept until its transaction ends."""
        names = {(k.schema.schema_name, k.schema.table_name): i for i, k in self._tables.known.items()}
        text, mode = texts.decoded(query, self._charsets), texts.quoting(query)
        exact, text = text is not None, query.text if text is None else text
        known = KnownTables(
            query.schema,
            names,
            self._temporary.of(query, names),
            query.of_session,
            quoting=mode,
            exact=exact,
            databases=query.context.databases,
            plain=self._plain or () if self.position >= self._plain_since else (),
        )
        found = effects(text, known)
        clean = cleaned(text, mode)
        self._temporary.saw(replace(query, text=clean))
        if Effect.WRITTEN in found.values() and not self._written:
            self._written = texts.described(query, text, self._config.numbering.text(self.position))
        if not changes_rows(clean):
            self._plain = None  # it may make a trigger
        for name, effect in found.items():
            alone = names[name] not in self._touched and not query.in_parts
            self._actions[names[name]] = column_actions(clean, exact) if alone else ()
            if effect is not Effect.EMPTIED:
                self._touch(names[name], effect)
            if effect in (Effect.HARMLESS, Effect.KEYED):
                self._tables.known[names[name]].announced |= self._tables.copied(name, added_columns(clean))
        emptied = [name for name, effect in found.items() if effect is Effect.EMPTIED]
        return [head_of(*name) for name in emptied if not self._tables.known[names[name]].stopped]

    def _touch(self, table_id: int, effect: Effect) -> None:
        self._touched[table_id] = max(self._touched.get(table_id, effect), effect, key=STRENGTH.index)

    def undone(self, forms: Iterable[bytes] | None) -> None:
        if forms is None:
            log.warning(
                "an XA transaction was decided that the log does not have as prepared: all tables are read again"
            )
        numbers = self._tables.known if forms is None else {self._tables.number(form) for form in forms}
        self._touch_all(i for i in numbers if self._tables.is_known(i))  # not the signal table's

    def _touch_all(self, table_ids: Iterable[int]) -> None:
        for table_id in table_ids:
            self._touch(table_id, Effect.REREAD)

    def crashed(self) -> None:
        if self._may_differ_after_crash:
            log.warning(
                "the server crashed, and sync_binlog or innodb_flush_log_at_trx_commit is not 1: its log and its tables"
                " may differ, all tables are read again"
            )
            self._touch_all(self._tables.known)
            return
        for table_id in self._poll.without_transactions():
            log.warning(
                "the server crashed: %s may have rows that its log lacks", self._tables.known[table_id].schema.name
            )
            self._touch(table_id, Effect.REREAD)

    @property
    def touched(self) -> bool:
        return bool(self._touched)

    def rotated(self) -> None:
        self._temporary.forget()

    def ended(self) -> None:
        touched, self._touched = self._touched, {}
        actions, self._actions = self._actions, {}
        written, self._written = self._written, ""
        if touched:
            self._poll.statement(touched, actions, written)
            self._sink.add(*self._foreign_keys.look(stated=True))
            self._assembler.tables_changed()

    def cut(self, rows: bool | None = None) -> None:
        """`rows`: given by the assembler; without, capture's loop wants a record."""
        if rows is None:
            self._assembler.builder.cut()
        else:
            if rows:
                self._read_again()
            anchor = self._assembler.log_position.anchor or self._known.anchor
            state = SourceState(self._executed.state, anchor, self._assembler.exact)
            self._sink.cut(ResumePoint(self.position, str(state)), rows)

    def _read_again(self) -> None:
        """Adds it to the record with the rows that call for it, which a restart would not see again."""
        why = dict.fromkeys(self._decoder.take_unknown(), "the server may have lost rows of an XA transaction")
        reached = self._foreign_keys.take_due()
        all_rows = (table_id for table_id, what in reached.items() if what.all)
        why |= dict.fromkeys(all_rows, "changes of other tables reach it through foreign keys")
        due = [i for i in sorted(why) if self._tables.is_captured(i)]
        edge = self._edge() if due or reached else ""
        for table_id in due:
            marked = self._tables.reread(self._tables.known[table_id])
            log.info("%s is read again: %s", marked.name, why[table_id])
            self._sink.add(SchemaChanged(table=marked, seq=Seq(self._sink.next_seq - 1), reread=True, edge=edge))
        for table_id, what in reached.items():
            self._sink.add(what.event(table_id, edge))

    def acknowledge(self, position: Position) -> None:
        """The server keeps its log for a time of its own, not for us."""

    def heartbeat(self) -> None:
        """Not needed: an idle server says every second where its log ends."""

    def poll_catalog(self) -> float:
        """A table that began inside of a transaction would have half of its rows, and an edge without it."""
        self._owes_look = self._assembler.inside
        if self._owes_look:
            return 0.0
        begun = time.monotonic()
        self._require_whole_log()
        self._require_same_log()
        if not self._mariadb:
            self._require_known_past()
        self._look()
        self._assembler.tables_changed()
        self._forget_what_a_crash_lost()
        return time.monotonic() - begun

    def _look(self) -> None:
        """Before tables are captured again, what has stopped is no parent; after, it is one again."""
        self._sink.add(*self._foreign_keys.look())
        self._poll.poll()
        self._sink.add(*self._foreign_keys.look())
        if self._plain is None and not self._mariadb:
            self._plain = texts.plain_tables(
                self._connection, {known.schema.schema_name for known in self._tables.known.values()}
            )
            self._plain_since = self._end()

    def _may_have_lost(self, xid: str, when: int) -> bool:
        """`facts.Facts.may_lose_xa`, of one. What a crashed server still lists is decided once more later."""
        if not self._may_lose_xa or xid not in prepared(self._connection):
            return self._may_lose_xa
        with source_errors("looking at the server's start"):
            ((now,),) = execute(self._connection, "SELECT UNIX_TIMESTAMP()")
            ((_, up),) = execute(self._connection, "SHOW GLOBAL STATUS LIKE 'Uptime'")
        return when > int(now) - int(up)

    def _forget_what_a_crash_lost(self) -> None:
        """A server may log an XA PREPARE and lose the transaction in a crash: it would never be decided, and the log
        would be needed from there on. It has begun another file since. What its list lacks because it was decided is
        decided before the log's end as it is after the look at the list."""
        undecided = self._assembler.undecided()
        if not undecided:
            return
        unknown = undecided - prepared(self._connection)
        lost = {xid for xid in unknown if self.position >= self._unknown.get(xid, self.position + 1)}
        end = self._end()
        self._unknown = {xid: self._unknown.get(xid, end) for xid in unknown - lost}
        for xid in sorted(lost):
            log.warning("the server crashed and no longer has the prepared XA transaction %s: it never happened", xid)
        self._assembler.lost(lost)

    def _require_whole_log(self) -> None:
        """A server can become a replica at any time."""
        if self._hides and is_replica(self._connection, server_of(self._connection)):
            fix = f"Connect to the server that it replicates. Changes may be missing by now. {START_OVER}"
            raise SourceRefused(UNLOGGED, fix)

    def _require_same_log(self) -> None:
        """A server that was reset continues its heartbeats to a reader of the log that it deleted."""
        if self.position > self._end():
            raise Retry("the server's log ends before the position that was read last: it was reset, or is another one")

    def _require_known_past(self) -> None:
        """MySQL can be told that transactions are executed which were never in its log: a dump that is restored says
        so, and keeps its rows out of the log. What was read and purged since is in our state once the log is read up
        to where it ended then, but for prepared XA transactions."""
        with source_errors("looking at the source's transactions"):
            purged = str(execute(self._connection, "SELECT @@GLOBAL.gtid_purged")[0][0])
        if purged != self._purged:
            self._purged, self._purged_before = purged, self._end()
        if self._purged_before is None or self.position < self._purged_before or self._assembler.prepared():
            return
        if not GtidSet(self._executed.state) >= GtidSet(purged):
            raise lost(
                "gtid_purged has transactions that were never in the server's log, as after a dump was restored: rows"
                " may have come with them"
            )
        self._purged_before = None

    def poll_catalog_for(self, table_id: int) -> bool:
        if self._assembler.inside:
            return False
        if table_id not in self._looks:
            self._looks[table_id] = self._end()
        self.poll_catalog()
        if self.position < self._looks[table_id]:
            return False
        del self._looks[table_id]
        return True

    def current_snapshot(self) -> str:
        return current_snapshot(self._connection, self._config.numbering)

    def _end(self) -> Position:
        with source_errors("looking at the end of the log"):
            return log_end(self._connection, self._config.numbering)

    @property
    def of_other_case(self) -> Sequence[str]:
        return self._poll.of_other_case

    def distance(self, position: Position) -> Distance:
        with source_errors("measuring the log"):
            end, kept = self._end(), files(self._connection, self._config.numbering)
        behind = sum(size for number, (_, size) in kept.items() if file_of(position) <= number < file_of(end))
        return Distance(end, max(0, behind + offset_of(end) - offset_of(position)), None)
