"""The end of copies in a database that become the tables which programs write to. Called by a cutover.

Whoever brings copies forward proves by their rows in `_tailrace.tables` that they are his. These rows go in the
transaction that writes the report: a driver that was about to commit finds none and reads again, and then finds the
report."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tailrace.databases.counters import Counter
from tailrace.errors import CutOver, Retry, TargetRefused
from tailrace.targets.api import TableName
from tailrace.targets.sql import staged, state
from tailrace.targets.sql.session import Place, TargetSession, TargetSessions
from tailrace.targets.sql.state import SCHEMA


def report_of(session: TargetSession, log_id: str) -> str | None:
    if session.relation((SCHEMA, "handovers")) is None:
        return None
    found = session.rows(f"SELECT report FROM {SCHEMA}.handovers WHERE log_id = %s", log_id)
    return str(found[0][0]) if found else None


def refuse(session: TargetSession, log_id: str) -> None:
    if report_of(session, log_id) is not None:
        raise CutOver("a cutover has ended the replication into these tables")


def log_of(session: TargetSession, place: Place) -> str | None:
    """The change log whose cutover has handed the table over to programs; None: none has."""
    if session.relation((SCHEMA, "handed_over")) is None:
        return None
    statement = f"SELECT log_id FROM {SCHEMA}.handed_over WHERE place_schema = %s AND place_name = %s LIMIT 1"
    found = session.rows(statement, *place)
    return str(found[0][0]) if found else None


def is_any(session: TargetSession) -> bool:
    """True if tables of this database may be those of programs: also where nobody can tell."""
    try:
        there = session.relation((SCHEMA, "handovers")) is not None
        return there and bool(session.rows(f"SELECT 1 FROM {SCHEMA}.handovers LIMIT 1"))
    except TargetRefused:
        return True


@dataclass(frozen=True)
class SqlHandover:
    """See `targets.api.Handover`."""

    sessions: TargetSessions
    at: Callable[[TableName], Place]
    """The place of a table's copy."""

    def done(self, log_id: str) -> str | None:
        with self.sessions.session() as session:
            return report_of(session, log_id)

    def lacking(self, counters: Sequence[Counter]) -> list[tuple[str, str]]:
        with self.sessions.session() as session:
            return list(self._lacking(session, counters))

    def _lacking(self, session: TargetSession, counters: Sequence[Counter]) -> Iterator[tuple[str, str]]:
        for wanted, there in self._paired(session, counters):
            if there is not None:
                continue
            if wanted.column is None:
                place = self.at(wanted.name)
                name = f"{session.quote(place[0])}.{session.quote(place[1])}"
                yield f"the target lacks sequence {'.'.join(place)}", f"Run `CREATE SEQUENCE {name}` there."
            else:
                place, column = self.at(wanted.column[0]), wanted.column[1]
                what = f"column {column!r} of {'.'.join(place)} in the target gets no numbers, as in the source"
                yield what, f"Run `{session.numbering(place, column)}`."

    def _paired(self, session: TargetSession, counters: Sequence[Counter]) -> Iterator[tuple[Counter, Counter | None]]:
        """Counters of the source, each with the copy's."""
        tables = {self.at(counter.column[0] if counter.column else counter.name) for counter in counters}
        found = session.counters(tables) if tables else ()
        columns = {(other.column[0], other.column[1]): other for other in found if other.column is not None}
        alone = {other.name: other for other in found}
        for counter in counters:
            if counter.column is None:
                yield counter, alone.get(self.at(counter.name))
            else:
                yield counter, columns.get((self.at(counter.column[0]), counter.column[1]))

    def advance(self, counters: Sequence[Counter]) -> list[Counter]:
        after = []
        with self.sessions.session() as session:
            for wanted, there in self._paired(session, counters):
                if there is not None and there.is_behind(wanted):
                    session.advance(there, wanted.next)
                    after.append(replace(there, next=wanted.next))
                elif there is not None:
                    after.append(there)
        return after

    def finish(self, log_id: str, report: str) -> None:
        with self.sessions.session() as session:
            state.prepare(session)
            with session.transaction():
                mine = f"FROM {SCHEMA}.tables WHERE log_id = %s"
                for hidden, *place in session.rows(
                    f"SELECT hidden, place_schema, place_name {mine} FOR UPDATE", log_id
                ):
                    if hidden:
                        raise Retry(f"table {'.'.join(map(str, place))} of the target is being replaced")
                session.run(f"INSERT INTO {SCHEMA}.handovers (log_id, report) VALUES (%s, %s)", log_id, report)
                session.run(
                    f"INSERT INTO {SCHEMA}.handed_over (place_schema, place_name, log_id)"
                    f" SELECT place_schema, place_name, log_id {mine}",
                    log_id,
                )
                session.run(f"DELETE {mine}", log_id)
                session.run(f"DELETE FROM {SCHEMA}.logs WHERE log_id = %s", log_id)
            _tidy(session, log_id)

    def tidy(self, log_id: str) -> None:
        with self.sessions.session() as session:
            _tidy(session, log_id)


def _tidy(session: TargetSession, log_id: str) -> None:
    """Dying before leaves what the next cutover finds."""
    left = session.rows(f"SELECT path FROM {SCHEMA}.chunks WHERE log_id = %s", log_id)
    if left:
        staged.drop(session, [str(path) for (path,) in left])
