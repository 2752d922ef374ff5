"""Brings the tables of one unit forward: refresh, cut, commit, again until they hold what the journal holds.

A unit is what one commit moves (`targets.api.Unit`): one table of a lake, all tables of a database. One worker per
unit, owned by the applier, entered by one thread at a time. Dying anywhere here is safe: the target's own applied
record says where to continue, and nothing at or below it is applied again.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import RLock

from tailrace.apply.freshness import Freshness
from tailrace.apply.history_chunks import HistoryChunkWriter
from tailrace.apply.lost import needed_chunks, without_lost_chunks
from tailrace.apply.progress import HeldCut, Progress, TableProgress, add
from tailrace.apply.publishing import is_settled, read_whole
from tailrace.batch.applied import AppliedState, Generation
from tailrace.batch.history import require_history, stored_slice
from tailrace.batch.limits import BatchLimits, batch_end
from tailrace.batch.slice import TableSlice, cut
from tailrace.batch.soft_delete import ends_before
from tailrace.batch.versions import version_ends
from tailrace.batch.written import NO_FILES
from tailrace.changelog import cuts
from tailrace.changelog.history import stored
from tailrace.changelog.logged import LoggedCut, place_of
from tailrace.changelog.records.terms import Key, RecordNumber, TableSchema
from tailrace.changelog.state import LogState, SnapshotState, TableLog
from tailrace.contract.status import TableCounters
from tailrace.errors import TailraceError, met_at
from tailrace.seams import seam
from tailrace.targets.api import ChunkWriter, Look, Opened, Opening, TableFailed, Unit, UnitBatch, VersionAt

log = logging.getLogger(__name__)

NONE = RecordNumber(-1)
"""Before the first record."""
PATIENCE = 50
"""Batches for which a new copy that is complete waits for rows that are withheld."""


@dataclass(eq=False)
class TableCopy:
    """The copy of one table, as the worker of its unit knows it."""

    table_id: int
    generation: RecordNumber = RecordNumber(0)
    """The generation of the journal's table that is brought forward; the copy ends with it."""
    applied: AppliedState | None = None
    """None: the target has to be asked (again)."""
    replacing: bool = False
    """It is a new copy that readers do not see yet."""
    level: bool = True
    """False: the unit cannot move it with the others yet."""
    found_record: RecordNumber | None = None
    """The applied record of the target when it was first opened; None: it has not been yet."""
    complete: bool = False
    """A new copy is to take the place of what readers see in the next batch."""
    writers: dict[int, ChunkWriter] = field(default_factory=dict)
    """Writers of chunks by schema version."""
    withheld: frozenset[Key] | None = None
    """Keys that a new copy, otherwise complete, still lacks; None: it is not complete."""
    named: dict[str, int] = field(default_factory=dict)
    """Versions that were named for cuts, which the journal may not have yet."""
    waits: int = 0
    """The number of batches for which it has waited for them."""

    @property
    def opened(self) -> bool:
        """True if the target is known right now; takes no lock, so that it may be asked while a batch runs."""
        return self.applied is not None

    @property
    def settled(self) -> bool:
        """True if the target is known and lacks nothing: where there is a gap, every batch checks which snapshot will
        fill it."""
        applied = self.applied
        return applied is not None and applied.gap is None

    def judge(self, state: LogState, log_table: TableLog) -> None:
        """Decide whether a new copy is complete. Rows that are withheld then are waited for, but for those of later
        changes, and not forever."""
        assert self.applied is not None
        self.complete = False
        if not self.replacing or not read_whole(log_table, state, self.applied):
            self.withheld, self.waits = None, 0
            return
        self.withheld = self.applied.holes if self.withheld is None else self.withheld & self.applied.holes
        self.waits += 1
        self.complete = not self.withheld or self.waits >= PATIENCE


Present = tuple[TableCopy, TableLog]


