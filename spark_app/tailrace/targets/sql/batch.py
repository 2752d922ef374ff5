"""One batch of one table with a key, inside the unit's transaction: the fold decides, the server moves rows. Called by
`sql.unit`.

The driver never reads a row of the target: where the fold needs one underneath (a column that a change does not carry,
a key that moved), it is copied from table to table on the server.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.batch.slice import FinishedSnapshot, TableSlice
from tailrace.changelog import keys
from tailrace.changelog.bundles import ObjectAccess
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import Key
from tailrace.changelog.types import arrow_type
from tailrace.fold.chunk_keys import KEY_ONLY, read_chunk_keys
from tailrace.fold.concerned import named_words
from tailrace.fold.decide import Folded, OutputRows, decide
from tailrace.fold.few_changes import FewChanges, few_changes
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Columns, Ints, Mask
from tailrace.fold.log_rows import segment_rows
from tailrace.fold.moved_keys import find_moved_keys
from tailrace.fold.newest import FROM_BASE
from tailrace.fold.numbered import NumberedKeys, number_keys
from tailrace.targets.sql.session import NUMBER, TargetSession, UnfitValue, equal, list_of
from tailrace.targets.sql.staged import NUMBERED, ServerRows, StagedChunks, definitions
from tailrace.targets.sql.staging import Staging, in_key_order
from tailrace.targets.sql.state import SCHEMA

SOURCE, ROUND, BITS = "_tailrace_source", "_tailrace_round", "_tailrace_bits"
FEW = 1000
"""Changes of whole rows up to which a loop over their keys costs less than the arrays."""
NO_HOLES = frozenset[Key]()


def fold_input(part: TableSlice, log: ObjectAccess) -> FoldInput:
    return FoldInput(part, {column.name: arrow_type(column.type) for column in part.schema.columns}, log)


def apply_keyed(
    session: TargetSession, log: ObjectAccess, part: TableSlice, table: str, *, appends: bool = False
) -> frozenset[Key]:
    """Bring the table's rows forward; its columns are the batch's already. Returns the holes that it leaves. `appends`:
    see `KeyedBatch`."""
    work = fold_input(part, log)
    found = few_changes(work, FEW) if session.upserts is None and not appends else None
    if found is not None:
        KeyedBatch(session, work, table, Staging(session, work)).write(found)
        return NO_HOLES
    work = replace(work, moved_keys=find_moved_keys(work))
    return KeyedBatch(session, work, table, Staging(session, work), appends).apply()


@dataclass(frozen=True)
class Decided:
    """The result of the fold, and where the rows are that it has not seen."""

    numbered: NumberedKeys
    folded: Folded
    server: ServerRows
    chunks: StagedChunks


@dataclass
class KeyedBatch:
    session: TargetSession
    work: FoldInput
    table: str
    """The copy, as statements call it."""
    staging: Staging
    appends: bool = False
    """None of its rows is there, and the table has no key by which one could be found."""

    @property
    def present(self) -> str:
        """The rows that are there, as statements read them: at most one for each key."""
        return self.table

    def apply(self) -> frozenset[Key]:
        part, server = self.work.slice, ServerRows()
        named = named_words(self.work) if part.chunks else None
        chunks = StagedChunks(self.session, self.work, server, named)
        finished = [chunk for finish in part.finished for chunk in finish.chunks]
        chunks.check({chunk.path: chunk for chunk in (*part.chunks, *finished)}.values())
        numbered = number_keys(self.work, 0, read_chunk_keys(self.work, 0, chunks))
        folded = decide(self.work, numbered, LiveRows(self, numbered, server), chunks)
        self.move(Decided(numbered, folded, server, chunks))
        holes = frozenset(keys.keys(numbered.keys(np.flatnonzero(folded.holes).astype(np.int64))))
        for finish in part.finished:
            holes = self._finish(finish, chunks, holes)
        self.staging.drop()
        return holes

    def write(self, found: FewChanges) -> None:
        """Bring the changes of a batch of few whole rows: there is nothing else to it."""
        self._delete_staged(self.staging.keys(found.keys, np.arange(len(found.keys[0]))))
        if found.rows.num_rows:  # they are in the key's order
            columns = definitions(self.session, self.work.slice.schema)
            self.session.load(self.table, columns, [pa.Table.from_batches([found.rows])])
        self.staging.drop()

    def move(self, decided: Decided) -> None:
        """Write what was decided."""
        numbered, chunks = decided.numbered, decided.chunks
        rows = self.rows(decided, decided.folded.rows)
        if self._upserted(decided, rows):
            return
        if not self.appends:
            self._delete(numbered, chunks)
        for number in range(len(self.work.slice.chunks)):
            self.adopt(number, decided, self.table)
        self.insert(rows, self.table)

    def _upserted(self, decided: Decided, rows: str | pa.Table) -> bool:
        """Write rows of the log over those of the same key, if that costs less than to delete and insert them; False:
        it does not, or rows that were read are to be deleted as well."""
        part, upserts = self.work.slice, self.session.upserts
        if upserts is None or self.appends or part.clear or part.chunks or isinstance(rows, str):
            return False
        if not rows.num_rows or not upserts.fit(self.table, part.schema, rows):
            return False
        # These go first: one may have the key of a new row, as far as the copy tells them apart.
        self._delete_keys(decided.numbered, np.setdiff1d(self.alone(decided.numbered), decided.folded.rows.key))
        columns = definitions(self.session, part.schema)
        try:
            upserts.load(self.table, columns, in_key_order(rows, self.work.key))
        except UnfitValue:
            return False  # a row that is inserted takes some bytes less; what does not fit then, stops the table
        return True

    # ---- rows to write ----

    def rows(
        self, decided: Decided, rows: OutputRows, given: Mapping[str, pa.Array] = MappingProxyType({})
    ) -> str | pa.Table:
        """The rows with the log's values; or, if it lacks some, a temporary table of the rows, completed out of rows on
        the server, before these are deleted. `given`: other values, by the column's name."""
        logged, own = decided.folded.pool[0], [name in given for name in self.work.names]
        values = [
            given[name]
            if name in given
            else logged.column(at).take(pa.array(places, mask=(places < 0) | (places >= logged.num_rows)))
            for at, (name, places) in enumerate(zip(self.work.names, rows.values, strict=True))
        ]
        wanted = [np.zeros_like(places) if ours else places for places, ours in zip(rows.values, own, strict=True)]
        written = pa.table(values, names=self.work.names)
        if not any(((places == FROM_BASE) | (places >= logged.num_rows)).any() for places in wanted):
            return written
        lacking = _Lacking.of(wanted, logged.num_rows, rows.key)
        return self._completed(lacking.filled(written), lacking, decided)

    def insert(self, rows: str | pa.Table, into: str) -> None:
        names = list_of(self.session, self.work.names)
        if isinstance(rows, str):
            self.session.run(f"INSERT INTO {into} ({names}) SELECT {names} FROM {rows}")
        elif rows.num_rows:
            ordered = in_key_order(rows, self.work.key)
            self.session.load(into, definitions(self.session, self.work.slice.schema), [ordered])

    def _completed(self, written: pa.Table, lacking: "_Lacking", decided: Decided) -> str:
        numbered, chunks = decided.numbered, decided.chunks
        quote, names = self.session.quote, self.work.names
        columns = definitions(self.session, self.work.slice.schema, NUMBERED)
        rows = self.staging.empty("rows", columns, (NUMBER,))
        staged = written.add_column(0, NUMBER, pa.array(np.arange(written.num_rows)))
        self.session.load(rows, columns, [staged])
        pool = self.staging.empty("pool", columns, (NUMBER,))
        for chunk, numbers, labels in lacking.sources(decided.server, numbered, self.work):
            source = (
                self._of_target(numbered.keys(numbers), labels)
                if chunk is None
                else self._of_chunk(chunk, chunks, numbers, labels)
            )
            with self.session.by_key():
                self.session.run(f"INSERT INTO {pool} ({NUMBER}, {list_of(self.session, names)}) {source}")
        table, rounds = lacking.table()
        pairs = [NUMBERED, (SOURCE, "bigint"), (ROUND, "bigint"), (BITS, self.session.binary)]
        wanted = self.staging.rows("wanted", pairs, table)
        places = np.flatnonzero(lacking.bits.any(axis=0)).tolist()
        assigned = self.session.unmoved(self.work.slice.schema) | {
            quote(names[at]): f"CASE WHEN {self.session.bit(f'u.{BITS}', at)}"
            f" THEN u.{quote(names[at])} ELSE t.{quote(names[at])} END"
            for at in places
        }
        picked = list_of(self.session, (names[at] for at in places), "p.")
        for turn in range(rounds):
            using = f"(SELECT w.{NUMBER}, w.{BITS}, {picked} FROM {wanted} w JOIN {pool} p"
            using += f" ON p.{NUMBER} = w.{SOURCE} WHERE w.{ROUND} = {turn}) u"
            self.session.update_from(rows, assigned, using, f"t.{NUMBER} = u.{NUMBER}")
        return rows

    def _of_target(self, wanted: Columns, labels: Ints) -> str:
        """A query for the target's rows of these keys, under labels."""
        staged = self.staging.keys(wanted, labels)
        rows = list_of(self.session, self.work.names, "t.")
        on = equal(self.session, self.work.key)
        return f"SELECT u.{NUMBER}, {rows} FROM {self.present} t JOIN {staged} u ON {on}"

    def _of_chunk(self, chunk: ChunkRegistered, chunks: StagedChunks, positions: Ints, labels: Ints) -> str:
        """A query for a chunk's rows at these positions, under labels."""
        pairs = pa.table([pa.array(labels), pa.array(positions)], names=[NUMBER, SOURCE])
        staged = self.staging.rows("places", [NUMBERED, (SOURCE, "bigint")], pairs)
        place = f"{SCHEMA}.{self.session.quote(str(chunk.path))}"
        return f"SELECT u.{NUMBER}, {chunks.selected(chunk)} FROM {place} c JOIN {staged} u ON u.{SOURCE} = c.{NUMBER}"

    # ---- the target's own rows ----

    def _delete(self, numbered: NumberedKeys, chunks: StagedChunks) -> None:
        """The target's rows of all touched keys go."""
        if self.work.slice.clear:
            self.session.run(f"DELETE FROM {self.table}")
            return
        for chunk in self.work.slice.chunks:
            within = self.within(chunk, chunks)
            if within is not None:
                names, place = chunks.key_names(chunk), f"{SCHEMA}.{self.session.quote(str(chunk.path))}"
                self.session.delete_using(self.table, place, equal(self.session, self.work.key, names), within)
        self._delete_keys(numbered, self.alone(numbered))

    def _delete_keys(self, numbered: NumberedKeys, wanted: Ints) -> None:
        if len(wanted):
            self._delete_staged(self.staging.keys(numbered.keys(wanted), wanted))

    def _delete_staged(self, staged: str) -> None:
        with self.session.by_key():
            self.session.delete_using(self.table, staged, equal(self.session, self.work.key))

    def within(self, chunk: ChunkRegistered, chunks: StagedChunks) -> str | None:
        """A condition of the rows that are there among which those of the chunk are, which keeps the server from
        reading a whole table for each chunk of it; None: none are, as in a first copy."""
        if chunk.path is None:
            return None
        first, place = (
            self.session.quote(chunks.key_names(chunk)[0]),
            f"{SCHEMA}.{self.session.quote(str(chunk.path))}",
        )
        column = f"t.{self.session.quote(self.work.key[0])}"
        sorting = f"ORDER BY {first}{self._sorting}"
        low, high = (f"(SELECT {first} FROM {place} {sorting}{way} LIMIT 1)" for way in ("", " DESC"))
        within = f"{column} >= {low} AND {column} <= {high}"
        return within if self.session.rows(f"SELECT 1 FROM {self.present} t WHERE {within} LIMIT 1") else None

    @cached_property
    def _sorting(self) -> str:
        return self.session.sorting(self.table, self.work.key[0])

    def alone(self, numbered: NumberedKeys) -> Ints:
        """Touched keys of which no chunk has a row."""
        held = np.zeros(numbered.count, np.bool_)
        held[numbered.chunk_key[numbered.chunk_keys.position != KEY_ONLY]] = True
        return np.flatnonzero(numbered.touched & ~held).astype(np.int64)

    def adopt(self, number: int, decided: Decided, into: str) -> None:
        """Move a chunk's rows into a table, but for those that something overrules."""
        chunk, chunks, numbered = self.work.slice.chunks[number], decided.chunks, decided.numbered
        if chunk.path is None or chunk.path in chunks.in_copy:
            return
        names, place = list_of(self.session, self.work.names), f"{SCHEMA}.{self.session.quote(chunk.path)}"
        statement = f"INSERT INTO {into} ({names}) SELECT {chunks.selected(chunk)} FROM {place} c"
        gone = numbered.chunk_keys.position[decided.folded.overruled & (numbered.chunk_keys.chunk == number)]
        if len(gone):
            staged = self.staging.numbers("overruled", gone)
            statement += f" WHERE NOT EXISTS (SELECT 1 FROM {staged} g WHERE g.{NUMBER} = c.{NUMBER})"
        self.session.run(statement)

    # ---- the end of a complete snapshot ----

    def _finish(self, finish: FinishedSnapshot, chunks: StagedChunks, holes: frozenset[Key]) -> frozenset[Key]:
        """Delete what is in none of its chunks and has not changed since; returns the holes that stay."""
        if not holes and not self._has_others(finish, chunks):
            return holes
        kept = keys_of(finish, self.staging, chunks)
        there = f"SELECT 1 FROM {kept} u WHERE {equal(self.session, self.work.key)}"
        self.remove(f"NOT EXISTS ({there})")
        if not holes:
            return holes
        listed = sorted(holes)
        staged = self.staging.keys(keys.columns(listed, self.work.key_types), np.arange(len(listed)))
        left = self.session.rows(f"SELECT t.{NUMBER} FROM {staged} t WHERE EXISTS ({there})")
        return frozenset(listed[int(number)] for (number,) in left)

    def remove(self, where: str) -> None:
        """Remove rows (as `t`) that a complete snapshot no longer found."""
        self.session.delete(self.table, where)

    def _has_others(self, finish: FinishedSnapshot, chunks: StagedChunks) -> bool:
        """True unless the table has just as many rows, besides those that have changed since, as the chunks have: each
        row of these is in it (`FinishedSnapshot.alone`), so it has no others. To count them costs a fraction of looking
        for each."""
        if not finish.alone or not self.session.reads_changes:
            return True
        later = (rows for rows in _changed_since(self.work, finish) if rows.num_rows)
        first = next(later, None)
        read = [chunk for chunk in finish.chunks if chunk.path is not None]
        if first is None:
            return self._count(self.present) != sum(chunk.rows for chunk in read)
        names = [self.session.quote(name) for name in self.work.key]
        changed = self.staging.empty("changed", self.staging.key_columns(), names)
        self.session.load(changed, self.staging.key_columns(), chain((first,), later))
        expected = (self._count(self.staging.keyed(chunk, chunks), changed, chunks.key_names(chunk)) for chunk in read)
        return self._count(self.present, changed, self.work.key) != sum(expected)

    def _count(self, table: str, but: str | None = None, key: Sequence[str] = ()) -> int:
        """The rows of a table; `but`: without those whose key is in this one."""
        pairs = zip(key, self.work.key, strict=True) if but is not None else ()
        on = " AND ".join(f"t.{self.session.quote(one)} = u.{self.session.quote(other)}" for one, other in pairs)
        others = "" if but is None else f" WHERE NOT EXISTS (SELECT 1 FROM {but} u WHERE {on})"
        ((count,),) = self.session.rows(f"SELECT count(*) FROM {table} t{others}")
        return int(count)


