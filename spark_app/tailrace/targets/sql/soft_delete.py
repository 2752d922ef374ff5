"""One batch of one table whose deleted rows stay, marked (`batch.soft_delete`), inside the unit's transaction.

Called by `sql.unit` instead of `sql.batch`, which brings each stage.
"""

from datetime import UTC, datetime, timedelta

import numpy as np

from tailrace.batch.slice import TableSlice
from tailrace.batch.soft_delete import Stage, stages
from tailrace.changelog.bundles import ObjectAccess
from tailrace.changelog.history import DELETED, DELETED_AT, named
from tailrace.changelog.records.terms import Key, TableSchema
from tailrace.fold.key_columns import of_texts
from tailrace.fold.missing import missing_keys
from tailrace.targets.lost_rows import warn_of_lost_rows
from tailrace.targets.sql.batch import apply_keyed, fold_input, keys_of
from tailrace.targets.sql.session import NUMBER, TargetSession, equal
from tailrace.targets.sql.staged import ServerRows, StagedChunks
from tailrace.targets.sql.staging import Staging

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def apply_marked(session: TargetSession, log: ObjectAccess, part: TableSlice, table: str) -> frozenset[Key]:
    """Bring the table's rows forward; its columns are the batch's already. Returns the holes that it leaves."""
    holes = part.applied.holes
    StagedChunks(session, fold_input(part, log), ServerRows()).check(
        {c.path: c for c in (*part.chunks, *(c for finish in part.finished for c in finish.chunks))}.values()
    )
    for stage in stages(part):
        holes = _stage(session, log, stage.over(holes), table)
    return holes


def _stage(session: TargetSession, log: ObjectAccess, stage: Stage, table: str) -> frozenset[Key]:
    work = fold_input(stage.slice, log)
    holes = apply_keyed(session, log, stage.slice, table)
    if stage.truncated:
        _mark(session, stage.slice.schema, table, at=stage.truncated_at)
        warn_of_lost_rows(stage.slice.schema, len(holes))
        return frozenset()
    there = holes
    staging = Staging(session, work)
    chunks = StagedChunks(session, work, ServerRows())
    gone = missing_keys(work, stage.asked, chunks)
    if gone:
        _mark(session, stage.slice.schema, table, where=_is_among(staging, _staged(staging, gone)))
    holes -= gone
    for finish in stage.finished:
        kept = keys_of(finish, staging, chunks)
        _mark(session, stage.slice.schema, table, where=f"NOT {_is_among(staging, kept)}")
        holes = _left(staging, kept, holes)
    staging.drop()
    warn_of_lost_rows(stage.slice.schema, len(there) - len(holes))
    return holes


def _staged(staging: Staging, listed: frozenset[Key]) -> str:
    return staging.keys(of_texts(sorted(listed), staging.work.key_types), np.arange(len(listed)))


def _is_among(staging: Staging, keys: str) -> str:
    """A condition: the key of `t` is one of these."""
    return f"EXISTS (SELECT 1 FROM {keys} u WHERE {equal(staging.session, staging.work.key)})"


def _left(staging: Staging, kept: str, holes: frozenset[Key]) -> frozenset[Key]:
    """The holes that are among these keys."""
    if not holes:
        return holes
    listed = sorted(holes)
    statement = f"SELECT t.{NUMBER} FROM {_staged(staging, holes)} t WHERE {_is_among(staging, kept)}"
    return frozenset(listed[int(number)] for (number,) in staging.session.rows(statement))


def _mark(session: TargetSession, schema: TableSchema, table: str, where: str = "TRUE", at: int | None = None) -> None:
    """Mark those of the rows that are not marked: NULL, which another program may have written, is no mark. `at`:
    microseconds since the Unix epoch."""
    deleted, deleted_at = (session.quote(named(schema, name)) for name in (DELETED, DELETED_AT))
    time = "NULL" if at is None else f"'{(EPOCH + timedelta(microseconds=at)).replace(tzinfo=None).isoformat(sep=' ')}'"
    unmarked = f"t.{deleted} IS NOT TRUE"
    marked = session.unmoved(schema) | {deleted: "TRUE", deleted_at: time}
    assigned = ", ".join(f"{name} = {value}" for name, value in marked.items())
    session.run(f"UPDATE {table} t SET {assigned} WHERE {unmarked} AND {where}")
