"""The signal table in PostgreSQL's catalog, and its place in the publication. Reads only.

Called by preflight, by the start and by every look at the catalog. Its changes come with the publication of the
captured tables; it is not captured itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import sql

from tailrace.contract.resources import SourceSpec
from tailrace.databases.postgresql.connect import Connection, source_errors
from tailrace.sources.findings import Finding
from tailrace.sources.postgresql.catalog import table_by_oid
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.publication import GENERATED_SINCE, Publication, grant, harmful
from tailrace.sources.signals import COLUMNS, SIGNAL_TABLE, SignalTable, SignalTableFault

_OID = """
SELECT c.oid::int8 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p') AND NOT c.relispartition
"""
_MORE = """
SELECT (SELECT count(*) FROM pg_catalog.pg_attribute a
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '')::int AS columns,
       pg_catalog.pg_has_role(c.relowner, 'USAGE') AS owned,
       (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.oid = c.relowner) AS super,
       c.relreplident = 'f' OR EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND
         CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END) AS identity,
       c.relpersistence = 'p' AS logged, current_user::text AS role
  FROM pg_catalog.pg_class c WHERE c.oid = %s::int8::oid
"""


@dataclass(frozen=True)
class Signals:
    """The table that `source.signalTable` names, as the catalog shows it."""

    name: str
    create: str
    """The statement that creates it."""
    table: PgTable | None = None
    """None: there is no such table."""
    columns: int = 0
    owned: bool = False
    owner_is_superuser: bool = False
    identity: bool = False
    """Its rows can be changed and deleted while it is published."""
    logged: bool = False
    role: str = ""
    """Ours."""


@dataclass(frozen=True)
class SignalMembership:
    """The publication by which its changes come."""

    publication: str
    inside: bool
    """The table is in it."""
    ours: bool
    """Tailrace puts tables into it."""
    version: int
    """server_version_num."""


def look(connection: Connection, source: SourceSpec) -> Signals | None:
    """None: the manifest names no signal table."""
    place = SignalTable.of(source)
    if place is None:
        return None
    quoted = sql.Identifier(*place.place).as_string(None)
    create = f"CREATE TABLE {quoted} (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))"
    with source_errors("looking at the signal table"):
        found = connection.execute(_OID, place.place).fetchone()
        table = None if found is None else table_by_oid(connection, found[0])
        row = None if table is None else connection.execute(_MORE, (table.oid,)).fetchone()
    if row is None:
        return Signals(place.name, create)
    return Signals(place.name, create, table, *row)


def obstacle(signals: Signals, where: SignalMembership) -> Finding | None:
    """Why its rows do not come; None: they do, or will once it is in the publication."""
    table, name, inside, publication = signals.table, signals.name, where.inside, where.publication
    if table is None:
        return _fault(f"the signal table {name} does not exist", f"Run `{signals.create}`.")
    relation = table.relation.as_string(None)
    if not signals.logged:
        return _fault(f"the signal table {name} is not in the log", f"Run `ALTER TABLE {relation} SET LOGGED`.")
    if signals.columns != COLUMNS:
        what = f"the signal table {name} has {signals.columns} columns instead of {COLUMNS}: id, type and data"
        return _fault(what, f"Drop it, then run `{signals.create}`.")
    if not inside and not where.ours:
        add = f"ALTER PUBLICATION {sql.Identifier(publication).as_string(None)} ADD TABLE {relation}"
        return _fault(f"the signal table {name} is not in the publication {publication}", f"Run `{add}`.")
    if not inside and not signals.owned:
        what = f"only the owner of the signal table {name} ({table.owner}) may add it to a publication"
        return _fault(what, grant(table.owner, signals.role, signals.owner_is_superuser))
    if not inside and not signals.identity:
        what = f"the signal table {name} has no primary key: while it is published, its rows cannot be deleted"
        return _fault(what, f"Run `ALTER TABLE {relation} ADD PRIMARY KEY (id)`, with the name of the first column.")
    unfit = harmful(table) if not inside and where.version >= GENERATED_SINCE else None
    return None if unfit is None else _fault(unfit.message, unfit.fix)


def _fault(message: str, fix: str) -> Finding:
    return Finding(SIGNAL_TABLE, "fail", message, fix)


def findings(signals: Signals | None, where: SignalMembership) -> Iterator[Finding]:
    if signals is not None:
        fault = obstacle(signals, where)
        yield fault or Finding(SIGNAL_TABLE, "ok", f"signals are read from {signals.name}")


class SignalPoll:
    """The signal table at the last look at the catalog: nothing that is wrong with it stops the stream."""

    def __init__(self, source: SourceSpec, ours: bool) -> None:
        """`ours`: Tailrace puts tables into the publication."""
        self._source = source
        self._ours = ours
        self._fault = SignalTableFault()
        self._found: Signals | None = None
        self._harmless = False
        self.waits = False
        """It is to be put into the publication."""

    def look(self, connection: Connection, publication: Publication) -> None:
        found = self._found = look(connection, self._source)
        if found is None:
            return
        inside = found.table is not None and bool(publication.membership(found.table))
        version = connection.info.server_version
        fault = obstacle(found, SignalMembership(publication.name, inside, self._ours, version))
        self._fault.found(fault)
        self._harmless = inside or fault is None
        self.waits = self._ours and not inside and fault is None

    @property
    def oid(self) -> int | None:
        return None if self._found is None or self._found.table is None else self._found.table.oid

    @property
    def tables(self) -> list[PgTable]:
        """The table, if it is to be in the publication: it would only do harm there otherwise."""
        table = self._found.table if self._found is not None else None
        return [table] if table is not None and self._harmless else []
