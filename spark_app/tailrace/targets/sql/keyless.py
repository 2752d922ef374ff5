"""One batch of one table without a key, inside the unit's transaction: rows are counted, as all their values tell them
apart.

A chunk is the whole table: what was there goes, and the chunk's rows with the changes that it did not see are the table
from then on (docs/decisions/0047-tables-without-a-key.md).
"""

import numpy as np
import pyarrow as pa

from tailrace.batch.slice import TableSlice
from tailrace.changelog.bundles import ObjectAccess
from tailrace.changelog.records.terms import Seq, SeqRanges
from tailrace.errors import RESYNC, TargetChanged
from tailrace.fold.counted import RowCounts
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Ints, Mask
from tailrace.fold.log_rows import DELETE, column_of, segment_rows
from tailrace.fold.row_digests import digests
from tailrace.targets.sql.batch import fold_input
from tailrace.targets.sql.session import TargetSession, list_of
from tailrace.targets.sql.staged import NUMBER, ServerRows, StagedChunks, definitions
from tailrace.targets.sql.state import SCHEMA

COUNT = "_tailrace_count"


def apply_keyless(session: TargetSession, log: ObjectAccess, part: TableSlice, table: str) -> None:
    """Bring the table's rows forward; its columns are the batch's already."""
    work = fold_input(part, log)
    first, seen, whole = _read_chunks(session, work, table)
    removes, rows = _changes(work, first, seen)
    counts = RowCounts.of([(removes, *digests(rows.columns))] if rows.num_rows else [])
    there = np.zeros(len(counts.counts), np.int64)
    wanted = None
    if len(counts.counts):
        wanted = _stage(session, work, "wanted", rows.take(pa.array(_first_of(counts))), counts.counts)
        there = _there(session, work, table, wanted, len(counts.counts))
    if whole and (there < counts.counts).any():
        name = part.schema.name
        what = f"the log deletes rows of {name} that the target does not have"
        raise TargetChanged(name, what, f"Nothing else brings it forward: {RESYNC}.")
    written, marks = counts.settled(there)
    if wanted is not None:
        session.run(f"DELETE FROM {wanted}")
        marked = np.flatnonzero(marks)
        if len(marked):
            gone = rows.take(pa.array(_first_of(counts)[marked]))
            session.load(wanted, _names(session, work), [_numbered(gone, marks[marked])])
            session.delete_some(table, wanted, _alike(session, work))
        session.run(f"DROP TABLE {wanted}")
    names = [session.quote(name) for name in work.names]
    session.load(table, names, [rows.filter(pa.array(written))])


def _read_chunks(session: TargetSession, work: FoldInput, table: str) -> tuple[Seq, SeqRanges, bool]:
    """Put the newest reading in the place of the rows, if there is one: where its changes begin, which of them it has
    seen, and whether the table has every row that they delete."""
    part = work.slice
    if not part.chunks:
        if part.clear:
            session.run(f"DELETE FROM {table}")
        return Seq(part.start_seq + 1), (), part.whole
    # Each reading is the whole table, and exact with the changes that it did not see: any of them would do.
    newest = part.chunks[-1]
    whole = newest.schema_version == part.schema.version
    session.run(f"DELETE FROM {table}")
    unseen = [
        seq
        for seq in part.truncates
        if seq >= newest.replay_point and not any(first <= seq <= last for first, last in newest.seen)
    ]
    if unseen:
        return Seq(max(unseen) + 1), newest.seen, whole
    chunks, names = StagedChunks(session, work, ServerRows()), list_of(session, work.names)
    own = [c for c in part.chunks if c.snapshot_id == newest.snapshot_id and c.path is not None]
    chunks.check(own)
    for chunk in own:
        place = f"{SCHEMA}.{session.quote(str(chunk.path))}"
        session.run(f"INSERT INTO {table} ({names}) SELECT {chunks.selected(chunk)} FROM {place} c")
    return newest.replay_point, newest.seen, whole


def _changes(work: FoldInput, first: Seq, seen: SeqRanges) -> tuple[Mask, pa.Table]:
    """Changes: whether each deletes, and its row, in order of sequence."""
    segments = [segment for segment in work.slice.segments if segment.last_seq >= first]
    removes, tables = [np.empty(0, np.bool_)], [_none(work)]
    for block in segment_rows(work, segments, unchanged=False):
        counts = block.seq >= first
        for low, high in seen:
            counts &= (block.seq < low) | (block.seq > high)
        found = block.filter(counts)
        if len(found.seq):
            removes.append(found.op == DELETE)
            columns = [column_of(found, work, column.id) for column in work.slice.schema.columns]
            tables.append(pa.table(columns, names=work.names))
    return np.concatenate(removes), pa.concat_tables(tables)


def _none(work: FoldInput) -> pa.Table:
    return pa.table([pa.array([], work.types[name]) for name in work.names], names=work.names)


def _first_of(counts: RowCounts) -> Ints:
    """A change of each group of `groups_to_delete`."""
    found: Ints = counts.order[np.searchsorted(counts.group, counts.groups_to_delete)]
    return found


def _names(session: TargetSession, work: FoldInput) -> list[str]:
    return [NUMBER, COUNT, *map(session.quote, work.names)]


def _numbered(rows: pa.Table, counts: Ints) -> pa.Table:
    with_counts = rows.add_column(0, COUNT, pa.array(counts))
    return with_counts.add_column(0, NUMBER, pa.array(np.arange(rows.num_rows)))


def _stage(session: TargetSession, work: FoldInput, name: str, rows: pa.Table, counts: Ints) -> str:
    columns = f"{NUMBER} bigint, {COUNT} bigint, {definitions(session, work.slice.schema)}"
    made = session.temporary(f"_tailrace_{name}", columns)
    session.load(made, _names(session, work), [_numbered(rows, counts)])
    return made


def _alike(session: TargetSession, work: FoldInput) -> str:
    one, other = (session.row_text([f"{alias}.{session.quote(name)}" for name in work.names]) for alias in ("t", "w"))
    return f"{one} = {other}"


def _there(session: TargetSession, work: FoldInput, table: str, wanted: str, groups: int) -> Ints:
    """How many rows of each group the table has."""
    found = np.zeros(groups, np.int64)
    statement = f"SELECT w.{NUMBER}, count(*) FROM {table} t JOIN {wanted} w ON {_alike(session, work)}"
    for number, count in session.rows(f"{statement} GROUP BY w.{NUMBER}"):
        found[int(number)] = int(count)
    return found
