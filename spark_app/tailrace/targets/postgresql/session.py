"""PostgreSQL's `TargetSession`: one connection, COPY, and DDL inside transactions."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import chain
from typing import Any

import psycopg
import pyarrow as pa

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.databases.counters import Counter
from tailrace.databases.extras import Extra
from tailrace.databases.postgresql.connect import Connection, PgConfig, connect, database_errors
from tailrace.databases.postgresql.counters import NoRight
from tailrace.databases.postgresql.counters import counters as counters_of
from tailrace.databases.postgresql.extras import extras as extras_of
from tailrace.databases.wire import WireRefused
from tailrace.errors import Retry, TargetRefused
from tailrace.targets.postgresql import binary, copy_in, fit, left_open, texts, types
from tailrace.targets.postgresql.late_keys import PgLateKeys
from tailrace.targets.postgresql.wire import PgWire
from tailrace.targets.sql.session import (
    COUNT,
    NUMBER,
    Alteration,
    Definitions,
    Place,
    WantedColumn,
    both,
    nothing,
    table,
)
from tailrace.targets.sql.state import SCHEMA as STATE

FEW, FEW_BYTES = 1000, 1 << 20
"""The most that statements list by themselves."""
_MANY_TEXTS = ("numeric", "interval", "jsonb")
"""Types of which several texts are one value."""
_CHEAP_PAGES = b"SET LOCAL random_page_cost = 0.1"
"""Price of a page that an index names. By default the planner takes it for one on a disk, and reads 5 M rows to find
50,000 of them; but these pages are read in any case: their rows are about to change. At this price it still reads a
table of which a tenth is wanted, and one without its key; with none it would read a large one in the key's order."""
_USUAL_PAGES = b"SET LOCAL random_page_cost TO DEFAULT"


_GRANTS = """
SELECT string_agg(privilege_type, ', '), CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END
       || CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
  FROM pg_class, aclexplode(relacl) WHERE oid = to_regclass(%s) AND grantee <> relowner GROUP BY grantee, is_grantable
"""
_COLLATION = """
SELECT c.oid::regcollation::text FROM pg_attribute JOIN pg_collation c ON c.oid = attcollation
 WHERE attrelid = %s::regclass AND attname = %s AND collname <> 'default'
"""
_RELATION = """
SELECT t.oid::int8{} FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
 WHERE n.nspname = %s AND t.relname = %s
"""
_CHILDREN = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = t.oid LIMIT 1"
_DISTURBING = """
SELECT CASE WHEN tgisinternal THEN format('foreign key %%I of %%s', conname, conrelid::regclass)
       ELSE format('trigger %%I', tgname) END
  FROM pg_trigger JOIN pg_proc p ON p.oid = tgfoid LEFT JOIN pg_constraint c ON c.oid = tgconstraint
 WHERE tgrelid = t.oid AND tgenabled = 'O' AND current_setting('session_replication_role') <> 'replica'
       AND (NOT tgisinternal OR proname IN ('RI_FKey_cascade_del', 'RI_FKey_setnull_del', 'RI_FKey_setdefault_del'))
 LIMIT 1
"""
"""Triggers that fire for a session that may not switch them off, except those that only refuse."""

_DEFERRABLE = """
SELECT format('%%I.%%I', nspname, conname) FROM pg_constraint JOIN pg_namespace n ON n.oid = connamespace
 WHERE condeferrable"""


