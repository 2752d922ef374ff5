"""Chunks whose rows an executor loads into the copy itself, so that no batch has to move them. Called by
`sql.first_copy`, which says when a copy takes them, and by `sql.staged`, which writes them.

A copy that has no key yet, and gets nothing but rows of further ranges, has the rows of a chunk before its state says
so. The load's transaction notes itself beside them, and the batch that reaches the chunk takes the note, in the
transaction of its state. Notes that no batch has taken are of rows which are not to be there: the load of a chunk that
was never registered, or that a batch cannot take. These rows go before the copy gets its key, or anything else.

    loading   a row per copy into which rows are loaded, or were: `is_open`, while more may be
    loads     a row per load: the transaction that brought its rows; `applied`, once the copy's state covers them

A load takes its lock of the copy first, and reads only then whether it may; whoever ends the loading holds the lock
that no load can have, and removes the row of `loading` in the same transaction. So a load either is seen by him, or
finds that it may not, whatever has become of its driver: its rows are staged then.
"""

from collections.abc import Collection
from dataclasses import dataclass

from tailrace.errors import TargetRefused
from tailrace.targets.sql.session import Definitions, Place, TargetSession
from tailrace.targets.sql.state import SCHEMA

PREFIX = "rows_"
"""The paths of these chunks begin with it."""


def is_loaded(path: str | None) -> bool:
    """True if the chunk's rows are in the copy itself."""
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


def withdraw(session: TargetSession, relation: int) -> None:
    """Let no load begin, once this is committed; one that is under way may end well."""
    session.run(f"UPDATE {SCHEMA}.loading SET is_open = FALSE WHERE relation = %s AND is_open", relation)


def enter(session: TargetSession, place: Place, loads: Loads, columns: Definitions) -> bool:
    """True: the copy takes such rows in the transaction that has called this. Called first in it."""

    def may() -> bool:
        mine = "relation = %s AND form = %s AND snapshot_id = %s AND is_open"
        values = loads.relation, loads.form, loads.snapshot_id
        return bool(session.rows(f"SELECT 1 FROM {SCHEMA}.loading WHERE {mine}", *values))

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
    """From now on the copy's state covers these; those that are not there are found missing by `has`."""
    if paths:
        session.run(
            f"UPDATE {SCHEMA}.loads SET applied = TRUE WHERE relation = %s AND path = ANY (%s)", relation, list(paths)
        )


def has(session: TargetSession, path: str) -> bool:
    """True if the chunk's rows are among those that the copy's state covers."""
    return bool(session.rows(f"SELECT 1 FROM {SCHEMA}.loads WHERE path = %s AND applied", path))


def end(session: TargetSession, place: Place, relation: int) -> None:
    """End the loading into a copy: rows that its state does not cover go. `Retry`: a load is under way."""
    keys = session.late_keys
    if keys is None or not session.rows(f"SELECT 1 FROM {SCHEMA}.loading WHERE relation = %s", relation):
        return
    keys.hold(place)
    left = session.rows(
        f"DELETE FROM {SCHEMA}.loads WHERE relation = %s AND NOT applied RETURNING transaction_id, row_count", relation
    )
    session.run(f"DELETE FROM {SCHEMA}.loading WHERE relation = %s", relation)
    if left and keys.remove(place, [str(transaction) for transaction, _ in left]) != sum(rows for _, rows in left):
        name = ".".join(place)
        raise TargetRefused(
            f"table {name} of the target has rows that another program has written again while it was copied",
            f"Run `DROP TABLE {name}` in the target: the table is copied again from the beginning.",
        )
