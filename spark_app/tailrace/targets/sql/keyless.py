"""One batch of one table without a key, inside the unit's transaction: rows are counted, as all their values tell them
apart (`fold.keyless`). Called by `sql.unit`."""

import numpy as np
import pyarrow as pa

from tailrace.batch.slice import TableSlice
from tailrace.changelog.bundles import ObjectAccess
from tailrace.fold.counted import RowCounts
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Ints
from tailrace.fold.keyless import CountedChanges, CountedSlice
from tailrace.targets.sql.batch import fold_input
from tailrace.targets.sql.session import COUNT, NUMBER, TargetSession, list_of
from tailrace.targets.sql.staged import NUMBERED, ServerRows, StagedChunks, defined, definitions
from tailrace.targets.sql.state import SCHEMA


def apply_keyless(session: TargetSession, log: ObjectAccess, part: TableSlice, table: str) -> None:
    """Bring the table's rows forward; its columns are the batch's already."""
    work, counted = fold_input(part, log), CountedSlice.of(part)
    _put_chunks(session, work, counted, table)
    changes, columns = CountedChanges(work, counted), definitions(session, part.schema)
    if changes.only_inserts:
        session.load(table, columns, changes.rows())
        return
    counts = changes.counts(lambda _: None)
    wanted = _Wanted(session, work, table, _deleted(work, changes, counts))
    there = wanted.there(counts.counts)
    counted.check(counts, there)
    written, marks = counts.settled(there)
    wanted.delete(marks)
    session.load(table, columns, changes.rows(written))


def _put_chunks(session: TargetSession, work: FoldInput, counted: CountedSlice, table: str) -> None:
    """Put the reading, if there is one, in the place of the rows."""
    if counted.slice.clear:
        session.run(f"DELETE FROM {table}")
    chunks, names = StagedChunks(session, work, ServerRows()), list_of(session, work.names)
    chunks.check(counted.slice.chunks)
    for chunk in (chunk for chunk in counted.slice.chunks if chunk.path is not None):
        place = f"{SCHEMA}.{session.quote(str(chunk.path))}"
        session.run(f"INSERT INTO {table} ({names}) SELECT {chunks.selected(chunk)} FROM {place} c")


def _deleted(work: FoldInput, changes: CountedChanges, counts: RowCounts) -> pa.Table:
    """A row of each group of `groups_to_delete`, in their order."""
    first = counts.order[np.searchsorted(counts.group, counts.groups_to_delete)]
    chosen = np.zeros(len(counts.removes), np.bool_)
    chosen[first] = True
    none = pa.table([pa.array([], work.types[name]) for name in work.names], names=work.names)
    rows = pa.concat_tables([none, *changes.rows(chosen)])
    return rows.take(pa.array(np.argsort(np.argsort(first))))


class _Wanted:
    """Rows of which the batch deletes some."""

    def __init__(self, session: TargetSession, work: FoldInput, table: str, rows: pa.Table) -> None:
        self._session, self._work, self._table, self._rows = session, work, table, rows
        self._made: str | None = None

    def there(self, counts: Ints) -> Ints:
        """How many rows of each group the table has."""
        found = np.zeros(len(counts), np.int64)
        if len(counts):
            wanted = self._staged(counts)
            statement = f"SELECT w.{NUMBER}, count(*) FROM {self._table} t JOIN {wanted} w ON {self._alike}"
            for number, count in self._session.rows(f"{statement} GROUP BY w.{NUMBER}"):
                found[int(number)] = int(count)
            self._drop()
        return found

    def delete(self, marks: Ints) -> None:
        """Delete so many rows of each group."""
        if marks.any():
            wanted = self._staged(marks)
            self._session.delete_some(self._table, wanted, self._alike)
            self._drop()

    def _staged(self, counts: Ints) -> str:
        schema = self._work.slice.schema
        columns = definitions(self._session, schema, NUMBERED, (COUNT, "bigint"))
        numbered = self._rows.add_column(0, COUNT, pa.array(counts))
        numbered = numbered.add_column(0, NUMBER, pa.array(np.arange(self._rows.num_rows)))
        listed = self._session.listed(columns, numbered)
        if listed is not None:
            return listed
        self._made = self._session.wanted("_tailrace_wanted", schema, defined(columns))
        self._session.load(self._made, columns, [numbered])
        return self._made

    def _drop(self) -> None:
        if self._made is not None:
            self._session.drop_temporary(self._made)
        self._made = None

    @property
    def _alike(self) -> str:
        return self._session.alike(self._work.slice.schema)