class PgTargetSession:
    """See `targets.sql.session.TargetSession`."""

    binary, text, name, row_key = "bytea", "text", "varchar(200)", ""
    enforces_keys = reads_changes = True
    upserts = None

    def __init__(self, config: PgConfig, source: str, *, keeps_rows: bool = False) -> None:
        """`source`: the product that the columns come from."""
        self._connection: Connection = connect(config)
        self.keeps_rows = keeps_rows
        self._place, self._user, self._source = config.place, config.username, source
        self._known: set[str] = set()
        self._new: str | None = None
        """The table of staged rows that the transaction has made."""
        self._entered: set[str] = set()
        """Copies whose columns are known to be as they are told, until the transaction ends."""
        self._by_key = False
        self.replica = False
        """True if triggers and foreign keys do not act."""
        try:
            self._settle()
        except BaseException:
            self._connection.close()
            raise

    def _settle(self) -> None:
        """Triggers and foreign keys that people have put on copies must not act on what the source has done already."""
        with self._errors(), suppress(psycopg.errors.InsufficientPrivilege):
            self._connection.execute("SET session_replication_role = replica")
            self.replica = True

    @property
    def late_keys(self) -> PgLateKeys:
        return PgLateKeys(self, self._connection, self._entered)

    @property
    def usable(self) -> bool:
        return not self._connection.closed and not self._connection.broken

    def close(self) -> None:
        self._connection.close()

    def __del__(self) -> None:
        """Idle ones go with their owner."""
        if hasattr(self, "_connection"):
            self._connection.close()

    @contextmanager
    def transaction(self, define: Callable[[], None] = nothing) -> Iterator[None]:
        with self._errors(), self._connection.transaction():
            define()
            if not self.replica:
                self._connection.execute("SET CONSTRAINTS ALL DEFERRED")
            try:
                yield
            finally:
                self._new = None
                self._entered.clear()

    def batch(self, define: Callable[[], None]) -> AbstractContextManager[None]:
        return self.transaction(define)

    def about(self, table_id: int) -> AbstractContextManager[None]:
        return nullcontext()  # each statement fails at once

    @contextmanager
    def by_key(self) -> Iterator[None]:
        self._by_key = True
        try:
            yield
        finally:
            self._by_key = False

    @contextmanager
    def still(self) -> Iterator[None]:
        with self.transaction(self._hold_still):
            yield

    def _hold_still(self) -> None:
        self.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

    def alone(self) -> None:
        self.run(f"SELECT pg_advisory_xact_lock({left_open.CREATING})")

    def end_left_open(self, copies: Collection[Place]) -> list[str]:
        there = self.relations({schema for schema, _ in copies})
        return left_open.end(self.rows, [there[place] for place in copies if place in there])

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._errors():
            found = self._execute(statement, values)
            return found.fetchall()

    def run(self, statement: str, *values: object) -> int:
        with self._errors():
            return self._execute(statement, values).rowcount

    def _execute(self, statement: str, values: Sequence[object]) -> psycopg.Cursor[tuple[Any, ...]]:
        if not self._by_key:
            return self._connection.execute(statement.encode(), values or None)
        assert not values, "the server takes several statements at once only without them"
        found = self._connection.execute(b"; ".join((_CHEAP_PAGES, statement.encode(), _USUAL_PAGES)))
        found.nextset()
        return found

    def run_one(self, table: str, assigned: str, where: str, *values: object) -> bool:
        return self.run(f"UPDATE {table} SET {assigned} WHERE {where}", *values) == 1

    def load(self, table: str, columns: Definitions, rows: Iterable[pa.Table]) -> int:
        parts = iter(rows)
        first = next(parts, None)
        written = binary.encodings(columns, first.schema) if first is not None and self._is_known(table) else None
        with self._errors(), copy_in.unread_values(columns):
            return copy_in.load(
                self._connection,
                copy_in.Destination(table, [name for name, _ in columns], table == self._new),
                copy_in.values(chain(() if first is None else (first,), parts), written),
                binary=written is not None,
            )

    def _is_known(self, table: str) -> bool:
        """True if its columns have the types that are told: somebody may have altered a copy's."""
        return table.startswith(("pg_temp.", f"{STATE}.")) or table in self._entered

    @property
    def wire(self) -> PgWire:
        return PgWire(self._load_sent)

    def _load_sent(self, table: str, names: Sequence[str], pieces: Iterable[bytes]) -> int:
        if not self._is_known(table):
            raise WireRefused
        with self._errors(), copy_in.refused():
            to = copy_in.Destination(table, list(names), table == self._new)
            return copy_in.load(self._connection, to, pieces, binary=True)

    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def type_of(self, schema: TableSchema, column: Column) -> str:
        wanted = types.own_type(column) if self._source == "postgresql" else None
        if schema.history in ("SoftDelete", "Versions") and column.key is not None and wanted in _MANY_TEXTS:
            wanted = None  # a marked or ended row and a live one may have keys that the type takes for one
        if wanted is not None and self._exists(wanted):
            return wanted
        return types.general_type(column.type)

    def _exists(self, kind: str) -> bool:
        """True if the target has a type of this name; one that it lacks may be made at any time."""
        if kind not in self._known:
            ((found,),) = self.rows("SELECT to_regtype(%s) IS NOT NULL", types.bare(kind))
            if found:
                self._known.add(kind)
        return kind in self._known

    def relation(self, place: Place) -> int | None:
        found = self.rows(_RELATION.format(""), *place)
        return int(found[0][0]) if found else None

    def relations(self, schemas: Collection[str]) -> dict[Place, int]:
        found = self.rows(
            "SELECT n.nspname, c.relname, c.oid::int8 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = ANY (%s) AND c.relkind = 'r'",
            sorted(schemas),
        )
        return {(str(schema), str(name)): int(oid) for schema, name, oid in found}

    def counters(self, tables: Collection[Place]) -> list[Counter]:
        try:
            return counters_of(self.rows, tables, "UPDATE")
        except NoRight as missing:
            raise TargetRefused(
                f"{self._user} may not set sequence {missing.sequence} of the target",
                f"Run `GRANT SELECT, UPDATE ON SEQUENCE {missing.sequence} TO {self.quote(self._user)}`.",
            ) from None

    def numbering(self, place: Place, column: str) -> str:
        alter = f"ALTER {self.quote(column)}"
        return f"ALTER TABLE {table(self, place)} {alter} SET NOT NULL, {alter} ADD GENERATED BY DEFAULT AS IDENTITY"

    def extras(self, tables: Collection[Place]) -> list[Extra]:
        return extras_of(self.rows, tables)

    def statement(self, extra: Extra, place: Place) -> str:
        return extra.created_at(table(self, place), self.quote(place[0])) if extra.statement else ""

    def advance(self, counter: Counter, number: int) -> None:
        self.rows("SELECT setval(%s::regclass, %s, false)", table(self, counter.name), number)

    def check_deferred(self, place: Place, *, of_others: bool) -> None:
        if self.replica:
            return
        side = "confrelid" if of_others else "conrelid"
        names = self.rows(f"{_DEFERRABLE} AND {side} = %s::regclass", table(self, place))
        if names:
            self.run(f"SET CONSTRAINTS {', '.join(name for (name,) in names)} IMMEDIATE")

    def is_undisturbed(self, place: Place, relation: int | None) -> bool:
        found = self.rows(_RELATION.format(f", ({_CHILDREN}), ({_DISTURBING})"), *place)
        present, child, disturbs = found[0] if found else (None, None, None)
        if present is None or int(present) != relation:
            return False
        if child is not None:
            raise TargetRefused(
                f"table {child} inherits from table {'.'.join(place)}: its rows would be deleted",
                f"Run `ALTER TABLE {child} NO INHERIT {table(self, place)}`.",
            )
        if disturbs is not None:
            raise TargetRefused(
                f"{disturbs} of table {'.'.join(place)} acts on rows that Tailrace writes",
                "Let the role switch such things off for its sessions (PostgreSQL 15 or later: `GRANT SET ON PARAMETER"
                f" session_replication_role TO {self.quote(self._user)}`), or drop it.",
            )
        return True

    def create_schema(self, name: str) -> None:
        found = self.rows("SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = %s", name)
        if not found:
            self.run(f"CREATE SCHEMA IF NOT EXISTS {self.quote(name)}")
        elif not found[0][0]:
            raise TargetRefused(
                f"{self._user} may not create tables in schema {name} of {self._place}",
                f"Run `GRANT CREATE ON SCHEMA {self.quote(name)} TO {self.quote(self._user)}`.",
            )

    def drop_schema(self, name: str) -> None:
        if not self.rows("SELECT 1 FROM pg_class WHERE relnamespace = to_regnamespace(%s) LIMIT 1", name):
            self.run(f"DROP SCHEMA {self.quote(name)}")

    def mark(self, column: Column, kind: str) -> str:
        return ""

    def noted(self, kind: str) -> str:
        return kind

    def readable(self, column: Column, alias: str) -> str:
        name = f"{alias}.{self.quote(column.name)}"
        return self.cast(name, self.text) if column.type == "string" else name

    def sorting(self, table: str, column: str) -> str:
        """A table that was taken over may have a collation of its column, with which texts are compared there."""
        found = self.rows(_COLLATION, table, column)
        return f" COLLATE {found[0][0]}" if found else ""

    def cast(self, expression: str, kind: str) -> str:
        return f"CAST({expression} AS {kind})"

    def columns(self, place: Place) -> None:
        return None

    def create(
        self, place: Place, definitions: str, note: Callable[[int], None], *, keyed: bool, opened: Definitions
    ) -> None:
        self.run(f"CREATE TABLE {table(self, place)} ({definitions})")
        self._take(place, note, keyed=keyed)
        self._index(place, opened)

    def misfits(self, place: Place, columns: Sequence[WantedColumn]) -> Iterator[tuple[str, str]]:
        return fit.misfits(self, place, columns)

    def adopt(
        self,
        place: Place,
        marks: Mapping[str, str],
        note: Callable[[int], None],
        *,
        keyed: bool,
        opened: Definitions,
    ) -> None:
        name = table(self, place)
        self.run(f"LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE")
        if not self.keeps_rows and self.rows(f"SELECT 1 FROM {name} LIMIT 1"):
            raise Retry(f"table {'.'.join(place)} of the target has been written to just now")
        self._take(place, note, keyed=keyed)
        self._index(place, opened)

    def _index(self, place: Place, opened: Definitions) -> None:
        if opened:
            *key, end = (name for name, _ in opened)
            self.run(f"CREATE UNIQUE INDEX ON {table(self, place)} ({', '.join(key)}) WHERE {end} IS NULL")

    def _take(self, place: Place, note: Callable[[int], None], *, keyed: bool) -> None:
        if not keyed:  # somebody may have a publication for all tables: no row could be deleted
            self.run(f"ALTER TABLE {table(self, place)} REPLICA IDENTITY FULL")
        relation = self.relation(place)
        assert relation is not None
        note(relation)

    def alter(self, place: Place, change: Alteration, admit: Callable[[], None]) -> None:
        admit()
        alter = f"ALTER TABLE {table(self, place)}"
        for name in change.dropped:
            self.run(f"{alter} DROP COLUMN {name}")
        renamed = [each for each in change.changed if each.old != each.name]
        # By way of names that no column has: two columns may exchange theirs.
        for number, each in enumerate(renamed):
            self.run(f"{alter} RENAME COLUMN {each.old} TO _tailrace_{number}")
        for number, each in enumerate(renamed):
            self.run(f"{alter} RENAME COLUMN _tailrace_{number} TO {each.name}")
        for definition in change.added:
            self.run(f"{alter} ADD COLUMN {definition}")
        for each in change.changed:
            if each.kind is not None:
                self._retype(f"{alter} ALTER COLUMN {each.name} TYPE {each.kind}", f"{each.name}::text::{each.kind}")

    def _retype(self, statement: str, by_text: str) -> None:
        """PostgreSQL's own way first: as in the source, it rewrites the table only where values are stored otherwise.
        To a transaction that began before, a table that was rewritten is empty."""
        try:
            with self._connection.transaction():
                self._connection.execute(statement.encode())
        except (psycopg.DataError, psycopg.errors.DatatypeMismatch):
            self.run(f"{statement} USING {by_text}")

    def replace(self, place: Place, by: Place, admit: Callable[[], None]) -> None:
        admit()
        grants = self.rows(_GRANTS, table(self, place))
        self.run(f"DROP TABLE IF EXISTS {table(self, place)}")
        self.run(f"ALTER TABLE {table(self, by)} SET SCHEMA {self.quote(place[0])}")
        self.run(f"ALTER TABLE {table(self, (place[0], by[1]))} RENAME TO {self.quote(place[1])}")
        for privileges, role in grants:
            self.run(f"GRANT {privileges} ON {table(self, place)} TO {role}")

    def settle(self, where: Place, relation: int, stored: str) -> bool:
        return False  # a statement ends with its session, and waits for the locks of others

    def temporary(self, name: str, columns: str, key: Sequence[str] = ()) -> str:
        self.run(f"CREATE TEMPORARY TABLE {name} ({columns}) ON COMMIT DROP")
        return f"pg_temp.{name}"

    def drop_temporary(self, table: str) -> None:
        self.run(f"DROP TABLE {table}")

    def listed(self, columns: Definitions, rows: pa.Table) -> str | None:
        if rows.num_rows > FEW or rows.nbytes > FEW_BYTES:
            return None
        arrays = ", ".join(texts.array_literal(name, rows.column(name)) for name in rows.column_names)
        values = ", ".join(f"CAST(v{at} AS {kind}) AS {name}" for at, (name, kind) in enumerate(columns))
        names = ", ".join(f"v{at}" for at in range(len(columns)))
        return f"(SELECT {values} FROM unnest({arrays}) AS v({names}))"

    def unlogged(self, table: str, columns: str) -> None:
        # It is written once, read once or twice and dropped: nothing is to be vacuumed or analyzed.
        self.run(f"CREATE UNLOGGED TABLE {table} ({columns}) WITH (autovacuum_enabled = false)")
        self._new = table

    def delete(self, table: str, where: str) -> None:
        self.run(f"DELETE FROM {table} t WHERE {where}")

    def delete_using(self, table: str, using: str, on: str, within: str = "") -> None:
        self.run(f"DELETE FROM {table} t USING {using} u WHERE {both(on, within)}")

    def update_from(self, table: str, values: Mapping[str, str], using: str, on: str) -> None:
        assigned = ", ".join(f"{name} = {value}" for name, value in values.items())
        self.run(f"UPDATE {table} t SET {assigned} FROM {using} WHERE {on}")

    def discard_unfinished(self, place: Place) -> None:
        return  # nothing is beside it

    def unmoved(self, schema: TableSchema) -> dict[str, str]:
        return {}

    def bit(self, bits: str, number: int) -> str:
        return f"get_bit({bits}, {number}) = 1"

    def wanted(self, name: str, schema: TableSchema, columns: str) -> str:
        return self.temporary(name, columns)

    def alike(self, schema: TableSchema) -> str:
        return f"{self.written(schema, 't')} = {self.written(schema, 'w')}"

    def same(self, column: Column) -> str:
        name = self.quote(column.name)
        return f"t.{name}::text IS NOT DISTINCT FROM w.{name}::text"

    def written(self, schema: TableSchema, alias: str) -> str:
        return f"ROW({', '.join(f'{alias}.{self.quote(column.name)}' for column in schema.columns)})::text"

    def digest(self, text: str) -> str:
        return f"md5({text})"

    def delete_some(self, table: str, wanted: str, on: str) -> None:
        numbered = f"row_number() OVER (PARTITION BY w.{NUMBER})"
        found = f"SELECT t.ctid AS place, {numbered} AS number, w.{COUNT} AS count FROM {table} t"
        found += f" JOIN {wanted} w ON {on}"
        self.run(f"DELETE FROM {table} WHERE ctid IN (SELECT place FROM ({found}) f WHERE number <= count)")

    def _errors(self) -> Any:
        return database_errors(self._place, "target")
