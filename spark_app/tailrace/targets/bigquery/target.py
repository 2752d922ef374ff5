"""BigQuery as a target: where its tables are, and how it is reached."""

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from types import MappingProxyType
from typing import Any

from typing_extensions import override

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.contract import resources
from tailrace.errors import TableStop, TargetRefused
from tailrace.targets.api import Obstacle, Runtime
from tailrace.targets.bigquery import names, types
from tailrace.targets.bigquery.rest import BigQueryConfig
from tailrace.targets.bigquery.session import BigQuerySession
from tailrace.targets.bigquery.tables import DESCRIPTION_CHARACTERS, CopyColumn, CopyTable
from tailrace.targets.sql import state
from tailrace.targets.sql.obstacles import in_the_way, merged, owners
from tailrace.targets.sql.pool import SessionPool
from tailrace.targets.sql.target import SqlTarget
from tailrace.targets.sql.unit import SqlUnits

MOST_TABLES = 90
"""A transaction changes 100 tables at most; some of a batch's are Tailrace's own."""
KEY = "serviceAccountKey"
"""The key of a Secret."""
NOT_IN_SCRIPTS = "which BigQuery as a target cannot bring forward: nothing that a batch has changed can be read in it"


class BigQueryUnits(SqlUnits):
    """Each change log has its own data set: two would change the same state's tables, and abort each other."""

    @override
    def require_other_database(self, session: Any, log_id: str) -> None:
        if state.has_copies(session):
            _require_alone(session, log_id)


def _require_alone(session: Any, log_id: str) -> None:
    others = session.rows(f"SELECT DISTINCT log_id FROM {state.SCHEMA}.tables WHERE log_id <> %s", log_id)
    if others:
        raise TargetRefused(
            f"the data set has copies of change log {others[0][0]}",
            "Each Replicator needs a data set for itself: create this one again with another. Or delete the one that"
            " writes here with its data.",
        )


class BigQueryTarget(SqlTarget):
    """See `targets.api.Target`."""

    schema_word = "data set"
    taken: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self, spec: resources.TargetSpec, source: str = "", environment: Mapping[str, str] = os.environ
    ) -> None:
        super().__init__(spec, source, environment)
        assert spec.bigquery is not None
        of = spec.bigquery
        self._into = of.dataset
        credentials = spec.credentials
        key = None if credentials is None else credentials.file
        if credentials is not None and credentials.secret_name is not None:
            if self._secrets is None:
                raise TargetRefused(
                    f"Secret {credentials.secret_name!r} of the target cannot be read outside Kubernetes",
                    "Use credentials.file instead.",
                )
            key = str(self._secrets / credentials.secret_name / KEY)
        self._config = BigQueryConfig(of.project, of.dataset, of.location, of.endpoint, key)

    def examine(self) -> bool:
        with closing(BigQuerySession(self._config)) as session:
            name = f"{state.SCHEMA}.examined_{secrets.token_hex(8)}"
            session.check_datasets()
            made = [schema for schema in (state.SCHEMA, self._config.dataset) if session.lacks_schema(schema)]
            for schema in made:
                session.create_schema(schema)
            session.unlogged(name, "a bigint")
            session.run(f"INSERT INTO {name} (a) VALUES (1)")
            found = session.rows(f"SELECT a FROM {name}")
            session.run(f"DROP TABLE {name}")
            for schema in made:
                session.drop_schema(schema)
        return found == [(1,)]

    def database_id(self) -> None:
        """No source is a database of BigQuery."""

    def obstacles(self, schemas: Sequence[TableSchema], log_id: str | None) -> list[Obstacle]:
        places = self._places(schemas)
        with closing(BigQuerySession(self._config)) as session:
            session.check_datasets()
            known = owners(session)
            if state.has_copies(session):
                _require_alone(session, log_id or "")
            found = [
                one
                for schema, place in places
                for one in in_the_way(session, schema, place, known.get(place), log_id, adopts=False)
            ]
        return [*merged(places), *found]

    @override
    def units(self, run: Runtime) -> BigQueryUnits:
        return BigQueryUnits(self._sessions(run.source), run, self._place_of, merges=True, most_tables=MOST_TABLES)

    @override
    def handover(self) -> None:  # type: ignore[override]  # programs do not write to copies in a warehouse
        return None

    @override
    def shown(self, schema: TableSchema) -> TableSchema:
        _require_shape(schema)
        shown = [column.model_copy(update={"name": names.written(column.name)}) for column in schema.columns]
        _require_names(schema, shown)
        return schema.model_copy(update={"columns": tuple(shown)})

    @override
    def _sessions(self, source: str) -> SessionPool:
        return SessionPool(partial(BigQuerySession, self._config))


def _require_shape(schema: TableSchema) -> None:
    """`TableStop`: what a script that is sent at a batch's end cannot do, and keys that are not equal to themselves."""
    if schema.keyless and schema.history != "Changes":
        raise TableStop(
            schema.name,
            f"the table has no key, {NOT_IN_SCRIPTS}",
            "Give the table a primary key or name one (options[].key), or exclude it; or keep every change"
            " (options[].history: Changes).",
        )
    if schema.history in ("SoftDelete", "Versions"):
        raise TableStop(
            schema.name,
            f"the table has the history {schema.history}, {NOT_IN_SCRIPTS}",
            "Take Current or Changes (options[].history), or another target.",
        )
    floats = [column.name for column in schema.key_columns if types.type_of(column) == "FLOAT64"]
    if floats:
        raise TableStop(
            schema.name,
            f"column {floats[0]!r} of the key is a floating-point number, and BigQuery's NaN equals nothing",
            "Name another key (options[].key), or exclude the table.",
        )


def _require_names(schema: TableSchema, shown: Sequence[Column]) -> None:
    for what, name, most in [
        ("table", names.written(schema.table_name), names.TABLE_CHARACTERS),
        *(("column", column.name, names.COLUMN_CHARACTERS) for column in shown),
    ]:
        if len(name) > most:
            raise TableStop(
                schema.name,
                f"the name of {what} {names.read(name)!r} would be {name}, and BigQuery's have {most} characters",
                f"Rename it in the source, or exclude the {what}.",
            )
    seen: dict[str, str] = {}
    for column in shown:
        other = seen.setdefault(column.name.lower(), column.name)
        if other != column.name:
            raise TableStop(
                schema.name,
                f"columns {names.read(other)!r} and {names.read(column.name)!r} have the same name for BigQuery",
                "Rename one of them in the source, or exclude it.",
            )
    columns = [CopyColumn(column.name, types.type_of(column), column.id) for column in shown]
    copy = CopyTable(2**62, columns, [column.id for column in schema.key_columns])
    if len(columns) > types.MOST_COLUMNS or len(copy.description) > DESCRIPTION_CHARACTERS:
        raise TableStop(
            schema.name,
            f"{len(columns)} columns are more than BigQuery's description of a table can list",
            "Exclude columns (options[].columns), or the table.",
        )
