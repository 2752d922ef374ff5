"""Looks at the catalog every few seconds: new tables, gone tables, changes that the stream does not tell.

Called by capture's loop. A new table is added at once: publication, then the edge X, then its record, all before
another message is read. Every other difference is tied to a place among the commits: the poll writes a marker (a
transactional logical message) and acts when the stream brings it back, behind everything that was committed before the
poll looked.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tailrace.capture import slots
from tailrace.capture.decode import stopped
from tailrace.capture.recorder import Recorder
from tailrace.capture.startup import Place
from tailrace.capture.tables import Difference, Tables, compare
from tailrace.changelog.records import Event, SchemaChanged, TableAdded, TableRemoved, TableStored
from tailrace.changelog.state import TableLog
from tailrace.errors import NoKey, ReadRefused, SchemaChangeUnsupported
from tailrace.sources.postgresql.catalog import all_empty, discover, table_by_oid
from tailrace.sources.postgresql.connect import source_errors
from tailrace.sources.postgresql.model import PgTable, Storage

log = logging.getLogger(__name__)
_MENDABLE = (NoKey.__name__, ReadRefused.__name__)
"""Stops whose reason the catalog shows, and shows to be over."""


@dataclass(frozen=True)
class Look:
    """One look at the catalog that waits for its marker."""

    token: int
    found: dict[int, PgTable]
    edge: int
    """An xid from after the marker: a snapshot that sees everything below it sees all that came before the marker."""
    grown: frozenset[int]
    """Tables that only got new, empty partitions since the last look."""
    versions: dict[int, int]
    """Schema versions in force at the look. A table that the stream has taken further since is left to the next look:
    this one may be older than the change."""


class CatalogPoll:
    """`settle` makes all finished transactions durable (a record each time there is something to say)."""

    def __init__(self, place: Place, tables: Tables, recorder: Recorder, nonce: str, settle: Callable[[], int]) -> None:
        self._place = place
        self._tables = tables
        self._recorder = recorder
        self._nonce = nonce
        self._settle = settle
        self._tokens = 0
        self._looks: dict[str, Look] = {}
        self._storage: dict[int, Storage] = {}
        """What the journal's digest stands for, as far as this process has seen it."""
        self.acted_on = 0
        """The newest token whose marker has come back."""

    def poll(self, always_mark: bool = False) -> int:
        """Look now. Returns the token of the look; `always_mark`: its marker is written even if nothing differs."""
        with source_errors("looking at the catalog"):
            spec = self._place.replicator.spec
            found = {t.oid: t for t in discover(self._place.connection, spec.tables, spec.options)}
        names = self._place.names
        others = [t for t in found.values() if t.stop is None and not self._tables.is_captured(t.oid)]
        refused = slots.unpublishable(self._place.connection, names.publication, others, names.publication_is_ours)
        found |= {oid: replace(found[oid], stop=stop) for oid, stop in refused.items()}
        published = self._check_publication(found)
        known = self._recorder.journal.state.tables
        self._storage |= {i: t.storage for i, t in found.items() if i in known and known[i].files == t.files}
        fresh = [t for t in found.values() if self._is_fresh(t)]
        if fresh:
            self._add(fresh, list(found.values()))
        elif names.publication_is_ours and not all(map(self._tables.is_captured, published)):
            # A table that lost its key and stayed published could not be updated at the source any more.
            self._publish(found.values())
        if always_mark or (not self._looks and self._differs(found)):
            self._tokens += 1
            content = f"{self._nonce}:{self._tokens}"
            versions = {i: known.schema.version for i, known in self._tables.known.items()}
            slots.emit(self._place.connection, content, transactional=True)
            grown = frozenset(i for i in self._storage if i in found and self._only_grew(found[i]))
            self._looks[content] = Look(self._tokens, found, slots.edge(self._place.connection), grown, versions)
        return self._tokens

    def marker(self, content: str) -> None:
        """Our message came back: everything committed before the look is in the log now."""
        look = self._looks.pop(content, None)
        if look is None:
            return  # of an earlier process
        self._settle()
        events: list[Event] = []
        for table_id, known in list(self._tables.known.items()):
            if known.schema.version == look.versions.get(table_id):
                events += self._events(table_id, look)
        if events:
            self._recorder.add(*events)
            self._settle()
        self.acted_on = look.token

    def _check_publication(self, found: dict[int, PgTable]) -> set[int]:
        """What is written while a table is not published never comes: newer servers leave it out without a word."""
        name = self._place.names.publication
        published = slots.published(self._place.connection, name)
        if published is None:
            raise slots.lost(f"publication {name!r} is missing")
        for table_id in [i for i in found if self._tables.is_captured(i) and i not in published]:
            table = self._tables.known[table_id].schema.name
            error = SchemaChangeUnsupported(
                table,
                f"{table} was taken out of publication {name!r}: its changes since are lost",
                "take the table out of tables.include, then in again, to copy it anew",
            )
            log.warning("%s stops: %s", table, error)
            self._settle()
            self._tables.stop(table_id)
            self._recorder.add(stopped(table_id, self._recorder.journal.state.last_seq, error))
            self._settle()
        return published

    def _is_fresh(self, table: PgTable) -> bool:
        known = self._recorder.journal.state.tables.get(table.oid)
        if known is None or table.oid not in self._tables.known:
            return True
        if known.stopped is None or table.stop is not None:
            return False
        # What stood in the way is gone: the table is copied from then on.
        return known.stopped.error in _MENDABLE

    def _publish(self, found: Iterable[PgTable], fresh: Sequence[PgTable] = ()) -> None:
        """Exactly what is captured. A table without a usable key must stay out: its updates would fail at the
        source."""
        names = self._place.names
        fit = [t for t in found if t.stop is None and (t in fresh or self._tables.is_captured(t.oid))]
        slots.ensure_publication(self._place.connection, names.publication, fit, names.publication_is_ours)

    def _add(self, fresh: list[PgTable], found: list[PgTable]) -> None:
        self._settle()
        self._publish(found, fresh)
        edge = slots.edge(self._place.connection)
        last_seq = self._recorder.journal.state.last_seq
        for table in fresh:
            before = self._recorder.journal.state.tables.get(table.oid)
            version = 1 if before is None else before.schema.version + 1
            schema = table.schema.model_copy(update={"version": version})
            wanted = self._place.replicator.spec.snapshot.initial
            self._recorder.add(TableAdded(table=schema, edge_xid=edge, snapshot=wanted and table.stop is None))
            if table.stop is not None:
                log.warning("%s is not captured: %s", table.name, table.stop)
                self._recorder.add(stopped(table.oid, last_seq, table.stop))
            else:
                log.info("%s is captured; chunks of it wait for transaction %d", table.name, edge)
                self._recorder.add(TableStored(table_id=table.oid, files=table.files))
                self._storage[table.oid] = table.storage
            self._tables.add(schema, stopped=table.stop is not None)
        self._settle()

    def _differs(self, found: dict[int, PgTable]) -> bool:
        for table_id, known in self._tables.known.items():
            now = found.get(table_id)
            if now is None:
                return True
            if known.stopped:
                continue
            if compare(known.schema, now) != Difference() or self._log_of(table_id).files != now.files:
                return True
        return False

    def _events(self, table_id: int, look: Look) -> list[Event]:
        known, now = self._tables.known[table_id], look.found.get(table_id)
        last_seq = self._recorder.journal.state.last_seq
        if now is None:
            return [self._removed(table_id)]
        if known.stopped:
            return []
        difference = compare(known.schema, now)
        if difference.stop is not None:
            log.warning("%s stops: %s", known.schema.name, difference.stop)
            self._tables.stop(table_id)
            return [stopped(table_id, last_seq, difference.stop)]
        before = self._log_of(table_id)
        stored = [TableStored(table_id=table_id, files=now.files)] if before.files != now.files else []
        rewritten = _rewritten(before, now) and table_id not in look.grown
        evolved = difference.evolved
        if evolved is None and rewritten:
            evolved = known.schema.model_copy(update={"version": known.schema.version + 1})
        if evolved is None:
            return [*stored]
        log.info("%s has schema version %d after sequence %d", known.schema.name, evolved.version, last_seq)
        self._tables.evolve(evolved)
        # Where the stream shows no change, rows from behind it lie before this place: the chunks must see them.
        edge = look.edge if rewritten else None
        reread = difference.reread or rewritten
        return [SchemaChanged(table=evolved, seq=last_seq, reread=reread, edge_xid=edge), *stored]

    def _only_grew(self, now: PgTable) -> bool:
        """New leaf partitions without a page brought nothing: all that they ever hold comes by the stream."""
        before, added = set(self._storage[now.oid]), set(now.storage) - set(self._storage[now.oid])
        return bool(added) and before <= set(now.storage) and all_empty(self._place.connection, added)

    def _log_of(self, table_id: int) -> TableLog:
        return self._recorder.journal.state.tables[table_id]

    def _removed(self, table_id: int) -> TableRemoved:
        name = self._tables.known[table_id].schema.name
        now = table_by_oid(self._place.connection, table_id)
        reason = "it was dropped" if now is None else f"tables.include does not select {now.name}"
        log.info("%s is no longer captured: %s", name, reason)
        self._tables.remove(table_id)
        return TableRemoved(table_id=table_id, reason=reason)


def _rewritten(before: TableLog, now: PgTable) -> bool:
    """The table has other files and no TRUNCATE explains it: its rows may have changed without row events."""
    return before.files not in (None, now.files) and all(t.seq <= before.files_seq for t in before.truncates)
