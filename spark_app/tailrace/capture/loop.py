"""Capture's one loop: reads the log, makes records, acknowledges, serves requests, looks at the catalog.

    log connection ─> Assembler ─> Recorder (segments, record) ─> acknowledge
    requests ────────────────────────^     catalog poll ────^

One thread does all of it, so the journal has one writer and everything has one order. Each turn waits for a message or
a request, takes what is there (bounded), and does what is due.
"""

import logging
import select
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tailrace.capture.inbox import Board, Inbox
from tailrace.capture.lag import Meter
from tailrace.capture.recorder import Recorder
from tailrace.capture.requests import Requests
from tailrace.capture.retention_job import Retention
from tailrace.capture.server import refuse_all
from tailrace.capture.startup import Place
from tailrace.changelog.writer import JournalWriter
from tailrace.errors import Retry
from tailrace.sources.postgresql import objects as slots
from tailrace.sources.postgresql.admission import check_slot
from tailrace.sources.postgresql.catalog import table_by_oid
from tailrace.sources.postgresql.log.catalog_poll import CatalogPoll
from tailrace.sources.postgresql.log.decode import Decoder, Decoding
from tailrace.sources.postgresql.log.pgoutput import extend_xid
from tailrace.sources.postgresql.log.replication import LogConnection
from tailrace.sources.postgresql.log.spill import Spill
from tailrace.sources.postgresql.log.tables import Tables
from tailrace.sources.postgresql.log.transactions import Assembler
from tailrace.sources.postgresql.visibility import parse_snapshot
from tailrace.sources.visibility import Visibility

log = logging.getLogger(__name__)

LOOKS_SHARE = 20
"""Looks at the catalog take one part in so many of the time."""


@dataclass(frozen=True)
class Timing:
    """Seconds and bytes."""

    record: float = 0.2
    """Oldest finished transaction without a record."""
    block: int = 32 << 20
    """Raw messages in memory before they become segments."""
    poll: float = 3.0
    """Between looks at the catalog, at least."""
    rarest_poll: float = 30.0
    """The same, at most: the first look reads every partition, and takes longest."""
    heartbeat: float = 10.0
    """A moved position is recorded and acknowledged this often when no captured table changes."""
    waiting_heartbeat: float = 0.2
    """A logical message this often while a chunk waits: an idle server may not write its log out for 10 s."""
    idle_message: float = 60.0
    """A logical message this often on a source whose log does not move for us."""
    read_bytes: int = 4 << 20
    read_seconds: float = 0.05
    turn: float = 0.1
    """Longest wait of a turn."""

    def between_looks(self, took: float) -> float:
        """Seconds. With thousands of tables or partitions a look costs the source so much that looks become rarer."""
        return max(self.poll, min(self.rarest_poll, LOOKS_SHARE * took))


