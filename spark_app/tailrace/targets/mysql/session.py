"""MySQL's and MariaDB's `TargetSession`: one connection, rows by statements of many, definitions before transactions.

Each statement that defines a table commits by itself. So a copy's record is written before the table, which carries the
record's number in its comment, and each column carries its id and type: whoever was interrupted finds what is there.
"""

import hashlib
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from typing import Any

import pyarrow as pa
import pymysql

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.databases.counters import Counter
from tailrace.databases.extras import Extra
from tailrace.databases.mysql.connect import (
    Connection,
    MyConfig,
    Server,
    connect,
    database_errors,
    execute,
    server_of,
    silent_for,
)
from tailrace.databases.mysql.counters import counters as counters_of
from tailrace.databases.mysql.extras import CLAUSE
from tailrace.databases.mysql.extras import extras as extras_of
from tailrace.databases.mysql.faults import number as error_number
from tailrace.errors import Retry, TargetRefused
from tailrace.targets.mysql import fit, left_open, turns, types
from tailrace.targets.mysql.literals import literal
from tailrace.targets.mysql.loading import Loading
from tailrace.targets.mysql.turns import NamedTurn, RowTurn, Turn
from tailrace.targets.mysql.upserts import MysqlUpserts
from tailrace.targets.pauses import PAUSES
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
from tailrace.targets.sql.state import SCHEMA, leave_group

ROW, HASH = "_tailrace_row", "_tailrace_hash"
COLLATIONS = {"mysql": "utf8mb4_0900_bin", "mariadb": "utf8mb4_nopad_bin"}
"""Those that tell all texts apart: others ignore spaces at the end."""
NO_COLLATION = (1115, 1253, 1273)
"""There is no such character set, or no such collation of it."""
SINCE: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "json": {"mysql": (5, 7)},
    "vector": {"mysql": (9, 0), "mariadb": (11, 7)},
    "uuid": {"mariadb": (10, 7)},
    "inet4": {"mariadb": (10, 10)},
    "inet6": {"mariadb": (10, 5)},
}
"""The first releases with types that one of the two has, or that both have not had for long."""
TEMPORAL = ("date", "datetime", "timestamp", "time")
MOVED = ("datetime", "timestamp")
"""Types of columns that can have ON UPDATE CURRENT_TIMESTAMP."""
SILENT_SECONDS = 30.0
"""A statement rarely takes longer; a server that finds no room for its own logs waits for it, and tells no client."""
FULL_OR_BUSY = "it works on a large statement, or waits for room on its disk, as its error log says then"
NOTED = 800
"""Characters of a type in a comment."""
KEYS_ASKED = ("sql_require_primary_key", "innodb_force_primary_key")
"""Settings, of MySQL and of MariaDB, by which every table must have a primary key, temporary ones included."""
PLAIN_TIMES = "explicit_defaults_for_timestamp"
"""The setting without which the first `timestamp` of a new table, if NOT NULL, becomes the present one with updates."""
OF_CLUSTER = "wsrep_on"
"""ON: the server is a member of a Galera cluster."""
_SETTINGS = f"SHOW VARIABLES WHERE Variable_name IN {('max_allowed_packet', PLAIN_TIMES, OF_CLUSTER, *KEYS_ASKED)}"
_COPY, _MARK = re.compile(r"Tailrace copy (\d+)"), re.compile(r"Tailrace (-?\d+) (.+)")


