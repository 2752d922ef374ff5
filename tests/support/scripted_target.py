"""The smallest target whose commits move all tables together: a database in memory behind `tailrace.targets.api`.

It stands on the fold alone, as a database server's target will: rows by key instead of files. `docs/dev/
adding-a-target.md` walks through this module.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import count
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import FinishedSnapshot, TableSlice
from tailrace.changelog import keys
from tailrace.changelog.bundles import ObjectAccess
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import Key, RecordNumber, TableSchema
from tailrace.changelog.types import arrow_type
from tailrace.errors import TargetChanged, TargetRefused
from tailrace.fold.chunk_keys import KEY_ONLY, read_chunk_keys
from tailrace.fold.comparison import Compared, compared, superfluous, withheld
from tailrace.fold.decide import Folded, decide
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Columns, Ints, Mask, typed
from tailrace.fold.log_rows import segment_rows
from tailrace.fold.moved_keys import find_moved_keys
from tailrace.fold.newest import FROM_BASE
from tailrace.fold.numbered import NumberedKeys, number_keys
from tailrace.fold.replayed import KeyStates, logged_rows, replay_alone, replayed
from tailrace.targets.api import (
    ChunkLost,
    FoundRows,
    NeededChunks,
    Opened,
    Opening,
    TableFailed,
    UnitBatch,
    VersionAt,
    WrittenChunk,
)

Row = dict[int, Any]
"""Values by the column's id, which outlives a rename."""


@dataclass(frozen=True)
class StoredTable:
    applied: AppliedState
    schema: TableSchema
    rows: Mapping[Key, Row] = field(default_factory=dict)


@dataclass
class MemoryDatabase:
    """What outlives a driver. Replaced as a whole by each commit, so that readers see all of it or nothing."""

    tables: Mapping[int, StoredTable] = field(default_factory=dict)
    """What readers see, by table id."""
    copies: Mapping[int, StoredTable] = field(default_factory=dict)
    """New copies beside them."""
    record: RecordNumber = RecordNumber(0)
    """The record that all of the group hold."""
    members: frozenset[int] = frozenset()
    """The tables of the group."""
    staged: dict[str, pa.Table] = field(default_factory=dict)
    """Chunks, which readers do not see."""
    at_seam: Callable[[str], None] = lambda _: None
    """Called before and after each commit; whoever raises there kills the driver."""
    lock: RLock = field(default_factory=RLock)
    """One commit after the other."""
    committed: "Callable[[MemoryDatabase], object]" = lambda _: None
    """A reader who looks after each commit."""
    failing: dict[int, Exception] = field(default_factory=dict)
    """What a batch with a slice of this table fails with."""

    def commit(
        self,
        tables: Mapping[int, StoredTable],
        copies: Mapping[int, StoredTable | None],
        members: Callable[[frozenset[int]], frozenset[int]],
        record: RecordNumber | None = None,
    ) -> None:
        """Put these tables and copies (None: it is gone) in the place of what is there of them. `members`: those of the
        group, by those that it has; `record`: that of the group, where it moves."""
        with self.lock:
            self.at_seam("before-commit")
            now = members(self.members)
            # The own state of a table that leaves counts from now on, and must say what the group's said.
            left = {i: _at(self.tables[i], self.record) for i in self.members - now if i not in tables}
            merged = {**self.copies, **copies}
            self.tables, self.members = {**self.tables, **left, **tables}, now
            self.copies = {i: copy for i, copy in merged.items() if copy is not None}
            self.record = self.record if record is None else record
            self.committed(self)
            self.at_seam("after-commit")

    def rows(self, table_id: int) -> dict[Key, tuple[Any, ...]]:
        """What a reader sees: values in the order of the columns."""
        table = self.tables[table_id]
        ids = [column.id for column in table.schema.columns]
        return {key: tuple(row.get(id_) for id_ in ids) for key, row in table.rows.items()}


@dataclass(frozen=True)
class MemoryUnits:
    """See `targets.api.Units`."""

    database: MemoryDatabase
    log: ObjectAccess
    admit: Callable[[], None] = lambda: None

    def alone(self) -> "MemoryUnit":
        return MemoryUnit(self.database, self.log, self.admit, together=False)

    def group(self) -> "MemoryUnit":
        return MemoryUnit(self.database, self.log, self.admit, together=True)


