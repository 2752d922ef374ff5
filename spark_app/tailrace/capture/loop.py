"""Capture's one loop: has the stream read the log, makes records, acknowledges, serves requests, looks at the catalog.

    ChangeStream (the source's) ─> Recorder (segments, record) ─> acknowledge
    requests ─────────────────────────^

One thread does all of it, so the journal has one writer and everything has one order. Each step waits for a message or
a request, takes what is there (bounded), and does what is due.
"""

import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tailrace.capture.inbox import Board, Inbox
from tailrace.capture.lag import Meter
from tailrace.capture.recorder import Recorder
from tailrace.capture.requests import ChunkRequests
from tailrace.capture.retention_job import RetentionJob
from tailrace.capture.startup import StartContext
from tailrace.changelog.records import Heartbeat
from tailrace.changelog.records.terms import Position
from tailrace.changelog.writer import JournalWriter
from tailrace.databases.readable import readable
from tailrace.errors import Retry
from tailrace.sources.api import StreamContext

log = logging.getLogger(__name__)

LOOKS_SHARE = 20
"""Looks at the catalog take one part in so many of the time."""
RETENTION_SECONDS = 60.0
"""Between two looks at what the change log need not keep."""


@dataclass(frozen=True)
class Timing:
    """Seconds and bytes."""

    record: float = 0.2
    """Oldest finished transaction without a record (`pace.Pace`), unless the driver asks for longer ones
    (`protocol.GetState.record_seconds`)."""
    block: int = 32 << 20
    """Bytes that the stream holds in memory before they become segments."""
    poll: float = 3.0
    """Between looks at the catalog, at least."""
    rarest_poll: float = 30.0
    """The longest interval: the first look reads every partition, and takes longest."""
    heartbeat: float = 10.0
    """A moved position is recorded and acknowledged this often when no captured table changes."""
    waiting_heartbeat: float = 0.2
    """A heartbeat this often while a chunk waits: an idle server may not write its log out for 10 s."""
    new_heartbeat: float = 0.05
    """Seconds between heartbeats where a chunk has begun to wait since the last: of hundreds of small tables each
    does."""
    idle_message: float = 60.0
    """A heartbeat this often for a source whose log does not move for us."""
    read_bytes: int = 4 << 20
    read_seconds: float = 0.05
    step: float = 0.1
    """Longest wait of a step."""
    gather: float = 0.005
    """Seconds from a message to the next read: a step costs as much as the messages of many small transactions."""
    long_read: float = 0.005
    """Seconds of a read after which the stream has much to send."""
    gather_fraction: float = 0.025
    """The fraction of a record's time that is waited in place of `gather` while the stream has little to send, ..."""
    gather_quietly: float = 0.03
    """... or so long, but no more than a quarter of it: a record is due as long after its first message as before."""

    def gather_seconds(self, last_read: float, record: float) -> float:
        """Seconds from a message to the next read, where the last one took so long, and records take that long."""
        if last_read > self.long_read:
            return self.gather
        return max(self.gather, self.gather_fraction * record, min(self.gather_quietly, record / 4))

    def between_looks(self, took: float) -> float:
        """Seconds. With thousands of tables or partitions a look costs the source so much that looks become rarer."""
        return max(self.poll, min(self.rarest_poll, LOOKS_SHARE * took))


@dataclass
class Nudges:
    """The heartbeats that chunks need which wait for the source's log."""

    timing: Timing
    _reached_for: Position = Position(0)
    """The furthest position that one was made for, ..."""
    _made: float = float("-inf")
    """... and the time of the last."""

    def due(self, waits_for: Position | None, now: float) -> bool:
        """True if one is to be made now. `waits_for`: the furthest position that a chunk waits for."""
        if waits_for is None:
            return False
        new = waits_for > self._reached_for
        if now - self._made < (self.timing.new_heartbeat if new else self.timing.waiting_heartbeat):
            return False
        self._reached_for, self._made = max(waits_for, self._reached_for), now
        return True


