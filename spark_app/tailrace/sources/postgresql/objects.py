"""The SQL of capture towards the source: identity, slot, publication, edge, markers.

Every function is one or a few statements on capture's own SQL connection (never the log connection).
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from tailrace.changelog.records.terms import Position
from tailrace.databases.postgresql.connect import Connection, PgConfig, connect, source_errors
from tailrace.errors import ReadRefused, SourceRefused, TableStop
from tailrace.sources.api import Distance
from tailrace.sources.postgresql import locks
from tailrace.sources.postgresql.log.assembler import MARKER_PREFIX
from tailrace.sources.postgresql.log.connection import lsn_value
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.publication import GENERATED_SINCE, grant, harmful
from tailrace.sources.postgresql.relations import CatalogHorizon

PLUGIN = "pgoutput"
LOCK_WAIT, AUTOVACUUM_WAIT, LONGEST_WAIT = 100, 1300, 1.0
"""Milliseconds for one lock, and for that of one table in turn: an autovacuum gives way to a session that has waited
for deadlock_timeout (1 s by default). Seconds for the locks of one look. Meanwhile the log is not read."""


@dataclass(frozen=True)
class ServerIdentity:
    """The identity of the source."""

    system_identifier: str
    timeline: int
    database: str
    insert_position: Position


@dataclass(frozen=True)
class Slot:
    """The slot as pg_replication_slots shows it."""

    plugin: str
    database: str
    confirmed: Position | None
    wal_status: str | None
    """lost: the log behind it is gone."""


def identify(connection: Connection) -> ServerIdentity:
    with source_errors("asking the source for its identity"):
        row = connection.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone()
        if row is not None and row[0]:
            raise SourceRefused("the source is a standby", "Connect to the primary; chunks need its snapshots.")
        row = connection.execute(
            "SELECT s.system_identifier::text, pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()),"
            " current_database(), pg_catalog.pg_current_wal_insert_lsn()::text FROM pg_catalog.pg_control_system() s"
        ).fetchone()
    assert row is not None
    # The first eight digits of a segment's name are the timeline that is being written now.
    return ServerIdentity(row[0], int(row[1][:8], 16), row[2], lsn_value(row[3]))


def find_slot(connection: Connection, name: str) -> Slot | None:
    with source_errors(f"looking at slot {name!r}"):
        row = connection.execute(
            "SELECT plugin::text, database::text, confirmed_flush_lsn::text, wal_status"
            " FROM pg_catalog.pg_replication_slots WHERE slot_name = %s",
            (name,),
        ).fetchone()
    if row is None:
        return None
    return Slot(row[0] or "", row[1] or "", lsn_value(row[2]) if row[2] else None, row[3])


def oldest_undecided(connection: Connection, name: str) -> CatalogHorizon | None:
    """Older transactions that wrote the catalog had ended before the place from which the slot sends. None: the slot
    does not say."""
    with source_errors(f"looking at slot {name!r}"):
        row = connection.execute(
            "SELECT catalog_xmin::text,"
            "       pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()) - pg_catalog.age(catalog_xmin)"
            "  FROM pg_catalog.pg_replication_slots WHERE slot_name = %s AND catalog_xmin IS NOT NULL",
            (name,),
        ).fetchone()
    return None if row is None else CatalogHorizon(*row)


class SlotExists(Exception):
    """Another client made a slot of this name since the last look; `log.start` says what that means."""


def create_slot(config: PgConfig, name: str) -> Position:
    """Make the slot; waits for every transaction that writes now. Returns its first position."""
    with connect(config) as connection, source_errors(f"making slot {name!r}"):
        try:
            connection.execute("SET lock_timeout = 0")  # it waits for transactions, which count as locks
            row = connection.execute(
                "SELECT lsn::text FROM pg_catalog.pg_create_logical_replication_slot(%s, %s)", (name, PLUGIN)
            ).fetchone()
        except psycopg.errors.DuplicateObject:
            raise SlotExists from None
    assert row is not None
    return lsn_value(row[0])


def drop_slot(connection: Connection, name: str) -> None:
    with source_errors(f"dropping slot {name!r}"):
        connection.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", (name,))


def drop_publication(connection: Connection, name: str) -> bool:
    """False: there is none."""
    with source_errors(f"dropping publication {name!r}"):
        row = connection.execute("SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = %s", (name,)).fetchone()
        if row is not None:
            connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))
    return row is not None


def slot_waits_for(connection: Connection, slot_maker: str) -> str | None:
    """The obstacle that the backend with this application name waits for: the oldest transaction in its way."""
    with source_errors("looking for what the slot waits for"):
        row = connection.execute(
            "SELECT b.pid, b.backend_xid::text, extract(epoch FROM now() - b.xact_start)::int, b.application_name"
            " FROM pg_catalog.pg_stat_activity m,"
            " LATERAL unnest(pg_catalog.pg_blocking_pids(m.pid)) AS holder(pid)"
            " JOIN pg_catalog.pg_stat_activity b ON b.pid = holder.pid"
            " WHERE m.application_name = %s ORDER BY b.xact_start LIMIT 1",
            (slot_maker,),
        ).fetchone()
    if row is None:
        return None
    pid, xid, age, application = row
    who = f"backend {pid} ({application!r})" if application else f"backend {pid}"
    # Of other users' sessions the view hides when their transaction began.
    since = "" if age is None else f", open for {age} s"
    return f"the slot waits for transaction {xid} of {who}{since}"


def ensure_publication(connection: Connection, name: str, tables: Sequence[PgTable], ours: bool) -> Mapping[int, str]:
    """Make the publication, or bring ours up to date: exactly these tables. One that the user named stays as it is.

    Returns the tables that could not be put into it because they are locked, or gone by now, with who holds the lock:
    the next look tries again. Capture waits for no lock, because all other tables would wait with it.
    """
    with source_errors(f"preparing publication {name!r}"):
        row = connection.execute(
            "SELECT puballtables, pubviaroot, pubinsert AND pubupdate AND pubdelete AND pubtruncate"
            " FROM pg_catalog.pg_publication WHERE pubname = %s",
            (name,),
        ).fetchone()
        if row is not None and not (row[2] and (row[1] or not any(t.partitioned for t in tables))):
            raise SourceRefused(
                f"publication {name!r} leaves out operations or partitions' roots",
                f"Run `ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate',"
                " publish_via_partition_root = true)`.",
            )
        if row is None and not ours:
            raise SourceRefused(
                f"publication {name!r} does not exist",
                "Create the publication, or remove source.postgresql.publication; in Kubernetes, create another"
                " Replicator.",
            )
        if row is None:
            connection.execute(
                sql.SQL("CREATE PUBLICATION {} WITH (publish_via_partition_root = true)").format(sql.Identifier(name))
            )
        if ours and not (row is not None and row[0]):
            return _set_tables(connection, name, tables)
        return {}


def _set_tables(connection: Connection, name: str, tables: Iterable[PgTable]) -> Mapping[int, str]:
    published = {
        r[0]
        for r in connection.execute(
            "SELECT r.prrelid::int8 FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p"
            " ON p.oid = r.prpubid WHERE p.pubname = %s",
            (name,),
        )
    }
    wanted = {t.oid: t for t in tables}
    new = [t for t in wanted.values() if t.oid not in published]
    publication = sql.Identifier(name)
    _drop_tables(connection, publication, sorted(published - set(wanted)))

    def add(some: Iterable[PgTable], wait: int = LOCK_WAIT) -> bool:
        relations = sql.SQL(", ").join(t.relation for t in some)
        statement = sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(publication, relations)
        return _unless_locked(connection, statement, wait)

    if not new or add(new):
        return {}
    # One of them is locked: each by itself, but not for so long that the source would take us for dead.
    end = time.monotonic() + LONGEST_WAIT
    locked = [t for t in new if time.monotonic() > end or not add([t])]
    turn = int(time.monotonic()) % len(locked) if locked else 0
    locked = [t for place, t in enumerate(locked) if place != turn or not add([t], AUTOVACUUM_WAIT)]
    return {t.oid: locks.holder(connection, t.oid, locks.AGAINST_PUBLISHING) for t in locked}


def _drop_tables(connection: Connection, publication: sql.Identifier, oids: Sequence[int]) -> None:
    """Drops tables from the publication. A table that is locked stays in it until a later look, which begins
    elsewhere."""
    named = "SELECT c.oid::regclass::text FROM pg_catalog.pg_class c WHERE c.oid = ANY(%s::int8[]::oid[])"
    names = connection.execute(named, (list(oids),))
    tables = [sql.SQL(name) for (name,) in names.fetchall()]

    def drop(some: Iterable[sql.SQL]) -> bool:
        relations = sql.SQL(", ").join(sql.SQL("ONLY {}").format(table) for table in some)
        return _unless_locked(connection, sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(publication, relations))

    if not tables or drop(tables):
        return
    end, first = time.monotonic() + LONGEST_WAIT, int(time.monotonic()) % len(tables)
    for table in [*tables[first:], *tables[:first]]:
        if time.monotonic() > end:
            break
        drop([table])


def _unless_locked(connection: Connection, statement: sql.Composed, wait: int = LOCK_WAIT) -> bool:
    """False: nothing was done, a lock of another session is in the way, or a table has gone since it was looked at."""
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{wait}ms'")
            connection.execute(statement)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return False
    return True


def unpublishable(connection: Connection, name: str, tables: Sequence[PgTable], ours: bool) -> dict[int, TableStop]:
    """The tables that the publication does not hold and may not get, by oid: in Tailrace's publication those that it
    cannot add, in another one all."""
    if not ours:
        return {t.oid: left_out(t, name) for t in tables}
    if not tables:
        return {}
    with source_errors("asking for the tables' owners"):
        rows = connection.execute(
            "SELECT c.oid::int8, current_user::text, r.rolsuper FROM pg_catalog.pg_class c"
            " JOIN pg_catalog.pg_roles r ON r.oid = c.relowner"
            " WHERE c.oid = ANY(%s::int8[]) AND NOT pg_catalog.pg_has_role(c.relowner, 'USAGE')",
            ([t.oid for t in tables],),
        ).fetchall()
    foreign = {oid: (role, superuser) for oid, role, superuser in rows}
    stops = {t.oid: harmful(t) for t in tables} if connection.info.server_version >= GENERATED_SINCE else {}
    stops |= {t.oid: _not_ours(t, name, *foreign[t.oid]) for t in tables if t.oid in foreign}
    return {oid: stop for oid, stop in stops.items() if stop is not None}


def left_out(table: PgTable, name: str) -> TableStop:
    publication = sql.Identifier(name).as_string(None)
    fix = f"ALTER PUBLICATION {publication} ADD TABLE {table.relation.as_string(None)}"
    if table.partitioned:
        fix += f"; ALTER PUBLICATION {publication} SET (publish_via_partition_root = true)"
    return ReadRefused(table.name, f"{table.name} is not in publication {name!r}", f"Run `{fix}`.")


def _not_ours(table: PgTable, name: str, role: str, superuser: bool) -> TableStop:
    return ReadRefused(
        table.name,
        f"only the owner of {table.name} ({table.owner}) may add it to publication {name!r}",
        grant(table.owner, role, superuser),
    )


def edge(connection: Connection) -> str:
    """X: a 64-bit xid of a transaction of its own, after the slot and the publication are as they should be."""
    with source_errors("taking the edge"):
        row = connection.execute("SELECT pg_catalog.pg_current_xact_id()::text").fetchone()
    assert row is not None
    return str(row[0])


def later_edge(one: str, other: str) -> str:
    return max(one, other, key=int)


def next_xid(connection: Connection) -> int:
    """The 64-bit xid that comes next; takes none."""
    with source_errors("asking for the next xid"):
        row = connection.execute(
            "SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text"
        ).fetchone()
    assert row is not None
    return int(row[0])


def emit(connection: Connection, content: str, transactional: bool) -> None:
    """A logical message: a marker with a place among the commits, or (not transactional) a heartbeat. The latter is
    sent on when the server writes its log out: within a fifth of a second by itself, at once where it can be told to
    (17)."""
    flush = ", true" if not transactional and connection.info.server_version >= 170000 else ""
    with source_errors("writing a logical message"):
        connection.execute(
            f"SELECT pg_catalog.pg_logical_emit_message(%s, %s, %s{flush})".encode(),
            (transactional, MARKER_PREFIX, content),
        )


_RETAINED = (
    "SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), restart_lsn)::int8"
    " FROM pg_catalog.pg_replication_slots WHERE slot_name = %s"
)


def retained_bytes(connection: Connection, slot: str) -> int | None:
    """Log that the server keeps for the slot; None: there is no such slot, or the log is lost to it."""
    with source_errors("asking how much log the slot keeps"):
        row = connection.execute(_RETAINED, (slot,)).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def distance(connection: Connection, slot: str, position: Position) -> Distance:
    with source_errors("asking for the source's position"):
        row = connection.execute(
            f"SELECT pg_catalog.pg_current_wal_insert_lsn()::text, ({_RETAINED})", (slot,)
        ).fetchone()
    assert row is not None
    end = lsn_value(row[0])
    return Distance(end, max(end - position, 0), row[1])


def type_name(connection: Connection, oid: int, modifier: int) -> str:
    with source_errors("asking for a type's name"):
        row = connection.execute("SELECT pg_catalog.format_type(%s::oid, %s)", (oid, modifier)).fetchone()
    assert row is not None
    return str(row[0])


def has_ended(connection: Connection, xid: int, table_id: int) -> bool:
    """True if the catalog shows the effect on the table of this transaction, whose commit the log has. It comes later
    than the log: by an instant, or, where commits wait for a standby, for as long as these do. Until then who has
    altered the table keeps it locked."""
    with source_errors("asking whether the catalog shows a transaction"):
        row = connection.execute(
            "SELECT pg_catalog.pg_visible_in_snapshot(%s::text::xid8, pg_catalog.pg_current_snapshot()) OR NOT EXISTS ("
            "SELECT FROM pg_catalog.pg_locks WHERE locktype = 'relation' AND relation = %s::int8::oid AND granted"
            " AND mode = 'AccessExclusiveLock' AND database ="
            " (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))",
            (str(xid), table_id),
        ).fetchone()
    assert row is not None
    return bool(row[0])


def snapshot(connection: Connection) -> str:
    """The snapshot of a transaction that would begin now."""
    with source_errors("asking for a snapshot"):
        row = connection.execute("SELECT pg_catalog.pg_current_snapshot()::text").fetchone()
    assert row is not None
    return str(row[0])
