"""The end of loading rows into a copy (`sql.loaded`): those that its state does not cover leave it. Called by
`sql.first_copy`, in the transaction of whatever comes next.

They go into staging tables of their chunks, so that a batch takes these as if they had been staged, and none is read
twice. Such a table has the chunk's path as its name, as any other has, and is no more logged than they are. The rows
get the numbers that their keys have in what is kept of these: a copy does not tell in which order its rows came.
"""

from tailrace.errors import Retry, TargetRefused
from tailrace.targets.sql import loaded
from tailrace.targets.sql.loaded import LeftLoad
from tailrace.targets.sql.session import NUMBER, Place, TargetSession, list_of, table
from tailrace.targets.sql.staged import NUMBERED, defined, definitions, hold, numbered_keys
from tailrace.targets.sql.state import SCHEMA, StoredCopy


def end(session: TargetSession, copy: StoredCopy) -> None:
    """End the loading into a copy, whose columns are still those that it was loaded with. `Locked`: a load is under
    way."""
    late = session.late_keys
    if late is None or loaded.is_ended(session, copy.relation):
        return
    if session.relation(copy.where) != copy.relation:
        raise Retry(f"table {'.'.join(copy.where)} of the target was dropped or replaced by another program")
    late.hold(copy.where, copy.relation)
    left = loaded.close(session, copy.relation)
    if not left:
        return
    known = hold(session, [load.path for load in left])
    brought = late.brought(copy.where, [load.transaction for load in left])
    for load, its_rows in zip(left, brought, strict=True):
        if load.path in known:  # else its reader has thrown it away
            _stage(session, copy, load, its_rows)
    removed = late.remove(copy.where, brought)
    _require(removed == sum(load.rows for load in left), copy.where)


def settle(session: TargetSession, copy: StoredCopy) -> None:
    """Called before a copy is dropped: no load into it is under way until the transaction's end. `Locked`: one lasts
    too long."""
    late = session.late_keys
    if late is None or loaded.is_ended(session, copy.relation):
        return
    if session.relation(copy.where) == copy.relation:
        late.hold(copy.where, copy.relation)


def _stage(session: TargetSession, copy: StoredCopy, load: LeftLoad, its_rows: str) -> None:
    schema, staged = copy.schema, f"{SCHEMA}.{session.quote(load.path)}"
    session.unlogged(staged, defined(definitions(session, schema, NUMBERED)))
    key = [NUMBERED, *((session.quote(c.name), session.type_of(schema, c)) for c in schema.key_columns)]
    numbers = session.temporary("_tailrace_unloaded", defined(key))
    session.load(numbers, key, numbered_keys(session, load.path, schema))
    names = [column.name for column in schema.columns]
    kinds = [session.type_of(schema, column) for column in schema.columns]
    # The target may have got a column's type since the copy was made.
    values = {name: session.cast(f"t.{session.quote(name)}", kind) for name, kind in zip(names, kinds, strict=True)}
    same = " AND ".join(f"{values[c.name]} = u.{session.quote(c.name)}" for c in schema.key_columns)
    moved = session.run(
        f"INSERT INTO {staged} ({NUMBER}, {list_of(session, names)})"
        f" SELECT u.{NUMBER}, {', '.join(values.values())} FROM {table(session, copy.where)} t"
        f" JOIN {numbers} u ON {same} WHERE {its_rows}"
    )
    session.drop_temporary(numbers)
    _require(moved == load.rows, copy.where)


def _require(known: bool, place: Place) -> None:
    """Refuses to guess which rows are those of a load."""
    if not known:
        name = ".".join(place)
        raise TargetRefused(
            f"table {name} of the target has rows that another program has written again while it was copied",
            f"Run `DROP TABLE {name}` in the target: the table is copied again from the beginning.",
        )
