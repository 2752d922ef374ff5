"""A publication as the catalog shows it: which tables are members, and whether their changes come whole.

Called by every look at the catalog and by preflight. Reads only. A table is a member by name, by its schema or because
all tables are; whichever row of the catalog says so is part of the table's fingerprint, for a table that left and came
back has another one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from psycopg import sql

from tailrace.databases.postgresql.connect import Connection, source_errors
from tailrace.errors import ReadRefused, TableStop
from tailrace.sources.postgresql.model import PgTable

NEEDED = frozenset({"insert", "update", "delete", "truncate"})
FILTERS_SINCE, GENERATED_SINCE = 150000, 180000
"""Row filters, column lists and whole schemas came with 15, generated columns with 18."""

_PUBLICATION = """
SELECT oid::int8, xmin::text, puballtables, pubviaroot, pubinsert, pubupdate, pubdelete, pubtruncate
  FROM pg_catalog.pg_publication WHERE pubname = %s
"""
_GENERATED = "SELECT pubgencols = 's' FROM pg_catalog.pg_publication WHERE oid = %s::int8::oid"
_TABLES = (
    "SELECT prrelid::int8, oid::int8, false, NULL FROM pg_catalog.pg_publication_rel WHERE prpubid = %s::int8::oid"
)
_TABLES_WITH_FILTERS = """
SELECT prrelid::int8, oid::int8, prqual IS NOT NULL, prattrs::int2[]
  FROM pg_catalog.pg_publication_rel WHERE prpubid = %s::int8::oid
