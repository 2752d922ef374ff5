"""Judge a source before anything is made: a list of small checks over one look at it. No I/O, no change.

Called by `tailrace doctor` (prints every finding) and at start-up (a `fail` stops with `SourceRefused`). Each finding
names what is missing and the statement that fixes it.
"""

from collections.abc import Callable, Collection, Iterator

from tailrace.sources.findings import Finding, Level
from tailrace.sources.mysql import filters
from tailrace.sources.mysql.cascades import Cascade
from tailrace.sources.mysql.catalog import TRANSACTIONAL
from tailrace.sources.mysql.facts import DURABLE, Facts
from tailrace.sources.mysql.model import lock_right

OLDEST = {"mysql": (8, 0), "mariadb": (10, 5)}
TITLES = {"mysql": "MySQL", "mariadb": "MariaDB"}
SHORT = 86_400
"""Seconds: a log that is kept for less does not outlast a weekend's stop."""
_RIGHTS = {
    "mysql": ("REPLICATION SLAVE", "REPLICATION CLIENT", "XA_RECOVER_ADMIN"),
    "mariadb": ("REPLICATION SLAVE", "BINLOG MONITOR"),
}
_EVERYTHING = frozenset(("ALL PRIVILEGES", "SUPER"))


def check(facts: Facts) -> tuple[Finding, ...]:
    """Every finding, in the order in which a reader should see to them."""
    return tuple(finding for look in CHECKS for finding in look(facts))


_OF_SESSIONS = ("binlog_format", "binlog_row_image", "binlog_row_value_options")
"""A session takes them over when it begins."""


def _set(facts: Facts, name: str, value: str) -> str:
    value = value if value.isdigit() else f"'{value}'"
    fix = f"Run `SET PERSIST {name} = {value}`."
    if facts.server.product == "mariadb":
        fix = f"Run `SET GLOBAL {name} = {value}`, and set it in the server's configuration."
    return f"{fix} Sessions that are open keep the old value: reconnect them." if name in _OF_SESSIONS else fix


def version(facts: Facts) -> Iterator[Finding]:
    product, found = facts.server.product, facts.server.version
    text = f"{TITLES[product]} {'.'.join(map(str, found))}"
    if found >= OLDEST[product]:
        yield Finding("version", "ok", text)
    else:
        oldest = ".".join(map(str, OLDEST[product]))
        yield Finding("version", "fail", f"{text} is not supported", f"Upgrade the server to {oldest} or newer.")


TESTED = {"mysql": ((8, 0, 15), (9, 7)), "mariadb": ((10, 11), (11, 8))}


def tested(facts: Facts) -> Iterator[Finding]:
    """Warns of versions that no server of the tests has."""
    product, found = facts.server.product, facts.server.version
    if not any(found[: len(series)] == series for series in TESTED[product]):
        known = " and ".join(".".join(map(str, series)) for series in TESTED[product])
        what = f"{TITLES[product]} {'.'.join(map(str, found))} has not been through the tests, as {known} have"
        yield Finding("tested", "warn", what, "Compare a copy with its source before you rely on it.")


def binary_log(facts: Facts) -> Iterator[Finding]:
    if not facts.on("log_bin"):
        fix = "Set `log_bin` in the server's configuration and restart it."
        yield Finding("log_bin", "fail", "the server writes no binary log", fix)
    elif facts.replica is not False and not facts.logs_what_it_applies:
        yield _unlogged(facts)
    elif facts.dropped:
        what = f"the binary log leaves out databases ({facts.dropped})"
        yield Finding("log_bin", "fail", what, "Remove binlog_do_db and binlog_ignore_db, and restart the server.")
    else:
        yield Finding("log_bin", "ok", "the server writes a binary log")


UNLOGGED = "the server is a replica that does not log what it applies"


def _unlogged(facts: Facts) -> Finding:
    name = next(name for name in ("log_replica_updates", "log_slave_updates") if name in facts.variables)
    if facts.replica:
        fix = f"Set `{name}` in the server's configuration and restart it."
        return Finding("log_bin", "fail", UNLOGGED, fix)
    what = f"{name} is OFF, and {facts.user} may not see whether the server is a replica: its log would lack changes"
    return Finding("log_bin", "fail", what, _see(facts))


def _see(facts: Facts) -> str:
    """The right that is needed to see a replica's status."""
    right = {"mysql": "REPLICATION CLIENT", "mariadb": "SLAVE MONITOR"}[facts.server.product]
    if facts.server.product == "mariadb" and facts.server.version < (10, 5, 9):
        right = "REPLICATION SLAVE ADMIN"
    return f"Run `GRANT {right} ON *.* TO {facts.user}`."


