"""BigQuery as a target: where its tables are, and how it is reached."""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from typing_extensions import override

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.changelog.types import element_of
from tailrace.contract import resources
from tailrace.errors import TableStop
from tailrace.targets.api import Obstacle
from tailrace.targets.bigquery import names, types
from tailrace.targets.bigquery.rest import BigQueryConfig
from tailrace.targets.bigquery.session import BigQuerySession
from tailrace.targets.bigquery.tables import DESCRIPTION_CHARACTERS, CopyTable
from tailrace.targets.bigquery.values import ALSO_NULL
from tailrace.targets.sql import state
from tailrace.targets.sql.described import CopyColumn
from tailrace.targets.sql.pool import SessionPool
from tailrace.targets.sql.session import Place, UnfitColumn
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
        self._repeated = of.lists == "Repeated"
        self._config = BigQueryConfig(of.project, of.dataset, of.location, of.endpoint, key, self._repeated)

    @override
    def _session(self) -> BigQuerySession:
        return BigQuerySession(self._config)

    @override
    def shown(self, schema: TableSchema) -> TableSchema:
        self._require_shape(schema)
        shown = [column.model_copy(update={"name": names.written(column.name)}) for column in schema.columns]
        _require_names(schema, shown)
        if self._repeated and schema.history == "Changes":
            _require_no_lists(schema)
        return schema.model_copy(update={"columns": tuple(shown)})

    @override
    def _of_lists(self, schemas: Sequence[TableSchema]) -> Iterator[Obstacle]:
        for schema in schemas if self._repeated else ():
            names = [c.name for c in schema.columns if c.nullable and element_of(c.type) is not None]
            if names:
                yield Obstacle(
                    "warn",
                    f"column {', '.join(map(repr, names))} may be NULL in the source: the first row in which it is"
                    f" ({ALSO_NULL}) stops the table, as a repeated column has no NULL",
                    "Declare it NOT NULL in the source, or copy it as text: remove it from options[].as.",
                    schema.name,
                )

    @override
    def _of_copied_lists(self, session: Any, copied: Sequence[tuple[TableSchema, Place]]) -> Iterator[Obstacle]:
        for schema, place in copied:
            lists = {column.name for column in schema.columns if element_of(column.type) is not None}
            copies = state.copies_at(session, place) if lists else {}
            copy = copies.get(True, copies.get(False))
            try:
                if copy is not None:
                    session.require_lists(copy.where, copy.schema)
            except UnfitColumn as error:
                if error.column in lists:  # else the table starts over, as options[].as has changed
                    stop = error.of(schema.name)
                    yield Obstacle("fail", stop.message, stop.fix, schema.name)

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


def _require_no_lists(schema: TableSchema) -> None:
    """`TableStop`: a deletion has only its key, and is a row where each change is one."""
    for column in schema.columns:
        if element_of(column.type) is not None:
            raise TableStop(
                schema.name,
                f"column {column.name!r} is a list, and target.bigquery.lists has repeated columns, which have no NULL"
                " for the rows of deletions that the history Changes keeps",
                "Copy it as text (options[].as), or leave it out (options[].columns).",
            )