@dataclass(frozen=True)
class _KeptVersions:
    """The versions of a table that cuts name. Without the state that says so: each of thousands of tables would keep
    the whole log's state of another moment."""

    record: RecordNumber
    """The record of that state."""
    cuts: frozenset[str]
    """All of its cuts."""
    versions: Mapping[str, int]
    """Versions by the cut's name."""


class UnitWorker:
    """`unit` is in the target; the worker opens its tables."""

    def __init__(self, unit: Unit, progress: Progress, limits: BatchLimits, freshness: Freshness | None = None) -> None:
        """`freshness`: measures the changes that become visible."""
        self._unit = unit
        self._freshness = freshness
        self._progress = progress
        self._limits = limits
        self._lock = RLock()
        self.copies: dict[int, TableCopy] = {}
        """The tables of the unit, changed only while no batch runs; a table may be tidied then."""
        self._kept_by: dict[int, _KeptVersions] = {}
        """The versions that the newest state asked to keep, by table."""
        self._removed: list[int] = []
        """Tables that the unit has not forgotten yet."""

    def add(self, copy: TableCopy) -> None:
        """Let the unit move a table from now on; what is known of its copy counts."""
        self.copies[copy.table_id] = copy

    def remove(self, table_id: int) -> None:
        """The table is moved by another unit, or by none, from now on."""
        self.copies.pop(table_id, None)
        self._kept_by.pop(table_id, None)
        self._removed.append(table_id)

    def advance(self, state: LogState, through: RecordNumber) -> bool:
        """One batch; False: there is nothing more up to record `through`. Raises what the target raises; afterwards the
        target is read again, so that whatever did happen counts."""
        with self._lock:
            while self._removed:
                self._unit.forget(self._removed.pop())
            present = [(copy, table) for copy in self.copies.values() if (table := _present(copy, state)) is not None]
            try:
                with met_at("target"):  # what the change log's storage does not say of itself
                    return self._step(state, present, through)
            except TableFailed as failed:  # nothing has happened to the others, but to those that it names
                for table_id in (failed.table_id, *failed.moved):
                    self.copies[table_id].applied = None
                if isinstance(failed.error, TailraceError) and failed.error.where is None:
                    failed.error.where = "target"
                raise
            except BaseException:
                for copy in self.copies.values():
                    copy.applied = None
                raise

    def chunk_writer(self, table_id: int, schema: TableSchema) -> ChunkWriter | None:
        """A writer for chunks of this schema version; None: the target is not open, or does not have this version yet
        (its columns' ids are known only once it does). Waits for no batch once it is known."""
        copy = self.copies.get(table_id)
        if copy is None:
            return None
        known, applied = copy.writers.get(schema.version), copy.applied
        if known is not None or applied is None or schema.version > applied.schema_version:
            return known
        with self._lock:
            if copy.applied is None or self.copies.get(table_id) is not copy:
                return None
            writer = self._unit.chunk_writer(stored(schema))
            made = writer if schema.history is None else HistoryChunkWriter(schema, writer)
            return copy.writers.setdefault(schema.version, made)

    def missing(self) -> list[int]:
        """Tables whose copies are gone; only between batches. They are opened again."""
        with self._lock, met_at("target"):
            gone = [copy for i in self._unit.missing() if (copy := self.copies.get(i)) is not None and copy.opened]
            for copy in gone:
                copy.applied = None
            return [copy.table_id for copy in gone]

    def look(self, table_id: int, log_table: TableLog) -> tuple[Look, RecordNumber] | None:
        """The table's copy, to be compared, and the record that it holds at least; None: the target is not open. Waits
        for a batch."""
        with self._lock:
            copy = self.copies.get(table_id)
            applied = None if copy is None else copy.applied
            if copy is None or applied is None or copy.generation != log_table.generation:
                return None
            schema = next(s.table for s in log_table.schemas if s.table.version == applied.schema_version)
            return self._unit.look(stored(schema), applied), self._covered(copy)

    def tidy(self, table_id: int, state: LogState, now: float) -> None:
        """Upkeep of a table; only between batches."""
        with self._lock:
            copy = self.copies.get(table_id)
            log_table = None if copy is None else _present(copy, state)
            if copy is None or log_table is None or copy.applied is None:
                return
            applied = copy.applied
            schemas = {logged.table.version: logged.table for logged in log_table.schemas}
            if applied.schema_version not in schemas:
                return  # the table has come back with a version that the target lacks
            try:
                needed = needed_chunks(log_table, state, applied)
                with met_at("target"):
                    self._unit.keep(table_id, self._kept(state, copy))
                    self._unit.tidy(stored(schemas[applied.schema_version]), applied, needed, now)
            except BaseException:
                copy.applied = None
                raise

    def _step(self, state: LogState, present: Sequence[Present], through: RecordNumber) -> bool:
        self._open(state, [(copy, table) for copy, table in present if copy.applied is None])
        present = [(copy, table) for copy, table in present if copy.level]
        if not present:
            return False
        whole = [(copy, table) for copy, table in present if copy.complete and _is_whole(copy, table, state)]
        if whole:
            self._publish(state, present, whole)
            self._hold_cuts(state, present)
            return True
        self._hold_cuts(state, present)  # one that a process which was killed had come to
        end = self._end(state, present, through)
        behind = [copy for copy, _ in present if self._covered(copy) < end]
        slices = {copy.table_id: part for copy in behind if (part := self._cut(state, copy, end)) is not None}
        if slices:
            before = {copy.table_id: self._covered(copy) for copy in behind}
            self._commit(UnitBatch(end, _level_at(end, present), slices))
            self._measure(state, [(copy, table) for copy, table in present if copy.table_id in slices], before, end)
        for copy, table in present:
            copy.judge(state, table)
            part = slices.get(copy.table_id)
            covered = max(self._covered(copy), end)
            self._put(copy, covered, TableCounters() if part is None else counted(part))
        self._hold_cuts(state, present)
        return end < through or any(copy.complete for copy, _ in present)

    def _hold_cuts(self, state: LogState, present: Sequence[Present]) -> None:
        """Keep the version that holds a cut before the next batch passes it."""
        for copy, table in present:
            if copy.replacing and copy.complete:
                continue  # it takes the former copy's place first, without another record
            for made in cuts.awaited_cuts(state, table):
                if made.record <= self._covered(copy) and not self._progress.is_held(made.name, copy.table_id):
                    seam("cut.before-naming")
                    # Dying here is safe: the version is found again by its record, before the table is tidied.
                    self._hold_cut(state, copy, made)

    def _hold_cut(self, state: LogState, copy: TableCopy, made: LoggedCut) -> None:
        try:
            found = None if copy.replacing else self._unit.version_at(copy.table_id, made.record)
            why = _fault(found) if not copy.replacing else cuts.STARTED_OVER
            number = None if found is None else found.number
            if why is None and number is not None:
                number = copy.named.get(made.name, number)
                self._unit.keep(copy.table_id, {**self._kept(state, copy), made.name: number})
                copy.named[made.name] = number
        except TailraceError as error:
            raise TableFailed(copy.table_id, error) from error
        # And here: the next process finds the same version, and the name that it has.
        seam("cut.after-naming")
        self._progress.hold(made.name, copy.table_id, HeldCut(number if why is None else None, why))

    def _kept(self, state: LogState, copy: TableCopy) -> dict[str, int]:
        """The versions that cuts name, as the journal has them, or will have. Upkeep may have waited for a batch, and
        come with an older state than that."""
        known = self._kept_by.get(copy.table_id)
        if known is None or state.number > known.record:
            versions = cuts.kept_versions(state, state.tables[copy.table_id])
            known = self._kept_by[copy.table_id] = _KeptVersions(state.number, frozenset(state.cuts), versions)
        return {**{name: version for name, version in copy.named.items() if name in known.cuts}, **known.versions}

    def _end(self, state: LogState, present: Sequence[Present], through: RecordNumber) -> RecordNumber:
        """The record that the next batch brings them to. A table that has joined may hold more than the others: they
        come to its record first, and are moved together from there."""
        covered = [(table, self._covered(copy)) for copy, table in present]
        lowest = min(record for _, record in covered)
        held = (copy.applied.applied_record for copy, _ in present if copy.applied is not None)
        last = min(min((record for record in held if record > lowest), default=through), through)
        made = [cut.record for cut in state.cuts.values()]
        made += [record for table, _ in covered for record in (*ends_before(table), *version_ends(table))]
        return batch_end([(table, record) for table, record in covered if record < last], last, self._limits, made)

    def _publish(self, state: LogState, present: Sequence[Present], whole: Sequence[Present]) -> None:
        """New copies that are complete take the place of what readers see."""
        record = min(self._covered(copy) for copy, _ in present)
        self._commit(UnitBatch(record, _level_at(record, present), {}, frozenset(copy.table_id for copy, _ in whole)))
        self._open(state, whole)
        for copy, table in whole:
            copy.judge(state, table)
            self._put(copy, self._covered(copy), TableCounters())

    def _covered(self, copy: TableCopy) -> RecordNumber:
        assert copy.applied is not None
        return max(copy.applied.applied_record, self._progress.of(copy.table_id).applied_record)

    def _cut(self, state: LogState, copy: TableCopy, end: RecordNumber) -> TableSlice | None:
        assert copy.applied is not None
        try:
            part = without_lost_chunks(state, cut(state, copy.table_id, copy.applied, end))
            if part is not None:
                require_history(state.tables[copy.table_id], part)
                part = stored_slice(part)
        except TailraceError as error:
            raise TableFailed(copy.table_id, error) from error
        if part is None or not _accepting(state, copy.table_id):
            return part
        return replace(part, whole=False)  # rows may be missing until they are compared

    def _commit(self, batch: UnitBatch) -> None:
        for table_id, applied in self._unit.apply(batch).items():
            self.copies[table_id].applied = applied
            name = batch.slices[table_id].schema.name
            log.debug("applied to record %d", batch.record, extra={"table": name, "record": batch.record})

    def _measure(
        self, state: LogState, moved: Sequence[Present], before: Mapping[int, RecordNumber], end: RecordNumber
    ) -> None:
        """Changes of a new copy do not count: nobody sees it yet."""
        if self._freshness is not None:
            now = time.time()
            for copy, table in moved:
                if not copy.replacing:
                    self._freshness.applied(state, table, (before[copy.table_id], end), now)

    def _open(self, state: LogState, tables: Sequence[Present]) -> None:
        if not tables:
            return
        assert state.origin is not None
        named = NAMES.of(state)
        wanted = {
            copy.table_id: Opening(
                stored(table.schemas[0].table),
                Generation(table.generation, table.begin_seq, keeps=not table.must_hide),
                tuple(sorted(".".join(place) for place in named.get(place_of(table)[1], set()) - {place_of(table)})),
                # Not once a chunk is read: what is changed after its rows were compared would stay.
                any(not made.tables[copy.table_id].chunks_done for made in _accepting(state, copy.table_id)),
            )
            for copy, table in tables
        }
        held = [self._covered(copy) for copy in self.copies.values() if copy.opened]
        found = self._unit.open(wanted, state.origin.log_id)
        held += [opened.applied.applied_record for opened in found.values() if opened.level]
        least = min(held, default=NONE)
        for copy, table in tables:
            opened = found[copy.table_id]
            copy.applied, copy.replacing = opened.applied, opened.replacing
            copy.level = opened.level or _can_join(opened, table, state, least)
            copy.complete, copy.writers = False, {}
            record = opened.applied.applied_record
            copy.found_record = record if copy.found_record is None else copy.found_record
            self._miss_cuts(state, copy, opened.version)
            # What was covered without a commit is known only to this process; the target's record alone counts now.
            self._progress.put(copy.table_id, replace(self._progress.of(copy.table_id), applied_record=record))

    def _miss_cuts(self, state: LogState, copy: TableCopy, version: int | None) -> None:
        """A table that was deleted by another program and made again numbers its versions from the beginning: those
        that cuts name will be of other rows."""
        if version is None:
            return
        table = state.tables[copy.table_id]
        for made in state.cuts.values():
            for table_id in cuts.of_place(state, table):
                held = made.versions.get(table_id)
                if held is not None and held > version:
                    copy.named.pop(made.name, None)
                    self._progress.hold(made.name, table_id, HeldCut(None, cuts.MADE_AGAIN))

    def _put(self, copy: TableCopy, covered: RecordNumber, more: TableCounters) -> None:
        applied, before = copy.applied, self._progress.of(copy.table_id)
        assert applied is not None
        written = self._unit.take_written(copy.table_id)
        self._progress.put(
            copy.table_id,
            TableProgress(
                applied.applied_seq,
                covered,
                applied.applied_record,
                applied.holes,
                add(before.counters, more),
                replacing=copy.replacing,
                schema_version=applied.schema_version,
                version=self._unit.newest_version(copy.table_id),
                written=before.written if written is None else (before.written or NO_FILES) + written,
            ),
        )