@dataclass(frozen=True)
class MemoryUnit:
    """See `targets.api.Unit`: one table, or all that are level."""

    database: MemoryDatabase
    log: ObjectAccess
    admit: Callable[[], None]
    together: bool
    replacing: set[int] = field(default_factory=set)
    """Tables whose batches go to a new copy."""

    def open(self, tables: Mapping[int, Opening], log_id: str) -> Mapping[int, Opened]:
        return {table_id: self._opened(table_id, opening, log_id) for table_id, opening in tables.items()}

    def _opened(self, table_id: int, opening: Opening, log_id: str) -> Opened:
        schema, generation, database = opening.schema, opening.generation, self.database
        self.replacing.discard(table_id)
        present = database.tables.get(table_id)
        if present is not None and present.applied.log_id != log_id:
            raise TableFailed(table_id, TargetRefused(f"{schema.name} is of another change log", ""))
        if present is not None and present.applied.generation > generation.number:
            raise TableFailed(table_id, TargetChanged(schema.name, "the target is of a later generation", ""))
        if present is not None and generation.holds(present.applied, table_id):
            member = table_id in database.members
            return Opened((_at(present, database.record) if member else present).applied, level=self._level(member))
        new = StoredTable(generation.begin(schema, log_id), schema)
        if present is None or not generation.keeps:
            self._commit({table_id: new}, {}, {table_id})
            return Opened(new.applied, level=self._level(False))
        known = database.copies.get(table_id)
        if known is None or not generation.holds(known.applied, table_id):
            known = new
            self._commit({}, {table_id: new}, {table_id})
        self.replacing.add(table_id)
        return Opened(known.applied, replacing=True, level=self._level(False))

    def _level(self, member: bool) -> bool:
        """A unit of one table is always level with itself."""
        return member or not self.together

    def _commit(
        self, tables: Mapping[int, StoredTable], copies: Mapping[int, StoredTable | None], moved: Set[int]
    ) -> None:
        """These tables are moved by themselves."""
        self.admit()
        self.database.commit(tables, copies, lambda members: members - moved)

    def forget(self, table_id: int) -> None:
        self.replacing.discard(table_id)

    def apply(self, batch: UnitBatch) -> Mapping[int, AppliedState]:
        tables: dict[int, StoredTable] = {}
        copies: dict[int, StoredTable | None] = {}
        applied: dict[int, AppliedState] = {}
        for table_id, part in batch.slices.items():
            hidden = table_id in self.replacing
            before = (self.database.copies if hidden else self.database.tables)[table_id]
            try:
                if table_id in self.database.failing:
                    raise self.database.failing[table_id]
                after = brought_forward(self.database, self.log, before, part)
            except (ChunkLost, TargetChanged) as error:
                raise TableFailed(table_id, error) from error
            (copies if hidden else tables)[table_id], applied[table_id] = after, after.applied
        for table_id in batch.publish:
            tables[table_id], copies[table_id] = self.database.copies[table_id], None
        if self.together:
            self.admit()
            self.database.commit(tables, copies, lambda _: batch.tables, batch.record)
        else:
            self._commit(tables, copies, batch.tables)
        return applied

    def chunk_writer(self, schema: TableSchema) -> "MemoryChunkWriter":
        return MemoryChunkWriter(self.database, schema)

    def missing(self) -> tuple[()]:
        return ()

    def look(self, schema: TableSchema, applied: AppliedState) -> "MemoryLook":
        return MemoryLook(self.database, self.log, schema.table_id, schema)

    def version_at(self, table_id: int, record: RecordNumber) -> VersionAt:
        return VersionAt(None, self.database.tables[table_id].applied)

    def newest_version(self, table_id: int) -> None:
        """There are no versions."""

    def take_written(self, table_id: int) -> None:
        """There are no files."""

    def keep(self, table_id: int, versions: Mapping[str, int]) -> None:
        """There are no versions."""

    def tidy(self, schema: TableSchema, applied: AppliedState, needed: NeededChunks, now: float) -> None:
        if not needed.reading:
            mine = [path for path in self.database.staged if path.startswith(f"{schema.table_id}/")]
            for path in set(mine) - needed.paths:
                del self.database.staged[path]


