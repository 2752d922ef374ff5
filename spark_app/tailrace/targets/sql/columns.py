"""The table of a copy: created for a schema version, and altered from one to the next. Columns are known by their ids,
so that a renamed one keeps its values and another one under an old name does not inherit them. Called by `sql.unit`."""

from collections.abc import Callable

from tailrace.changelog.history import VALID_TO, is_versioned, named
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.targets.sql.session import (
    Alteration,
    AlteredColumn,
    Definitions,
    Place,
    TargetSession,
    WantedColumn,
    list_of,
)


def create(session: TargetSession, place: Place, schema: TableSchema, note: Callable[[int], None]) -> None:
    """Create the table, with the source's primary key; nothing else of the source's constraints."""
    columns, keyed = [_definition(session, schema, column) for column in schema.columns], is_unique(schema)
    if keyed:
        columns.append(_primary_key(session, schema))
    elif session.row_key:
        columns.append(session.row_key)
    session.alone()
    session.create_schema(place[0])
    session.create(place, ", ".join(columns), note, keyed=keyed, opened=_opened(session, schema))


def is_unique(schema: TableSchema) -> bool:
    """True if the source's key is the copy's: of a table all of whose versions stay, it has many rows."""
    return bool(schema.key_columns) and not is_versioned(schema)


def _opened(session: TargetSession, schema: TableSchema) -> Definitions:
    """The key by which the open rows are looked for among all versions, and the column that is NULL in them."""
    if not is_versioned(schema):
        return ()
    end = next(column for column in schema.columns if column.name == named(schema, VALID_TO))
    return [(session.quote(c.name), session.type_of(schema, c)) for c in (*schema.key_columns, end)]


def wanted(session: TargetSession, schema: TableSchema) -> list[WantedColumn]:
    """The columns that a table needs to become a copy."""
    return [
        WantedColumn(
            column.name,
            session.type_of(schema, column),
            column.nullable,
            column.key is not None and is_unique(schema),
            _definition(session, schema, column),
        )
        for column in schema.columns
    ]


def adopt(session: TargetSession, place: Place, schema: TableSchema, note: Callable[[int], None]) -> None:
    """Make a copy out of a table that fits (`obstacles.misfits`)."""
    session.alone()
    marks = {column.name: session.mark(column, session.type_of(schema, column)) for column in schema.columns}
    session.adopt(place, marks, note, keyed=is_unique(schema), opened=_opened(session, schema))


def _definition(session: TargetSession, schema: TableSchema, column: Column) -> str:
    kind, required = session.type_of(schema, column), "" if column.key is None else " NOT NULL"
    return f"{session.quote(column.name)} {kind}{required}{session.mark(column, kind)}"


def _primary_key(session: TargetSession, schema: TableSchema) -> str:
    return f"PRIMARY KEY ({list_of(session, (column.name for column in schema.key_columns))})"


def evolve(
    session: TargetSession, place: Place, before: TableSchema, after: TableSchema, admit: Callable[[], None]
) -> None:
    """Alter the table to a version. `before`: the version that its record names."""
    old = session.columns(place)
    if old is None:
        old = {column.id: (column.name, session.type_of(before, column)) for column in before.columns}
    new = {column.id: (column.name, session.noted(session.type_of(after, column))) for column in after.columns}
    if dict(old) == new:
        return
    changed = []
    for column in after.columns:
        if column.id in old and old[column.id] != new[column.id]:
            (name, kind), (wanted, wanted_kind) = old[column.id], new[column.id]
            changed.append(
                AlteredColumn(
                    session.quote(name),
                    session.quote(wanted),
                    None if kind == wanted_kind else session.type_of(after, column),
                    _definition(session, after, column),
                )
            )
    dropped = [session.quote(old[id_][0]) for id_ in old.keys() - new.keys()]
    added = [_definition(session, after, column) for column in after.columns if column.id not in old]
    session.alter(place, Alteration(dropped, changed, added), admit)
