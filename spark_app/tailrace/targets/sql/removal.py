"""The removal of whole tables from a database: the row of `_tailrace.tables` is the proof of the owner.

Made by each product, called by `removal.data`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from tailrace.errors import TargetRefused
from tailrace.targets.api import Admit, TableName, TableOwner
from tailrace.targets.sql import staged, state
from tailrace.targets.sql.session import Place, TargetSession, TargetSessions, nothing, table
from tailrace.targets.sql.state import SCHEMA, StoredCopy


@dataclass(frozen=True)
class SqlRemoval:
    """See `targets.api.TargetRemoval`."""

    sessions: TargetSessions
    place: str
    at: Callable[[TableName], Place]
    """The place of a table's copy."""

    def location(self, name: TableName) -> str:
        return f"table {'.'.join(self.at(name))} in {self.place}"

    @cached_property
    def _is_absent(self) -> bool:
        """True if the database itself is gone."""
        try:
            with self.sessions.session():
                return False
        except TargetRefused as error:
            if error.absent:
                return True
            raise

    def exists(self, name: TableName) -> bool:
        if self._is_absent:
            return False
        with self.sessions.session() as session:
            return session.relation(self.at(name)) is not None or bool(_copies(session, self.at(name)))

    def in_catalog(self, name: TableName) -> bool:
        return True

    def owner(self, name: TableName) -> TableOwner | None:
        if self._is_absent:
            return None
        with self.sessions.session() as session:
            copies = list(_copies(session, self.at(name)).values())
            if not copies:
                return None
            copy = copies[0]
            altered = session.relation(copy.where) not in (None, *(each.relation for each in copies))
            return TableOwner(copy.applied.log_id, copy.applied.table_id, copy.applied.generation, altered)

    def drop(self, name: TableName, admit: Admit | None = None) -> None:
        with self._prepared() as session:
            if session is None:
                return
            with session.transaction():
                copies = state.settled_copies(session, self.at(name), admit or nothing)
            for copy in copies.values():
                for path in staged.staged_paths(session, copy.applied.log_id, copy.applied.table_id):
                    if admit is not None:
                        admit()
                    staged.drop(session, [path])  # thousands are too many for one transaction
                with session.transaction():
                    if admit is not None:
                        admit()
                    session.discard_unfinished(copy.where)
                    if session.relation(copy.where) == copy.relation:  # else somebody has put another table there
                        session.run(f"DROP TABLE {table(session, copy.where)}")
                    state.remove(session, copy)

    def finish(self, log_id: str) -> None:
        """Tailrace's own schema goes with the last copy."""
        with self._prepared() as session:
            if session is not None:
                with session.transaction():
                    self._finish(session)

    @contextmanager
    def _prepared(self) -> Iterator[TargetSession | None]:
        """None: Tailrace has nothing there."""
        if self._is_absent:
            yield None
            return
        with self.sessions.session() as session:
            if not state.has_copies(session):
                yield None
                return
            state.prepare(session)
            yield session

    def _finish(self, session: TargetSession) -> None:
        session.alone()
        if state.has_copies(session):
            session.run(f"DELETE FROM {SCHEMA}.logs WHERE log_id NOT IN (SELECT log_id FROM {SCHEMA}.tables)")
            if session.rows(f"SELECT 1 FROM {SCHEMA}.tables LIMIT 1"):
                return
            if session.rows(f"SELECT 1 FROM {SCHEMA}.handovers LIMIT 1"):
                return  # they keep their drivers from beginning again
            left = session.rows(f"SELECT path FROM {SCHEMA}.chunks")
            staged.drop(session, [str(path) for (path,) in left])
            for name in sorted(
                state.tables(session), key="tables".__eq__
            ):  # last: it tells that there is something to drop
                session.run(f"DROP TABLE {SCHEMA}.{name}")
            session.drop_schema(SCHEMA)


def _copies(session: TargetSession, place: Place) -> dict[bool, StoredCopy]:
    return state.copies_at(session, place) if state.has_copies(session) else {}