@dataclass(frozen=True)
class MemoryLook:
    """See `targets.api.Look`."""

    database: MemoryDatabase
    log: ObjectAccess
    table_id: int
    schema: TableSchema

    def find(self, columns: Sequence[str], values: Sequence[Key], take: Sequence[str], most: int) -> FoundRows:
        with self.database.lock:
            table = self.database.tables[self.table_id]
        rows = pa.table(
            {
                column.name: pa.array([row.get(column.id) for row in table.rows.values()], arrow_type(column.type))
                for column in table.schema.columns
            }
        )
        filled = rows.filter(reduce(pc.and_, (rows[name].is_valid() for name in columns)))
        found = [key in set(values) for key in keys.keys([filled[name].combine_chunks() for name in columns])]
        return FoundRows(table.applied, filled.filter(pa.array(found, pa.bool_())).select(list(take)))

    def compare(self, expect: Callable[[AppliedState], TableSlice]) -> Compared:
        with self.database.lock:
            table = self.database.tables[self.table_id]
            if self.table_id in self.database.members:
                table = _at(table, self.database.record)
        part = expect(table.applied)
        work = FoldInput(part, {column.name: arrow_type(column.type) for column in part.schema.columns}, self.log)
        chunks = StagedChunks(self.database, work)
        if not part.finished:
            return self._states(work, table, replayed(work, part.chunks[0], chunks))
        kept = _kept(work, part.finished[0], chunks)
        extra = sorted(table.rows.keys() - kept)
        alone = replay_alone(work)
        rows = logged_rows(work, alone, np.flatnonzero(alone.present & alone.known))
        found = self._states(work, table, KeyStates(alone.keys, alone.present, alone.known, rows))
        return superfluous(keys.columns(extra, work.key_types)) + found.beyond_chunks()

    @staticmethod
    def _states(work: FoldInput, table: StoredTable, states: KeyStates) -> Compared:
        named = keys.keys(states.keys)
        there = {at: table.rows[key] for at, key in enumerate(named) if key in table.rows}
        held = withheld(states.keys, table.applied.holes, work.key_types)
        rows = StoredRows(work, there).table(list(there.values()))
        return compared(states, held, np.fromiter(there, np.int64, len(there)), rows, work.types)


_numbers = count()


