"""Snowflake's `TargetSession`: statements of one connection, rows by PUT to a stage and COPY, definitions before
transactions, as each of them commits.

A transaction begins by changing the fence, the one row that every batch of this schema changes: another driver's
transaction has ended then, and what the next statements see is committed.
"""

import hashlib
import io
import logging
import re
import secrets
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from snowflake.connector import errors
from typing_extensions import override

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.errors import OutcomeUnknown, Retry, TailraceError, TargetRefused
from tailrace.seams import seam
from tailrace.targets.snowflake import policies, types
from tailrace.targets.snowflake.connect import SnowflakeConfig, connect, errors_of
from tailrace.targets.snowflake.refusals import is_refused, not_dropped, of_change
from tailrace.targets.snowflake.tables import EXACT, SnowflakeCopy, literal
from tailrace.targets.snowflake.values import files, selected
from tailrace.targets.sql.collected import CollectedChange, CollectedSession
from tailrace.targets.sql.session import Alteration, Definitions, Place, both
from tailrace.targets.sql.state import SCHEMA

log = logging.getLogger(__name__)

OWN = "_TAILRACE"
"""The end of the name of the schema that holds Tailrace's own tables: each schema of copies has one beside it."""
FENCE = "fence"
FORMAT = "FILE_FORMAT=(TYPE=PARQUET NULL_IF=() TRIM_SPACE=FALSE REPLACE_INVALID_CHARACTERS=FALSE)"
"""Options of COPY: by default, the text `\\N` would be NULL."""
MOST_SHOWN = 10_000
"""Rows that one SHOW answers with at most."""
UNFINISHED = "_tailrace_"
"""The beginning of the names of tables that are about to take a copy's place, beside it."""
_QUOTED = r'"(?:[^"]|"")*"|\'(?:[^\'\\]|\'\'|\\.)*\''
_PLACED = re.compile(rf'{_QUOTED}|(?<![\w$]){SCHEMA}\.(?:"(\w+)"|(\w+))|%s', re.DOTALL)
"""Names in quotes and texts, in which nothing stands for something else; Tailrace's own tables; values."""


