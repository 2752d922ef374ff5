"""The table of a copy: created for a schema version, and altered from one to the next. Columns are known by their ids,
so that a renamed one keeps its values and another one under an old name does not inherit them."""

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.targets.sql.session import Place, TargetSession, list_of, table


def create(session: TargetSession, place: Place, schema: TableSchema) -> None:
    """Create the table, with the source's primary key; nothing else of the source's constraints."""
    columns = [_definition(session, column) for column in schema.columns]
    if schema.key_columns:
        columns.append(_primary_key(session, schema))
    session.alone()
    session.create_schema(place[0])
    session.run(f"CREATE TABLE {table(session, place)} ({', '.join(columns)})")


def _definition(session: TargetSession, column: Column) -> str:
    required = "" if column.key is None else " NOT NULL"
    return f"{session.quote(column.name)} {session.type_of(column)}{required}"


def _primary_key(session: TargetSession, schema: TableSchema) -> str:
    return f"PRIMARY KEY ({list_of(session, (column.name for column in schema.key_columns))})"


def evolve(session: TargetSession, place: Place, before: TableSchema, after: TableSchema) -> None:
    """Alter the table from one version to another."""
    name, old = table(session, place), {column.id: column for column in before.columns}
    new = {column.id: column for column in after.columns}
    for id_ in old.keys() - new.keys():
        session.run(f"ALTER TABLE {name} DROP COLUMN {session.quote(old[id_].name)}")
    renamed = [id_ for id_ in old.keys() & new.keys() if old[id_].name != new[id_].name]
    # By way of names that no column has: two columns may exchange theirs.
    for id_ in renamed:
        _rename(session, name, old[id_].name, f"_tailrace_{id_}")
    for id_ in renamed:
        _rename(session, name, f"_tailrace_{id_}", new[id_].name)
    for column in after.columns:
        if column.id not in old:
            session.run(f"ALTER TABLE {name} ADD COLUMN {_definition(session, column)}")
        elif session.type_of(old[column.id]) != session.type_of(column):
            session.alter_type(name, session.quote(column.name), session.type_of(column))


def _rename(session: TargetSession, name: str, old: str, new: str) -> None:
    session.run(f"ALTER TABLE {name} RENAME COLUMN {session.quote(old)} TO {session.quote(new)}")