def _accepting(state: LogState, table_id: int) -> list[SnapshotState]:
    return [s for s in state.snapshots.taking_over() if s.accepts(table_id)]


def _fault(found: VersionAt | None) -> str | None:
    """The reason why the version is not what the source had at the record; None: it is."""
    if found is None:
        return "the version that held it is gone"
    if found.applied.gap is not None:
        return "rows are missing that are read again"
    if found.applied.holes:
        return f"{len(found.applied.holes)} rows were withheld until they are read again"
    return None


def _can_join(opened: Opened, table: TableLog, state: LogState, least: RecordNumber) -> bool:
    """True if the unit can move the table with those that hold record `least`. The unit's next commit notes that it
    belongs to them; until then each would go by itself if that commit failed, and readers would see parts of
    transactions."""
    settled = not opened.replacing and is_settled(table, state, opened.applied)
    return settled and opened.applied.applied_record >= least


def _present(copy: TableCopy, state: LogState) -> TableLog | None:
    """The journal's table that the copy is of; None: that one is over."""
    table = state.tables.get(copy.table_id)
    return None if table is None or table.generation != copy.generation else table


class NamesOfPlaces:
    """The places of tables, by their names without schemas, as the state has them that was asked for last: thousands
    of tables are opened by few states."""

    def __init__(self) -> None:
        self._known: tuple[LogState | None, Mapping[str, set[tuple[str, str]]]] = None, {}

    def of(self, state: LogState) -> Mapping[str, set[tuple[str, str]]]:
        known = self._known
        if known[0] is not state:
            known = self._known = state, _by_name(state)
        return known[1]


