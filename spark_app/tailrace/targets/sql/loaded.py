"""Chunks whose rows an executor loads into the copy itself, so that no batch has to move them. Called by
`sql.first_copy`, which says when a copy takes them, and by `sql.staged`, which writes them.

A copy that has no key yet, and gets nothing but rows of further ranges, has the rows of a chunk before its state says
so. The load's transaction notes itself beside them, and the batch that reaches the chunk takes the note, in the
transaction of its state. Notes that no batch has taken are of rows which are not to be there: of a chunk that was never
registered, or whose batch brings something else as well. Before the copy gets its key, or anything else, these rows go
into staging tables (`sql.unloading`).

    loading   a row per copy into which rows are loaded, or were: `is_open`, while more may be
    loads     a row per load: the transaction that brought its rows; `applied`, once the copy's state covers them

A load takes its lock of the copy first, and reads only then whether it may; whoever ends the loading holds the lock
that no load can have, and removes the row of `loading` in the same transaction. So a load either is seen then, or finds
that it may not, whatever has become of its driver: its rows are staged.
"""

from collections.abc import Collection
from dataclasses import dataclass

from tailrace.targets.sql.session import Definitions, Place, TargetSession
from tailrace.targets.sql.state import SCHEMA

PREFIX = "rows_"
"""The paths of these chunks begin with it."""
MOST_ROWS = 10_000_000
"""The most rows of a copy without a key: all tables of the unit wait while it is built, some seconds for so many."""


def is_loaded(path: str | None) -> bool:
    """True if the chunk's rows were loaded into the copy itself; they may be staged since."""
    return path is not None and path.startswith(PREFIX)


@dataclass(frozen=True)
class Loads:
    """The rows that a copy takes."""

    relation: int
    """The copy's."""
    form: str
    """Their form: that of its chunks."""
    snapshot_id: str
    """The snapshot that reads them."""


def permit(session: TargetSession, loads: Loads) -> None:
    """Let such rows be loaded into the copy, once this is committed."""
    session.run(
        f"INSERT INTO {SCHEMA}.loading (relation, form, snapshot_id, is_open) VALUES (%s, %s, %s, TRUE)",
        loads.relation,
        loads.form,
        loads.snapshot_id,
    )


def withdraw(session: TargetSession, relation: int) -> bool:
    """Let no load begin, once this is committed; one that is under way may end well. False: none has been possible
    since the loading was ended."""
    return session.run(f"UPDATE {SCHEMA}.loading SET is_open = FALSE WHERE relation = %s", relation) > 0


def enter(session: TargetSession, place: Place, loads: Loads, columns: Definitions) -> bool:
    """True: the copy takes such rows in the transaction that has called this. Called first in it."""

    def may() -> bool:
        mine = "relation = %s AND form = %s AND snapshot_id = %s AND is_open"
        few = f"(SELECT coalesce(sum(row_count), 0) FROM {SCHEMA}.loads WHERE relation = %s) < %s"
        values = loads.relation, loads.form, loads.snapshot_id, loads.relation, MOST_ROWS
        return bool(session.rows(f"SELECT 1 FROM {SCHEMA}.loading WHERE {mine} AND {few}", *values))

    keys = session.late_keys
    return keys is not None and may() and keys.enter(place, loads.relation, columns, may)


def note(session: TargetSession, path: str, relation: int, rows: int) -> None:
    """Note the load of this transaction."""
    keys = session.late_keys
    assert keys is not None
    session.run(
        f"INSERT INTO {SCHEMA}.loads (path, relation, transaction_id, row_count, applied)"
        " VALUES (%s, %s, %s, %s, FALSE)",
        path,
        relation,
        keys.transaction(),
        rows,
    )


def take(session: TargetSession, relation: int, paths: Collection[str]) -> None:
    """Have the copy's state cover these from now on; those that are not there are found missing by `has`."""
    if paths:
        session.run(
            f"UPDATE {SCHEMA}.loads SET applied = TRUE WHERE relation = %s AND path = ANY (%s)", relation, list(paths)
        )


def has(session: TargetSession, path: str) -> bool:
    """True if the chunk's rows are among those that the copy's state covers."""
    return bool(session.rows(f"SELECT 1 FROM {SCHEMA}.loads WHERE path = %s AND applied", path))


def is_ended(session: TargetSession, relation: int) -> bool:
    """True if no load is possible, and none has been since the loading was ended."""
    return not session.rows(f"SELECT 1 FROM {SCHEMA}.loading WHERE relation = %s", relation)


@dataclass(frozen=True)
class LeftLoad:
    """A load that no batch has taken."""

    path: str
    transaction: str
    rows: int


def close(session: TargetSession, relation: int) -> list[LeftLoad]:
    """End the loading, while no load is under way. Forgets the loads that no batch has taken, and returns them."""
    session.run(f"DELETE FROM {SCHEMA}.loading WHERE relation = %s", relation)
    mine = "relation = %s AND NOT applied RETURNING path, transaction_id, row_count"
    left = session.rows(f"DELETE FROM {SCHEMA}.loads WHERE {mine}", relation)
    return [LeftLoad(str(path), str(transaction), int(rows)) for path, transaction, rows in left]