def keys_of(finish: FinishedSnapshot, staging: Staging, chunks: StagedChunks) -> str:
    """A table of the keys that are in one of the snapshot's chunks or have changed since the first of them."""
    session, work = staging.session, staging.work
    quoted = [session.quote(name) for name in work.key]
    kept, names = staging.empty("kept", staging.key_columns(), quoted), ", ".join(quoted)
    for chunk in (chunk for chunk in finish.chunks if chunk.path is not None):
        place = staging.keyed(chunk, chunks)
        session.run(f"INSERT INTO {kept} ({names}) SELECT {chunks.key_list(chunk)} FROM {place} c")
    session.load(kept, staging.key_columns(), _changed_since(work, finish))
    return kept


def _changed_since(work: FoldInput, finish: FinishedSnapshot) -> Iterator[pa.Table]:
    later = [segment for segment in work.slice.segments if segment.last_seq >= finish.replay_point]
    for block in segment_rows(work, later, columns=False, unchanged=False):
        found = block.filter(block.seq >= finish.replay_point).keys
        yield pa.table(found, names=work.key)


@dataclass(frozen=True)
class LiveRows:
    """See `fold.decide.BaseRows`."""

    batch: KeyedBatch
    numbered: NumberedKeys
    server: ServerRows

    def present(self) -> Ints:
        """Asked only where a change lacks a value: the others need nothing underneath."""
        if not self.numbered.changes.unchanged:
            return np.empty(0, np.int64)
        return self._among(self.numbered.touched)

    def rows(self, wanted: Mask) -> Iterator[tuple[Ints, Iterable[pa.Table]]]:
        found = self._among(wanted)
        if len(found):
            yield found, [self.server.add(self.batch.work, None, found)]

    def _among(self, wanted: Mask) -> Ints:
        asked = np.flatnonzero(wanted).astype(np.int64)
        if self.batch.work.slice.clear or not len(asked):
            return np.empty(0, np.int64)
        session = self.batch.session
        staged = self.batch.staging.keys(self.numbered.keys(asked), asked)
        on = equal(session, self.batch.work.key)
        with session.by_key():
            found = session.rows(f"SELECT u.{NUMBER} FROM {self.batch.present} t JOIN {staged} u ON {on}")
        return np.sort(np.array([int(number) for (number,) in found], np.int64))