@dataclass(frozen=True)
class MemoryChunkWriter:
    """See `targets.api.ChunkWriter`."""

    database: MemoryDatabase
    schema: TableSchema
    form: str = "rows"

    @property
    def wire(self) -> None:
        """It takes values."""

    def possible(self, asked: Sequence[Key]) -> tuple[Key, ...]:
        return keys.fitting(asked, [arrow_type(column.type) for column in self.schema.key_columns])

    def write(self, snapshot_id: str, chunk: int, rows: Iterable[pa.Table]) -> WrittenChunk | None:
        parts = [part for part in rows if part.num_rows]
        if not parts:
            return None
        path, whole = f"{self.schema.table_id}/{snapshot_id}/{chunk}/{next(_numbers)}", pa.concat_tables(parts)
        self.database.staged[path] = whole
        return WrittenChunk(path, whole.num_rows, whole.nbytes)

    def discard(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.database.staged.pop(path, None)


@dataclass(frozen=True)
class StagedChunks:
    """See `fold.chunk_keys.ChunkRows`."""

    database: MemoryDatabase
    work: FoldInput

    def table(self, chunk: ChunkRegistered) -> pa.Table:
        if chunk.path not in self.database.staged:
            raise ChunkLost(f"{chunk.path} is gone", "", (chunk,))
        return self.database.staged[chunk.path]

    def keys(self, chunk: ChunkRegistered) -> Iterator[tuple[Ints, Columns]]:
        if chunk.path is not None:
            version = {c.id: c.name for c in self.work.slice.versions[chunk.schema_version].columns}
            names = [version[column.id] for column in self.work.slice.schema.key_columns]
            found = self.table(chunk)
            yield np.arange(found.num_rows), typed((found[name] for name in names), self.work.key_types)

    def rows(self, chunk: ChunkRegistered, positions: Ints) -> Iterator[pa.Table]:
        version = {c.id: c.name for c in self.work.slice.versions[chunk.schema_version].columns}
        found, rows = self.table(chunk).take(pa.array(positions)), len(positions)
        columns = [
            found[version[c.id]].cast(self.work.types[c.name])
            if c.id in version
            else pa.nulls(rows, self.work.types[c.name])
            for c in self.work.slice.schema.columns
        ]
        yield pa.table(columns, names=self.work.names)


@dataclass(frozen=True)
class StoredRows:
    """See `fold.decide.BaseRows`."""

    work: FoldInput
    stored: Mapping[int, Row]
    """Live rows of touched keys, by key number."""

    def present(self) -> Ints:
        return np.fromiter(self.stored, np.int64, len(self.stored))

    def rows(self, wanted: Mask) -> Iterator[tuple[Ints, Iterable[pa.Table]]]:
        numbers = np.array([number for number in self.stored if wanted[number]], np.int64)
        if len(numbers):
            yield numbers, [self.table([self.stored[number] for number in numbers.tolist()])]

    def table(self, rows: Sequence[Row]) -> pa.Table:
        types = self.work.types
        columns = [pa.array([r.get(c.id) for r in rows], types[c.name]) for c in self.work.slice.schema.columns]
        return pa.table(columns, names=self.work.names)


def brought_forward(database: MemoryDatabase, log: ObjectAccess, table: StoredTable, part: TableSlice) -> StoredTable:
    """The table with the batch."""
    work = FoldInput(part, {column.name: arrow_type(column.type) for column in part.schema.columns}, log)
    work = replace(work, moved_keys=find_moved_keys(work))
    chunks = StagedChunks(database, work)
    numbered = number_keys(work, 0, read_chunk_keys(work, 0, chunks))
    names = keys.keys(numbered.values)
    rows = {} if part.clear else dict(table.rows)
    touched = {number: names[number] for number in np.flatnonzero(numbered.touched).tolist()}
    base = {number: rows.pop(key) for number, key in touched.items() if key in rows}
    folded = decide(work, numbered, StoredRows(work, base), chunks)
    read = _chunk_rows(work, numbered, chunks)
    rows |= {names[numbered.chunk_key[at]]: row for at, row in read.items() if not folded.overruled[at]}
    rows |= {names[number]: row for number, row in _written(work, numbered, folded, base, read)}
    holes = {names[number] for number in np.flatnonzero(folded.holes).tolist()}
    for finished in part.finished:
        kept = _kept(work, finished, chunks)
        rows, holes = {key: row for key, row in rows.items() if key in kept}, holes & kept
    return StoredTable(part.applied_after(frozenset(holes)), part.schema, rows)


def _chunk_rows(work: FoldInput, numbered: NumberedKeys, chunks: StagedChunks) -> dict[int, Row]:
    """The chunks' rows, by row of `ChunkKeys`."""
    found: dict[int, Row] = {}
    for number, chunk in enumerate(work.slice.chunks):
        held = (numbered.chunk_keys.chunk == number) & (numbered.chunk_keys.position != KEY_ONLY)
        at = np.flatnonzero(held)
        if len(at):
            tables = chunks.rows(chunk, numbered.chunk_keys.position[at])
            found |= zip(at.tolist(), _rows(work, pa.concat_tables(tables)), strict=True)
    return found


def _rows(work: FoldInput, table: pa.Table) -> list[Row]:
    ids = [column.id for column in work.slice.schema.columns]
    return [dict(zip(ids, row, strict=True)) for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]


def _written(
    work: FoldInput, numbered: NumberedKeys, folded: Folded, base: Mapping[int, Row], read: Mapping[int, Row]
) -> Iterator[tuple[int, Row]]:
    """The rows that the fold writes, by key number; what they lack, the row underneath has."""
    pool = [row for table in folded.pool for row in _rows(work, table)]
    ids, deciding = [column.id for column in work.slice.schema.columns], numbered.choice.row
    for at, number in enumerate(folded.rows.key.tolist()):
        under = read.get(int(deciding[number]), {}) if numbered.choice.in_chunk[number] else base.get(number, {})
        row = zip(ids, (int(column[at]) for column in folded.rows.values), strict=True)
        yield number, {id_: (under if value == FROM_BASE else pool[value]).get(id_) for id_, value in row}


def _kept(work: FoldInput, finished: FinishedSnapshot, chunks: StagedChunks) -> set[Key]:
    """Keys that one of the snapshot's chunks has, or that changed since its smallest replay point."""
    kept = {key for chunk in finished.chunks for _, found in chunks.keys(chunk) for key in keys.keys(found)}
    later = [segment for segment in work.slice.segments if segment.last_seq >= finished.replay_point]
    for block in segment_rows(work, later, columns=False, unchanged=False):
        kept |= set(keys.keys(block.filter(block.seq >= finished.replay_point).keys))
    return kept


def _at(table: StoredTable, record: RecordNumber) -> StoredTable:
    """The table whose group is at this record: it lacks nothing up to there."""
    record = max(table.applied.applied_record, record)
    return replace(table, applied=replace(table.applied, applied_record=record))
