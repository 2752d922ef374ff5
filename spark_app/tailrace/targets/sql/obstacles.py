"""Tables of a database that are where copies are to be made, and belong to something else. Called by both products."""

from tailrace.changelog.records.terms import TableSchema
from tailrace.targets.api import Obstacle
from tailrace.targets.sql import state
from tailrace.targets.sql.session import Place, TargetSession, table

Owner = tuple[str, int]
"""Change log and relation of a copy."""


def foreign_fix(schema: TableSchema) -> str:
    """The fix where a table belongs to another change log."""
    which = "Delete the Replicator that writes it (`tailrace status --json` shows each one's logId) with its data"
    return f"{which}, or add {schema.name} to tables.exclude."


def owners(session: TargetSession) -> dict[Place, Owner]:
    """The copies that readers see."""
    if not state.has_copies(session):
        return {}
    columns = "place_schema, place_name, log_id, relation"
    rows = session.rows(f"SELECT {columns} FROM {state.SCHEMA}.tables WHERE NOT hidden")
    return {(str(schema), str(name)): (str(log_id), int(relation)) for schema, name, log_id, relation in rows}


def in_the_way(
    session: TargetSession, schema: TableSchema, place: Place, owner: Owner | None, log_id: str | None
) -> Obstacle | None:
    """Tells what is at the place, unless it is this change log's copy or nothing."""
    if owner is not None and owner[0] != log_id:
        message = f"table {'.'.join(place)} of the target belongs to change log {owner[0]}"
        fix = foreign_fix(schema)
        return Obstacle("fail", message, fix, schema.name)
    relation = session.relation(place)
    return None if relation in (None, owner and owner[1]) else not_ours(session, schema, place)


def limits(what: str, drops: str) -> tuple[str, str]:
    """Message and fix for what people have added to a copy, and a row may violate."""
    fix = f"Ignore this if the source has the same; otherwise run `{drops}`."
    return f"the copy has {what}: a row of the source that violates it stops the table", fix


def not_ours(session: TargetSession, schema: TableSchema, place: Place, word: str = "TABLE") -> Obstacle:
    """`word`: the kind of object, in statements."""
    message = f"the target has a {word.lower()} {'.'.join(place)} that Tailrace has no record of"
    fix = f"Rename it, or add {schema.name} to tables.exclude. Only if nobody needs it, and the target is certainly not"
    fix += f" the source's database: `DROP {word} {table(session, place)}`."
    return Obstacle("fail", message, fix, schema.name)
