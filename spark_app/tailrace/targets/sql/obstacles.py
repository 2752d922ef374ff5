"""Tables of a database that are where copies are to be made, and belong to something else. Called by both products."""

from collections.abc import Iterator, Sequence

from tailrace.changelog.records.terms import TableSchema
from tailrace.errors import TableStop
from tailrace.targets.api import Obstacle, Opening
from tailrace.targets.sql import state
from tailrace.targets.sql.columns import wanted
from tailrace.targets.sql.session import Place, TargetSession, table
from tailrace.targets.sql.state import StoredCopy

ONE_OF_THEM = (
    "Exclude all but one of them (tables.exclude), or let another Replicator copy the others into another schema."
)
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
    session: TargetSession, schema: TableSchema, place: Place, owner: Owner | None, log_id: str | None, *, adopts: bool
) -> Iterator[Obstacle]:
    """Tells of what is at the place, unless it is this change log's copy, or nothing, or can be taken over."""
    if owner is not None and owner[0] != log_id:
        message = f"table {'.'.join(place)} of the target belongs to change log {owner[0]}"
        yield Obstacle("fail", message, foreign_fix(schema), schema.name)
        return
    relation = session.relation(place)
    if relation not in (None, owner and owner[1]):
        yield from misfits(session, schema, place) if adopts else (not_ours(session, schema, place),)


def refuse_namesakes(opening: Opening, place: Place, present: StoredCopy | None) -> None:
    """Refuse a table whose place another one has, or would get as well."""
    schema, where = opening.schema, ".".join(place)
    if present is None and opening.namesakes:
        message = f"{', '.join(opening.namesakes)} would have the same name in the target, {where}"
        raise TableStop(schema.name, message, ONE_OF_THEM)
    if present is None or present.applied.table_id == schema.table_id:
        return
    if present.schema.schema_name != schema.schema_name:
        raise TableStop(
            schema.name,
            f"{where} in the target is the copy of {present.schema.name}",
            f"{ONE_OF_THEM} If {present.schema.name} is no longer needed, drop its copy in the target.",
        )


def merged(places: Sequence[tuple[TableSchema, Place]]) -> Iterator[Obstacle]:
    """Tables that would get the same name in the target."""
    known: dict[Place, list[str]] = {}
    for schema, place in places:
        known.setdefault(place, []).append(schema.name)
    for place, names in known.items():
        for name in names if len(names) > 1 else ():
            others = ", ".join(sorted(set(names) - {name}))
            message = f"{others} would have the same name in the target, {'.'.join(place)}"
            yield Obstacle("fail", message, ONE_OF_THEM, name)


def misfits(session: TargetSession, schema: TableSchema, place: Place) -> Iterator[Obstacle]:
    """Tell why a table that is there already cannot be taken over (`target.adopt`)."""
    for what, statement in session.misfits(place, wanted(session, schema)):
        fix = f"Run `{statement}`."
        if not statement:
            fix = f"Add {schema.name} to tables.exclude of one of the two Replicators."
        elif statement.startswith(("DROP", "TRUNCATE")):
            fix = (
                f"Rename it, or add {schema.name} to tables.exclude. Only if nobody needs what it holds: `{statement}`."
            )
        message = f"table {'.'.join(place)} of the target is not taken over: {what}"
        yield Obstacle("fail", message, fix, schema.name)


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
