"""MySQL and MariaDB as a target: where its tables are, and how it is reached."""

import secrets
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from types import MappingProxyType

from typing_extensions import override

from tailrace.changelog.records.terms import TableSchema
from tailrace.databases.mysql.connect import SERVER_ID, MyConfig, id_of, replica_status
from tailrace.errors import TableStop, TargetRefused
from tailrace.targets.api import Obstacle
from tailrace.targets.mysql.examination import added
from tailrace.targets.mysql.session import MysqlTargetSession
from tailrace.targets.sql import state
from tailrace.targets.sql.obstacles import in_the_way, merged, owners
from tailrace.targets.sql.pool import SessionPool
from tailrace.targets.sql.target import SqlTarget

OLDEST = {"mysql": (8, 0, 23), "mariadb": (10, 6)}
"""The first ones with columns that `SELECT *` does not show, and with definitions that are changed whole or not."""
_RIGHT = """
SELECT EXISTS (SELECT 1 FROM information_schema.user_privileges
                WHERE grantee = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''') AND privilege_type = %s)
"""
NAMES = {"mysql": "MySQL", "mariadb": "MariaDB"}
NAME_CHARACTERS = 64
OF_THE_SERVER = frozenset({"information_schema", "mysql", "performance_schema", "sys"})


class MysqlTarget(SqlTarget):
    """See `targets.api.Target`."""

    schema_word = "database"
    taken = MappingProxyType({**SqlTarget.taken, **dict.fromkeys(OF_THE_SERVER, "the server's")})

    def _config(self) -> MyConfig:
        return MyConfig.of(self._server, "tailrace target", self._secrets, part="target")

    def examine(self) -> bool:
        session = MysqlTargetSession(self._config())
        try:
            self._require(session)
            self._try(session)
            return True
        finally:
            session.close()

    def _require(self, session: MysqlTargetSession) -> None:
        product, oldest = NAMES[session.server.product], OLDEST[session.server.product]
        if session.server.version < oldest:
            version, first = (".".join(map(str, numbers)) for numbers in (session.server.version, oldest))
            raise TargetRefused(f"{self.place} is {product} {version}", f"Use {product} {first} or later.")
        ((read_only, fold, log, form),) = session.rows(
            "SELECT @@read_only, @@lower_case_table_names, @@log_bin, @@binlog_format"
        )
        if str(read_only) not in ("0", "OFF"):
            self._require_way_back(session)
        if fold:
            raise TargetRefused(
                f"{self.place} does not tell names of tables apart by case (lower_case_table_names is {fold})",
                "Use a server where it is 0 as the target.",
            )
        if log and form == "STATEMENT":
            raise TargetRefused(
                f"{self.place} writes its binary log by statements", "Set binlog_format to ROW or MIXED on the server."
            )

    def _require_way_back(self, session: MysqlTargetSession) -> None:
        """A server that is read-only for programs, after a cutover, may be written by those who have the right to."""
        right = "CONNECTION_ADMIN" if session.server.product == "mysql" else "READ_ONLY ADMIN"
        user = session.quote(self._server.username)
        fix = f"Name the primary server. For the way back of a cutover, run `GRANT {right} ON *.* TO {user}`."
        refused = TargetRefused(f"{self.place} is read only", fix)
        try:
            reads_along = session.rows(replica_status(session.server))
        except TargetRefused:
            raise refused from None
        if reads_along:
            raise TargetRefused(f"{self.place} is a replica, and read only", "Name the primary server.")
        if ("super_read_only", "ON") in session.rows("SHOW VARIABLES LIKE 'super_read_only'"):
            raise TargetRefused(
                f"{self.place} is read only for every user (super_read_only is ON)",
                "Name the primary server. For the way back of a cutover, run `SET GLOBAL super_read_only = OFF` there:"
                " it stays read only for programs.",
            )
        ((granted,),) = session.rows(_RIGHT, right)
        if not granted:
            raise refused

    def _try(self, session: MysqlTargetSession) -> None:
        """Rights are granted in so many ways that only an attempt tells."""
        name = f"{state.SCHEMA}.examined_{secrets.token_hex(8)}"
        try:
            with session.transaction():
                session.alone()
                session.create_schema(state.SCHEMA)
                session.run(f"CREATE TABLE {name} (a int PRIMARY KEY)")
                session.run(f"DROP TABLE {name}")
                session.drop_schema(state.SCHEMA)
        except TargetRefused as error:
            grant = f"GRANT ALL ON *.* TO {session.quote(self._server.username)}"
            raise TargetRefused(str(error), f"Run `{grant}`, or on {state.SCHEMA} and the copies' databases.") from None

    def database_id(self) -> str | None:
        """The server's: its databases are those of the source."""
        with closing(MysqlTargetSession(self._config())) as session:
            return id_of(session.rows(SERVER_ID))

    def obstacles(self, schemas: Sequence[TableSchema], log_id: str | None) -> list[Obstacle]:
        with closing(MysqlTargetSession(self._config(), self._source, keeps_rows=self._keeps_rows)) as session:
            known = owners(session)
            places = self._places(schemas)
            found = [
                one
                for schema, place in places
                for one in in_the_way(session, schema, place, known.get(place), log_id, adopts=self._adopts)
            ]
            copies = {place: schema.name for schema, place in places if known.get(place, ("",))[0] == log_id}
            return [*merged(places), *found, *added(session, copies)]

    @override
    def shown(self, schema: TableSchema) -> TableSchema:
        names = [("schema", self._into or schema.schema_name), ("table", schema.table_name)]
        for what, name in [*names, *(("column", column.name) for column in schema.columns)]:
            if len(name) > NAME_CHARACTERS or name.endswith(" ") or max(name) > "\uffff":
                raise TableStop(
                    schema.name,
                    f"the name of {what} {name!r} is none that MySQL allows: it is longer than {NAME_CHARACTERS}"
                    " characters, ends with a space, or has characters beyond U+FFFF",
                    f"Rename it in the source, or exclude the {what}.",
                )
        seen: dict[str, str] = {}
        for column in schema.columns:
            other = seen.setdefault(column.name.lower(), column.name)
            if other != column.name:
                raise TableStop(
                    schema.name,
                    f"columns {other!r} and {column.name!r} have the same name for MySQL",
                    "Rename one of them in the source, or exclude it.",
                )
        return schema

    @override
    def _sessions(self, source: str) -> SessionPool:
        return SessionPool(partial(MysqlTargetSession, self._config(), source, keeps_rows=self._keeps_rows))
