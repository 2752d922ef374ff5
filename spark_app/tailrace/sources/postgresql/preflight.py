"""Judge a source before anything is made: a list of small checks over one frozen look at it. No I/O, no change.

Called by `tailrace doctor` (prints every finding) and at start-up (a `fail` stops with `SourceRefused`). Each finding
names what is missing and the statement that fixes it.
"""

from collections.abc import Callable, Collection, Iterator

from psycopg import sql

from tailrace.databases.postgresql.connect import Connection
from tailrace.errors import TableStop
from tailrace.sources.findings import Finding, Level, refuse
from tailrace.sources.postgresql import signal_table
from tailrace.sources.postgresql.facts import Facts, TableFacts
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.publication import GENERATED_SINCE, grant, harmful

OLDEST, NEWEST = 14, 18
SMALL_KEEP = 1024
"""Megabytes: less kept log than this is written in minutes by a busy server."""
SLOT_LOG = "slot_log"
"""The name of the finding that a renewal of the stream repairs by itself, if the slot is Tailrace's."""
RESYNC = (
    "Run `tailrace resync -f <manifest> --all`, then start; in Kubernetes, create a SnapshotRequest with resync: true"
    " and tables: ['*.*']. Every table is read again."
)
NEEDED = frozenset({"insert", "update", "delete", "truncate"})


def check(facts: Facts) -> tuple[Finding, ...]:
    """Every finding, in the order in which a reader should see to them."""
    found = tuple(finding for look in CHECKS for finding in look(facts))
    return (*found, *_summary(facts, {f.table for f in found if f.level == "fail"}))


def _summary(facts: Facts, failed: Collection[str | None]) -> Iterator[Finding]:
    """A summary of the tables, without those that have a failure of their own."""
    total, good = len(facts.tables), sum(t.table.name not in failed for t in facts.tables)
    hopeless = all(t.table.stop is not None for t in facts.tables)
    level: Level = "ok" if good else "fail" if hopeless else "warn"
    if total:
        yield Finding("tables", level, f"{good} of {total} tables can be captured")


def _run(statement: str) -> str:
    return f"Run `{statement}`."


def _name(text: str) -> str:
    return sql.Identifier(text).as_string(None)


def _table(table: PgTable) -> str:
    return table.identifier.as_string(None)


def version(facts: Facts) -> Iterator[Finding]:
    major = facts.version // 10000
    if OLDEST <= major <= NEWEST:
        yield Finding("version", "ok", f"PostgreSQL {major}")
    else:
        level: Level = "fail" if major < OLDEST else "warn"
        yield Finding(
            "version", level, f"PostgreSQL {major} is not among {OLDEST} to {NEWEST}", "Use a supported version."
        )


def primary(facts: Facts) -> Iterator[Finding]:
    if facts.in_recovery:
        yield Finding("primary", "fail", "the server is a standby", "Set source.host to the primary.")
    else:
        yield Finding("primary", "ok", "the server is a primary")


def wal_level(facts: Facts) -> Iterator[Finding]:
    yield _wal_level(facts.wal_level)


def _wal_level(level: str) -> Finding:
    good = level == "logical"
    fix = "" if good else "Run `ALTER SYSTEM SET wal_level = 'logical'`, then restart the server."
    return Finding("wal_level", "ok" if good else "fail", f"wal_level is {level}", fix)


def require_logical(connection: Connection) -> None:
    """`SourceRefused` unless the server writes a log that can be decoded at all."""
    row = connection.execute("SELECT pg_catalog.current_setting('wal_level')").fetchone()
    assert row is not None
    refuse([_wal_level(str(row[0]))])


def replication_right(facts: Facts) -> Iterator[Finding]:
    if facts.replication:
        yield Finding("replication", "ok", f"role {facts.username} may replicate")
    else:
        message = f"role {facts.username} lacks the REPLICATION attribute"
        yield Finding("replication", "fail", message, _run(f"ALTER ROLE {_name(facts.username)} REPLICATION"))


def connect_right(facts: Facts) -> Iterator[Finding]:
    if not facts.may_connect:
        grant = f"GRANT CONNECT ON DATABASE {_name(facts.database)} TO {_name(facts.username)}"
        yield Finding("connect", "fail", f"role {facts.username} may not connect to {facts.database}", _run(grant))


