"""One batch of a table that has a row for each change, inside the unit's transaction: rows are only added
(`fold.logged_changes`). Called by `sql.unit`."""

from tailrace.batch.slice import TableSlice
from tailrace.changelog.bundles import ObjectAccess
from tailrace.changelog.history import OP, SEQ, added, named
from tailrace.fold.logged_changes import READ, change_rows, read_at
from tailrace.targets.sql.batch import fold_input
from tailrace.targets.sql.session import TargetSession, list_of
from tailrace.targets.sql.staged import ServerRows, StagedChunks, definitions
from tailrace.targets.sql.state import SCHEMA


def apply_changes(session: TargetSession, log: ObjectAccess, part: TableSlice, table: str) -> None:
    """Bring the table's rows forward; its columns are the batch's already."""
    work = fold_input(part, log)
    chunks, names = StagedChunks(session, work, ServerRows()), list_of(session, work.names)
    chunks.check(part.chunks)
    for chunk in (chunk for chunk in part.chunks if chunk.path is not None):
        known = {named(part.schema, OP): f"'{READ}'", named(part.schema, SEQ): str(read_at(chunk))}
        values = {column.id: known.get(column.name, "NULL") for column in added(part.schema)}
        place = f"{SCHEMA}.{session.quote(str(chunk.path))}"
        session.run(f"INSERT INTO {table} ({names}) SELECT {chunks.selected(chunk, values)} FROM {place} c")
    session.load(table, definitions(session, part.schema), change_rows(work))
