"""BigQuery as a target: where its tables are, and how it is reached."""

import os
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.contract import resources
from tailrace.errors import TableStop
from tailrace.targets.bigquery import names, types
from tailrace.targets.bigquery.rest import BigQueryConfig
from tailrace.targets.bigquery.session import BigQuerySession
from tailrace.targets.bigquery.tables import DESCRIPTION_CHARACTERS, CopyTable
from tailrace.targets.sql.described import CopyColumn
from tailrace.targets.sql.pool import SessionPool
from tailrace.targets.sql.warehouse import WarehouseTarget

MOST_TABLES = 90
"""A transaction changes 100 tables at most; some of a batch's are Tailrace's own."""
KEY = "serviceAccountKey"
"""The key of a Secret."""


class BigQueryTarget(WarehouseTarget):
    """See `targets.api.Target`."""

    schema_word = "data set"
    product, most_tables = "BigQuery", MOST_TABLES

    def __init__(
        self, spec: resources.TargetSpec, source: str = "", environment: Mapping[str, str] = os.environ
    ) -> None:
        super().__init__(spec, source, environment)
        assert spec.bigquery is not None
        of = spec.bigquery
        self._into = of.dataset
        key = None if spec.credentials is None else self._secret(spec.credentials, KEY)
        self._config = BigQueryConfig(of.project, of.dataset, of.location, of.endpoint, key)

    @override
    def _session(self) -> BigQuerySession:
        return BigQuerySession(self._config)

    @override
    def shown(self, schema: TableSchema) -> TableSchema:
        self._require_shape(schema)
        shown = [column.model_copy(update={"name": names.written(column.name)}) for column in schema.columns]
        _require_names(schema, shown)
        return schema.model_copy(update={"columns": tuple(shown)})

    @override
    def _sessions(self, source: str) -> SessionPool:
        return SessionPool(partial(BigQuerySession, self._config))


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
