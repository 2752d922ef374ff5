"""The comparison of a database's copy with what a verification has read: by the server, in one of its snapshots.

The server compares the texts of values: a chunk's staged rows with the copy's, and the rows that have changed since,
which are loaded into a temporary table. Only what differs comes back. Called by `sql.unit`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import TableSlice
from tailrace.changelog import keys
from tailrace.changelog.bundles import ObjectAccess
from tailrace.changelog.history import DELETED, VALID_TO, is_marked, is_versioned, named
from tailrace.changelog.records.snapshots import MOST_EXAMPLES, ComparisonResult, RowDifference
from tailrace.changelog.records.terms import Key, RecordNumber, TableSchema
from tailrace.changelog.types import arrow_type
from tailrace.errors import Retry
from tailrace.fold.comparison import Compared, summary, superfluous, withheld
from tailrace.fold.key_columns import Columns, Ints, Mask
from tailrace.fold.keyless import CountedChanges, CountedSlice
from tailrace.fold.log_rows import DELETE
from tailrace.fold.replayed import Replay, logged_rows, replay, replay_alone
from tailrace.targets.api import FoundRows
from tailrace.targets.sql import state
from tailrace.targets.sql.batch import fold_input, keys_of
from tailrace.targets.sql.session import NUMBER, Place, TargetSession, TargetSessions, equal, table
from tailrace.targets.sql.staged import NUMBERED, ServerRows, StagedChunks, defined, definitions
from tailrace.targets.sql.staging import Staging
from tailrace.targets.sql.state import SCHEMA, StoredCopy


@dataclass(frozen=True)
class SqlLook:
    """See `targets.api.Look`."""

    sessions: TargetSessions
    log: ObjectAccess
    place: Place
    hidden: bool
    log_id: str
    least: RecordNumber
    """The record that the copy held when it was looked at; a later one is as good."""
    schema: TableSchema

    def find(self, columns: Sequence[str], values: Sequence[Key], take: Sequence[str], most: int) -> FoundRows:
        kinds = {column.name: arrow_type(column.type) for column in self.schema.columns}
        by_name = {column.name: column for column in self.schema.columns}
        wanted = pa.table(keys.columns(values, [kinds[name] for name in columns]), names=list(columns))
        with self.sessions.session() as session, session.still():
            copy = self._copy(session)
            if copy.applied.schema_version != self.schema.version:
                raise Retry(f"the columns of table {'.'.join(self.place)} of the target have just been changed")
            named = [(session.quote(n), session.type_of(self.schema, by_name[n])) for n in columns]
            staged = session.listed(named, wanted)
            temporary = session.temporary("_tailrace_wanted", defined(named)) if staged is None else None
            if temporary is not None:
                session.load(temporary, named, [wanted])
            taken = ", ".join(session.readable(by_name[name], "t") for name in take)
            there, on = table(session, copy.where), equal(session, columns)
            rows = session.rows(f"SELECT {taken} FROM {there} t JOIN {staged or temporary} u ON {on} LIMIT {most + 1}")
            if temporary is not None:
                session.drop_temporary(temporary)
            self._check_unchanged(session, copy)
        found = [column_of([row[at] for row in rows], kinds[name]) for at, name in enumerate(take)]
        return FoundRows(copy.applied, pa.table(found, names=list(take)))

    def _copy(self, session: TargetSession) -> StoredCopy:
        copy = state.copies_at(session, self.place).get(self.hidden)
        if copy is None or copy.applied.log_id != self.log_id or copy.applied.applied_record < self.least:
            raise Retry(f"table {'.'.join(self.place)} of the target has just been replaced")
        return copy

    def compare(self, expect: Callable[[AppliedState], TableSlice]) -> Compared:
        with self.sessions.session() as session, session.still():
            copy = self._copy(session)
            part, there = expect(copy.applied), _present(session, self.schema, table(session, copy.where))
            work = fold_input(part, self.log)
            if part.schema.keyless:
                return Compared(_keyless(session, self.log, part, there))  # of products alone that see one moment
            staging = Staging(session, work)
            found = _Comparison(staging, there, StagedChunks(session, work, ServerRows())).compare()
            staging.drop()
            self._check_unchanged(session, copy)
            return found

    def _check_unchanged(self, session: TargetSession, before: StoredCopy) -> None:
        """Checks, where reads follow one another while batches continue, that they are of one moment: rows change with
        the copy's record alone."""
        if not session.reads_changes and self._copy(session).stored != before.stored:
            raise Retry(f"table {'.'.join(self.place)} of the target was changed while it was compared")