def slot(facts: Facts) -> Iterator[Finding]:
    name, found = facts.slot_name, facts.slot
    if found is None and facts.slot_given:
        make = f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')"
        yield Finding("slot", "fail", f"the slot {name} of the manifest does not exist", _run(make))
    elif found is None:
        free = facts.slots_most - facts.slots_used
        fix = (
            ""
            if free > 0
            else f"Run `ALTER SYSTEM SET max_replication_slots = {facts.slots_most + 5}`, then restart the server."
        )
        yield Finding(
            "slot", "ok" if free > 0 else "fail", f"{free} of {facts.slots_most} replication slots are free", fix
        )
    elif found.plugin != "pgoutput" or found.database != facts.database:
        message = f"the slot {name} is of {found.plugin} in database {found.database}, not pgoutput in {facts.database}"
        fix = "Name another slot in source.postgresql.slot; in Kubernetes, create another Replicator."
        yield Finding("slot", "fail", message, fix)
    elif found.wal_status == "lost":
        message = f"the server has removed log that the slot {name} needs"
        yield Finding(SLOT_LOG, "fail", message, _slot_again(name) if facts.slot_given else RESYNC)
    else:
        yield Finding("slot", "ok", f"the slot {name} exists")


def _slot_again(name: str) -> str:
    return (
        f"Run `SELECT pg_drop_replication_slot('{name}'); SELECT pg_create_logical_replication_slot('{name}',"
        f" 'pgoutput')`. {RESYNC}"
    )


def senders(facts: Facts) -> Iterator[Finding]:
    free = facts.senders_most - facts.senders_used
    fix = (
        ""
        if free > 0
        else f"Run `ALTER SYSTEM SET max_wal_senders = {facts.senders_most + 5}`, then restart the server."
    )
    # Our own running capture holds one of them, so none free is not yet wrong.
    level: Level = "ok" if free > 0 else "warn" if facts.senders_most else "fail"
    yield Finding("wal_senders", level, f"{free} of {facts.senders_most} WAL senders are free", fix)


def kept_log(facts: Facts) -> Iterator[Finding]:
    if 0 <= facts.keep_megabytes < SMALL_KEEP:
        message = f"max_slot_wal_keep_size is {facts.keep_megabytes} MB: a short stop of capture loses the position"
        fix = _run("ALTER SYSTEM SET max_slot_wal_keep_size = '64GB'; SELECT pg_reload_conf()")
        yield Finding("max_slot_wal_keep_size", "warn", message, fix)
    else:
        kept = "without limit" if facts.keep_megabytes < 0 else f"up to {facts.keep_megabytes} MB"
        yield Finding("max_slot_wal_keep_size", "ok", f"the server keeps log for a stopped slot {kept}")
    if facts.idle_slot_timeout:
        message = (
            f"idle_replication_slot_timeout is {facts.idle_slot_timeout} s: a stop longer than that loses the position"
        )
        fix = _run("ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf()")
        yield Finding("idle_replication_slot_timeout", "warn", message, fix)


def synchronous(facts: Facts) -> Iterator[Finding]:
    """A log connection counts like a standby."""
    if "*" in facts.synchronous:
        message = f"synchronous_standby_names is {facts.synchronous!r}: commits may wait for capture, running or not"
        fix = _run("ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (<your standbys>)'; SELECT pg_reload_conf()")
        yield Finding("synchronous_standby_names", "warn", message, fix)


def publication(facts: Facts) -> Iterator[Finding]:
    name, found = facts.publication_name, facts.publication
    if found is None and facts.publication_given:
        tables = ", ".join(_table(t.table) for t in facts.tables)
        make = f"CREATE PUBLICATION {_name(name)} FOR TABLE {tables} WITH (publish_via_partition_root = true)"
        yield Finding("publication", "fail", f"the publication {name} of the manifest does not exist", _run(make))
    elif found is None and not facts.may_create:
        grant = f"GRANT CREATE ON DATABASE {_name(facts.database)} TO {_name(facts.username)}"
        message = f"role {facts.username} may not create the publication {name}"
        fix = (
            f"{_run(grant)} Or create a publication and name it in source.postgresql.publication (in"
            " Kubernetes this field cannot be changed: create another Replicator)."
        )
        yield Finding("publication", "fail", message, fix)
    elif found is not None and not facts.publication_given and not found.owned:
        fix = _run(f"ALTER PUBLICATION {_name(name)} OWNER TO {_name(facts.username)}")
        yield Finding("publication", "fail", f"the publication {name} belongs to another role", fix)
    elif found is not None and found.operations != NEEDED:
        missing = ", ".join(sorted(NEEDED - found.operations))
        fix = _run(f"ALTER PUBLICATION {_name(name)} SET (publish = 'insert, update, delete, truncate')")
        yield Finding("publication", "fail", f"the publication {name} does not publish {missing}", fix)
    elif found is not None and not found.via_root and any(t.table.partitioned for t in facts.tables):
        fix = _run(f"ALTER PUBLICATION {_name(name)} SET (publish_via_partition_root = true)")
        yield Finding("publication", "fail", f"the publication {name} publishes partitions, not their roots", fix)
    else:
        message = (
            f"role {facts.username} may create the publication {name}"
            if found is None
            else f"the publication {name} exists"
        )
        yield Finding("publication", "ok", message)


