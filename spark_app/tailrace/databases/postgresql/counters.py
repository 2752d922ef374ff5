"""Sequences of PostgreSQL's tables, and those beside them that no table uses. Called for sources and for their
copies."""

from collections.abc import Callable, Collection
from typing import Any

from tailrace.databases.counters import Counter
from tailrace.databases.extras import TableName

_SEQUENCES = """
WITH wanted AS (
  SELECT n.nspname, c.relname, c.oid FROM unnest(%s::text[], %s::text[]) AS w (s, t)
    JOIN pg_namespace n ON n.nspname = w.s JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t
), used AS (
  SELECT objid AS sequence, refobjid AS used_by, refobjsubid AS number FROM pg_depend
   WHERE classid = 'pg_class'::regclass AND refclassid = 'pg_class'::regclass AND deptype = 'i' AND refobjsubid > 0
  UNION
  SELECT p.refobjid, d.adrelid, d.adnum FROM pg_attrdef d
    JOIN pg_depend p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
     AND p.refclassid = 'pg_class'::regclass AND p.refobjid <> d.adrelid
)
SELECT n.nspname, s.relname, w.nspname, w.relname, a.attname, q.seqincrement,
       format('%%I.%%I', n.nspname, s.relname), has_sequence_privilege(s.oid, %s)
  FROM pg_class s JOIN pg_sequence q ON q.seqrelid = s.oid JOIN pg_namespace n ON n.oid = s.relnamespace
  LEFT JOIN used u ON u.sequence = s.oid
  LEFT JOIN wanted w ON w.oid = u.used_by
  LEFT JOIN pg_attribute a ON a.attrelid = w.oid AND a.attnum = u.number
 WHERE w.oid IS NOT NULL OR (u.used_by IS NULL AND n.nspname IN (SELECT nspname FROM wanted))
 ORDER BY 1, 2, 3, 4, 5
"""


class NoRight(Exception):
    """A right on a sequence is missing. `sequence`: its quoted name."""

    def __init__(self, sequence: str) -> None:
        super().__init__(sequence)
        self.sequence = sequence


def counters(
    rows: Callable[..., list[tuple[Any, ...]]], tables: Collection[TableName], right: str = "SELECT"
) -> list[Counter]:
    """`rows`: of a statement with these values. `right`: that the user must have on each sequence: else `NoRight`."""
    names, found = sorted(tables), []
    known = rows(_SEQUENCES, [schema for schema, _ in names], [table for _, table in names], right)
    for schema, name, table_schema, table, column, step, quoted, may in known:
        if not may:
            raise NoRight(str(quoted))
        ((last, called),) = rows(f"SELECT last_value, is_called FROM {quoted}".replace("%", "%%"))
        used_by = None if table is None else ((str(table_schema), str(table)), str(column))
        found.append(Counter((str(schema), str(name)), used_by, int(last) + (int(step) if called else 0), int(step)))
    return found
