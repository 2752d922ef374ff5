"""BigQuery's `TargetSession`: statements over its REST interface, rows by load jobs, definitions before transactions.

There is no connection that holds a transaction. What a batch changes is collected, and sent at its end as one script
that is one transaction; it insists on the records that the driver has read, and rolls back otherwise. All else is run
at once, in an order in which dying between two statements leaves what the next driver finds and finishes.
"""

import base64
import logging
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import pyarrow as pa
from typing_extensions import override

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.changelog.types import element_of
from tailrace.errors import Retry, TailraceError, TargetRefused
from tailrace.targets.api import TableFailed
from tailrace.targets.bigquery import names, types
from tailrace.targets.bigquery.begun import RECORDS, begun_by, begun_in, noted, without_begun
from tailrace.targets.bigquery.rest import CHANGED, BigQueryClient, BigQueryConfig, ServiceMessage, new_job_id
from tailrace.targets.bigquery.script import BEGIN, COMMIT, ScriptLine, script_of, table_of_fault
from tailrace.targets.bigquery.tables import CopyTable, fields, protected, require_same_lists
from tailrace.targets.bigquery.tables import names as names_of
from tailrace.targets.bigquery.values import files, listed, literal
from tailrace.targets.sql.collected import NO_COPY, CollectedChange, CollectedSession
from tailrace.targets.sql.described import CopyColumn
from tailrace.targets.sql.session import Alteration, Definitions, Place, both
from tailrace.targets.sql.state import SCHEMA

log = logging.getLogger(__name__)

OWN = "_tailrace"
"""The end of the name of the data set that holds Tailrace's own tables: each data set of copies has one beside it."""
EXPIRY_SECONDS = 86_400
"""The life of tables for one batch, which is longer than any batch: what a killed driver leaves goes by itself."""
SCRIPT_CHARACTERS = 900_000
"""BigQuery's limit of a statement is 1 MB."""
LISTED_ROWS, LISTED_BYTES, LISTED_CHARACTERS = 50, 20_000, 50_000
"""Most of a few rows, which are listed in a statement and need no load job; and characters of their text."""
LISTED_SHARE = SCRIPT_CHARACTERS // 3
"""Characters of a script's statements after which no more rows are listed in it."""
REFUSED = set[tuple[int, str]]()
"""Numbers of copies that BigQuery did not change in place, and the descriptions that they were to get: they are to be
written again. Of this process; one operation of a set each."""
_PASSES = re.compile(rf"{re.escape(CHANGED)}|concurrent update|[Ee]xceeded (?:rate limits|quota)")
"""Words of a fault that refuses no change of columns."""
_OWN_PLACE = re.compile(rf"('(?:[^'\\]|\\.)*')|(?<![\w`])`?{SCHEMA}`?\.(?=[\w`])")
"""A text, or the beginning of the name of one of Tailrace's own tables."""


