"""BigQuery's `TargetSession`: statements over its REST interface, rows by load jobs, definitions before transactions.

There is no connection that holds a transaction. What a batch changes is collected, and sent at its end as one script
that is one transaction; it insists on the records that the driver has read, and rolls back otherwise. All else is run
at once, in an order in which dying between two statements leaves what the next driver finds and finishes.
"""

import base64
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace as replaced
from typing import Any, NoReturn

import pyarrow as pa

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.databases.counters import Counter
from tailrace.databases.extras import Extra
from tailrace.errors import TailraceError, TargetRefused
from tailrace.targets.bigquery import names, types
from tailrace.targets.bigquery.rest import CHANGED, BigQueryClient, BigQueryConfig
from tailrace.targets.bigquery.tables import CopyColumn, CopyTable, columns_of, fields, mark
from tailrace.targets.bigquery.tables import names as names_of
from tailrace.targets.bigquery.values import files, literal
from tailrace.targets.sql.session import Alteration, Definitions, Place, WantedColumn, both, nothing, table
from tailrace.targets.sql.state import SCHEMA

OWN = "_tailrace"
"""The end of the name of the data set that holds Tailrace's own tables: each data set of copies has one beside it."""
EXPIRY_SECONDS = 86_400
"""The life of tables for one batch, which is longer than any batch: what a killed driver leaves goes by itself."""
SCRIPT_CHARACTERS = 900_000
"""BigQuery's limit of a statement is 1 MB."""
_OWN_PLACE = re.compile(rf"(?<![\w`])`?{SCHEMA}`?\.(?=[\w`])")
_INTO = re.compile(r"(?:INSERT INTO|UPDATE|DELETE FROM) (\S+)")
_DEFINES = re.compile(r"(?:CREATE|DROP) ")


