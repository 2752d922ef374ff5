"""Common part of all products' targets: one server each, and nothing of Spark's."""

import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tailrace.batch.limits import BatchLimits
from tailrace.changelog.records.terms import TableSchema
from tailrace.contract import resources
from tailrace.contract.places import ServerSpec
from tailrace.databases.extras import Extra
from tailrace.errors import TableStop
from tailrace.storage.secret_files import SECRETS_VARIABLE
from tailrace.targets.api import Runtime, SparkNeeds, TableName
from tailrace.targets.sql import handover, state
from tailrace.targets.sql.handover import SqlHandover
from tailrace.targets.sql.obstacles import owners
from tailrace.targets.sql.removal import SqlRemoval
from tailrace.targets.sql.session import Place, TargetSessions
from tailrace.targets.sql.unit import SqlUnits

LIMITS = BatchLimits(rows=200_000, size=64 << 20, chunk_rows=1_000_000, chunks=40)
NO_JARS = SparkNeeds(jars=(), settings={})


class SqlTarget:
    """A part of `targets.api.Target`; products add the rest."""

    limits = LIMITS
    folder = None
    schema_word = "schema"
    """The product's word for what its tables are in."""
    taken: Mapping[str, str] = {state.SCHEMA: "Tailrace's"}
    """Schemas that no copy may be in, and whose they are."""

    def __init__(
        self,
        spec: resources.TargetSpec,
        source: str = "",
        environment: Mapping[str, str] = os.environ,
        *,
        keeps_rows: bool = False,
    ) -> None:
        self._spec = spec
        self._into = spec.schema_name
        """The schema of all copies; None: the source's."""
        self._adopts = spec.adopt
        self._source = source
        self._keeps_rows = keeps_rows
        mounted = environment.get(SECRETS_VARIABLE)
        self._secrets = None if mounted is None else Path(mounted)

    @property
    def _server(self) -> ServerSpec:
        return self._spec.server

    @property
    def place(self) -> str:
        return self._spec.place

    def spark(self) -> SparkNeeds:
        return NO_JARS

    def prepare(self, hadoop: Any) -> None:
        """Nothing of the target is in the JVM."""

    def units(self, run: Runtime) -> SqlUnits:
        merges = self._into is not None
        return SqlUnits(self._sessions(run.source), run, self._place_of, merges=merges, adopts=self._adopts)

    def handover(self) -> SqlHandover:
        return SqlHandover(self._sessions(""), self._at)

    def show_cut(self, log_id: str, name: str, document: Mapping[str, Any] | None) -> None:
        """There are no versions to show."""

    def rewinding(self, run: Runtime) -> None:
        """There are no versions to go back to."""

    def shown_cuts(self, log_id: str) -> tuple[()]:
        return ()

    def removal(self, session: Callable[[], SparkSession]) -> SqlRemoval:
        return SqlRemoval(self._sessions(""), self.place, self._at)

    def lacking(self, names: Collection[TableName], log_id: str) -> list[TableName]:
        with self._sessions("").session() as session:
            if handover.report_of(session, log_id) is not None:
                return []
            known = owners(session)
            there = session.relations({self._at(name)[0] for name in names})
        return [name for name in names if known.get(at := self._at(name)) != (log_id, there.get(at))]

    def lacked(self, extras: Sequence[Extra], schemas: Sequence[TableSchema]) -> dict[str, list[str]]:
        places = {(schema.schema_name, schema.table_name): (schema, place) for schema, place in self._places(schemas)}
        lacked: dict[str, list[str]] = {}
        with self._sessions("").session() as session:
            there = session.relations({place[0] for _, place in places.values()})
            copies = [place for _, place in places.values() if place in there]
            found = {(extra.table, extra.what) for extra in session.extras(copies)}
            for extra in extras:
                schema, place = places.get(extra.table, (None, ("", "")))
                if schema is None or place not in there or (place, extra.what) in found:
                    continue
                statement = session.statement(extra, place)
                if statement and extra.columns <= {column.name for column in schema.columns}:
                    lacked.setdefault(schema.name, []).append(statement)
        return lacked

    def _at(self, name: TableName) -> Place:
        """The place of the copy of a table that was first captured under this name."""
        return (self._into or name[0], name[1])

    def _place_of(self, first: TableSchema) -> Place:
        """The first name stays: a renamed table keeps its place."""
        self.shown(first)
        place = self._at((first.schema_name, first.table_name))
        whose = self.taken.get(place[0])
        if whose is not None:
            what = f"{self.schema_word} {place[0]} is {whose} own in the target"
            fix = (
                "Exclude the table." if self._into is None else "Create another Replicator with another target.schema."
            )
            raise TableStop(first.name, what, fix)
        return place

    def _places(self, schemas: Sequence[TableSchema]) -> list[tuple[TableSchema, Place]]:
        return [(schema, self._at((schema.schema_name, schema.table_name))) for schema in schemas]

    @abstractmethod
    def shown(self, schema: TableSchema) -> TableSchema: ...

    @abstractmethod
    def _sessions(self, source: str) -> TargetSessions:
        """`source`: the product that columns come from; empty: no columns are made."""
