"""Tables of a SQL_ASCII database whose names, or those of their columns and types, are not UTF-8.

Such a database checks no text, and the server breaks off every answer that holds a byte it cannot hand over: one such
name would take the whole catalog from us. Called by discovery, which leaves these tables out of its queries; they are
stopped by name, with the bytes written as `\\xff`.
"""

from psycopg import sql

from tailrace.changelog.records.terms import TableSchema
from tailrace.databases.postgresql.connect import Connection
from tailrace.errors import ValueUnsupported
from tailrace.sources.postgresql.model import PgTable

# One character is one byte there. (Overlong forms and surrogates are not looked for: the server refuses them, too.)
_UTF8 = (
    r"'^([\x01-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf][\x80-\xbf]"
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf][\x80-\xbf]|[\xf1-\xf3][\x80-\xbf][\x80-\xbf][\x80-\xbf]"
    r"|\xf4[\x80-\x8f][\x80-\xbf][\x80-\xbf])*$'"
)
_FIND = f"""
WITH t AS (
  SELECT c.oid, n.nspname, c.relname, c.relkind, ARRAY[n.nspname, c.relname, r.rolname] AS named
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles r ON r.oid = c.relowner
   WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname !~ '^pg_'
     AND n.nspname <> 'information_schema')
SELECT t.oid::int8, convert_to(t.nspname::text, 'SQL_ASCII'), convert_to(t.relname::text, 'SQL_ASCII'),
       t.relkind = 'p'
  FROM t WHERE EXISTS (SELECT FROM unnest(t.named) x WHERE x::text !~ {_UTF8}) OR EXISTS (
  SELECT FROM pg_attribute a JOIN pg_type y ON y.oid = a.atttypid JOIN pg_namespace yn ON yn.oid = y.typnamespace
    LEFT JOIN pg_type e ON e.oid IN (y.typelem, y.typbasetype) AND e.oid <> 0
   WHERE a.attrelid = t.oid AND a.attnum > 0
     AND (a.attname::text !~ {_UTF8} OR y.typname::text !~ {_UTF8} OR yn.nspname::text !~ {_UTF8}
          OR e.typname::text !~ {_UTF8} OR EXISTS (
          SELECT FROM pg_enum l WHERE l.enumtypid IN (y.oid, e.oid) AND l.enumlabel::text !~ {_UTF8})))
"""


def find(connection: Connection) -> tuple[PgTable, ...]:
    """None in a database of any other encoding."""
    if connection.info.parameter_status("server_encoding") != "SQL_ASCII":
        return ()
    rows = connection.execute(sql.SQL(_FIND)).fetchall()
    return tuple(_stopped(oid, shown(schema), shown(table), partitioned) for oid, schema, table, partitioned in rows)


def shown(name: bytes) -> str:
    """The name as text, whatever its bytes."""
    return bytes(name).decode(errors="backslashreplace")


def _stopped(oid: int, schema_name: str, table_name: str, partitioned: bool) -> PgTable:
    name = f"{schema_name}.{table_name}"
    return PgTable(
        oid=oid,
        schema_name=schema_name,
        table_name=table_name,
        partitioned=partitioned,
        owner="",
        storage=(),
        columns=(),
        schema=TableSchema(table_id=oid, schema_name=schema_name, table_name=table_name, version=0, columns=()),
        stop=ValueUnsupported(
            name,
            f"the name of {name}, of its owner, or of one of its columns, types or enum labels is not UTF-8",
            "Rename it with `ALTER … RENAME`, or exclude the table; a SQL_ASCII database does not check its text.",
        ),
    )
