"""PostgreSQL as a target: where its tables are, and how it is reached. Opened by the registry, `tailrace.targets`."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tailrace.batch.limits import BatchLimits
from tailrace.changelog.records.terms import TableSchema
from tailrace.contract import resources
from tailrace.databases.postgresql.connect import DATABASE, PgConfig
from tailrace.errors import TableStop, TargetRefused
from tailrace.storage.secret_files import SECRETS_VARIABLE
from tailrace.targets.api import Obstacle, Runtime, SparkNeeds
from tailrace.targets.postgresql.examination import TargetExamination
from tailrace.targets.postgresql.session import PgTargetSession
from tailrace.targets.sql import state
from tailrace.targets.sql.pool import SessionPool
from tailrace.targets.sql.removal import SqlRemoval
from tailrace.targets.sql.session import Place
from tailrace.targets.sql.unit import SqlUnits

LIMITS = BatchLimits(rows=200_000, size=64 << 20, chunk_rows=1_000_000, chunks=40)
OLDEST = 140000
NAME_BYTES = 63
SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
"""Names that PostgreSQL keeps for itself."""
NO_JARS = SparkNeeds(jars=(), settings={})


class PgTarget:
    """See `targets.api.Target`."""

    limits = LIMITS
    folder = None

    def __init__(self, spec: resources.TargetSpec, environment: Mapping[str, str] = os.environ) -> None:
        self._server = spec.server
        mounted = environment.get(SECRETS_VARIABLE)
        self._secrets = None if mounted is None else Path(mounted)

    @property
    def place(self) -> str:
        return self._server.address

    def _config(self) -> PgConfig:
        return PgConfig.of(self._server, "tailrace target", self._secrets, part="target")

    def examine(self) -> bool:
        with closing(PgTargetSession(self._config(), "")) as session:
            self._require(session)
        return True

    def _require(self, session: PgTargetSession) -> None:
        ((version, standby, may_create, may_stage, encoding),) = session.rows(
            "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),"
            " has_database_privilege(current_database(), 'CREATE') OR to_regnamespace('_tailrace') IS NOT NULL,"
            " has_database_privilege(current_database(), 'TEMPORARY'), current_setting('server_encoding')"
        )
        if version < OLDEST:
            raise TargetRefused(f"{self.place} is PostgreSQL {version // 10000}", "Use PostgreSQL 14 or later.")
        if standby:
            raise TargetRefused(f"{self.place} is a standby, which cannot be written", "Name the primary server.")
        if encoding != "UTF8":
            raise TargetRefused(
                f"{self.place} stores texts as {encoding}", "Use a database with the encoding UTF8 as the target."
            )
        for may, what, right in ((may_create, "schemas", "CREATE"), (may_stage, "temporary tables", "TEMPORARY")):
            if not may:
                grant = f"GRANT {right} ON DATABASE {session.quote(str(self._server.database))}"
                raise TargetRefused(
                    f"{self._server.username} may not create {what} in {self.place}",
                    f"Run `{grant} TO {session.quote(self._server.username)}`.",
                )

    def database_id(self) -> str:
        with closing(PgTargetSession(self._config(), "")) as session:
            return str(session.rows(DATABASE)[0][0])

    def obstacles(self, schemas: Sequence[TableSchema], log_id: str | None) -> list[Obstacle]:
        with closing(PgTargetSession(self._config(), "")) as session:
            looked = TargetExamination(session, self._server.username, log_id)
            return list(looked.obstacles([(schema, (schema.schema_name, schema.table_name)) for schema in schemas]))

    def shown(self, schema: TableSchema) -> TableSchema:
        columns = (("column", column.name) for column in schema.columns)
        for what, name in [("schema", schema.schema_name), ("table", schema.table_name), *columns]:
            if len(name.encode()) > NAME_BYTES:
                raise TableStop(
                    schema.name,
                    f"the name of {what} {name!r} is longer than {NAME_BYTES} bytes, PostgreSQL's limit",
                    f"Rename it in the source, or exclude the {what}.",
                )
        taken = sorted({column.name for column in schema.columns} & SYSTEM_COLUMNS)
        if taken:
            raise TableStop(
                schema.name,
                f"PostgreSQL does not allow a column {taken[0]!r}",
                "Rename it in the source, or exclude the column.",
            )
        return schema

    def spark(self) -> SparkNeeds:
        return NO_JARS

    def prepare(self, context: SparkContext) -> None:
        """Nothing of the target is in the JVM."""

    def units(self, run: Runtime) -> SqlUnits:
        return SqlUnits(self._pool(run.source), run, self._place_of)

    def _place_of(self, first: TableSchema) -> Place:
        """The first name stays: a renamed table keeps its place."""
        self.shown(first)
        if first.schema_name == state.SCHEMA:
            raise TableStop(first.name, f"schema {state.SCHEMA} is Tailrace's own in the target", "Exclude the table.")
        return first.schema_name, first.table_name

    def removal(self, session: Callable[[], SparkSession]) -> SqlRemoval:
        return SqlRemoval(self._pool(""), self.place)

    def _pool(self, source: str) -> SessionPool:
        return SessionPool(partial(PgTargetSession, self._config(), source))