class Capture:
    """One run: from an open journal to the end of the process."""

    def __init__(
        self,
        place: StartContext,
        journal: JournalWriter,
        spill: Path,
        ends: tuple[Inbox, Board],
        timing: Timing,
    ) -> None:
        self._timing = timing
        self._inbox, self._board = ends
        origin = journal.state.origin
        assert origin is not None
        self._recorder = Recorder(journal, self._breathe, self._acknowledge, self._board.rest)
        context = StreamContext(self._recorder, self.settle, journal.nonce, spill, timing.block)
        self._stream = place.subscription.stream(origin, context)
        # Bound: a chunk that was read from the server before says so.
        visibility = place.source.bound_to(origin).visibility
        self._requests = ChunkRequests(self._recorder, self._stream, self.settle, visibility)
        self._retention = RetentionJob(place.replicator.spec, self._recorder, self._requests, self.settle)
        self._meter = Meter(self._stream.distance, self._recorder, self._board, lambda: self._stream.of_other_case)
        self._look_took = 0.0
        self._due: dict[str, float] = {}
        self._nudges = Nudges(timing)
        self._pending_since: float | None = None

    def run(self, stopping: threading.Event) -> None:
        """Until `stopping`; then what is finished is recorded and acknowledged."""
        try:
            self._stream.start()
            self._meter.measure(self._recorder.durable)
            while not stopping.is_set():
                self._turn()
            self.settle()
            self._retention.finish()
        finally:
            error = Retry("capture is shutting down")
            self._requests.refuse(error)
            self._inbox.end(error)
            self._stream.close()

    def _turn(self) -> None:
        stream = self._stream
        came_at = None
        if not self._behind and readable(stream.fileno(), self._inbox.fileno(), seconds=self._wait()):
            came_at = time.monotonic()
            self._gather()
        begun = time.monotonic()
        self._behind = not stream.read(self._timing.read_bytes, self._timing.read_seconds)
        self._last_read = time.monotonic() - begun
        for item in self._inbox.take():
            self._requests.serve(item)
        self._record(came_at)
        self._housekeeping()
        stream.keep_alive()
        self._board.beat()

    _behind = False
    """The last read did not take all."""
    _last_read = 0.0
    """Seconds that it took."""

    def _gather(self) -> None:
        """Let more messages come, until a request does or a record is due. Chunks do not wait for it."""
        waited = self._requests.waits_for is not None
        seconds = self._timing.gather if waited else self._timing.gather_seconds(self._last_read, self._record_seconds)
        readable(self._inbox.fileno(), seconds=min(seconds, self._wait()))

    def _wait(self) -> float:
        """Seconds until something is due."""
        longest = self._timing.step
        if self._requests.waits_for is not None:
            longest = min(longest, self._timing.new_heartbeat)
        if self._pending_since is None:
            return longest
        return min(longest, max(0.0, self._pending_since + self._record_seconds - time.monotonic()))

    @property
    def _record_seconds(self) -> float:
        """The longest time that a finished transaction waits for its record at present."""
        return max(self._timing.record, self._board.record_seconds)

    def _record(self, came_at: float | None) -> None:
        """Cut a record when one is due, or when a request waits for it. `came_at`: the time at which the first of the
        messages came that were read just now; None: they had been waiting, and fill records anyway."""
        now = time.monotonic()
        if self._stream.pending and self._pending_since is None:
            self._pending_since = now if came_at is None else came_at
        overdue = self._pending_since is not None and now - self._pending_since >= self._record_seconds
        if overdue or self._recorder.has_requests:
            self._cut()
        self._requests.register(self._stream.position)
        if self._recorder.has_requests:
            self._cut()
        if self._nudges.due(self._requests.waits_for, time.monotonic()):
            self._stream.heartbeat()
        moved = self._stream.position > self._recorder.durable and not self._stream.pending
        if moved and self._is_due("heartbeat", self._timing.heartbeat):
            # A record that moves only the position, so that the source may forget its log.
            self._recorder.add(Heartbeat())
            self._cut()

    def _cut(self) -> None:
        applied = self._requests.take_applied()
        if applied:
            self._recorder.add(*applied)
        self._stream.cut()
        self._board.tell()
        self._pending_since = None

    def settle(self) -> Position:
        """Make all finished transactions durable; returns the position up to which nothing is missing."""
        self._cut()
        return self._stream.position

    def _housekeeping(self) -> None:
        stream = self._stream
        if not stream.in_transaction and self._is_due("look", self._timing.between_looks(self._look_took)):
            self._look_took = stream.poll_catalog()
        if self._is_due("meter", 1.0):
            self._meter.measure(stream.position)
        if self._is_due("idle", self._timing.idle_message) and self._recorder.durable >= stream.position:
            stream.heartbeat()
        if self._is_due("retention", RETENTION_SECONDS):
            self._board.rest()
            self._retention.run()

    def _is_due(self, what: str, every: float) -> bool:
        """True once per interval; the first time after one interval has passed."""
        now = time.monotonic()
        if now < self._due.setdefault(what, now + every):
            return False
        self._due[what] = now + every
        return True

    def _acknowledge(self, position: Position) -> None:
        """A record up to here is durable."""
        self._stream.acknowledge(position)

    def _breathe(self) -> None:
        """Between long steps: the source must not take us for dead."""
        self._stream.keep_alive(listened=False)
        self._board.beat()