class MysqlTargetSession:
    """See `targets.sql.session.TargetSession`."""

    binary, text, name = "longblob", types.TEXT, "varchar(200)"
    row_key = f"{ROW} bigint unsigned NOT NULL AUTO_INCREMENT INVISIBLE PRIMARY KEY"
    enforces_keys = reads_changes = True
    late_keys = wire = None
    """Rows are stored by their key, and loaded as texts."""

    def __init__(self, config: MyConfig, source: str = "", *, keeps_rows: bool = False) -> None:
        """`source`: the product that columns come from."""
        self._connection: Connection = connect(config)
        self.keeps_rows, self._source = keeps_rows, source
        self._known: dict[str, bool] = {}
        self._place, self._user, self._program = config.place, config.username, config.program
        with self._errors():
            self.server: Server = server_of(self._connection)
            settings = dict(execute(self._connection, _SETTINGS))
        if settings.get(PLAIN_TIMES) == "OFF":
            with suppress(pymysql.MySQLError):  # old servers do not let a session: `unmoved` keeps the values there
                execute(self._connection, f"SET SESSION {PLAIN_TIMES} = ON")
        self._turn: Turn = NamedTurn(self._connection)
        if settings.get(OF_CLUSTER) == "ON":
            self._turn = RowTurn(config, self._prepare_turns)
            with self._errors():
                turns.join(self._connection, self._place)
        PAUSES.watch(self)
        self._loading = Loading(self._connection, int(settings["max_allowed_packet"]))
        self._key_asked = f", {self.row_key}" if "ON" in map(settings.get, KEYS_ASKED) else ""
        self.collation = COLLATIONS[self.server.product]
        self._options = f"ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={self.collation}"

    @cached_property
    def upserts(self) -> MysqlUpserts:
        return MysqlUpserts(self, self._loading, named=self.server.product == "mysql")

    def silence(self) -> str | None:
        silent = silent_for(self._connection)
        if silent < SILENT_SECONDS:
            return None
        return f"{self._place} has not answered for {silent:.0f} s: {FULL_OR_BUSY}"

    @property
    def usable(self) -> bool:
        return self._connection.open

    def close(self) -> None:
        with suppress(pymysql.MySQLError, OSError):
            self._connection.close()

    @contextmanager
    def transaction(self, define: Callable[[], None] = nothing) -> Iterator[None]:
        with self._errors():
            try:
                define()
                self._connection.begin()
                yield
                self._connection.commit()
            except BaseException:
                with suppress(pymysql.MySQLError, OSError):
                    self._connection.rollback()
                raise
            finally:
                self._turn.give_back()

    def batch(self, define: Callable[[], None]) -> AbstractContextManager[None]:
        return self.transaction(define)

    def about(self, table_id: int) -> AbstractContextManager[None]:
        return nullcontext()  # each statement fails at once

    def by_key(self) -> AbstractContextManager[None]:
        return nullcontext()  # an index that fits is used

    @contextmanager
    def still(self) -> Iterator[None]:
        with self._errors():
            self.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            self.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            try:
                yield
            finally:
                with suppress(pymysql.MySQLError, OSError):
                    self._connection.rollback()

    def alone(self) -> None:
        with self._errors():
            if not self._turn.take():
                raise Retry(f"{self._place}: another session of Tailrace has defined tables for {turns.SECONDS} s")

    def _prepare_turns(self) -> None:
        if self.relation((SCHEMA, turns.TURNS)) is None:
            self.create_schema(SCHEMA)
            self.run(f"CREATE TABLE IF NOT EXISTS {SCHEMA}.{turns.TURNS} (number int PRIMARY KEY) {self._options}")

    def end_left_open(self, copies: Collection[Place]) -> list[str]:
        with self._errors():
            return [] if self.server.product == "mariadb" else left_open.end(self._connection, self._program, copies)

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._errors():
            return execute(self._connection, _filled(statement, values))

    def run(self, statement: str, *values: object) -> int:
        with self._errors():
            return int(self._connection.query(_filled(statement, values)))

    def run_one(self, table: str, assigned: str, where: str, *values: object) -> bool:
        return self.run(f"UPDATE {table} SET {assigned} WHERE {where}", *values) == 1

    def load(self, table: str, columns: Definitions, rows: Iterable[pa.Table]) -> int:
        with self._errors():
            return self._loading.load(table, columns, rows)

    def quote(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def type_of(self, schema: TableSchema, column: Column) -> str:
        own = self._own(schema, column)
        if own is not None:
            return own
        kind = types.type_of(schema, column)
        # A table that was taken over may have another collation.
        text = self._source == "mysql" and kind.startswith(("longtext", "varchar"))
        return f"{kind} CHARACTER SET utf8mb4{types.COLLATE}{self.collation}" if text else kind

    def _own(self, schema: TableSchema, column: Column) -> str | None:
        """The type that it has in the source. Those of a key share its length: all are the source's own, or none is."""
        if self._source != "mysql":
            return None
        columns = schema.key_columns if column.key is not None else (column,)
        if schema.history in ("SoftDelete", "Versions") and any(
            c.key is not None and types.COLLATE in (c.behind or "") for c in columns
        ):
            return None  # a marked or ended row and a live one may have keys that the source's collation takes for one
        kinds = [types.own_type(each) for each in columns]
        return types.own_type(column) if all(kind is not None and self._has(kind) for kind in kinds) else None

    def _word(self, column: Column) -> str:
        """The name of the type that it has in a source of these products; empty: there is none."""
        return types.word(column.behind or "") if self._source == "mysql" else ""

    def _has(self, kind: str) -> bool:
        """MySQL and MariaDB have some types and collations each for themselves."""
        what = types.word(kind)
        since = SINCE.get(what)
        if since is not None:
            return self.server.product in since and self.server.version >= since[self.server.product]
        collation = kind.rpartition(types.COLLATE)[2] if types.COLLATE in kind else ""
        if collation and collation not in self._known:
            charset = kind.rpartition(types.COLLATE)[0].rpartition(" ")[2]
            try:
                execute(self._connection, f"SELECT CONVERT('' USING {charset}){types.COLLATE}{collation}")
            except pymysql.MySQLError as error:
                if error_number(error) not in NO_COLLATION:
                    raise
                self._known[collation] = False
            else:
                self._known[collation] = True
        return self._known.get(collation, True)

    def mark(self, column: Column, kind: str) -> str:
        return f" COMMENT {literal(f'Tailrace {column.id} {self.noted(kind)}')}"

    def noted(self, kind: str) -> str:
        """A comment has 1,024 characters."""
        if len(kind) <= NOTED:
            return kind
        return f"{types.word(kind)} {hashlib.sha256(kind.encode()).hexdigest()}"

    def readable(self, column: Column, alias: str) -> str:
        name = f"{alias}.{self.quote(column.name)}"
        if column.type == "string":
            return f"CONVERT({name} USING utf8mb4)"
        return f"{name} + 0" if self._word(column) == "bit" else name

    def sorting(self, table: str, column: str) -> str:
        return ""  # a copy has no other collation, whoever has created it

    def cast(self, expression: str, kind: str) -> str:
        return expression

    def relation(self, place: Place) -> int | None:
        found = self.rows(
            "SELECT table_comment FROM information_schema.tables WHERE table_schema = %s AND table_name = %s", *place
        )
        return _number(found[0][0]) if found else None

    def relations(self, schemas: Collection[str]) -> dict[Place, int]:
        if not schemas:
            return {}
        names = ", ".join(["%s"] * len(schemas))
        found = self.rows(
            "SELECT table_schema, table_name, table_comment FROM information_schema.tables"
            f" WHERE table_schema IN ({names})",
            *schemas,
        )
        return {(str(schema), str(name)): _number(comment) for schema, name, comment in found}

    def counters(self, tables: Collection[Place]) -> list[Counter]:
        return counters_of(self.rows, self.server, tables)

    def numbering(self, place: Place, column: str) -> str:
        return fit.given(self, place, column, "AUTO_INCREMENT")

    def extras(self, tables: Collection[Place]) -> list[Extra]:
        return extras_of(self.rows, tables)

    def statement(self, extra: Extra, place: Place) -> str:
        if not extra.statement.startswith(CLAUSE):
            return extra.created_at(table(self, place), self.quote(place[0]))
        _, column, clause = extra.statement.split(CLAUSE, 2)
        return fit.given(self, place, column, clause)

    def advance(self, counter: Counter, number: int) -> None:
        self.run(f"ALTER TABLE {table(self, counter.name)} AUTO_INCREMENT = {number}")

    def check_deferred(self, place: Place, *, of_others: bool) -> None:
        return  # foreign keys are switched off, and others do not wait

    def is_undisturbed(self, place: Place, relation: int | None) -> bool:
        if self.relation(place) != relation:
            return False
        found = self.rows(
            "SELECT trigger_name FROM information_schema.triggers"
            " WHERE event_object_schema = %s AND event_object_table = %s",
            *place,
        )
        if found:
            raise TargetRefused(
                f"trigger {found[0][0]} of table {'.'.join(place)} acts on rows that Tailrace writes", "Drop it."
            )
        return True

    def create_schema(self, name: str) -> None:
        if not self.rows("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", name):
            try:
                self.run(f"CREATE DATABASE {self.quote(name)} CHARACTER SET utf8mb4 COLLATE {self.collation}")
            except TargetRefused as error:
                grant = f"GRANT ALL ON {self.quote(name)}.* TO {self.quote(self._user)}"
                raise TargetRefused(error.message, f"Run `{grant}`.") from error

    def drop_schema(self, name: str) -> None:
        left = self.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = %s LIMIT 2", name)
        if {str(row[0]) for row in left} <= ({turns.TURNS} if name == SCHEMA else set()):
            self._turn.give_back()  # else it would wait for its own row
            self.run(f"DROP DATABASE {self.quote(name)}")

    def columns(self, place: Place) -> Mapping[int, tuple[str, str]]:
        found = self.rows(
            "SELECT column_name, column_comment FROM information_schema.columns"
            " WHERE table_schema = %s AND table_name = %s",
            *place,
        )
        marks = ((str(name), _MARK.fullmatch(str(comment))) for name, comment in found)
        return {int(mark[1]): (name, mark[2]) for name, mark in marks if mark}

    def create(
        self, place: Place, definitions: str, note: Callable[[int], None], *, keyed: bool, opened: Definitions
    ) -> None:
        number = secrets.randbits(62) | 1
        note(number)
        comment = literal(f"Tailrace copy {number}")
        defined = ", ".join([definitions, *types.open_index(opened)])
        self.run(f"CREATE TABLE {table(self, place)} ({defined}) {self._options} COMMENT={comment}")

    def misfits(self, place: Place, columns: Sequence[WantedColumn]) -> Iterator[tuple[str, str]]:
        return fit.misfits(self, place, columns, self._options, self._key_asked)

    def adopt(
        self,
        place: Place,
        marks: Mapping[str, str],
        note: Callable[[int], None],
        *,
        keyed: bool,
        opened: Definitions,
    ) -> None:
        number = secrets.randbits(62) | 1
        clauses = [*fit.marking(self, place, marks), *([] if keyed else [f"ADD COLUMN {self.row_key}"])]
        clauses += [f"ADD {index}" for index in types.open_index(opened)]
        note(number)
        comment = literal(f"Tailrace copy {number}")
        # Its columns keep their character sets: those that do not name them have the table's.
        options = "" if self._source == "mysql" else self._options
        self.run(f"ALTER TABLE {table(self, place)} {', '.join(clauses)}, {options} COMMENT={comment}")

    def alter(self, place: Place, change: Alteration, admit: Callable[[], None]) -> None:
        self.alone()
        admit()
        clauses = [f"DROP COLUMN {name}" for name in change.dropped]
        clauses += [f"CHANGE COLUMN {each.old} {each.definition}" for each in change.changed]
        clauses += [f"ADD COLUMN {definition}" for definition in change.added]
        self.run(f"ALTER TABLE {table(self, place)} {', '.join(clauses)}")

    def replace(self, place: Place, by: Place, admit: Callable[[], None]) -> None:
        self.alone()
        new, old, aside = table(self, by), table(self, place), table(self, (SCHEMA, f"{by[1]}_old"))
        if self.relation(by) is not None:
            admit()
            leave_group(self, place)
            away = f"{old} TO {aside}, " if self.relation(place) is not None else ""
            self.run(f"RENAME TABLE {away}{new} TO {old}")
        self.run(f"DROP TABLE IF EXISTS {aside}")

    def settle(self, where: Place, relation: int, stored: str) -> bool:
        return False  # a statement ends with its session, and waits for the locks of others

    def temporary(self, name: str, columns: str, key: Sequence[str] = ()) -> str:
        index = f", KEY ({', '.join(key)})" if key else ""
        self.run(f"CREATE TEMPORARY TABLE {SCHEMA}.{name} ({columns}{index}{self._key_asked}) {self._options}")
        return f"{SCHEMA}.{name}"

    def drop_temporary(self, table: str) -> None:
        self.run(f"DROP TEMPORARY TABLE {table}")

    def listed(self, columns: Definitions, rows: pa.Table) -> str | None:
        return None

    def unlogged(self, table: str, columns: str) -> None:
        self.run(f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({NUMBER})) {self._options}")

    def delete(self, table: str, where: str) -> None:
        self._delete(f"{table} t WHERE {where}")

    def delete_using(self, table: str, using: str, on: str, within: str = "") -> None:
        self._delete(f"{using} u STRAIGHT_JOIN {table} t ON {both(on, within)}")

    def _delete(self, source: str) -> None:
        self._select_any()
        self.run(f"DELETE t FROM {source}")

    def _select_any(self) -> None:
        """Each name says its database, but deleting by an alias and columns with expressions ask for a selected one."""
        self.run(f"USE {SCHEMA}")

    def update_from(self, table: str, values: Mapping[str, str], using: str, on: str) -> None:
        assigned = ", ".join(f"t.{name} = {value}" for name, value in values.items())
        self.run(f"UPDATE {table} t JOIN {using} ON {on} SET {assigned}")

    def discard_unfinished(self, place: Place) -> None:
        return  # nothing is beside it

    def unmoved(self, schema: TableSchema) -> dict[str, str]:
        """Times that an UPDATE does not name become the present one where the column has ON UPDATE CURRENT_TIMESTAMP,
        which older servers give by themselves."""
        kinds = ((self.quote(c.name), types.word(self.type_of(schema, c))) for c in schema.columns)
        return {name: f"t.{name}" for name, kind in kinds if kind in MOVED}

    def bit(self, bits: str, number: int) -> str:
        return f"(ASCII(SUBSTRING({bits}, {number // 8 + 1}, 1)) >> {number % 8}) & 1 = 1"

    def wanted(self, name: str, schema: TableSchema, columns: str) -> str:
        self._select_any()
        return self.temporary(name, f"{columns}, {HASH} int unsigned AS ({self._hash(schema)}) STORED", (HASH,))

    def _hash(self, schema: TableSchema, alias: str = "") -> str:
        """Rows that are alike have the same; an index finds them by it."""
        sums = ", ".join(f"CRC32({alias}{self.quote(column.name)})" for column in schema.columns)
        return f"CRC32(CONCAT_WS(',', {sums}))"

    def alike(self, schema: TableSchema) -> str:
        return " AND ".join([f"w.{HASH} = {self._hash(schema, 't.')}", *map(self.same, schema.columns)])

    def same(self, column: Column) -> str:
        name = self.quote(column.name)
        same = f"t.{name} <=> w.{name}"
        if column.type.startswith("float"):  # 0.0 and -0.0 are equal
            same += f" AND CAST(t.{name} AS CHAR) <=> CAST(w.{name} AS CHAR)"
        kind = self._word(column)
        if kind == "json":  # so are 1 and 1.0
            return f"CAST(t.{name} AS CHAR) <=> CAST(w.{name} AS CHAR)"
        if kind and column.type in ("string", "binary") and kind not in TEMPORAL:
            # Collations have equal texts.
            return f"CAST(t.{name} AS BINARY) <=> CAST(w.{name} AS BINARY)"
        return same

    def written(self, schema: TableSchema, alias: str) -> str:
        # The text of a FLOAT has six digits.
        names = (
            f"CAST({alias}.{self.quote(c.name)} AS DOUBLE)" if c.type == "float32" else f"{alias}.{self.quote(c.name)}"
            for c in schema.columns
        )
        return f"CONCAT_WS(',', {', '.join(f'COALESCE(HEX(CAST({name} AS BINARY)), 0x6e)' for name in names)})"

    def digest(self, text: str) -> str:
        return f"LEFT(SHA2({text}, 256), 32)"

    def delete_some(self, table: str, wanted: str, on: str) -> None:
        numbered = f"row_number() OVER (PARTITION BY w.{NUMBER})"
        found = f"SELECT t.{ROW} AS place, {numbered} AS number, w.{COUNT} AS wanted FROM {table} t"
        found = f"SELECT f.place FROM ({found} STRAIGHT_JOIN {wanted} w ON {on}) f WHERE f.number <= f.wanted"
        self._delete(f"{table} t JOIN ({found}) g ON g.place = t.{ROW}")

    def _errors(self) -> Any:
        return database_errors(self._place, "target")


def _number(comment: object) -> int:
    """The number of a copy by its comment; 0: the table is none."""
    ours = _COPY.fullmatch(str(comment))
    return int(ours[1]) if ours else 0


def _filled(statement: str, values: Sequence[object]) -> str:
    return statement % tuple(map(literal, values)) if values else statement