def published(facts: Facts) -> Iterator[Finding]:
    """Each table is in the publication, or we may put it there; and whole."""
    found, name = facts.publication, _name(facts.publication_name)
    for t in facts.tables:
        inside = found is not None and (found.all_tables or t.table.oid in found.tables)
        add = f"ALTER PUBLICATION {name} ADD TABLE {'' if t.table.partitioned else 'ONLY '}{_table(t.table)}"
        if not inside and facts.publication_given:
            yield _fault(
                t, "published", f"{t.table.name} is not in the publication {facts.publication_name}", _run(add)
            )
        elif not inside and not t.owned:
            message = f"only the owner of {t.table.name} ({t.table.owner}) may add it to a publication"
            yield _fault(t, "published", message, grant(t.table.owner, facts.username, t.owner_is_superuser))
        elif stop := _unfit(facts, t.table, inside):
            yield _fault(t, "published", stop.message, stop.fix)


def _unfit(facts: Facts, table: PgTable, inside: bool) -> TableStop | None:
    """Why a member, or a table that is to become one, does not belong into the publication."""
    if inside:
        return facts.publication.unfit.get(table.oid) if facts.publication is not None else None
    return harmful(table) if facts.version >= GENERATED_SINCE else None


def rights(facts: Facts) -> Iterator[Finding]:
    role = _name(facts.username)
    for t in facts.tables:
        if not t.usage:
            grant = f"GRANT USAGE ON SCHEMA {_name(t.table.schema_name)} TO {role}"
            yield _fault(t, "usage", f"role {facts.username} lacks USAGE on schema {t.table.schema_name}", _run(grant))
        if not t.select:
            grant = f"GRANT SELECT ON {_table(t.table)} TO {role}"
            yield _fault(t, "select", f"role {facts.username} lacks SELECT on {t.table.name}", _run(grant))
        if t.rows_hidden:
            message = f"row-level security hides rows of {t.table.name} from {facts.username}"
            yield _fault(t, "row_security", message, _run(f"ALTER ROLE {role} BYPASSRLS"))


def tables(facts: Facts) -> Iterator[Finding]:
    """Key, replica identity, unlogged, options: what discovery found."""
    if not facts.tables:
        yield Finding(
            "tables",
            "fail",
            "no table matches tables.include",
            "Correct the patterns; they are written `schema.table`.",
        )
        return
    for t in facts.tables:
        if t.table.stop is not None:
            yield _fault(t, t.table.stop.name, t.table.stop.message, t.table.stop.fix)
        elif t.table.schema.keyless:
            message = (
                f"{t.table.name} has no key: rows are told apart by all their values, and every snapshot reads the"
                " whole table in one transaction"
            )
            fix = "None needed. For a large table a primary key makes snapshots resumable, and deletes cheaper to find."
            yield Finding("keyless", "warn", message, fix, t.table.name)


def signals(facts: Facts) -> Iterator[Finding]:
    found, table = facts.publication, facts.signals.table if facts.signals is not None else None
    inside = found is not None and table is not None and (found.all_tables or table.oid in found.tables)
    ours = not facts.publication_given
    yield from signal_table.findings(
        facts.signals, signal_table.SignalMembership(facts.publication_name, inside, ours, facts.version)
    )


def collations(facts: Facts) -> Iterator[Finding]:
    for t in facts.tables:
        if t.collations:
            which = ", ".join(t.collations)
            message = (
                f"the key of {t.table.name} was indexed under another version of collation {which}: reads may miss rows"
            )
            reindex = f"Run `REINDEX TABLE {_table(t.table)}`"
            fix = f"{reindex}, then `ALTER COLLATION … REFRESH VERSION` (or `ALTER DATABASE …`)."
            yield Finding("collation", "warn", message, fix, t.table.name)


def _fault(t: TableFacts, name: str, message: str, fix: str) -> Finding:
    return Finding(name, "fail", message, fix, t.table.name)


CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    version,
    primary,
    wal_level,
    connect_right,
    replication_right,
    slot,
    senders,
    kept_log,
    synchronous,
    publication,
    tables,
    published,
    rights,
    signals,
    collations,
)
