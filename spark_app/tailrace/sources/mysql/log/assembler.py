"""Puts the log's events into transactions: the part of capture between the connection and the decoder.

    idle --GTID--> begun --table maps, rows--> … --XID, COMMIT, or a statement of its own--> idle
    begun --XA START, rows, XA PREPARE--> idle, rows held by xid --XA COMMIT--> replayed;  --XA ROLLBACK--> forgotten

Rows end up in the block that is being built (`block_builder`); when it is full, or a record is due, `Blocks` takes it.
Rows of XA transactions are held whole, also of tables that are not captured: they may be by the time of the commit.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from tailrace.changelog.records.terms import Position
from tailrace.sources.mysql.log import events, fast_path
from tailrace.sources.mysql.log.block_builder import BlockBuilder, Blocks
from tailrace.sources.mysql.log.blocks import TRUNCATE, UNCERTAIN, RowEvent
from tailrace.sources.mysql.log.connection import lost
from tailrace.sources.mysql.log.events import ROW_FLAGS, UNCHECKED, Kind, UnknownEvent
from tailrace.sources.mysql.log.executed import Executed
from tailrace.sources.mysql.log.framing import Event, EventBatch
from tailrace.sources.mysql.log.log_position import LogPosition, StartingPoint
from tailrace.sources.mysql.log.rows import INSERTS, ROWS
from tailrace.sources.mysql.log.xa_buffer import XaBuffer
from tailrace.sources.mysql.visibility import xa_number

_PASSED_OVER = frozenset(
    (
        *(Kind.ROWS_QUERY, Kind.PREVIOUS_GTIDS),
        *(Kind.MARIADB_ANNOTATE_ROWS, Kind.MARIADB_CHECKPOINT),
        *(5, 13, 14),  # variables of a statement that is in the log as text: its QUERY event is looked at
        *(9, 11, 17),  # the file of a LOAD DATA that is in the log as text: its EXECUTE_LOAD_QUERY event is looked at
        *(28, 36, 37),  # ignorable, and group replication's own
        164,  # MariaDB's files are encrypted on its disk; what it sends is not
    )
)
_COMPRESSED = {
    Kind.MARIADB_WRITE_ROWS_COMPRESSED_V1: Kind.WRITE_ROWS_V1,
    Kind.MARIADB_UPDATE_ROWS_COMPRESSED_V1: Kind.UPDATE_ROWS_V1,
    Kind.MARIADB_DELETE_ROWS_COMPRESSED_V1: Kind.DELETE_ROWS_V1,
}
# Asked of every event: members of an enum take longer to look up.
_ROWS = frozenset(map(int, ROWS))
_BEGINS = frozenset(map(int, (Kind.GTID, Kind.GTID_TAGGED, Kind.MARIADB_GTID)))
_QUERIES = frozenset(
    (Kind.QUERY, Kind.QUERY_OF_A_SESSION, Kind.MARIADB_QUERY_COMPRESSED, Kind.MARIADB_QUERY_OF_A_SESSION_COMPRESSED)
)
_TABLE_MAP, _XID, _QUERY, _PAYLOAD = map(int, (Kind.TABLE_MAP, Kind.XID, Kind.QUERY, Kind.TRANSACTION_PAYLOAD))
MANY_FORMS = 10_000
"""Table maps that are remembered before they are forgotten together."""
_NO_EVENT: Event = (0, 0, 0, 0, 0, b"")


class Assembler:
    """Feed it the log's events in order."""

    def __init__(
        self,
        sink: Blocks,
        executed: Executed,
        held: XaBuffer,
        limit: int,
        start: StartingPoint,
        *,
        may_have_lost: Callable[[str, int], bool] = lambda xid, when: False,
    ) -> None:
        """`limit`: bytes of a block. `may_have_lost`: whether the server can have lost the rows of an XA transaction,
        that another session than the one that prepared it committed then."""
        self._may_have_lost = may_have_lost
        self._sink = sink
        self.executed = executed
        self._xa_buffer = held
        self.builder = BlockBuilder(sink, limit)
        self._start = start.position
        self._again = not start.exact
        """True while what comes is recorded already."""
        self.log_position = LogPosition(start)
        self._maps: dict[bytes, bytes] = {}
        """Table id -> the form in force."""
        self._wanted: dict[bytes, tuple[bytes, bool]] = {}
        """Form -> itself, one object for all its rows, and whether its table is captured."""
        self._open: events.Transaction | None = None
        self._skip = False
        """The open transaction is recorded already: the server sends it again for an older XA transaction's sake."""
        self._began = False
        """The open transaction ends with an event of its own, not with its statement."""
        self._in_bulk = False
        """The open transaction has rows that a later statement of it may have undone (`_may_be_undone`)."""
        self._xid: str | None = None
        """The id of the XA transaction that is open."""
        self._now: Event = _NO_EVENT

    @property
    def position(self) -> Position:
        return self.log_position.position

    @property
    def inside(self) -> bool:
        """A transaction is open: of its rows some have come, or may have."""
        return self._open is not None

    @property
    def exact(self) -> bool:
        """True if the state is all that was read."""
        return self.executed.exact and not self._again

    def tables_changed(self) -> None:
        """Other tables are captured now."""
        self._wanted.clear()

    def feed(self, event: Event) -> None:
        kind, timestamp, server, size, end, body = event
        self._now = event
        if end:
            self.log_position.advance(end)
        elif self._open is not None:
            self.log_position.advance_without_end(size)
        if kind in _BEGINS:
            self._begin(kind, timestamp, server, body, size)
        elif kind == _PAYLOAD:
            for inner_kind, inner in events.payload(body):
                self._event(inner_kind, inner)
        else:
            self._event(kind, body)
        if self._open is None:
            self.log_position.arrive()

    def feed_to_end(self, batch: EventBatch) -> int:
        """`feed` with those that come before the open transaction's end, and with its end: how many they are."""
        fed = 0
        for event in batch.each(0, len(batch)) if self.inside else ():
            self.feed(event)
            fed += 1
            if not self.inside:
                break
        return fed

    def feed_many(self, batch: EventBatch) -> None:
        """Does the work of `feed` for each, at a lower cost."""
        at = 0
        for run in fast_path.runs(batch):
            self._feed_each(batch, at, int(run.opens[0]))
            self._run(run)
            at = int(run.behind[-1])
        self._feed_each(batch, at, len(batch))

    def _feed_each(self, batch: EventBatch, first: int, behind: int) -> None:
        for event in batch.each(first, behind):
            self.feed(event)

    def _run(self, run: fast_path.Run) -> None:
        """Takes as many at a time as the block has room for; the one that fills it is fed event by event."""
        taken = 0
        while taken < len(run):
            rest = run.part(taken, len(run))
            fit = self._take(rest) if self._may_take(rest) else 0
            taken += fit
            if fit < len(rest):
                self._feed_each(run.events, int(rest.opens[fit]), int(rest.behind[fit]))
                taken += 1

    def _may_take(self, run: fast_path.Run) -> bool:
        """Between transactions, in a file whose offsets continue from here; nothing that is recorded already."""
        if self._open is not None or self.builder.divided:
            return False
        ends, opens = run.events.end, run.opens[0]
        if not ends[run.opens].all() or not self.log_position.goes_on(ends[opens : run.behind[-1]]):
            return False
        closing = ends[run.behind - 1]
        if closing.any() and not closing.all():
            return False  # one ends at 4 GiB exactly
        return not run.mariadb or self.log_position.origin + int(ends[opens] - run.events.size[opens]) >= self._start

    def _take(self, run: fast_path.Run) -> int:
        """How many transactions the block has room for: they are in it then, and finished."""
        sent = run.forms()
        known = {form: self._known(form) for form in dict.fromkeys(sent)}
        forms = [known[form] for form in sent]
        captured = np.fromiter((wanted for _, wanted in forms), np.bool_, len(forms))
        growth = run.growth(captured)
        fit = int(np.searchsorted(growth, self.builder.room))
        if not fit:
            return 0
        taken = run.part(0, fit)
        captured = captured[: len(taken.rows)]
        marks = taken.marks(captured, len(self.builder.block.items), self.log_position.origin)
        rows = taken.row_events([form for form, _ in forms[: len(captured)]], captured)
        self.builder.add_finished(rows, marks, int(growth[fit - 1]))
        self.executed.add_run(taken)
        self._again = False
        last = int(taken.behind[-1]) - 1
        self.log_position.take(run.events.end[taken.opens[0] : last + 1])
        self._now = next(run.events.each(last, last + 1))
        self.log_position.remember(self._now)
        self._maps.clear()
        self.log_position.arrive()
        return fit

    def _event(self, kind: int, body: bytes) -> None:
        if kind in _ROWS:
            self._rows(kind, body)
        elif kind == _TABLE_MAP:
            self._map(body)
        elif kind == _XID:
            self._finish()
        elif kind == _QUERY and self._open is not None and events.begins(body):
            self._began = True
        elif kind in _QUERIES:
            self._query(replace(events.query(body, kind), when=self._now[1]))
        else:
            self._rare(kind, body)

    def _rare(self, kind: int, body: bytes) -> None:
        if kind == Kind.ROTATE:
            self._rotated(body)
        elif kind in (Kind.HEARTBEAT, Kind.HEARTBEAT_V2):
            return
        elif kind == Kind.STOP:
            self.log_position.close_file()
        elif kind == Kind.FORMAT_DESCRIPTION:
            if self._open is not None:
                self._abandon()
            self.log_position.remember(self._now)
        elif kind in _COMPRESSED:
            plain = _COMPRESSED[Kind(kind)]
            self._rows(plain, events.uncompressed_rows(body, images=2 if plain == Kind.UPDATE_ROWS_V1 else 1))
        elif kind == Kind.EXECUTE_LOAD_QUERY:
            self._query(replace(events.load_query(body), when=self._now[1]))
        elif kind == Kind.XA_PREPARE:
            self._prepared(one_phase=events.commits_at_once(body))
        elif kind == Kind.MARIADB_GTID_LIST:
            self.executed.learn(events.gtid_list(body))
        elif kind == Kind.INCIDENT:
            raise lost("the server could not write all changes to its log (INCIDENT event)")
        elif kind == Kind.ANONYMOUS_GTID:
            raise _anonymous()
        elif kind not in _PASSED_OVER:
            raise UnknownEvent(f"the server sent an event of the unknown type {kind}")

    def _rotated(self, body: bytes) -> None:
        """Called before a file's first event: by the file before, and by the server, whose own words have no place."""
        if self._now[4]:
            self.log_position.close_file()
        crashed = self.log_position.open_file(*events.rotated(body))
        self._sink.rotated()
        if crashed:
            self._sink.crashed()
        if self._open is None and self._sink.touched:
            self.log_position.arrive()
            self._tell()
            self.builder.cut()

    def _begin(self, kind: int, timestamp: int, server: int, body: bytes, size: int) -> None:
        if self._open is not None:
            raise UnknownEvent("a transaction begins inside another one")
        self._maps.clear()  # each statement maps its tables again, and numbers change with each reopening
        if kind == Kind.MARIADB_GTID:
            place = self.log_position.place_of_transaction(size)
            self._open = events.mariadb_gtid(body, server, place)
            self._skip = place < self._start
        else:
            self._open = events.gtid(body) if kind == Kind.GTID else events.tagged_gtid(body)
        self._again = self._again and self._skip
        self._began = kind == Kind.MARIADB_GTID and not self._open.standalone
        if self._open.prepares is not None:
            self._start_xa(self._open.prepares)
        # Its own time, or that of its first event, in seconds.
        self.builder.begin(self._open.number, self._open.commit_ts or timestamp * 1_000_000, self._open.prefix)

    def _map(self, body: bytes) -> None:
        self._maps[body[:6]] = self._known(body[8:])[0]

    def _known(self, form: bytes) -> tuple[bytes, bool]:
        known = self._wanted.get(form)
        if known is None:
            if len(self._wanted) >= MANY_FORMS:
                self._wanted.clear()
            known = self._wanted[form] = (form, self._sink.wants(form))
        return known

    def _rows(self, kind: int, body: bytes) -> None:
        if self._open is None:
            raise UnknownEvent("the server sent rows outside of a transaction")
        form = self._maps.get(body[:6])
        if form is None:
            raise UnknownEvent("the server sent rows without their table")
        if len(body) <= ROW_FLAGS:
            raise UnknownEvent("the server sent rows that are cut off")
        event = RowEvent(kind | UNCERTAIN if self._may_be_undone(kind, body) else kind, form, body)
        if self._xid is not None:
            self._xa_buffer.add(self._xid, event)
        elif not self._skip and self._captured(form):
            self.builder.add(event)

    def _may_be_undone(self, kind: int, body: bytes) -> bool:
        """Without these checks MariaDB's InnoDB inserts into an empty table by the page. If a later statement of the
        transaction fails, and it is committed nevertheless, all of these rows are gone; the log has them, and nothing
        of the failure."""
        assert self._open is not None
        if not self._open.prefix and body[ROW_FLAGS] & UNCHECKED == UNCHECKED:
            self._in_bulk = self._in_bulk or kind in INSERTS
            return self._in_bulk
        return False

    def _captured(self, form: bytes) -> bool:
        """Asked again: it may be forgotten since its table map."""
        return self._known(form)[1]

    def _query(self, query: events.Query) -> None:
        if self._open is None:
            raise UnknownEvent("the server sent a statement outside of a transaction")
        verb, _, rest = query.text.partition(" ")
        second = rest.partition(" ")[0]
        match verb.upper(), second.upper():
            case "BEGIN", _:
                self._began = True  # with other variables than usual, or compressed
            case "COMMIT", _:
                self._finish()
            case "SAVEPOINT", _:
                pass
            case "ROLLBACK", _:
                self._rolled_back(wholly=not rest.strip())
            case "XA", "START":
                self._began = True
                self._start_xa(rest.partition(" ")[2].lower())
            case "XA", "END":
                if self._xid is not None:
                    self._xa_buffer.ended(self._xid, query.session)
            case "XA", "COMMIT":
                self._decided(rest.partition(" ")[2].lower(), committed_by=query.session)
            case "XA", "ROLLBACK":
                self._decided(rest.partition(" ")[2].lower(), committed_by=None)
            case _:
                self._statement(query)

    def _statement(self, query: events.Query) -> None:
        if not self._skip:
            in_parts = self._open is not None and self._open.in_parts
            for form in self._sink.statement(replace(query, in_parts=in_parts)):
                self.builder.add(RowEvent(TRUNCATE, form, b""))
            self.tables_changed()
        if not self._began:
            self._finish()

    def _rolled_back(self, wholly: bool) -> None:
        """Rows that are undone, unless their engine cannot: their tables are read again. What segments have already
        stays there, and is read over."""
        if self._xid is not None:
            self._xa_rolled_back(self._xid, wholly)
            return
        self._sink.undone(self.builder.open_forms())
        if wholly:
            self.builder.drop_open()
            self._finish()

    def _xa_rolled_back(self, xid: str, wholly: bool) -> None:
        if wholly:
            self._xa_buffer.forget(xid)
            self._finish()
        else:
            self._xa_buffer.rolled_back(xid)

    def _start_xa(self, xid: str) -> None:
        if self._xa_buffer.transaction(xid) is not None:
            self.lost([xid])
        self._xid = xid
        self._xa_buffer.begin(xid)

    def _prepared(self, one_phase: bool) -> None:
        xid, self._xid = self._xid, None
        if xid is None:
            raise UnknownEvent("an XA transaction is prepared that never began")
        if one_phase:
            self._replay(xid)
            self._xa_buffer.forget(xid)
            self._finish()
            return
        assert self._open is not None
        self._xa_buffer.prepare(xid, self._open, self.log_position.file)
        self.executed.prepare(self._open)
        self._open, self._skip, self._in_bulk = None, False, False
        self.log_position.remember(self._now)
        self.builder.drop_mark()
        if self._sink.touched:
            # By a statement of its own, which MariaDB may not send again: what comes again of it is passed over.
            self.log_position.arrive()
            self._tell()
            self.builder.cut()

    def _decided(self, xid: str, committed_by: int | None) -> None:
        """`committed_by`: the session; None: it was rolled back."""
        prepared = self._xa_buffer.transaction(xid)
        if prepared is not None:
            if committed_by is not None:
                if self._open is not None and not self._open.prefix:
                    self.builder.commits_xa(xa_number(xid))
                uncertain = not self._skip and committed_by != self._xa_buffer.session(xid)
                self._replay(xid, uncertain and self._may_have_lost(xid, self._now[1]))
            self._xa_buffer.forget(xid)
        elif not self._skip:
            # It was decided before, otherwise perhaps, and a crash made the server forget that. Or its rows stand
            # before the beginning: a server may show it as prepared later than the log does.
            self._sink.undone(None)
        self._finish(prepared)

    def prepared(self) -> set[str]:
        """XA transactions that are prepared and not decided, as far as the log is read."""
        return self._xa_buffer.prepared()

    def undecided(self) -> set[str]:
        """XA transactions that were prepared in an older file than the one that is being read."""
        return self._xa_buffer.prepared_before(self.log_position.file)

    def lost(self, xids: Iterable[str]) -> None:
        """The server no longer has these as prepared, and its log says nothing more of them."""
        for xid in xids:
            prepared = self._xa_buffer.transaction(xid)
            assert prepared is not None
            self._xa_buffer.forget(xid)
            self.executed.decide(prepared)

    def _replay(self, xid: str, uncertain: bool = False) -> None:
        if self._skip:
            return
        self._sink.undone(filter(self._captured, self._xa_buffer.undone(xid)))
        rows = (event for event in self._xa_buffer.rows(xid) if self._captured(event.form))
        for event in rows:
            self.builder.add(event._replace(kind=event.kind | UNCERTAIN) if uncertain else event)

    def _finish(self, decides: events.Transaction | None = None) -> None:
        """`decides`: a prepared one, which is needed until then: a record of what came before leads not past it."""
        if self._open is None:
            raise UnknownEvent("a transaction ends that never began")
        if self._sink.touched:
            self.builder.record_finished()
        if decides is not None:
            self.executed.decide(decides)
        self.executed.add(self._open)
        self._close()

    def _abandon(self) -> None:
        """A file begins inside a transaction: the server crashed while it wrote it, and has rolled it back, unless its
        tables have no transactions (`crashed`). Its number may be given again. What segments have of it stays there,
        and is read over."""
        if self._xid is not None:
            self._xa_buffer.forget(self._xid)
        self._sink.undone(self.builder.drop_open())
        if self._sink.touched:
            self.builder.record_finished()
        self._close()

    def _close(self) -> None:
        touched = self._sink.touched
        self._open, self._xid, self._skip, self._in_bulk = None, None, False, False
        self.log_position.remember(self._now)
        self.log_position.arrive()
        self.builder.close()
        if touched:
            self._tell()
        if touched or self.builder.divided or self.builder.full:
            self.builder.cut()

    def _tell(self) -> None:
        """Reports the tables that were touched, behind what came before."""
        self.builder.give_finished()
        self._sink.ended()


def _anonymous() -> UnknownEvent:
    error = UnknownEvent("the server sent a transaction without a GTID")
    error.fix = "Set gtid_mode = ON and enforce_gtid_consistency = ON on the server."
    return error
