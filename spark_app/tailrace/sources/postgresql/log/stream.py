"""PostgreSQL's log as a `ChangeStream`: the log connection, the assembler, the decoder and the catalog poll, wired up.

    LogConnection ─> Assembler ─> Decoding ─> Sink
                         │ markers                ^
                         └──> CatalogPoll ────────┘

Made by `sources.postgresql.subscription` for capture's loop, whose thread does all of it.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from tailrace.changelog.records.terms import Position
from tailrace.contract.resources import Replicator, ReplicatorSpec
from tailrace.databases.postgresql.connect import Connection, PgConfig
from tailrace.sources.api import Distance, StreamContext
from tailrace.sources.log.stream import LogStream
from tailrace.sources.postgresql import objects as slots
from tailrace.sources.postgresql.admission import check_slot
from tailrace.sources.postgresql.catalog import table_by_oid
from tailrace.sources.postgresql.log.assembler import Assembler
from tailrace.sources.postgresql.log.catalog_poll import CatalogPoll, PollContext
from tailrace.sources.postgresql.log.connection import LogConnection, release_slot
from tailrace.sources.postgresql.log.decode import Decoder, Decoding
from tailrace.sources.postgresql.log.pgoutput import extend_xid
from tailrace.sources.postgresql.log.spill import Spill
from tailrace.sources.postgresql.log.tables import CapturedTables, CatalogNow
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.names import Names
from tailrace.sources.postgresql.oldest import LogHolder
from tailrace.sources.signals import SignalTable
from tailrace.sources.stops import evolves, stands_still

log = logging.getLogger(__name__)
ENDS_SECONDS = 3.0
"""Waited for the catalog to show what the log has; meanwhile the log is not read."""


class PgStream(LogStream[LogConnection]):
    _assembler: Assembler
    _tables: CapturedTables

    def __init__(
        self,
        config: PgConfig,
        connection: Connection,
        replicator: Replicator,
        names: Names,
        context: StreamContext,
    ) -> None:
        """`config`: of the log connection; `connection`: for everything that is asked in SQL."""
        self._config = config
        self._connection = connection
        self._names = names
        self._sink = context.sink
        self._next_xid = slots.next_xid(connection)
        self._tables = _tables(connection, replicator.spec)
        for table in context.sink.state.tables.values():
            if not table.removed:
                self._tables.add(table.schema, table.stopped is not None, table.fingerprint)
                self._tables.known[table.table_id].history = [s.table for s in table.schemas[:-1]]
        self._wiring = context
        self._decoding = Decoding(Decoder(self._tables, SignalTable.of(replicator.spec.source)), context.sink)
        self._assembler = self._from_here()
        self._poll = CatalogPoll(PollContext(replicator, connection, names), self._tables, context)
        self._looks: dict[int, int] = {}
        """Table -> the look that was taken for it."""
        self._holder = LogHolder(connection)

    def start(self) -> None:
        self._poll.begin()
        self._poll.poll()
        self._connect()

    def _from_here(self) -> Assembler:
        """The assembler for a log connection that begins: the server sends every undecided transaction from its
        beginning."""
        return Assembler(self._decoding, Spill(self._wiring.scratch), self._extend, self._wiring.memory)

    def _connect(self) -> None:
        slot, position = self._names.slot, self._sink.state.position
        self._log = LogConnection(self._config, slot, self._names.publication, position)
        # Again, now that nobody else can move it: what the slot has confirmed, the server passes over silently.
        check_slot(slots.find_slot(self._connection, slot), slot, self._config.database, position)
        log.info("reading the log of %s", self._config.place)

    def read(self, most_bytes: int, most_seconds: float) -> bool:
        assembler = self._assembler
        ended = self._connected.read(assembler.feed_many, assembler.observe, most_bytes, most_seconds)
        if not self.in_transaction:
            self._act_on_markers()
        return ended

    def _act_on_markers(self) -> None:
        markers, self._assembler.markers = self._assembler.markers, []
        for marker in markers:
            self._poll.marker(marker.decode(errors="replace"))  # anybody may write a message
        if self._poll.sent_wrongly:
            self._reconnect()

    def _reconnect(self) -> None:
        """All that is finished is in the journal; what the connection has brought of the rest comes again."""
        log.info("the log is read over a new connection: partitions were attached or detached")
        self._connected.close()
        position, self._assembler = self._assembler.position, self._from_here()
        self._assembler.observe(position)
        release_slot(self._connection, self._names.slot, self._names.applications, time.sleep)
        self._connect()
        self._poll.connected()

    def cut(self) -> None:
        self._assembler.builder.cut()

    def acknowledge(self, position: Position) -> None:
        if self._log is not None:
            self._log.acknowledge(position)

    def heartbeat(self) -> None:
        slots.emit(self._connection, "", transactional=False)

    def poll_catalog(self) -> float:
        self._next_xid = slots.next_xid(self._connection)
        self._poll.poll()
        return self._poll.took

    def poll_catalog_for(self, table_id: int) -> bool:
        token = self._looks.get(table_id)
        if self.in_transaction:
            return False  # as with every look: no table may change in a record before rows that are in segments already
        if token is None:
            self._looks[table_id] = self._poll.poll(always_mark=True)
            return False
        if self._poll.acted_on < token or table_id in self._poll.held:
            return False
        del self._looks[table_id]
        return True

    def current_snapshot(self) -> str:
        return slots.snapshot(self._connection)

    @property
    def of_other_case(self) -> Sequence[str]:
        return self._poll.of_other_case

    def distance(self, position: Position) -> Distance:
        found = slots.distance(self._connection, self._names.slot, position)
        return replace(found, held_by=self._holder.of(found))

    def _extend(self, xid: int) -> int:
        return extend_xid(xid, self._next_xid)


def _tables(connection: Connection, spec: ReplicatorSpec) -> CapturedTables:
    def type_name(oid: int, modifier: int) -> str:
        return slots.type_name(connection, oid, modifier)

    def lookup(oid: int) -> PgTable | None:
        return table_by_oid(connection, oid, spec.read_options)

    def has_ended(xid: int, oid: int) -> bool:
        end = time.monotonic() + ENDS_SECONDS
        while not slots.has_ended(connection, xid, oid):
            if time.monotonic() > end:
                return False
            time.sleep(ENDS_SECONDS / 100)
        return True

    catalog = CatalogNow(type_name, lookup, has_ended)
    return CapturedTables(
        catalog, spec.read_options, lambda schema: evolves(schema, spec), lambda schema: stands_still(schema, spec)
    )