NAMES = NamesOfPlaces()


def _by_name(state: LogState) -> Mapping[str, set[tuple[str, str]]]:
    named: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for table in state.tables.values():
        if not table.removed:
            place = place_of(table)
            named[place[1]].add(place)
    return dict(named)


def _level_at(record: RecordNumber, tables: Sequence[Present]) -> frozenset[int]:
    """The tables that hold no more than this record: one that has joined and is ahead does not belong to the others
    before they have come to its record."""
    return frozenset(c.table_id for c, _ in tables if c.applied is not None and c.applied.applied_record <= record)


def _is_whole(copy: TableCopy, table: TableLog, state: LogState) -> bool:
    return copy.applied is not None and read_whole(table, state, copy.applied)


def counted(part: TableSlice) -> TableCounters:
    """The changes of the batch, by operation. A segment of a record is applied whole or not at all."""
    new = part.new_segments
    return TableCounters(
        inserts=sum(s.inserts for s in new),
        updates=sum(s.updates for s in new),
        deletes=sum(s.deletes for s in new),
        truncates=sum(t > part.applied.applied_seq for t in part.truncates),
        schema_changes=int(part.evolve is not None and part.applied.schema_version > 0),
        snapshot_rows=sum(chunk.rows for chunk in part.chunks),
    )
