"""PostgreSQL as a target: where its tables are, and how it is reached. Opened by the registry, `tailrace.targets`."""

from collections.abc import Sequence
from contextlib import closing
from functools import partial

from typing_extensions import override

from tailrace.changelog.records.terms import TableSchema
from tailrace.databases.postgresql.connect import DATABASE, PgConfig
from tailrace.errors import TableStop, TargetRefused
from tailrace.targets.api import Obstacle
from tailrace.targets.postgresql.examination import TargetExamination
from tailrace.targets.postgresql.session import PgTargetSession
from tailrace.targets.sql.obstacles import merged
from tailrace.targets.sql.pool import SessionPool
from tailrace.targets.sql.target import SqlTarget

OLDEST = 140000
NAME_BYTES = 63
SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
"""Names that PostgreSQL keeps for itself."""


class PgTarget(SqlTarget):
    """See `targets.api.Target`."""

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
        with closing(PgTargetSession(self._config(), self._source, keeps_rows=self._keeps_rows)) as session:
            looked = TargetExamination(session, self._server.username, log_id, self._adopts)
            places = self._places(schemas)
            return [*merged(places), *looked.obstacles(places)]

    @override
    def shown(self, schema: TableSchema) -> TableSchema:
        columns = (("column", column.name) for column in schema.columns)
        for what, name in [("schema", self._into or schema.schema_name), ("table", schema.table_name), *columns]:
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

    @override
    def _sessions(self, source: str) -> SessionPool:
        return SessionPool(partial(PgTargetSession, self._config(), source, keeps_rows=self._keeps_rows))