@dataclass(frozen=True)
class _Lacking:
    """Values that staged rows lack, pair by pair: a row, the row on the server that has its values, and which."""

    row: Ints
    source: Ints
    """A pool row of the fold, or, below -1, the row underneath key `-2 - source`."""
    bits: Mask
    """True by pair and column."""

    @classmethod
    def of(cls, values: list[Ints], logged: int, key: Ints) -> "_Lacking":
        rows, sources, places = [], [], []
        for at, column in enumerate(values):
            found = np.flatnonzero((column == FROM_BASE) | (column >= logged))
            rows.append(found)
            sources.append(np.where(column[found] == FROM_BASE, -2 - key[found], column[found]))
            places.append(np.full(len(found), at))
        row, source, place = map(np.concatenate, (rows, sources, places))
        pairs, pair = np.unique(np.stack([row, source], axis=1), axis=0, return_inverse=True)
        bits = np.zeros((len(pairs), len(values)), np.bool_)
        bits[pair.reshape(-1), place] = True
        return cls(pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64), bits)

    def filled(self, rows: pa.Table) -> pa.Table:
        """The rows with an empty list in place of each that is lacking: a server may have no NULL for it."""
        for at in np.flatnonzero(self.bits.any(axis=0)).tolist():
            kind = rows.schema.field(at).type
            if pa.types.is_list(kind):
                lacks = np.zeros(rows.num_rows, np.bool_)
                lacks[self.row[self.bits[:, at]]] = True
                column = pc.if_else(pa.array(lacks), pa.scalar([], kind), rows.column(at))
                rows = rows.set_column(at, rows.schema.field(at), column)
        return rows

    def table(self) -> tuple[pa.Table, int]:
        """The pairs to load, and the rounds in which a row is completed by one source each."""
        begins = np.flatnonzero(np.diff(self.row, prepend=-1))
        rounds = np.arange(len(self.row)) - np.repeat(begins, np.diff(begins, append=len(self.row)))
        packed = np.packbits(self.bits, axis=1, bitorder="little")
        columns = [
            pa.array(self.row),
            pa.array(self.source),
            pa.array(rounds),
            pa.array([line.tobytes() for line in packed], pa.binary()),
        ]
        return pa.table(columns, names=[NUMBER, SOURCE, ROUND, BITS]), int(rounds.max()) + 1

    def sources(
        self, server: ServerRows, numbered: NumberedKeys, work: FoldInput
    ) -> Iterator[tuple[ChunkRegistered | None, Ints, Ints]]:
        """Yields where the rows on the server are: a chunk and positions, or None and keys; and their labels."""
        wanted = np.unique(self.source)
        under = -2 - wanted[wanted < FROM_BASE]
        deciding = numbered.choice.row[under]
        if len(own := under[deciding < 0]):
            yield None, own, -2 - own
        for number in np.unique(numbered.chunk_keys.chunk[deciding[deciding >= 0]]).tolist():
            mine = (deciding >= 0) & (numbered.chunk_keys.chunk[deciding] == number)
            held = under[mine]
            yield work.slice.chunks[number], numbered.chunk_keys.position[deciding[mine]], -2 - held
        at = numbered.changes.rows.num_rows
        for chunk, places in server.sources:
            labels = np.arange(at, at + len(places), dtype=np.int64)
            chosen = np.isin(labels, wanted)
            if chosen.any():
                yield chunk, places[chosen], labels[chosen]
            at += len(places)