class SnowflakeSession(CollectedSession):
    """See `targets.sql.session.TargetSession`."""

    binary, text, name = types.BINARY, types.TEXT, types.TEXT
    product, described = "Snowflake", SnowflakeCopy

    def __init__(self, config: SnowflakeConfig) -> None:
        super().__init__()
        self._config, self._connection = config, connect(config)
        self._stage: str | None = None
        """A temporary stage of this session; None: not made yet."""
        self._is_at_home = False
        """Names without a schema are in Tailrace's own."""

    def close(self) -> None:
        with suppress(errors.Error):
            self._connection.close()

    # ---- statements ----

    @override
    def _commit(self, script: Sequence[CollectedChange]) -> None:
        self._execute("BEGIN")
        try:
            if not self._execute(f"UPDATE {SCHEMA}.{FENCE} SET taken = taken + 1"):
                fence = f"{self._schema(SCHEMA)}.{self.quote(FENCE)}"
                raise TargetRefused(
                    f"{self._config.place}: the row of {fence} is gone",
                    f"Run `INSERT INTO {fence} (taken) SELECT 0`, and leave Tailrace's own tables alone.",
                )
            for change in script:
                with of_change(change):
                    found = self._execute(change.statement, change.values)
                if change.one is not None and found != 1:
                    raise Retry(f"{self._config.place}: another driver has changed the state of a table in the target")
            # Dying here is safe: the next driver waits at the fence until the service has ended this transaction.
            seam("snowflake.before-commit")
        except BaseException:
            with suppress(TailraceError):
                self._execute("ROLLBACK")
            raise
        try:
            self._execute("COMMIT")
        except TailraceError as error:
            raise OutcomeUnknown(f"{self._config.place}: COMMIT failed: {error.message}", error.fix) from error

    @override
    def _run_now(self, statement: str, values: Sequence[object]) -> int:
        return self._execute(statement, values)

    @override
    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with errors_of(self._config), self._connection.cursor() as cursor:
            return list(cursor.execute(*self._asked(statement, values)).fetchall())

    def _execute(self, statement: str, values: Sequence[object] = ()) -> int:
        """The number of rows that it changed."""
        with errors_of(self._config), self._connection.cursor() as cursor:
            cursor.execute(*self._asked(statement, values))
            return int(cursor.rowcount or 0)

    def _asked(self, statement: str, values: Sequence[object]) -> tuple[Any, ...]:
        """Tailrace's own tables are in a schema of another name, under names whose case counts."""

        def placed(found: re.Match[str]) -> str:
            if found[0] == "%s":
                return "?" if values else "%s"
            name = found[1] or found[2]
            return f'{self.quote(SCHEMA)}."{name}"' if name else found[0]

        text = _PLACED.sub(placed, statement)
        return (text, tuple(values)) if values else (text,)

    # ---- rows ----

    @override
    def _files(self, columns: Definitions, rows: Iterable[pa.Table]) -> Iterator[bytes]:
        return files(rows, [kind for _, kind in columns])

    @override
    def _load_file(self, table: str, columns: Definitions, file: bytes) -> None:
        stage = self._own_stage()
        with tempfile.TemporaryDirectory(prefix="tailrace-") as folder:
            path = Path(folder) / f"{secrets.token_hex(8)}.parquet"
            path.write_bytes(file)
            put = f"PUT {literal(path.as_uri())} @{stage}/{path.stem} AUTO_COMPRESS=FALSE OVERWRITE=TRUE"
            self._execute(put)
        names = ", ".join(name for name, _ in columns)
        read = selected([kind for _, kind in columns])
        copy = f"COPY INTO {table} ({names}) FROM (SELECT {read} FROM @{stage}/{path.stem}/) {FORMAT} PURGE=TRUE"
        loaded = sum(int(one.get("rows_loaded") or 0) for one in self._shown(copy))
        rows = pq.read_metadata(io.BytesIO(file)).num_rows
        if loaded != rows:
            raise Retry(f"{self._config.place}: COPY has loaded {loaded} of {rows} rows of a file")

    def _own_stage(self) -> str:
        """Files of a killed driver go with its session."""
        self._be_at_home()
        if self._stage is None:
            stage = f"tailrace_{secrets.token_hex(8)}"
            self._execute(f"CREATE TEMPORARY STAGE {stage}")
            self._stage = stage
        return self._stage

    def _be_at_home(self) -> None:
        if not self._is_at_home:
            self._execute(f"USE SCHEMA {self._schema(SCHEMA)}")
            self._is_at_home = True

    def delete_using(self, table: str, using: str, on: str, within: str = "") -> None:
        self.run(f"DELETE FROM {table} t USING {using} u WHERE {both(on, within)}")

    def bit(self, bits: str, number: int) -> str:
        digit = 2 * (number // 8) + (1 if number % 8 >= 4 else 2)
        with_it = ", ".join(f"'{value:X}'" for value in range(16) if value >> number % 4 & 1)
        return f"SUBSTR(HEX_ENCODE({bits}), {digit}, 1) IN ({with_it})"

    def same(self, column: Column) -> str:
        one, other = (f"{alias}.{self.quote(column.name)}" for alias in "tw")
        return f"{one} IS NOT DISTINCT FROM {other}"

    # ---- names, types ----

    @override
    def quote(self, name: str) -> str:
        return '"' + (self._config.schema + OWN if name == SCHEMA else name).replace('"', '""') + '"'

    @override
    def _read(self, name: str) -> str:
        return name.replace('""', '"')

    def _schema(self, name: str) -> str:
        return f"{self.quote(self._config.database)}.{self.quote(name)}"

    def type_of(self, schema: TableSchema, column: Column) -> str:
        return types.type_of(column)

    # ---- tables ----

    def _comments(self, schema: str, like: str = "") -> dict[str, str]:
        """The comments of tables, without a warehouse. `like`: all that SHOW takes for this name, in any case."""
        return {str(one["name"]): str(one["comment"] or "") for one in self._tables(schema, like)}

    def _tables(self, schema: str, like: str = "") -> list[dict[str, Any]]:
        """The answer of SHOW about tables."""
        found: list[dict[str, Any]] = []
        wanted, after = f" LIKE {literal(like)}" if like and "\\" not in like else "", ""
        while True:
            try:
                shown = self._shown(f"SHOW TABLES{wanted} IN SCHEMA {self._schema(schema)}{after}")
            except TargetRefused as error:
                if error.absent:
                    return []
                raise
            found += shown
            if len(shown) < MOST_SHOWN:
                return found
            after = f" LIMIT {MOST_SHOWN} FROM {literal(str(shown[-1]['name']))}"

    def _told(self, place: Place) -> dict[str, Any]:
        """The answer of SHOW about a table; empty: it is not there."""
        return next((one for one in self._tables(*place) if one["name"] == place[1]), {})

    def _shown(self, statement: str) -> list[dict[str, Any]]:
        with errors_of(self._config), self._connection.cursor() as cursor:
            rows = cursor.execute(*self._asked(statement, ())).fetchall()
            names = [str(column[0]).lower() for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in rows]

    @override
    def _copy(self, place: Place) -> SnowflakeCopy | None:
        return SnowflakeCopy.of_comment(self._comments(*place).get(place[1], ""))

    @override
    def relation(self, place: Place) -> int | None:
        comment = self._comments(*place).get(place[1])
        return None if comment is None else _number(comment)

    def relations(self, schemas: Collection[str]) -> Mapping[Place, int]:
        return {
            (schema, name): _number(comment) for schema in schemas for name, comment in self._comments(schema).items()
        }

    # ---- tables that take the place of copies ----

    @override
    def create(
        self, place: Place, definitions: str, note: Callable[[int], None], *, keyed: bool, opened: Definitions
    ) -> None:
        """Make the table beside the place, and put it there at once: `note` writes the record, and asks whether this
        driver was overtaken. A newer one drops the table, or finds it at its place."""
        copy = SnowflakeCopy.of_definitions(secrets.randbits(62) | 1, definitions)
        self.discard_unfinished(place)
        made = self._table((place[0], _unfinished(place) + secrets.token_hex(8)))
        self._execute(copy.created(made))
        note(copy.number)
        # Dying here is safe: whoever finds the record without its table removes it, and drops what was made.
        with not_dropped():
            self._execute(f"ALTER TABLE {made} RENAME TO {self._table(place)}")

    @override
    def alter(self, place: Place, change: Alteration, admit: Callable[[], None]) -> None:
        self._commit(())
        admit()
        super().alter(place, change, admit)

    @override
    def _alter(self, copy: SnowflakeCopy, place: Place, change: Alteration, admit: Callable[[], None]) -> None:
        (after, values), in_place = copy.altered(change), copy.altering(change)
        if in_place is not None:
            try:
                self._put(place, lambda made: self._clone(made, place, in_place), admit)
                return
            except (Retry, TargetRefused) as error:
                if not is_refused(error):
                    raise
                if policies.is_about_policies(error.__cause__):
                    self.discard_unfinished(place)
                    why = f"has policies that prevent a change of columns: {error.message}"
                    raise self._has_policies(place, why) from error
                log.info("%s: Snowflake does not change the columns in place: %s", place[1], error.message)
        self._require_no_policies(place)
        self._put(place, lambda made: self._fill(made, after, values, place), admit)

    def replace(self, place: Place, by: Place, admit: Callable[[], None]) -> None:
        if by == place:
            return  # else it would be dropped
        copy = self._copy(by)
        if copy is None:
            return
        there = self.relation(place)
        if there != copy.number:
            self._commit(())
            admit()
            if there is not None:
                self._require_no_policies(place)
            self._put(place, lambda made: self._fill(made, copy, copy.names(), by), admit)
        # Dying here is safe: both have the number, and the next driver comes here again.
        self._execute(f"DROP TABLE IF EXISTS {self._table(by)}")

    def _clone(self, made: str, source: Place, actions: Sequence[str]) -> None:
        """Make a table of another one's rows and grants, without reading them, and change it."""
        self._execute(f"CREATE TABLE {made} CLONE {self._table(source)} COPY GRANTS")
        for action in actions:
            self._execute(f"ALTER TABLE {made} {action}")
        if self._told(source).get("automatic_clustering") == "ON":  # which is suspended for each clone
            try:
                self._execute(f"ALTER TABLE {made} RESUME RECLUSTER")
            except (Retry, TargetRefused) as error:
                if isinstance(error, Retry) and error.away:
                    raise
                log.warning("%s is no longer clustered: %s", ".".join(source), error.message)

    def _fill(self, made: str, copy: SnowflakeCopy, values: Sequence[str], source: Place) -> None:
        """Make a table, and write these expressions over another one into it."""
        self._execute(copy.created(made))
        into = f"INSERT INTO {made} ({', '.join(copy.names())})"
        written = self._execute(f"{into} SELECT {', '.join(values)} FROM {self._table(source)}")
        rows = self._told(source).get("rows")
        if rows is not None and int(rows) != written:
            self._execute(f"DROP TABLE IF EXISTS {made}")
            why = f"has {rows} rows, of which a query has found {written}: a policy may hide the others"
            raise self._has_policies(source, why)

    def _require_no_policies(self, place: Place) -> None:
        """`TargetRefused`: the table has policies."""
        names = ", ".join(self._policies(place))
        if names:
            raise self._has_policies(place, f"has policies ({names}), and has to be written again without them")

    def _policies(self, place: Place) -> list[str]:
        table = f"{self._schema(place[0])}.{self.quote(place[1])}"
        return policies.found(self.rows, self.quote(self._config.database), table)

    @override
    def hidden_policies(self) -> TargetRefused | None:
        """Asked for a table of Tailrace's own, which the role owns as it owns the copies. Those of a copy that another
        role owns may be left out of an answer without a word."""
        if self.lacks_schema(SCHEMA):
            return None
        role = self._config.role
        try:
            self._policies((SCHEMA, FENCE))
        except TargetRefused as refused:
            if not refused.absent:  # the schema was made before the first start
                return TargetRefused(refused.message, policies.right_of(role))
        others = policies.owned_by_others(self._tables(self._config.schema), role)
        return None if others is None else TargetRefused(others, policies.as_owner(role))

    def _has_policies(self, place: Place, why: str) -> TargetRefused:
        return policies.refused(f"{self._config.place}: table {'.'.join(place)}", why)

    def _put(self, place: Place, make: Callable[[str], None], admit: Callable[[], None]) -> None:
        """Make a table, whole, and let it take the copy's place at once.

        The transaction before has waited for those of which nobody knows whether they were committed: their rows would
        stay behind. And a driver may be gone while its statement runs on for minutes: if that was the one that changes
        what is at the place, it would end after later batches, and undo them. So what takes long writes a table that
        the next driver drops (`discard_unfinished`), and what changes the place fails without that table."""
        self.discard_unfinished(place)
        there, made = self._table(place), self._table((place[0], _unfinished(place) + secrets.token_hex(8)))
        with not_dropped():
            make(made)
            seam("snowflake.filled")
            admit()
            if self.relation(place) is None:
                self._execute(f"ALTER TABLE {made} RENAME TO {there}")
            else:
                self._execute(f"ALTER TABLE {there} SWAP WITH {made}")
        seam("snowflake.placed")
        self._execute(f"DROP TABLE IF EXISTS {made}")

    def discard_unfinished(self, place: Place) -> None:
        begins = _unfinished(place)
        for name in self._comments(place[0], f"{begins}%"):
            if name.startswith(begins):
                self._execute(f"DROP TABLE IF EXISTS {self._table((place[0], name))}")

    @override
    def check_place(self) -> None:
        found = self._shown(f"SHOW DATABASES LIKE {literal(self._config.database)}")
        if self._config.database not in [one["name"] for one in found]:
            raise TargetRefused(
                f"account {self._config.account} of Snowflake has no database {self._config.database}, or role"
                f" {self._config.role} may not see it",
                f"Correct target.snowflake, or run `CREATE DATABASE {self._config.database}` and"
                f" `GRANT USAGE, CREATE SCHEMA ON DATABASE {self._config.database} TO ROLE {self._config.role}`.",
            )

    def suspended_after(self) -> int | None:
        """Seconds without a statement after which the warehouse is suspended; None: never, or it may not be seen."""
        found = self._shown(f"SHOW WAREHOUSES LIKE {literal(self._config.warehouse)}")
        after = found[0].get("auto_suspend") if found else None
        return int(after) if after else None

    @override
    def lacks_schema(self, name: str) -> bool:
        schema = self.quote(name)[1:-1]
        shown = self._shown(f"SHOW SCHEMAS LIKE {literal(schema)} IN DATABASE {self.quote(self._config.database)}")
        return schema not in [one["name"] for one in shown]

    def create_schema(self, name: str) -> None:
        if self.lacks_schema(name):
            self._execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema(name)} {EXACT}")
            self._is_at_home = False
        if name == SCHEMA:
            self._execute(f"CREATE TABLE IF NOT EXISTS {SCHEMA}.{FENCE} (taken bigint)")
            there = f"SELECT 1 FROM {SCHEMA}.{FENCE}"
            self._execute(f"INSERT INTO {SCHEMA}.{FENCE} (taken) SELECT 0 WHERE NOT EXISTS ({there})")

    def drop_schema(self, name: str) -> None:
        if not self.lacks_schema(name) and not self._comments(name).keys() - {FENCE}:
            self._execute(f"DROP SCHEMA IF EXISTS {self._schema(name)}")
            self._is_at_home, self._stage = False, None

    @override
    def _make_temporary(self, name: str, columns: str) -> str:
        self._be_at_home()
        self._execute(f"CREATE TEMPORARY TABLE {name} ({columns}) {EXACT}")
        return name

    @override
    def _drop_made(self, table: str) -> None:
        self._execute(f"DROP TABLE IF EXISTS {table}")

    def unlogged(self, table: str, columns: str) -> None:
        self._execute(f"CREATE TRANSIENT TABLE {table} ({columns}) {EXACT}")


def _unfinished(place: Place) -> str:
    """The beginning of the names of tables that are about to take this place."""
    return f"{UNFINISHED}{hashlib.sha256(place[1].encode()).hexdigest()[:16]}_"


def _number(comment: str) -> int:
    """The number of a copy; 0: the table is none."""
    copy = SnowflakeCopy.of_comment(comment)
    return 0 if copy is None else copy.number
