"""Sessions of a PostgreSQL source that may still write: asked by a cutover, which needs the source to be quiet."""

from collections.abc import Iterator

from tailrace.databases.postgresql.connect import Connection, source_errors
from tailrace.sources.findings import Writers

_READ_ONLY = """
SELECT EXISTS (SELECT FROM pg_database d JOIN pg_db_role_setting ON setdatabase = d.oid, unnest(setconfig) AS s
                WHERE d.datname = current_database() AND setrole = 0
                  AND s ~ '^default_transaction_read_only=(on|true|yes|1)$'),
       clock_timestamp()::text, format('%I', current_database())
"""
# A role's own setting counts more than the database's, and one for both more than either.
_EXEMPT = """
SELECT format('%I', r.rolname), CASE WHEN x.setdatabase = 0 THEN '' ELSE format(' IN DATABASE %I', current_database())
       END
  FROM pg_db_role_setting x JOIN pg_roles r ON r.oid = x.setrole, unnest(x.setconfig) AS s
 WHERE x.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database())) AND r.rolcanlogin
   AND s ~* '^default_transaction_read_only=(off|false|no|0)$'
 ORDER BY 1, 2
"""
# Whoever changes a row holds this lock to the end of the transaction, prepared ones too; everybody may see it.
_WRITING = """
SELECT coalesce('session ' || l.pid || coalesce(' of ' || a.usename, ''), 'a prepared transaction'),
       string_agg(DISTINCT c.oid::regclass::text, ', ')
  FROM pg_locks l JOIN pg_class c ON c.oid = l.relation LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
   AND c.relkind IN ('r', 'p') AND c.relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname ~ '^pg_')
   AND l.pid IS DISTINCT FROM pg_backend_pid() AND coalesce(a.application_name, '') NOT LIKE 'tailrace%'
   AND coalesce(a.backend_type, '') <> 'autovacuum worker'
 GROUP BY 1 ORDER BY 1 LIMIT 5
"""
# What a session's user hides counts as old.
_OLDER = """
SELECT pid, usename FROM pg_stat_activity
 WHERE datname = current_database() AND coalesce(backend_type, 'client backend') = 'client backend'
   AND usename IS NOT NULL AND pid <> pg_backend_pid() AND application_name NOT LIKE 'tailrace%'
   AND coalesce(backend_start < '{since}'::timestamptz, true)
 ORDER BY pid
"""
_STANDBY = """
SELECT coalesce((SELECT ' of ' || sender_host || ':' || sender_port FROM pg_stat_wal_receiver), '')
 WHERE pg_is_in_recovery()
"""
# Their rows come although the database is read-only for sessions.
_SUBSCRIBED = """
SELECT format('%I', subname) FROM pg_subscription
 WHERE subenabled AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY 1
"""
_END = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <>"
    " pg_backend_pid() AND usename IS NOT NULL AND application_name NOT LIKE 'tailrace%'"
)


def _writable(statement: str) -> str:
    """The statement for a database that is read-only."""
    return f"BEGIN READ WRITE; {statement}; COMMIT"


def writers(connection: Connection, since: str | None, stopped: bool) -> Writers:
    """See `sources.api.Session.writers`."""
    with source_errors("looking for sessions that may write"):
        for (primary,) in connection.execute(_STANDBY.encode()).fetchall():
            what = f"the source is a standby{primary}: programs write to its primary"
            return Writers(((what, "Set source.host to the primary."),))
        ((read_only, now, database),) = connection.execute(_READ_ONLY.encode()).fetchall()
        since = (since or str(now)) if read_only else None
        return Writers(tuple(_obstacles(connection, since, stopped, str(database))), since)


def _obstacles(connection: Connection, since: str | None, stopped: bool, database: str) -> Iterator[tuple[str, str]]:
    if since is None and not stopped:
        set_it = f"ALTER DATABASE {database} SET default_transaction_read_only = on"
        yield (
            f"database {database} of the source is not read-only",
            f"Stop the programs that write, then run `{set_it}` there.",
        )
        return
    for who, tables in connection.execute(_WRITING.encode()).fetchall():
        yield f"{who} has an open transaction that changes {tables}", "Commit it or roll it back."
    if stopped:
        return
    for role, where in connection.execute(_EXEMPT.encode()).fetchall():
        reset = _writable(f"ALTER ROLE {role}{where} RESET default_transaction_read_only")
        yield f"role {role} may write although the database is read-only", f"Run `{reset}`, then end its sessions."
    for (name,) in connection.execute(_SUBSCRIBED.encode()).fetchall():
        yield (
            f"subscription {name} writes rows into the source that programs write elsewhere",
            "Make the publisher read-only and wait until the source has everything, then run"
            f" `{_writable(f'ALTER SUBSCRIPTION {name} DISABLE')}` at the source.",
        )
    older = connection.execute(_OLDER.format(since=since).encode()).fetchall()
    if older:
        named = ", ".join(f"{pid} ({user})" for pid, user in older[:5]) + (" and others" if len(older) > 5 else "")
        yield (
            f"sessions are older than the setting, so they may still write: {named}",
            f"End them: `{_END}`. (Whose start Tailrace may not see counts as older: `GRANT pg_read_all_stats`.)",
        )