class BigQuerySession:
    """See `targets.sql.session.TargetSession`."""

    binary, text, name, row_key = "BYTES", types.TEXT, types.TEXT, ""
    keeps_rows = reads_changes = enforces_keys = False
    usable = True

    def __init__(self, config: BigQueryConfig) -> None:
        self._config, self._client = config, BigQueryClient(config)
        self._script: list[str] | None = None
        """Statements of a batch so far; None: there is none."""
        self._temporary: set[str] = set()

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def transaction(self, define: Callable[[], None] = nothing) -> Iterator[None]:
        define()
        yield

    @contextmanager
    def batch(self, define: Callable[[], None]) -> Iterator[None]:
        define()
        self._script = []
        try:
            yield
            if self._script:
                self._client.query(self._whole(self._script))
        finally:
            self._script = None
            for name in list(self._temporary):
                self.drop_temporary(name)

    def _whole(self, script: Sequence[str]) -> str:
        whole = ";\n".join(["BEGIN TRANSACTION", *script, "COMMIT TRANSACTION"])
        if len(whole) > SCRIPT_CHARACTERS:
            raise TargetRefused(
                f"a batch takes a script of {len(whole)} characters, and BigQuery takes {SCRIPT_CHARACTERS}",
                "Divide the tables between two Replicators.",
            )
        return whole

    @contextmanager
    def still(self) -> Iterator[None]:
        yield

    def alone(self) -> None:
        return  # what two create at once is there once

    # ---- statements ----

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return list(self._client.rows(self._run(statement, values)))

    def run(self, statement: str, *values: object) -> int:
        if self._script is not None and not self._is_at_once(statement):
            self._script.append(self._filled(statement, values))
            return 0
        query = self._run(statement, values).get("statistics", {}).get("query", {})
        return int(query.get("numDmlAffectedRows", 0))

    def run_one(self, table: str, assigned: str, where: str, *values: object) -> bool:
        statement = f"UPDATE {table} SET {assigned} WHERE {where}"
        if self._script is None:
            return self.run(statement, *values) == 1
        found = self._filled(f"SELECT count(*) FROM {table} WHERE {where}", values[len(values) - where.count("%s") :])
        self._script.append(f"IF ({found}) <> 1 THEN SELECT ERROR('{CHANGED}'); END IF")
        self.run(statement, *values)
        return True

    def _is_at_once(self, statement: str) -> bool:
        """Definitions, and rows of tables that this batch alone has."""
        into = _INTO.match(statement)
        return bool(_DEFINES.match(statement)) or (into is not None and into[1] in self._temporary)

    def _run(self, statement: str, values: Sequence[object]) -> dict[str, Any]:
        """Long values are parameters: they are in no statement."""
        texts, filled = list[tuple[str, str]](), list[str]()
        for value in values:
            name = f"p{len(texts)}"
            if isinstance(value, str):
                texts.append((name, value))
                filled.append(f"@{name}")
            elif isinstance(value, bytes):
                texts.append((name, base64.b64encode(value).decode()))
                filled.append(f"FROM_BASE64(@{name})")
            else:
                filled.append(literal(value))
        return self._client.query(self._placed(statement) % tuple(filled) if values else self._placed(statement), texts)

    def _filled(self, statement: str, values: Sequence[object]) -> str:
        return self._placed(statement) % tuple(map(literal, values)) if values else self._placed(statement)

    def _placed(self, statement: str) -> str:
        """Tailrace's own tables are in a data set of another name."""
        if statement.startswith("DELETE FROM ") and " WHERE " not in statement:
            statement += " WHERE TRUE"
        return _OWN_PLACE.sub(f"`{self._dataset(SCHEMA)}`.", statement)

    def _dataset(self, schema: str) -> str:
        return self._config.dataset + OWN if schema == SCHEMA else schema

    def load(self, table: str, columns: Definitions, rows: Iterable[pa.Table]) -> int:
        """Into a copy by way of a table for this batch: nothing of it is there before the script's end."""
        staged, size = self._script is not None and table not in self._temporary, 0
        into = table
        for file in files(rows, names_of(columns), [kind for _, kind in columns]):
            if staged and not size:
                into = self.temporary("_tailrace_loaded", ", ".join(f"{name} {kind}" for name, kind in columns))
            schema, _, name = into.partition(".")
            self._client.load(self._dataset(schema.strip("`")), name.strip("`"), file)
            size += len(file)
        if staged and size:
            listed = ", ".join(name for name, _ in columns)
            self.run(f"INSERT INTO {table} ({listed}) SELECT {listed} FROM {into}")
        return size

    # ---- names, types ----

    def quote(self, name: str) -> str:
        return f"`{name if name == SCHEMA else names.written(name)}`"

    def type_of(self, schema: TableSchema, column: Column) -> str:
        return types.type_of(column)

    def mark(self, column: Column, kind: str) -> str:
        return mark(column.id)

    def noted(self, kind: str) -> str:
        return kind

    def readable(self, column: Column, alias: str) -> str:
        return f"{alias}.{self.quote(column.name)}"

    def cast(self, expression: str, kind: str) -> str:
        return f"CAST(NULL AS {kind})" if expression == "NULL" else expression

    # ---- tables ----

    def _copy(self, place: Place) -> CopyTable | None:
        found = self._client.table(self._dataset(place[0]), names.written(place[1]))
        return None if found is None else CopyTable.of_resource(found)

    def relation(self, place: Place) -> int | None:
        found = self._client.table(self._dataset(place[0]), names.written(place[1]))
        return None if found is None else _number(found)

    def relations(self, schemas: Collection[str]) -> dict[Place, int]:
        """Each table is asked for, which costs nothing: lists leave descriptions out."""
        found = {}
        for schema in schemas:
            dataset = self._dataset(schema)
            for name in self._client.tables(dataset):
                there = self._client.table(dataset, name)
                if there is not None:
                    found[schema, names.read(name)] = _number(there)
        return found

    def columns(self, place: Place) -> Mapping[int, tuple[str, str]]:
        copy = self._copy(place)
        return {} if copy is None else {c.id: (names.read(c.name), c.kind) for c in copy.columns}

    def check_datasets(self) -> None:
        """`TargetRefused`: a data set is there, and elsewhere than the manifest says, or lets its tables expire."""
        for dataset in (self._config.dataset, self._dataset(SCHEMA)):
            found = self._client.dataset(dataset)
            if found is not None and str(found["location"]).upper() != self._config.location.upper():
                raise TargetRefused(
                    f"data set {self._config.project}.{dataset} is in {found['location']}, not in"
                    f" {self._config.location}",
                    "Correct target.bigquery.location, or let another Replicator copy into another data set.",
                )
            if found is not None and found.get("defaultTableExpirationMs") is not None:
                raise TargetRefused(
                    f"data set {self._config.project}.{dataset} lets its tables expire",
                    f"Run `ALTER SCHEMA {dataset} SET OPTIONS (default_table_expiration_days = NULL)`.",
                )

    def lacks_schema(self, name: str) -> bool:
        return self._client.dataset(self._dataset(name)) is None

    def create_schema(self, name: str) -> None:
        dataset = self._dataset(name)
        if self.lacks_schema(name):
            reference = {"projectId": self._config.project, "datasetId": dataset}
            made = {"datasetReference": reference, "location": self._config.location}
            self._client.call("POST", "datasets", json=made)

    def drop_schema(self, name: str) -> None:
        dataset = self._dataset(name)
        if self._client.dataset(dataset) is not None and not any(self._client.tables(dataset)):
            self._client.call("DELETE", f"datasets/{dataset}")

    def create(
        self, place: Place, definitions: str, note: Callable[[int], None], *, keyed: bool, opened: Definitions
    ) -> None:
        copy = CopyTable.of_definitions(secrets.randbits(62) | 1, definitions)
        note(copy.number)
        self.run(copy.created(table(self, place)))

    def alter(self, place: Place, change: Alteration, admit: Callable[[], None]) -> None:
        admit()
        copy = self._copy(place)
        if copy is None:
            raise TargetRefused(f"table {'.'.join(place)} of the target is gone, or is no copy", "")
        altered = {each.old: each for each in change.changed}
        columns, values = list[CopyColumn](), list[str]()
        for column in copy.columns:
            name = f"`{column.name}`"
            each = altered.get(name)
            if name not in change.dropped:
                columns += [column] if each is None else columns_of(each.definition)
                values.append(name if each is None or each.kind is None else f"CAST({name} AS {each.kind})")
        for column in columns_of(", ".join(change.added)):
            columns.append(column)
            values.append(f"CAST(NULL AS {column.kind})")
        there = table(self, place)
        self.run(replaced(copy, columns=columns).remade(there, values, there))

    def replace(self, place: Place, by: Place, admit: Callable[[], None]) -> None:
        copy = self._copy(by)
        if copy is not None:
            admit()
            values = [f"`{column.name}`" for column in copy.columns]
            self.run(copy.remade(table(self, place), values, table(self, by)))
            # Dying here is safe: both have the number, and the next driver comes here again.
            self.run(f"DROP TABLE IF EXISTS {table(self, by)}")

    def temporary(self, name: str, columns: str, key: Sequence[str] = ()) -> str:
        made = f"{SCHEMA}.{name.removeprefix('_')}_{secrets.token_hex(8)}"
        self._make(made, columns, {"expirationTime": str(int(time.time() + EXPIRY_SECONDS) * 1000)})
        self._temporary.add(made)
        return made

    def drop_temporary(self, table: str) -> None:
        if self._script is not None:
            return  # the script reads it
        self._temporary.discard(table)
        with suppress(TailraceError):  # it expires
            self._client.call("DELETE", f"datasets/{self._dataset(SCHEMA)}/tables/{table.partition('.')[2]}")

    def unlogged(self, table: str, columns: str) -> None:
        self._make(table, columns, {})

    def _make(self, made: str, columns: str, more: Mapping[str, str]) -> None:
        """Create a table by the interface, which is quicker than a statement, and costs nothing."""
        dataset = self._dataset(SCHEMA)
        name = made.partition(".")[2]
        reference = {"projectId": self._config.project, "datasetId": dataset, "tableId": name}
        table = {"tableReference": reference, "schema": {"fields": fields(columns)}, **more}
        self._client.call("POST", f"datasets/{dataset}/tables", json=table)

    def listed(self, columns: Definitions, rows: pa.Table) -> str | None:
        return None

    # ---- rows ----

    def delete(self, table: str, where: str) -> None:
        self.run(f"DELETE FROM {table} t WHERE {where}")

    def delete_using(self, table: str, using: str, on: str, within: str = "") -> None:
        there = f"EXISTS (SELECT 1 FROM {using} u WHERE {on})"
        self.run(f"DELETE FROM {table} t WHERE {both(there, within)}")

    def update_from(self, table: str, values: Mapping[str, str], using: str, on: str) -> None:
        assigned = ", ".join(f"{name} = {value}" for name, value in values.items())
        self.run(f"UPDATE {table} t SET {assigned} FROM {using} WHERE {on}")

    def unmoved(self, schema: TableSchema) -> dict[str, str]:
        return {}

    def bit(self, bits: str, number: int) -> str:
        digit = 2 * (number // 8) + (1 if number % 8 >= 4 else 2)
        with_it = ", ".join(f"'{value:x}'" for value in range(16) if value >> number % 4 & 1)
        return f"SUBSTR(TO_HEX({bits}), {digit}, 1) IN ({with_it})"

    def same(self, column: Column) -> str:
        one, other = (f"{alias}.{self.quote(column.name)}" for alias in "tw")
        if types.type_of(column) == "FLOAT64":  # 0.0 and -0.0 are equal, and no NaN is
            one, other = (f"CAST({name} AS STRING)" for name in (one, other))
        return f"{one} IS NOT DISTINCT FROM {other}"

    def wanted(self, name: str, schema: TableSchema, columns: str) -> NoReturn:
        raise _needs_key(schema.name)

    def alike(self, schema: TableSchema) -> NoReturn:
        raise _needs_key(schema.name)

    def written(self, schema: TableSchema, alias: str) -> NoReturn:
        raise _needs_key(schema.name)

    def digest(self, text: str) -> NoReturn:
        raise _needs_key(text)

    def delete_some(self, table: str, wanted: str, on: str) -> NoReturn:
        raise _needs_key(table)

    # ---- what BigQuery does not have ----

    def counters(self, tables: Collection[Place]) -> list[Counter]:
        return []

    def numbering(self, place: Place, column: str) -> str:
        return ""

    def extras(self, tables: Collection[Place]) -> list[Extra]:
        return []

    def statement(self, extra: Extra, place: Place) -> str:
        return ""

    def advance(self, counter: Counter, number: int) -> None:
        return

    def check_deferred(self, place: Place, *, of_others: bool) -> None:
        return

    def check_undisturbed(self, place: Place) -> None:
        return

    def misfits(self, place: Place, columns: Sequence[WantedColumn]) -> Iterable[tuple[str, str]]:
        return [("BigQuery's tables are not taken over", "")]

    def adopt(
        self,
        place: Place,
        marks: Mapping[str, str],
        note: Callable[[int], None],
        *,
        keyed: bool,
        opened: Definitions,
    ) -> None:
        raise TargetRefused(f"table {'.'.join(place)} of the target is not taken over", "Rename it.")


def _number(resource: Mapping[str, Any]) -> int:
    """The number of a copy; 0: the table is none."""
    copy = CopyTable.of_resource(resource)
    return 0 if copy is None else copy.number


def _needs_key(what: str) -> TargetRefused:
    return TargetRefused(f"{what}: BigQuery as a target needs a key", "Add a key, or exclude the table.")
