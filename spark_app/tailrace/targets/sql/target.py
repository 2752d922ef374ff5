"""Common part of all products' targets: one server each, and nothing of Spark's."""

import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tailrace.batch.limits import BatchLimits
from tailrace.changelog.records.terms import TableSchema
from tailrace.contract import resources
from tailrace.errors import TableStop
from tailrace.storage.secret_files import SECRETS_VARIABLE
from tailrace.targets.api import Runtime, SparkNeeds, TableName
from tailrace.targets.sql import state
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

    def __init__(self, spec: resources.TargetSpec, environment: Mapping[str, str] = os.environ) -> None:
        self._server = spec.server
        mounted = environment.get(SECRETS_VARIABLE)
        self._secrets = None if mounted is None else Path(mounted)

    @property
    def place(self) -> str:
        return self._server.address

    def spark(self) -> SparkNeeds:
        return NO_JARS

    def prepare(self, context: SparkContext) -> None:
        """Nothing of the target is in the JVM."""

    def units(self, run: Runtime) -> SqlUnits:
        return SqlUnits(self._sessions(run.source), run, self._place_of)

    def removal(self, session: Callable[[], SparkSession]) -> SqlRemoval:
        return SqlRemoval(self._sessions(""), self.place)

    def lacking(self, names: Collection[TableName], log_id: str) -> list[TableName]:
        with self._sessions("").session() as session:
            known = owners(session)
            there = session.relations({name[0] for name in names})
        return [name for name in names if name not in there or known.get(name) != (log_id, there[name])]

    def _place_of(self, first: TableSchema) -> Place:
        """The first name stays: a renamed table keeps its place."""
        self.shown(first)
        whose = self.taken.get(first.schema_name)
        if whose is not None:
            what = f"{self.schema_word} {first.schema_name} is {whose} own in the target"
            raise TableStop(first.name, what, "Exclude the table.")
        return first.schema_name, first.table_name

    @abstractmethod
    def shown(self, schema: TableSchema) -> TableSchema: ...

    @abstractmethod
    def _sessions(self, source: str) -> TargetSessions:
        """`source`: the product that columns come from; empty: no columns are made."""
