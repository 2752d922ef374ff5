"""Tables of PostgreSQL that somebody has created, compared with what a copy must be. Called by the session."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tailrace.targets.sql.session import HAS_ROWS, Place, TargetSession, WantedColumn, list_of, table

WANTED = "_tailrace_wanted"
_COLUMNS = """
SELECT attname, format_type(b.oid, b.modifier)
       || CASE WHEN c.oid IS NULL THEN '' ELSE ' COLLATE ' || attcollation::regcollation::text END,
       CASE WHEN b.oid <> atttypid THEN 'domain ' || format_type(atttypid, NULL) || ' over ' ELSE '' END,
       attnotnull, attidentity = 'a', attgenerated
  FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = attcollation AND NOT collisdeterministic,
       LATERAL (WITH RECURSIVE behind AS (
           SELECT oid, typbasetype, CASE WHEN typtype = 'd' THEN typtypmod ELSE atttypmod END AS modifier
             FROM pg_type WHERE oid = atttypid
           UNION ALL
           SELECT t.oid, t.typbasetype, CASE WHEN d.modifier >= 0 THEN d.modifier ELSE t.typtypmod END
             FROM behind d JOIN pg_type t ON t.oid = d.typbasetype
         ) SELECT oid, modifier FROM behind WHERE typbasetype = 0) b
 WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
"""Columns with the types behind their domains: these have the same values, and take them as they are."""
_TABLE = """
SELECT relkind = 'r' AND relpersistence = 'p' AND NOT EXISTS (
           SELECT FROM pg_inherits WHERE c.oid IN (inhrelid, inhparent)),
       pg_has_role(relowner, 'USAGE'), current_user,
       (SELECT conname FROM pg_constraint WHERE conrelid = c.oid AND contype = 'p'),
       (SELECT array_agg(attname::text) FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid
               AND attnum = ANY (conkey) WHERE conrelid = c.oid AND contype = 'p')
  FROM pg_class c WHERE oid = %s::regclass
"""
_READ_BY = r"""
SELECT pubname FROM pg_publication_tables WHERE pubname LIKE 'tailrace\_%%' AND schemaname = %s AND tablename = %s
 ORDER BY 1
"""


@dataclass(frozen=True)
class PresentColumn:
    kind: str
    """The type, or the one behind its domain."""
    domain: str
    """Words of a message before the type; empty: it is no domain's."""
    required: bool
    always: bool
    """Its identity does not take values that are given."""
    generated: str
    """How the server has its values: `s` stored, `v` computed by each reader (PostgreSQL 18); empty: it is given."""


def misfits(session: TargetSession, place: Place, columns: Sequence[WantedColumn]) -> Iterator[tuple[str, str]]:
    """See `TargetSession.misfits`."""
    name = table(session, place)
    ((plain, owned, role, key_name, key),) = session.rows(_TABLE, name)
    if not plain:
        yield "it is no plain table, or has to do with inheritance or partitions", f"DROP TABLE {name}"
        return
    if not owned:
        yield f"{role} does not own it", f"ALTER TABLE {name} OWNER TO {session.quote(role)}"
        return
    if not session.keeps_rows and session.rows(f"SELECT 1 FROM {name} LIMIT 1"):
        yield HAS_ROWS, f"TRUNCATE {name}"
        return
    read_by = session.rows(_READ_BY, *place)
    if read_by:
        yield f"a Replicator copies it to another place (publication {read_by[0][0]}): changes would go round", ""
    found, kinds = _columns(session, name), _kinds(session, columns)
    for column in columns:
        yield from _misfits_of(session, name, column, kinds[column.name], found.get(column.name))
    for other in sorted(found.keys() - {column.name for column in columns}):
        if not found[other].generated:
            yield f"the source has no column {other!r}", f"ALTER TABLE {name} DROP COLUMN {session.quote(other)}"
    wanted = [column.name for column in columns if column.key]
    if sorted(key or ()) != sorted(wanted):
        steps = [] if key_name is None else [f"DROP CONSTRAINT {session.quote(key_name)}"]
        steps += [f"ADD PRIMARY KEY ({list_of(session, wanted)})"] if wanted else []
        what = (
            f"the source's key is {', '.join(wanted)}"
            if wanted
            else "it has a primary key, which a copy of this table must not have"
        )
        yield what, f"ALTER TABLE {name} {', '.join(steps)}"
    for column in columns:  # after the key, which asks for it
        if column.nullable and not column.key and column.name in found and found[column.name].required:
            drop = f"ALTER TABLE {name} ALTER COLUMN {session.quote(column.name)} DROP NOT NULL"
            yield f"column {column.name!r} is NOT NULL", drop


def _columns(session: TargetSession, name: str) -> dict[str, PresentColumn]:
    return {
        str(row[0]): PresentColumn(str(row[1]), str(row[2]), bool(row[3]), bool(row[4]), str(row[5]))
        for row in session.rows(_COLUMNS, name)
    }


def _kinds(session: TargetSession, columns: Sequence[WantedColumn]) -> dict[str, str]:
    """The types in the server's own words."""
    if not columns:
        return {}
    with session.transaction():
        made = session.temporary(WANTED, ", ".join(f"{session.quote(each.name)} {each.kind}" for each in columns))
        kinds = {column: found.kind for column, found in _columns(session, made).items()}
        session.drop_temporary(made)
    return kinds


def _misfits_of(
    session: TargetSession, name: str, column: WantedColumn, kind: str, found: PresentColumn | None
) -> Iterator[tuple[str, str]]:
    quoted, what = session.quote(column.name), f"column {column.name!r}"
    alter = f"ALTER TABLE {name} ALTER COLUMN {quoted}"
    if found is None:
        yield f"{what} is missing", f"ALTER TABLE {name} ADD COLUMN {quoted} {column.kind}"
        return
    if found.generated == "v":  # it has no values that could stay
        yield f"{what} is generated", f"ALTER TABLE {name} DROP COLUMN {quoted}, ADD COLUMN {quoted} {column.kind}"
        return
    if found.generated:
        yield f"{what} is generated", f"{alter} DROP EXPRESSION"
    if found.kind != kind:
        yield f"{what} is {found.domain}{found.kind}, not {kind}", f"{alter} TYPE {kind} USING NULL"
    if found.always:
        yield f"{what} takes no given values", f"{alter} SET GENERATED BY DEFAULT"