class BigQuerySession(CollectedSession):
    """See `targets.sql.session.TargetSession`."""

    binary, text, name = "BYTES", types.TEXT, types.TEXT
    product, described = "BigQuery", CopyTable

    def __init__(self, config: BigQueryConfig) -> None:
        super().__init__()
        self._config, self._client = config, BigQueryClient(config)

    def close(self) -> None:
        self._client.close()

    @override
    def _commit(self, script: Sequence[CollectedChange]) -> None:
        lines = [line for change in script for line in self._lines(change)]
        whole = script_of(lines)
        if len(whole) > SCRIPT_CHARACTERS:
            raise TargetRefused(
                f"a batch takes a script of {len(whole)} characters, and BigQuery takes {SCRIPT_CHARACTERS}",
                "Divide the tables between two Replicators.",
            )
        try:
            self._client.change(whole)
        except TailraceError as error:
            about = None if isinstance(error, Retry) and error.away else table_of_fault(str(error.__cause__), lines)
            if about is None:
                raise
            is_gone = isinstance(error, TargetRefused) and error.absent
            raise TableFailed(about, Retry(error.message, NO_COPY) if is_gone else error) from error

    def _lines(self, change: CollectedChange) -> Iterator[ScriptLine]:
        own = change.one is not None or change.table_id is None
        yield from (ScriptLine(text, None if own else change.table_id) for text in self._insisting(change))

    def _insisting(self, change: CollectedChange) -> Iterator[str]:
        """The statement, behind one that fails unless the row is there."""
        one = change.one
        if one is not None:
            found = self._filled(f"SELECT count(*) FROM {one.table} WHERE {one.where}", one.values)
            yield f"IF ({found}) <> 1 THEN SELECT ERROR('{CHANGED}'); END IF"
        yield self._filled(change.statement, change.values)

    # ---- statements ----

    @override
    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return list(self._client.rows(self._client.query(*self._with_parameters(statement, values))))

    @override
    def _run_now(self, statement: str, values: Sequence[object]) -> int:
        job = self._client.change(*self._with_parameters(statement, values))
        return int(job.get("statistics", {}).get("query", {}).get("numDmlAffectedRows", 0))

    def _with_parameters(self, statement: str, values: Sequence[object]) -> tuple[str, list[tuple[str, str]]]:
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
        placed = self._placed(statement)
        return placed % tuple(filled) if values else placed, texts

    def _filled(self, statement: str, values: Sequence[object]) -> str:
        return self._placed(statement) % tuple(map(literal, values)) if values else self._placed(statement)

    def _placed(self, statement: str) -> str:
        """Tailrace's own tables are in a data set of another name."""
        if statement.startswith("DELETE FROM ") and " WHERE " not in statement:
            statement += " WHERE TRUE"
        own = f"`{self._dataset(SCHEMA)}`."
        return _OWN_PLACE.sub(lambda found: found[1] or own, statement)

    def _dataset(self, schema: str) -> str:
        return self._config.dataset + OWN if schema == SCHEMA else schema

    @override
    def _files(self, columns: Definitions, rows: Iterable[pa.Table]) -> Iterator[bytes]:
        return files(rows, names_of(columns), [kind for _, kind in columns])

    @override
    def load(self, table: str, columns: Definitions, rows: Iterable[pa.Table]) -> int:
        """A few rows of a batch go into its script: a load job is the slowest step of a batch, and they are counted."""
        if self._script is None or table in self._temporary:
            return super().load(table, columns, rows)
        some, rest = _if_few(iter(rows))
        values = None if some is None else self.listed(columns, some)
        if some is None or values is None:
            return super().load(table, columns, rest if some is None else (some,))
        into = ", ".join(name for name, _ in columns)
        self.run(f"INSERT INTO {table} ({into}) SELECT {into} FROM {values}")
        return len(values)

    @override
    def listed(self, columns: Definitions, rows: pa.Table) -> str | None:
        if not 0 < rows.num_rows <= LISTED_ROWS or rows.nbytes > LISTED_BYTES:
            return None
        if any(types.element_kind(kind) is not None for _, kind in columns):
            return None
        made = listed(rows, names_of(columns), [kind for _, kind in columns])
        before = sum(len(change.statement) for change in self._script or ())
        return made if len(made) <= min(LISTED_CHARACTERS, LISTED_SHARE - before) else None

    @override
    def _load_file(self, table: str, columns: Definitions, file: bytes) -> None:
        schema, _, name = table.partition(".")
        self._client.load(self._dataset(schema.strip("`")), name.strip("`"), file)

    # ---- names, types ----

    @override
    def quote(self, name: str) -> str:
        return f"`{name if name == SCHEMA else names.written(name)}`"

    def type_of(self, schema: TableSchema, column: Column) -> str:
        return self._kind(column)

    def _kind(self, column: Column) -> str:
        return types.type_of(column, repeated=self._config.repeated)

    # ---- tables ----

    @override
    def _copy(self, place: Place) -> CopyTable | None:
        found = self._client.table(self._dataset(place[0]), names.written(place[1]))
        return None if found is None else CopyTable.of_resource(found)

    @override
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

    @override
    def _read(self, name: str) -> str:
        return names.read(name)

    @override
    def check_place(self) -> None:
        """`TargetRefused`: a data set is there, and elsewhere than the manifest says, or lets its tables expire."""
        for dataset in (self._config.dataset, self._dataset(SCHEMA)):
            found = self._client.dataset(dataset)
            if found is not None and str(found["location"]).upper() != self._config.location.upper():
                raise TargetRefused(
                    f"data set {self._config.project}.{dataset} is in {found['location']}, not in"
                    f" {self._config.location}",
                    "Correct target.bigquery.location (in Kubernetes, create another Replicator), or name another data"
                    " set.",
                )
            if found is not None and found.get("defaultTableExpirationMs") is not None:
                raise TargetRefused(
                    f"data set {self._config.project}.{dataset} lets its tables expire",
                    f"Run `ALTER SCHEMA {dataset} SET OPTIONS (default_table_expiration_days = NULL)`.",
                )

    @override
    def lacks_schema(self, name: str) -> bool:
        return self._client.dataset(self._dataset(name)) is None

    @override
    def hidden_policies(self) -> TargetRefused | None:
        """Asked for an empty table beside the copies. The account owns a data set that it has created."""
        dataset, name = self._config.dataset, f"_tailrace_examined_{secrets.token_hex(8)}"
        if self.lacks_schema(dataset):
            return None
        self._make(f"{dataset}.{name}", "a bigint", _expiring(), dataset)
        try:
            self._client.row_policies(dataset, name)
        except TargetRefused as refused:
            fix = f"Give the account the role BigQuery Data Owner on data set {dataset}."
            return TargetRefused(refused.message, fix)
        finally:
            with suppress(TailraceError):  # it goes by itself
                self._client.call("DELETE", f"datasets/{dataset}/tables/{name}")
        return None

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

    @override
    def _make_temporary(self, name: str, columns: str) -> str:
        made = f"{SCHEMA}.{name}"
        self._make(made, columns, _expiring())
        return made

    @override
    def _drop_made(self, table: str) -> None:
        self._client.call("DELETE", f"datasets/{self._dataset(SCHEMA)}/tables/{table.partition('.')[2]}")

    def unlogged(self, table: str, columns: str) -> None:
        self._make(table, columns, {})

    def _make(self, made: str, columns: str, more: Mapping[str, str], schema: str = SCHEMA) -> None:
        """Create a table by the interface, which is quicker than a statement, and costs nothing."""
        dataset = self._dataset(schema)
        name = made.partition(".")[2]
        reference = {"projectId": self._config.project, "datasetId": dataset, "tableId": name}
        table = {"tableReference": reference, "schema": {"fields": fields(columns)}, **more}
        self._client.call("POST", f"datasets/{dataset}/tables", json=table)

    # ---- definitions whose end may not be seen ----

    @override
    def create(
        self, place: Place, definitions: str, note: Callable[[int], None], *, keyed: bool, opened: Definitions
    ) -> None:
        copy = CopyTable.of_definitions(secrets.randbits(62) | 1, definitions)
        note(copy.number)
        # Dying here is safe: whoever finds the record keeps this job from ever beginning.
        self._client.change(self._placed(copy.created(self._table(place))), job_id=_creation(copy.number))

    @override
    def require_lists(self, place: Place, schema: TableSchema) -> None:
        lists = [column for column in schema.columns if element_of(column.type) is not None]
        copy = self._copy(place) if lists else None
        if copy is not None:
            there = {column.id for column in copy.columns}  # a change of columns may have been interrupted
            wanted = (CopyColumn(names.written(one.name), self._kind(one), one.id) for one in lists if one.id in there)
            require_same_lists(copy, wanted)

    @override
    def _alter(self, copy: CopyTable, place: Place, change: Alteration, admit: Callable[[], None]) -> None:
        there, (after, values) = self._table(place), copy.altered(change)
        require_same_lists(copy, after.columns)
        wanted = copy.number, after.description
        in_place = None if wanted in REFUSED else copy.altering(there, change)
        if in_place is None:
            self._require_no_policies(place)
            self._rewrite(copy, [after.remade(there, values, there)], admit)
            REFUSED.discard(wanted)
            return
        try:
            self._rewrite(copy, in_place, admit)
        except Retry as error:
            if not error.away and _is_refused(error):
                self._require_no_policies(place)
                # The next attempt finds what was changed, and writes the table again.
                log.info("%s: BigQuery does not change the columns in place: %s", place[1], error.message)
                REFUSED.add(wanted)
            raise

    def replace(self, place: Place, by: Place, admit: Callable[[], None]) -> None:
        if by == place:
            return  # else it would be dropped
        copy = self._copy(by)
        if copy is not None:
            self._require_no_policies(place)
            self._rewrite(copy, [copy.remade(self._table(place), copy.names(), self._table(by))], admit)
            # Dying here is safe: both have the number, and the next driver comes here again.
            self.run(f"DROP TABLE IF EXISTS {self._table(by)}")

    def _require_no_policies(self, place: Place) -> None:
        """`TargetRefused`: people have put policies on the table, by which what writes it again reads fewer rows or
        other values, and which it drops."""
        dataset, name = self._dataset(place[0]), names.written(place[1])
        found = self._client.table(dataset, name)
        if found is None:
            return
        columns, policies = protected(found), self._client.row_policies(dataset, name)
        if not columns and not policies:
            return
        told = f"row access policies ({', '.join(policies)})" if policies else ""
        if columns:
            told += f"{' and ' if told else ''}policies of columns ({', '.join(columns)})"
        raise TargetRefused(
            f"{self._config.place}: table {dataset}.{name} has {told}, and has to be written again, which would drop"
            " them, and lose what they hide",
            "Take the table away from its readers, drop the policies, wait until the change has passed, and create the"
            " policies again.",
        )

    def discard_unfinished(self, place: Place) -> None:
        return  # one job changes the place, and its id is in the copy's record

    def _rewrite(self, copy: CopyTable, statements: Sequence[str], admit: Callable[[], None]) -> None:
        """Write a copy's table again, or change its columns. The first ends with the rows which were there when it
        began: so long as the job may run, its id stands in the copy's record, which no batch finds then as it was."""
        found = self.rows(f"SELECT state FROM {RECORDS} WHERE relation = %s", copy.number)
        admit()
        if len(found) != 1:
            raise Retry(f"{self._config.place}: another driver has changed the state of a table in the target")
        (stored,), job_id = found[0], new_job_id()
        begun = begun_by(stored, job_id)
        ended = noted(copy.number, begun, stored)
        last = self._filled(ended.statement, ended.values)
        first = self._insisting(noted(copy.number, stored, begun))
        parts = [BEGIN, *first, COMMIT, *map(self._placed, statements), last]
        try:
            self._client.change(";\n".join(parts), job_id=job_id)
        except TailraceError:
            with suppress(TailraceError):  # else the next driver does it
                self._end(copy.number, begun, job_id)
            raise

    @override
    def settle(self, where: Place, relation: int, stored: str) -> bool:
        job_id = begun_in(stored)
        if job_id is not None:
            self._end(relation, stored, job_id)
        elif self.relation(where) != relation:
            self._client.settle(_creation(relation))
        return job_id is not None

    def _end(self, relation: int, begun: str, job_id: str) -> None:
        """The rewrite is over, or cannot begin any more; the record says so."""
        self._client.settle(job_id)
        change = noted(relation, begun, without_begun(begun))
        self._run_now(change.statement, change.values)

    # ---- rows ----

    def delete_using(self, table: str, using: str, on: str, within: str = "") -> None:
        there = f"EXISTS (SELECT 1 FROM {using} u WHERE {on})"
        self.run(f"DELETE FROM {table} t WHERE {both(there, within)}")

    def bit(self, bits: str, number: int) -> str:
        digit = 2 * (number // 8) + (1 if number % 8 >= 4 else 2)
        with_it = ", ".join(f"'{value:x}'" for value in range(16) if value >> number % 4 & 1)
        return f"SUBSTR(TO_HEX({bits}), {digit}, 1) IN ({with_it})"

    def same(self, column: Column) -> str:
        one, other = (f"{alias}.{self.quote(column.name)}" for alias in "tw")
        kind = self._kind(column)
        element = types.element_kind(kind)
        if kind == "FLOAT64":  # 0.0 and -0.0 are equal, and no NaN is
            one, other = (f"CAST({name} AS STRING)" for name in (one, other))
        elif element is not None:  # no two arrays are equal
            texts = "SELECT CAST(e AS STRING) FROM UNNEST({}) e WITH OFFSET _tailrace_place ORDER BY _tailrace_place"
            one, other = (
                f"TO_JSON_STRING({f'ARRAY({texts.format(name)})' if element == 'FLOAT64' else name})"
                for name in (one, other)
            )
        return f"{one} IS NOT DISTINCT FROM {other}"


def _expiring() -> dict[str, str]:
    """The part of a table's resource by which it goes by itself."""
    return {"expirationTime": str(int(time.time() + EXPIRY_SECONDS) * 1000)}


def _if_few(rows: Iterator[pa.Table]) -> tuple[pa.Table | None, Iterator[pa.Table]]:
    """All rows as one table; None: there are none, or too many, and then they are to be iterated over."""
    parts = list[pa.Table]()
    for part in rows:
        parts.append(part)
        if sum(part.num_rows for part in parts) > LISTED_ROWS:
            return None, chain(parts, rows)
    return pa.concat_tables(parts) if parts else None, iter(())


def _is_refused(error: TailraceError) -> bool:
    """The service does not do what a statement says: neither this process alone nor a passing fault is the reason."""
    cause = error.__cause__
    return isinstance(cause, ServiceMessage) and _PASSES.search(str(cause)) is None


def _creation(number: int) -> str:
    """The id of the job that creates a copy."""
    return f"tailrace_create_{number}"


def _number(resource: Mapping[str, Any]) -> int:
    """The number of a copy; 0: the table is none."""
    copy = CopyTable.of_resource(resource)
    return 0 if copy is None else copy.number