class Capture:
    """One run: from an open journal to the end of the process."""

    def __init__(
        self,
        place: Place,
        journal: JournalWriter,
        spill: Path,
        ends: tuple[Inbox, Board],
        timing: Timing,
    ) -> None:
        self._place = place
        self._timing = timing
        self._inbox, board = ends
        assert journal.state.origin is not None
        self._origin = journal.state.origin
        self._next_xid = slots.next_xid(place.connection)
        self._tables = Tables(
            lambda oid, modifier: slots.type_name(place.connection, oid, modifier),
            lambda oid: table_by_oid(place.connection, oid, place.replicator.spec.options),
        )
        for table in journal.state.tables.values():
            if not table.removed:
                self._tables.add(table.schema, table.stopped is not None, table.fingerprint, table.seen_through)
                self._tables.known[table.table_id].history = [s.table for s in table.schemas[:-1]]
        self._recorder = Recorder(journal, self._breathe, self._acknowledge)
        decoding = Decoding(Decoder(self._tables), self._recorder)
        self._assembler = Assembler(decoding, Spill(spill), self._extend, self._timing.block)
        self._requests = Requests(self._recorder, self._tables, self)
        self._poll = CatalogPoll(place, self._tables, self._recorder, journal.nonce, self.settle)
        self._retention = Retention(place.replicator.spec, self._recorder, self._requests, self.settle)
        self._meter = Meter(lambda: slots.distance(place.connection, place.names.slot), self._recorder, board)
        self._looks: dict[int, int] = {}
        self._log: LogConnection | None = None
        self._due: dict[str, float] = {}
        self._pending_since: float | None = None

    def run(self, stopping: threading.Event) -> None:
        """Until `stopping`; then what is finished is recorded and acknowledged."""
        try:
            self._poll.poll()
            names = self._place.names
            position = self._recorder.durable
            config = self._place.config.named(names.application)
            config = config.bound_to(self._origin.system_identifier, self._origin.timeline)
            self._log = LogConnection(config, names.slot, names.publication, position)
            # Again, now that nobody else can move it: what the slot has confirmed, the server passes over silently.
            found = slots.find_slot(self._place.connection, names.slot)
            check_slot(found, names.slot, config.database, position)
            log.info("reads the log of %s", self._place.config.place)
            self._meter.measure(position)
            while not stopping.is_set():
                self._turn(self._log)
            self.settle()
            self._retention.finish()
        finally:
            error = Retry("capture ends")
            self._requests.refuse(error)
            refuse_all(self._inbox, error)
            if self._log is not None:
                self._log.close()

    def _turn(self, connection: LogConnection) -> None:
        select.select([connection.fileno(), self._inbox.fileno()], [], [], 0 if self._behind else self._wait())
        timing = self._timing
        ended = connection.read(self._assembler.feed, self._assembler.observe, timing.read_bytes, timing.read_seconds)
        self._behind = not ended
        for item in self._inbox.take():
            self._requests.serve(item)
        if not self._assembler.divided:
            markers, self._assembler.markers = self._assembler.markers, []
            for marker in markers:
                self._poll.marker(marker.decode(errors="replace"))  # anybody may write a message
        self._record()
        self._housekeeping()
        connection.keep_alive()

    _behind = False
    """The last read did not take all."""

    def _wait(self) -> float:
        """Seconds until something is due."""
        if self._pending_since is None:
            return self._timing.turn
        return min(self._timing.turn, max(0.0, self._pending_since + self._timing.record - time.monotonic()))

    def _record(self) -> None:
        """Cut a record when one is due, or when somebody waits for it."""
        now = time.monotonic()
        if self._assembler.pending and self._pending_since is None:
            self._pending_since = now
        overdue = self._pending_since is not None and now - self._pending_since >= self._timing.record
        if overdue or self._recorder.has_requests:
            self._cut()
        self._requests.register(self._assembler.position)
        if self._recorder.has_requests:
            self._cut()
        high = self._requests.waits_for
        if high is not None and self._is_due("message", self._timing.waiting_heartbeat):
            slots.emit(self._place.connection, "", transactional=False)
        moved = self._assembler.position > self._recorder.durable and not self._assembler.pending
        if moved and self._is_due("heartbeat", self._timing.heartbeat):
            self._recorder.heartbeat(self._assembler.position)

    def _cut(self) -> None:
        applied = self._requests.take_applied()
        if applied:
            self._recorder.add(*applied)
        self._assembler.cut()
        self._pending_since = None

    def settle(self) -> int:
        self._cut()
        return self._assembler.position

    def look_at_catalog(self, table_id: int) -> bool:
        token = self._looks.get(table_id)
        if self._assembler.divided:
            return False  # as with every look: no table may change in a record before rows that are in segments already
        if token is None:
            self._looks[table_id] = self._poll.poll(always_mark=True)
            return False
        if self._poll.acted_on < token:
            return False
        del self._looks[table_id]
        return True

    def visible_now(self) -> Visibility:
        return self.visibility(slots.snapshot(self._place.connection))

    def visibility(self, seen: str) -> Visibility:
        return parse_snapshot(seen)

    def _housekeeping(self) -> None:
        if not self._assembler.divided and self._is_due("poll", self._timing.between_looks(self._poll.took)):
            self._next_xid = slots.next_xid(self._place.connection)
            self._poll.poll()
        if self._is_due("meter", 1.0):
            self._meter.measure(self._assembler.position)
        if self._is_due("idle", self._timing.idle_message) and self._recorder.durable >= self._assembler.position:
            slots.emit(self._place.connection, "", transactional=False)
        if self._is_due("retention", 60.0):
            self._retention.run()

    def _is_due(self, what: str, every: float) -> bool:
        """True once per interval; the first time after one interval has passed."""
        now = time.monotonic()
        if now < self._due.setdefault(what, now + every):
            return False
        self._due[what] = now + every
        return True

    def _acknowledge(self, position: int) -> None:
        """A record up to here is durable."""
        if self._log is not None:
            self._log.acknowledge(position)

    def _breathe(self) -> None:
        """Between long steps: the source must not take us for dead."""
        if self._log is not None:
            self._log.heard()
            self._log.keep_alive()

    def _extend(self, xid: int) -> int:
        return extend_xid(xid, self._next_xid)
