"""One batch of one table all of whose versions stay (`batch.versions`), inside the unit's transaction.

Called by `sql.unit` instead of `sql.batch`, which decides about the open rows: at most one for each key, as of any
table. What it would delete ends here: the row stays, with its end. Ended rows are never touched again.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
from typing_extensions import override

from tailrace.batch.slice import TableSlice
from tailrace.batch.versions import VersionStage, version_stages
from tailrace.changelog.bundles import ObjectAccess
from tailrace.changelog.history import IS_CURRENT, VALID_FROM, VALID_TO, logged, named
from tailrace.changelog.records.terms import Key
from tailrace.fold.chunk_keys import KEY_ONLY
from tailrace.fold.decide import OutputRows
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Ints, flat
from tailrace.fold.moved_keys import find_moved_keys
from tailrace.fold.versions import NO_CHANGE, ended_versions, real_ends
from tailrace.targets.sql.batch import Decided, KeyedBatch, LiveRows, fold_input
from tailrace.targets.sql.session import NUMBER, TargetSession, equal, list_of
from tailrace.targets.sql.staged import NUMBERED, ServerRows, StagedChunks, definitions
from tailrace.targets.sql.staging import Staging

END = "_tailrace_end"
TIME = pa.timestamp("us", "UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def apply_versions(
    session: TargetSession, log: ObjectAccess, part: TableSlice, table: str, now: float
) -> frozenset[Key]:
    """Bring the table's rows forward; its columns are the batch's already. Returns the holes that it leaves. `now`:
    seconds since the Unix epoch; what a reading no longer finds ends then, since the log does not say when it went."""
    holes = part.applied.holes
    StagedChunks(session, fold_input(part, log), ServerRows()).check(
        {c.path: c for c in (*part.chunks, *(c for finish in part.finished for c in finish.chunks))}.values()
    )
    for stage in version_stages(part):
        holes = _stage(session, log, stage.over(holes), table, round(now * 1_000_000))
    return holes


def _stage(session: TargetSession, log: ObjectAccess, stage: VersionStage, table: str, now: int) -> frozenset[Key]:
    work = fold_input(stage.slice, log)
    work = replace(work, moved_keys=find_moved_keys(work))
    batch = VersionBatch(session, work, table, Staging(session, work), now)
    holes = batch.apply()
    if not stage.truncated:
        return holes
    batch.end_all(now if stage.truncated_at is None else stage.truncated_at)
    return frozenset()


class VersionBatch(KeyedBatch):
    """A stage of a batch."""

    def __init__(self, session: TargetSession, work: FoldInput, table: str, staging: Staging, now: int) -> None:
        super().__init__(session, work, table, staging)
        self.now = now
        self.names = [named(work.slice.schema, name) for name in (VALID_FROM, VALID_TO, IS_CURRENT)]
        """The names of the three added columns."""
        self.begin, self.end, self.current = map(session.quote, self.names)
        self.open = f"t.{self.end} IS NULL"

    @property
    @override
    def present(self) -> str:
        return f"(SELECT * FROM {self.table} WHERE {self.end} IS NULL)"

    @override
    def move(self, decided: Decided) -> None:
        if self.work.slice.chunks or self.work.slice.finished:
            self._read(decided)
        else:
            self._change(decided)

    # ---- changes ----

    def _change(self, decided: Decided) -> None:
        numbered, folded = decided.numbered, decided.folded
        present = LiveRows(self, numbered, ServerRows()).present()
        ended = ended_versions(self.work, numbered, folded, present)
        begin, end, current = self.names
        places = ended.rows.values[self.work.names.index(begin)]  # each began with a change, which has its time
        begins = folded.pool[0].column(begin).take(pa.array(places))
        kept, ends = real_ends(np.asarray(flat(begins).cast(TIME).cast(pa.int64())).astype(np.int64), ended.ends)
        closed, opened = ended.rows.filter(kept), folded.rows
        rows = OutputRows(
            np.concatenate([opened.key, closed.key]),
            [np.concatenate(pair) for pair in zip(opened.values, closed.values, strict=True)],
        )
        given = {
            end: pa.concat_arrays([pa.nulls(len(opened.key), TIME), pa.array(ends, TIME)]),
            current: pa.array(np.arange(len(rows.key)) < len(opened.key)),
        }
        written = self.rows(decided, rows, given)
        self._end_keys(decided, ended.first)
        self.insert(written, self.table)

    def _end_keys(self, decided: Decided, first: Ints) -> None:
        """The open rows of touched keys end with their first changes; one without any gives way to another."""
        numbered = decided.numbered
        touched = np.flatnonzero(numbered.touched).astype(np.int64)
        changed = touched[first[touched] != NO_CHANGE]
        others = touched[first[touched] == NO_CHANGE]
        self._end_at(decided, changed, first[changed])
        if len(others):
            staged = self.staging.keys(numbered.keys(others), others)
            with self.session.by_key():
                self.session.delete_using(self.table, staged, f"{equal(self.session, self.work.key)} AND {self.open}")

    def _end_at(self, decided: Decided, keys: Ints, times: Ints) -> None:
        """End the open rows of keys, by number, at these times."""
        if not len(keys):
            return
        schema = self.work.slice.schema
        time = self.session.type_of(schema, next(c for c in schema.columns if c.name == self.names[1]))
        columns = [pa.array(keys), *decided.numbered.keys(keys), pa.array(times, TIME)]
        rows = pa.table(columns, names=[NUMBER, *self.work.key, END])
        self._end_by(self.staging.rows("ends", [NUMBERED, *self.staging.key_columns(), (END, time)], rows), END)

    def _end_by(self, ends: str, name: str) -> None:
        """End the open rows of the keys of a table, which has the times in this column."""
        on, time = f"{equal(self.session, self.work.key)} AND {self.open}", f"u.{name}"
        to = f"CASE WHEN t.{self.begin} > {time} THEN t.{self.begin} ELSE {time} END"
        with self.session.by_key():
            self.session.delete_using(self.table, ends, f"{on} AND t.{self.begin} = {time}")
            self.session.update_from(self.table, self._ended(to), f"{ends} u", on)

    def _ended(self, to: str) -> dict[str, str]:
        """The assignments that end rows at this time."""
        return self.session.unmoved(self.work.slice.schema) | {self.end: to, self.current: "FALSE"}

    def end_all(self, at: int, where: str = "TRUE") -> None:
        """End the open rows (as `t`) for which this holds. `at`: microseconds since the Unix epoch."""
        moment = (EPOCH + timedelta(microseconds=at)).replace(tzinfo=None).isoformat(sep=" ")
        self.session.delete(self.table, f"{self.open} AND t.{self.begin} = '{moment}' AND {where}")
        to = f"CASE WHEN t.{self.begin} > '{moment}' THEN t.{self.begin} ELSE '{moment}' END"
        assigned = ", ".join(f"{name} = {value}" for name, value in self._ended(to).items())
        self.session.run(f"UPDATE {self.table} t SET {assigned} WHERE {self.open} AND {where}")

    # ---- rows that were read ----

    def _read(self, decided: Decided) -> None:
        """A row that is as it was adds nothing, and any other ends the row before."""
        numbered, folded, chunks = decided.numbered, decided.folded, self.work.slice.chunks
        rows, alone = self.rows(decided, folded.rows), self.alone(numbered)
        busy = any(self.within(chunk, decided.chunks) is not None for chunk in chunks)
        if not busy and not len(alone):  # a first copy
            for number in range(len(chunks)):
                self.adopt(number, decided, self.table)
            self.insert(rows, self.table)
            return
        key = [self.session.quote(name) for name in self.work.key]
        fresh = self.staging.empty("fresh", definitions(self.session, self.work.slice.schema), key)
        for number in range(len(chunks)):
            self.adopt(number, decided, fresh)
        self.insert(rows, fresh)
        self._end_unfound(decided)
        self._drop_same(fresh)
        self._end_by(fresh, self.begin)
        self.insert(fresh, self.table)

    def _end_unfound(self, decided: Decided) -> None:
        """The open rows of touched keys that have no row."""
        numbered, folded = decided.numbered, decided.folded
        found = np.zeros(numbered.count, np.bool_)
        found[folded.rows.key] = True
        adopted = (numbered.chunk_keys.position != KEY_ONLY) & ~folded.overruled
        found[numbered.chunk_key[adopted]] = True
        gone = np.flatnonzero(numbered.touched & ~found).astype(np.int64)
        self._end_at(decided, gone, np.full(len(gone), self.now))

    def _drop_same(self, fresh: str) -> None:
        """Rows that are as those that are there are no new versions."""
        session, names = self.session, list_of(self.session, self.work.key)
        quoted = [session.quote(name) for name in self.work.key]
        same = self.staging.empty("same", self.staging.key_columns(), quoted)
        alike = [session.same(column) for column in logged(self.work.slice.schema).columns]
        keys = [f"t.{name} = w.{name}" for name in quoted]
        session.run(
            f"INSERT INTO {same} ({names}) SELECT {list_of(session, self.work.key, 'w.')} FROM {fresh} w"
            f" JOIN {self.table} t ON {' AND '.join([*keys, self.open, *alike])}"
        )
        session.delete_using(fresh, same, equal(session, self.work.key))

    # ---- the end of a complete snapshot ----

    @override
    def remove(self, where: str) -> None:
        self.end_all(self.now, where)
