"""Common part of warehouses as targets: one schema of copies for each Replicator, and what none of them can bring
forward. Products add how they are reached and their names."""

import secrets
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import Any, Protocol

from typing_extensions import override

from tailrace.changelog.records.terms import TableSchema
from tailrace.contract import resources
from tailrace.errors import Retry, TableStop, TailraceError, TargetRefused
from tailrace.targets.api import Obstacle, Runtime
from tailrace.targets.sql import state
from tailrace.targets.sql.obstacles import in_the_way, merged, owners
from tailrace.targets.sql.pool import PooledSession, SessionPool
from tailrace.targets.sql.session import Place, UnfitColumn
from tailrace.targets.sql.state import StoredCopy
from tailrace.targets.sql.target import SqlTarget
from tailrace.targets.sql.unit import SqlUnits


class WarehouseSession(PooledSession, Protocol):
    def check_place(self) -> None: ...

    def lacks_schema(self, name: str) -> bool: ...

    def hidden_policies(self) -> TargetRefused | None:
        """The refusal to tell the policies that people have put on copies; None: they are told, or there are none."""

    def require_lists(self, place: Place, schema: TableSchema) -> None: ...


class WarehouseUnits(SqlUnits):
    """Each change log has a schema for itself: two would change the same state's tables, and hold each other up."""

    @override
    def require_other_database(self, session: Any, log_id: str) -> None:
        if state.has_copies(session):
            _require_alone(session, log_id)

    @override
    def check_copy(self, session: Any, copy: StoredCopy) -> None:
        _require_lists(session, copy)


def _require_lists(session: WarehouseSession, copy: StoredCopy) -> None:
    try:
        session.require_lists(copy.where, copy.schema)
    except UnfitColumn as error:
        raise error.of(copy.schema.name) from None


def _require_alone(session: Any, log_id: str) -> None:
    others = session.rows(f"SELECT DISTINCT log_id FROM {state.SCHEMA}.tables WHERE log_id <> %s", log_id)
    if others:
        raise TargetRefused(
            f"the target has copies of change log {others[0][0]}",
            "Each Replicator needs a data set or schema for itself: create this one again with another. Or delete the"
            " one that writes here with its data.",
        )


def _of_policies(session: WarehouseSession) -> Iterator[Obstacle]:
    try:
        refused = session.hidden_policies()
    except TailraceError as error:  # what else was found is told all the same
        what = f"whether policies on the copies can be listed is not known: {error.message}"
        yield Obstacle("warn" if isinstance(error, Retry) else "fail", what, error.fix)
        return
    if refused is not None:
        what = "policies on the copies may not be listed: a table that has to be written again would stop, or lose them"
        yield Obstacle("warn", f"{what} ({refused.message})", refused.fix)


class WarehouseTarget(SqlTarget):
    """A part of `targets.api.Target`."""

    taken: Mapping[str, str] = MappingProxyType({})
    product: str
    most_tables: int | None = None
    """Copies that a transaction changes at most; None: any number."""

    @abstractmethod
    def _session(self) -> WarehouseSession: ...

    def _secret(self, credentials: resources.Credentials, key: str) -> str:
        """The path of a file with what the manifest refers to. `key`: of a Secret."""
        if credentials.file is not None:
            return credentials.file
        if self._secrets is None:
            raise TargetRefused(
                f"Secret {credentials.secret_name!r} of the target cannot be read outside Kubernetes",
                "Use credentials.file instead.",
            )
        return str(self._secrets / str(credentials.secret_name) / key)

    def examine(self) -> bool:
        with closing(self._session()) as session:
            name = f"{state.SCHEMA}.examined_{secrets.token_hex(8)}"
            session.check_place()
            made = [schema for schema in (state.SCHEMA, str(self._into)) if session.lacks_schema(schema)]
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
        """No source is a database of a warehouse."""

    def obstacles(self, schemas: Sequence[TableSchema], log_id: str | None) -> list[Obstacle]:
        places = self._places(schemas)
        with closing(self._session()) as session:
            session.check_place()
            known = owners(session)
            if state.has_copies(session):
                _require_alone(session, log_id or "")
            found = [
                one
                for schema, place in places
                for one in in_the_way(session, schema, place, known.get(place), log_id, adopts=False)
            ]
            copied = [(schema, place) for schema, place in places if known.get(place, ("", 0))[0] == log_id]
            lists = [*self._of_lists(schemas), *self._of_copied_lists(session, copied)]
            return [*merged(places), *found, *_of_policies(session), *lists, *self._warnings(session)]

    def _of_lists(self, schemas: Sequence[TableSchema]) -> Iterator[Obstacle]:
        """Warnings of columns with lists that the target may not hold."""
        yield from ()

    def _of_copied_lists(self, session: Any, copied: Sequence[tuple[TableSchema, Place]]) -> Iterator[Obstacle]:
        """Columns with lists for which tables that are copied have to be read again."""
        yield from ()

    def _warnings(self, session: Any) -> Iterator[Obstacle]:
        """Warnings of settings that may cost money later."""
        yield from ()

    @override
    def units(self, run: Runtime) -> WarehouseUnits:
        most = self.most_tables
        sessions = self._sessions(run.source)
        return WarehouseUnits(sessions, run, self._place_of, merges=True, most_tables=most, hands_over=False)

    @override
    def handover(self) -> None:  # type: ignore[override]  # programs do not write to copies in a warehouse
        return None

    @abstractmethod
    @override
    def _sessions(self, source: str) -> SessionPool: ...

    def _require_shape(self, schema: TableSchema) -> None:
        """`TableStop`: what a transaction that is sent at a batch's end cannot do, and keys that are not equal to
        themselves."""
        unread = f"which {self.product} as a target cannot bring forward: nothing that a batch has changed can be read"
        if schema.keyless and schema.history != "Changes":
            raise TableStop(
                schema.name,
                f"the table has no key, {unread} in it",
                "Give the table a primary key or name one (options[].key), or exclude it.",
            )
        if schema.history in ("SoftDelete", "Versions"):
            raise TableStop(
                schema.name,
                f"the table has the history {schema.history}, {unread} in it",
                "Take Current or Changes (options[].history), or another target.",
            )
        floats = [column.name for column in schema.key_columns if column.type in ("float32", "float64")]
        if floats:
            raise TableStop(
                schema.name,
                f"column {floats[0]!r} of the key is a floating-point number, and {self.product} may take NaN for equal"
                " to nothing, or -0.0 for 0.0",
                "Name another key (options[].key), or exclude the table.",
            )