_FORMAT = {"binlog_format": "ROW", "binlog_row_metadata": "FULL"}
_WHOLE_IMAGES = ("FULL", "FULL_NODUP")
"""With MariaDB's second one, what an update did not change is in its first image only."""


def row_format(facts: Facts) -> Iterator[Finding]:
    """Checks the server's setting. A session's own setting is found by the stream, event by event."""
    for name, wanted in _FORMAT.items():
        found = facts.variables.get(name, wanted)
        good = found.upper() == wanted
        yield Finding(name, "ok" if good else "fail", f"{name} is {found}", "" if good else _set(facts, name, wanted))
    image = facts.variables.get("binlog_row_image", "FULL")
    if image.upper() in _WHOLE_IMAGES:
        yield Finding("binlog_row_image", "ok", f"binlog_row_image is {image}")
        return
    lacking = "inserted rows" if facts.server.product == "mysql" else "inserted and updated rows"
    what = f"binlog_row_image is {image}: {lacking} that the log does not have whole are missing from the copy until"
    what += " they are read again by their keys"
    if facts.server.product == "mariadb":
        what += ", and a row that is updated about every second stays missing; a session that sets it does the same"
    yield Finding("binlog_row_image", "warn", what, _set(facts, "binlog_row_image", "FULL"))
    if facts.variables.get("binlog_row_value_options"):
        what = f"binlog_row_value_options is PARTIAL_JSON, and binlog_row_image is {image}: so are rows with documents"
        what += " that are updated in part"
        yield Finding("binlog_row_value_options", "warn", what, _set(facts, "binlog_row_value_options", ""))


def durable_log(facts: Facts) -> Iterator[Finding]:
    """Checks if log and tables may differ after a crash."""
    for name, full in DURABLE.items():
        found = facts.variables.get(name, "1")
        if found in full:
            yield Finding(name, "ok", f"{name} is {found}: commits are on the disk")
        else:
            what = f"{name} is {found}: a crash can leave changes in the log alone, or in the tables alone, so that"
            what += " after each crash of the server every captured table is read again"
            yield Finding(name, "warn", what, _set(facts, name, "1"))


def gtids(facts: Facts) -> Iterator[Finding]:
    if facts.server.product == "mysql":
        found = facts.variables.get("gtid_mode", "OFF")
        fix = (
            ""
            if found == "ON"
            else "Run `SET PERSIST enforce_gtid_consistency = ON`, then `SET PERSIST gtid_mode` = OFF_PERMISSIVE,"
            " ON_PERMISSIVE and ON, one after the other."
        )
        yield Finding("gtid_mode", "fail" if fix else "ok", f"gtid_mode is {found}", fix)
    if facts.variables.get("server_id") == "0":
        yield Finding(
            "server_id", "fail", "server_id is 0: the server sends its log to nobody", _set(facts, "server_id", "1")
        )


def prepared_statements(facts: Facts) -> Iterator[Finding]:
    if facts.variables.get("max_prepared_stmt_count") == "0":
        what = "max_prepared_stmt_count is 0, and tables are read by prepared statements"
        yield Finding("max_prepared_stmt_count", "fail", what, _set(facts, "max_prepared_stmt_count", "16382"))


def kept_log(facts: Facts) -> Iterator[Finding]:
    seconds = float(facts.variables.get("binlog_expire_logs_seconds", "0"))
    seconds = seconds or float(facts.variables.get("expire_logs_days", "0")) * SHORT
    if 0 < seconds < SHORT:
        what = f"the server keeps its binary log for {seconds:.0f} s: a stop longer than that loses the position"
        yield Finding("kept_log", "warn", what, _set(facts, "binlog_expire_logs_seconds", "604800"))
    else:
        kept = f"for {seconds / SHORT:.0f} days" if seconds else "until it is purged by hand"
        yield Finding("kept_log", "ok", f"the server keeps its binary log {kept}")


def rights(facts: Facts) -> Iterator[Finding]:
    held, product = facts.rights, facts.server.product
    missing = [right for right in _RIGHTS[product] if not held & {right, *_EVERYTHING, *_SAME.get(right, ())}]
    if missing:
        names = ", ".join(missing)
        fix = f"Run `GRANT {names} ON *.* TO {facts.user}`."
        yield Finding("rights", "fail", f"{facts.user} lacks {names}", fix)
    else:
        yield Finding("rights", "ok", f"{facts.user} may read the binary log")
    for table in facts.tables:
        if table.name in facts.unreadable:
            fix = f"Run `GRANT SELECT ON {table.quoted} TO {facts.user}`."
            yield Finding("select", "fail", f"{facts.user} lacks SELECT on {table.name}", fix, table.name)
        elif table.name in facts.partly_readable:
            what = f"{facts.user} has SELECT on some columns of {table.name} only: the others are not copied"
            fix = f"Run `GRANT SELECT ON {table.quoted} TO {facts.user}`."
            yield Finding("select", "warn", what, fix, table.name)
        if table.name in facts.unlockable:
            what = f"{facts.user} lacks LOCK TABLES on {table.schema_name}, which it takes to read {table.name}: its"
            what += f" engine {table.engine} has no transactions"
            yield Finding("lock", "fail", what, f"Run `{lock_right(table)} TO {facts.user}`.", table.name)


