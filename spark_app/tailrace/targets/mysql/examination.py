"""Constraints and triggers that people have added to copies in MySQL and MariaDB. Called by `MysqlTarget`."""

from collections.abc import Iterator, Mapping

from tailrace.targets.api import Obstacle
from tailrace.targets.mysql.session import MysqlTargetSession
from tailrace.targets.sql.obstacles import limits
from tailrace.targets.sql.session import Place, table

_ADDED = """
SELECT table_schema, table_name, constraint_type, constraint_name FROM information_schema.table_constraints
 WHERE table_schema IN ({names}) AND constraint_type IN ('UNIQUE', 'CHECK')
UNION ALL
SELECT event_object_schema, event_object_table, 'TRIGGER', trigger_name FROM information_schema.triggers
 WHERE event_object_schema IN ({names})
"""


def added(session: MysqlTargetSession, copies: Mapping[Place, str]) -> Iterator[Obstacle]:
    """Constraints and triggers that copies are made without. `copies`: the names of their source tables. Foreign keys
    are switched off."""
    schemas = sorted({schema for schema, _ in copies})
    if not schemas:
        return
    names = ", ".join(["%s"] * len(schemas))
    rows = session.rows(_ADDED.format(names=names), *schemas, *schemas)
    found: dict[tuple[Place, str], list[str]] = {}
    for schema, name, kind, what in rows:
        if (schema, name) in copies:
            found.setdefault(((schema, name), str(kind)), []).append(str(what))
    for (place, kind), objects in sorted(found.items()):
        quoted = [session.quote(one) for one in sorted(objects)]
        what = {"UNIQUE": "unique index", "CHECK": "constraint", "TRIGGER": "trigger"}[kind]
        told = ", ".join(f"{what} {one}" for one in sorted(objects))
        if kind == "TRIGGER":
            drops = "; ".join(f"DROP TRIGGER {session.quote(place[0])}.{one}" for one in quoted)
            message = f"the copy has {told}, which no session can switch off: the table stops at its next change"
            yield Obstacle("warn", message, f"Run `{drops}`.", copies[place])
        else:
            drop = "DROP INDEX" if kind == "UNIQUE" else "DROP CONSTRAINT"
            drops = f"ALTER TABLE {table(session, place)} " + ", ".join(f"{drop} {one}" for one in quoted)
            yield Obstacle("warn", *limits(told, drops), copies[place])