def _present(session: TargetSession, schema: TableSchema, there: str) -> str:
    """The rows of the present, as statements call them: without marked ones and versions that have ended."""
    if is_marked(schema):
        return f"(SELECT * FROM {there} r WHERE r.{session.quote(named(schema, DELETED))} IS NOT TRUE)"
    if is_versioned(schema):
        return f"(SELECT * FROM {there} r WHERE r.{session.quote(named(schema, VALID_TO))} IS NULL)"
    return there


def column_of(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """A server without booleans has numbers."""
    if pa.types.is_boolean(kind):
        return pa.array([None if value is None else bool(value) for value in values], kind)
    return pa.array(values, kind)


@dataclass(frozen=True)
class _Comparison:
    staging: Staging
    table: str
    """The copy, as statements call it."""
    chunks: StagedChunks

    def compare(self) -> Compared:
        part = self.staging.work.slice
        if not part.finished:
            self.chunks.check(part.chunks)
            (chunk,) = part.chunks
            return self._states(replay(self.staging.work, chunk, self.chunks), chunk.path)
        (finish,) = part.finished
        self.chunks.check(finish.chunks)
        kept = keys_of(finish, self.staging, self.chunks)
        names = self._key_texts()
        there = f"SELECT 1 FROM {kept} u WHERE {equal(self.staging.session, self.staging.work.key)}"
        rows = self.staging.session.rows(f"SELECT {names} FROM {self.table} t WHERE NOT EXISTS ({there})")
        alone = self._states(replay_alone(self.staging.work), None)
        return superfluous(self._columns(rows)) + alone.beyond_chunks()

    def _key_texts(self) -> str:
        """The key's columns of `t`."""
        columns = self.staging.work.slice.schema.key_columns
        return ", ".join(self.staging.session.readable(column, "t") for column in columns)

    def _columns(self, rows: list[tuple[object, ...]]) -> Columns:
        kinds = self.staging.work.key_types
        made = []
        for at, kind in enumerate(kinds):
            made.append(column_of([row[at] for row in rows], kind))
        return made

    def _states(self, states: Replay, path: str | None) -> Compared:
        """`path`: of the chunk whose rows are underneath."""
        work, keys = self.staging.work, states.keys
        based = states.from_base
        held = withheld(keys, work.slice.applied.holes, work.key_types)
        # A row that is partly the chunk's and partly the log's is left to the next verification.
        whole = states.present & (based.all(axis=1) | ~based.any(axis=1))
        decided = states.known & ~held & (whole | ~states.present)
        result = _Result(len(decided), len(work.names))
        standing = np.flatnonzero(decided & states.present & based.all(axis=1))
        if path is not None:
            self._staged(path, states, standing, result)
        logged = np.flatnonzero(decided & states.present & ~based.any(axis=1))
        if len(logged):
            columns = definitions(self.staging.session, work.slice.schema, NUMBERED)
            rows = logged_rows(work, states, logged).add_column(0, NUMBER, pa.array(logged))
            self._differing(self.staging.rows("expected", columns, rows), "", np.arange(len(decided)), result)
        gone = np.flatnonzero(decided & ~states.present).astype(np.int64)
        if len(gone):
            staged = self.staging.keys([column.take(pa.array(gone)) for column in keys], gone)
            on = equal(self.staging.session, work.key)
            statement = f"SELECT u.{NUMBER} FROM {self.table} t JOIN {staged} u ON {on}"
            for (number,) in self.staging.session.rows(statement):
                result.extra[int(number)] += 1
        return summary(
            keys,
            decided & states.present,
            missing=result.missing,
            extra=result.extra,
            different=dict(zip(work.names, result.by_column.T, strict=True)),
            differs=np.logical_or.reduce(result.by_column, axis=1),
            undecided=int((~decided).sum()),
        )

    def _staged(self, path: str, states: Replay, standing: Ints, result: "_Result") -> None:
        """Chunk rows that nothing has changed since."""
        count = int((states.numbered.chunk_keys.position >= 0).sum())
        at = np.full(count, -1, np.int64)
        at[states.base[standing]] = standing
        left, unless = np.flatnonzero(at < 0).astype(np.int64), ""
        if len(left):
            staged = self.staging.numbers("changed", left)
            unless = f" AND NOT EXISTS (SELECT 1 FROM {staged} g WHERE g.{NUMBER} = w.{NUMBER})"
        self._differing(f"{SCHEMA}.{self.staging.session.quote(path)}", unless, at, result)

    def _differing(self, rows: str, unless: str, at: Ints, result: "_Result") -> None:
        """Compare staged rows, as `w`, with the copy's. `at`: the place of each in the result, by its number."""
        session, work = self.staging.session, self.staging.work
        columns = work.slice.schema.columns
        on = " AND ".join(f"t.{session.quote(name)} = w.{session.quote(name)}" for name in work.key)
        same = [f"({session.same(column)})" for column in columns]
        missing = f"SELECT w.{NUMBER} FROM {rows} w WHERE NOT EXISTS (SELECT 1 FROM {self.table} t WHERE {on}){unless}"
        for (number,) in session.rows(missing):
            result.missing[at[int(number)]] = True
        different = f"SELECT w.{NUMBER}, {', '.join(same)} FROM {rows} w JOIN {self.table} t ON {on}"
        for number, *alike in session.rows(f"{different} WHERE NOT ({' AND '.join(same)}){unless}"):
            result.by_column[at[int(number)]] |= ~np.array(alike, np.bool_)


@dataclass
class _Result:
    """The differences by key."""

    keys: int
    columns: int
    missing: Mask = field(init=False)
    extra: Ints = field(init=False)
    by_column: Mask = field(init=False)

    def __post_init__(self) -> None:
        self.missing, self.extra = np.zeros(self.keys, np.bool_), np.zeros(self.keys, np.int64)
        self.by_column = np.zeros((self.keys, self.columns), np.bool_)


def _keyless(session: TargetSession, log: ObjectAccess, part: TableSlice, there: str) -> ComparisonResult:
    """Rows are counted by their texts: those of the chunks and of inserts against those of the copy and of deletes."""
    counted = CountedSlice.of(part)
    work = fold_input(counted.slice, log)
    staging, chunks, schema = Staging(session, work), StagedChunks(session, work, ServerRows()), part.schema
    chunks.check(part.chunks)
    places = [f"{SCHEMA}.{session.quote(c.path)}" for c in counted.slice.chunks if c.path is not None]
    sides = [(place, 1) for place in places] + [(there, -1)]
    for block in CountedChanges(work, counted).blocks():
        removes = block.op == DELETE
        for chosen, sign in ((~removes, 1), (removes, -1)):
            rows = block.rows.filter(pa.array(chosen))
            if rows.num_rows:
                sides.append((staging.rows("changed", definitions(session, schema), rows), sign))
    texts = (f"SELECT {session.written(schema, 'r')} AS v, {sign} AS n FROM {rows} r" for rows, sign in sides)
    counts = f"SELECT v, sum(n) AS n FROM ({' UNION ALL '.join(texts)}) a GROUP BY v"
    found = session.rows(f"SELECT {session.digest('v')}, n FROM ({counts}) b WHERE n <> 0")
    ((rows_there,),) = session.rows(f"SELECT count(*) FROM {there} r")
    staging.drop()
    surplus = [int(count) for _, count in found]
    examples = (
        RowDifference(kind="missing" if int(count) > 0 else "extra", key=(str(digest),))
        for digest, count in found[:MOST_EXAMPLES]
    )
    missing, extra = (sum(max(sign * count, 0) for count in surplus) for sign in (1, -1))
    return ComparisonResult(
        rows=int(rows_there) + missing - extra, missing=missing, extra=extra, examples=tuple(examples)
    )