_SAME = {"BINLOG MONITOR": ("REPLICATION CLIENT",), "REPLICATION SLAVE": ("REPLICATION REPLICA",)}
"""Other names of rights."""


def tables(facts: Facts) -> Iterator[Finding]:
    """Key, engine, types, options: what discovery found; and a summary."""
    if not facts.tables:
        fix = (
            "Correct the patterns; they are written `database.table`. A user sees only tables on which it has a right."
        )
        yield Finding("tables", "fail", "no table matches tables.include", fix)
        return
    stopped = [t for t in facts.tables if t.stop is not None]
    for table in stopped:
        assert table.stop is not None
        yield Finding(table.stop.name, "fail", table.stop.message, table.stop.fix, table.name)
    level: Level = "fail" if len(stopped) == len(facts.tables) else "ok"
    yield Finding("tables", level, f"{len(facts.tables) - len(stopped)} of {len(facts.tables)} tables can be captured")


def engines(facts: Facts) -> Iterator[Finding]:
    for table in facts.tables:
        if table.stop is None and table.engine not in TRANSACTIONAL:
            what = f"{table.name} uses {table.engine}, which has no transactions: a failed statement keeps some changes"
            yield Finding("engine", "warn", what, f"Run `ALTER TABLE {table.quoted} ENGINE = InnoDB`.", table.name)


def cascades(facts: Facts) -> Iterator[Finding]:
    """The engine carries them out below the log."""
    tables = {table.name: table for table in facts.tables}
    captured = {(table.schema_name, table.table_name) for table in facts.tables if table.stop is None}
    for found in facts.cascades:
        fix = f"Change rows of {found.child} by statements on that table, or exclude it; a resync corrects its copy."
        if isinstance(found, Cascade):
            what = f"changes of {'.'.join(found.parent)} reach {found.child} through a foreign key ({found.rule}) and"
            what += " are not in the log"
            if found.parent in captured:
                what += f": rows of {found.child} that they change are read again"
                fix = (
                    f"Do nothing, unless {found.child} is large and has to be read whole for it (docs/mysql.md has the"
                    " cases): then delete its rows by statements on it, or exclude it."
                )
            else:
                fix = f"Capture {'.'.join(found.parent)}, too: then such rows of {found.child} are read again."
        elif found.denied:
            what = f"{facts.user} may not see the foreign keys of {found.child}: changes that reach it through one with"
            what += " CASCADE or SET NULL are not in the log"
            fix = f"Run `GRANT SELECT ON {tables[found.child].quoted} TO {facts.user}`."
        else:
            what = f"a foreign key of {found.child} was not understood: if it has CASCADE or SET NULL, changes that"
            what += " reach the table through it are not in the log"
        yield Finding("cascade", "warn", what, fix, found.child)


def whole_copy(facts: Facts, databases: Collection[str], follows: bool = False) -> Iterator[Finding]:
    """Checks that the server has a whole copy of these databases. A replica lacks what it leaves out; if it alone is
    read, its own rows are copied. `follows`: another server was read before."""
    for rule, database in filters.left_out(facts.filters, databases).items():
        items = ", ".join(sorted(facts.filters[rule.removeprefix("replicate_")]))
        what = f"as a replica the server may have left out changes of {database} ({rule}: {items})"
        fix = "Read from a server without replication filters for the captured tables."
        again = (
            " If there is none: `tailrace resync -f <manifest> --all`, then start; in Kubernetes, a SnapshotRequest"
            " with resync: true and tables: ['*.*']. Every table is read again."
        )
        fix += again if follows else ""
        yield Finding("filters", "fail" if follows else "warn", what, fix)
    if facts.replica is None:
        what = f"{facts.user} may not see whether the server leaves out changes as a replica"
        yield Finding("filters", "fail" if follows else "warn", what, _see(facts))


def filtered(facts: Facts) -> Iterator[Finding]:
    yield from whole_copy(facts, {table.schema_name for table in facts.tables})


CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    version,
    tested,
    binary_log,
    row_format,
    durable_log,
    gtids,
    kept_log,
    prepared_statements,
    rights,
    tables,
    engines,
    cascades,
    filtered,
)