"""
_SCHEMAS = """
SELECT n.nspname::text, p.oid::int8 FROM pg_catalog.pg_publication_namespace p
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pnnspid WHERE p.pnpubid = %s::int8::oid
"""


def grant(owner: str, role: str, superuser: bool) -> str:
    """How `role` comes to put a table of `owner` into a publication. Never by taking the table, which would lock its
    owner out; and a member of a superuser can become one."""
    given = (
        "exclude the table, or create a publication and name it in source.postgresql.publication (in"
        " Kubernetes this field cannot be changed: create another Replicator)."
    )
    if superuser:
        return given[0].upper() + given[1:]
    return f"Run `GRANT {quoted(owner)} TO {quoted(role)}`; or {given}"


def quoted(name: str) -> str:
    return sql.Identifier(name).as_string(None)


def harmful(table: PgTable, brought: Collection[str] = ()) -> TableStop | None:
    """Why PostgreSQL, since version 18, would refuse updates and deletes of the table if it were published: the old
    row would have to hold a generated column that the publication does not bring. `brought`: those that it does."""
    lacking = [name for name in table.generated if name not in brought]
    if table.whole_identity is None or not lacking:
        return None
    what = (
        f"{table.whole_identity} has REPLICA IDENTITY FULL and the generated column {lacking[0]!r}: since version 18,"
        " PostgreSQL refuses updates and deletes of such a table while it is published"
    )
    fix = f"`ALTER TABLE {table.whole_identity} REPLICA IDENTITY DEFAULT`"
    if not table.schema.keyless:
        return ReadRefused(table.name, what, f"Run {fix}.")
    return ReadRefused(table.name, what, f"Give the table a primary key and run {fix}, or drop its generated columns.")


@dataclass(frozen=True)
class Member:
    """A table that was added by name."""

    row: int
    """Oid in pg_publication_rel."""
    filtered: bool
    columns: frozenset[int] | None
    """attnums of the column list; None: all columns."""


@dataclass(frozen=True)
class Publication:
    name: str
    row: str
    """Its oid, and the transaction that wrote its row last."""
    all_tables: bool
    via_root: bool
    operations: frozenset[str]
    members: Mapping[int, Member]
    schemas: Mapping[str, int]
    """Whole schemas: name -> oid in pg_publication_namespace."""
    generated: bool = False
    """True if it brings stored generated columns, too."""
    since_18: bool = False
    """The server's version."""

    def membership(self, table: PgTable) -> str:
        """The catalog's rows by which the table is a member, as text; empty: it is none."""
        found = [f"schema {self.schemas[table.schema_name]}"] if table.schema_name in self.schemas else []
        found += [f"table {self.members[table.oid].row}"] if table.oid in self.members else []
        return " ".join(["all"] if self.all_tables else found)

    def by_schema(self, table: PgTable) -> bool:
        return table.schema_name in self.schemas and not self.all_tables

    def columns(self, table: PgTable) -> frozenset[int] | None:
        """attnums of the column list by which the table is a member; None: all columns come."""
        member = self.members.get(table.oid)
        return None if member is None or self.all_tables or self.by_schema(table) else member.columns

    def stop(self, table: PgTable) -> TableStop | None:
        """Why not all changes of this member come; None: they do."""
        name = sql.Identifier(self.name).as_string(None)
        if self.operations != NEEDED:
            missing = ", ".join(sorted(NEEDED - self.operations))
            fix = f"Run `ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')`."
            return ReadRefused(table.name, f"publication {self.name!r} does not publish {missing}", fix)
        if table.partitioned and not self.via_root:
            fix = f"Run `ALTER PUBLICATION {name} SET (publish_via_partition_root = true)`."
            message = f"publication {self.name!r} publishes the partitions of {table.name}, not their root"
            return ReadRefused(table.name, message, fix)
        return self.narrowed(table) or self.harmful(table)

    def harmful(self, table: PgTable) -> TableStop | None:
        """Why the server refuses updates and deletes of this member; None: it does not. See `harmful`."""
        return harmful(table, self._brought(table)) if self.since_18 else None

    def _brought(self, table: PgTable) -> frozenset[str]:
        """Generated columns whose values come."""
        listed = self.columns(table)
        if listed is None:
            return frozenset(table.stored.values() if self.generated else ())
        return frozenset(name for number, name in table.stored.items() if number in listed)

    def narrowed(self, table: PgTable) -> TableStop | None:
        """The row filter or the column list that keeps changes of this member back; None: it comes whole."""
        member = self.members.get(table.oid)
        if member is None or self.all_tables or table.schema_name in self.schemas:
            return None  # a whole schema, and all tables, come without filters
        name, relation = sql.Identifier(self.name).as_string(None), table.relation.as_string(None)
        whole = f"Run `ALTER PUBLICATION {name} DROP TABLE {relation}; ALTER PUBLICATION {name} ADD TABLE {relation}`."
        if member.filtered:
            return ReadRefused(table.name, f"publication {self.name!r} filters the rows of {table.name}", whole)
        absent = [c.name for c in table.columns if member.columns is not None and c.attnum not in member.columns]
        if absent:
            message = f"publication {self.name!r} leaves out column {absent[0]!r} of {table.name}"
            return ReadRefused(table.name, message, whole)
        return None


def look(connection: Connection, name: str) -> Publication | None:
    """None: there is no such publication."""
    with source_errors(f"looking at publication {name!r}"):
        row = connection.execute(_PUBLICATION, (name,)).fetchone()
        if row is None:
            return None
        filters = connection.info.server_version >= FILTERS_SINCE
        members = connection.execute(_TABLES_WITH_FILTERS if filters else _TABLES, (row[0],)).fetchall()
        schemas = connection.execute(_SCHEMAS, (row[0],)).fetchall() if filters else []
        since = connection.info.server_version >= GENERATED_SINCE
        generated = connection.execute(_GENERATED, (row[0],)).fetchone() if since else None
    operations = zip(("insert", "update", "delete", "truncate"), row[4:], strict=True)
    return Publication(
        name=name,
        row=f"{row[0]} {row[1]}",
        all_tables=row[2],
        via_root=row[3],
        operations=frozenset(operation for operation, published in operations if published),
        members={m[0]: Member(m[1], m[2], None if m[3] is None else frozenset(m[3])) for m in members},
        schemas=dict(schemas),
        generated=generated is not None and bool(generated[0]),
        since_18=since,
    )
