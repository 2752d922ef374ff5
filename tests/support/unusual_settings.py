"""Servers whose sessions begin with unusual settings: every one that a session takes over from the server gets another
value, as far as the server lets it.

Sessions that are open keep what they have: writers and questions of a test begin before.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
import pymysql
from psycopg import sql

Value = str | int | float

# ---- MySQL, MariaDB ----

LEFT: Mapping[str, str] = {
    "binlog_format": "doctor asks for ROW",
    "binlog_row_image": "doctor asks for FULL",
    "binlog_row_value_options": "of sessions that write",
    "gtid_domain_id": "of sessions that write",
    "max_allowed_packet": "values of JSON need it (docs/mysql.md)",
    "max_user_connections": "0 is no limit, and 1 lets in one session",
    "max_session_mem_used": "sessions of the test itself would end",
    "pseudo_slave_mode": "of replicas",
    "server_id": "a server has one",
    "sql_log_bin": "of sessions that write",
    "skip_replication": "of sessions that write",
    "thread_pool_priority": "has no effect without the pool",
}
TEXTS: Mapping[str, str] = {
    "character_set_client": "latin1",
    "character_set_connection": "cp1251",
    "character_set_database": "latin2",
    "character_set_filesystem": "latin1",
    "character_set_results": "cp1251",
    "character_set_server": "latin2",
    "collation_connection": "cp1251_general_ci",
    "collation_database": "latin2_general_ci",
    "collation_server": "latin2_general_ci",
    "default_storage_engine": "MyISAM",
    "default_tmp_storage_engine": "MyISAM",
    "lc_messages": "de_DE",
    "lc_time_names": "de_DE",
    "sql_mode": "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,PIPES_AS_CONCAT,REAL_AS_FLOAT,IGNORE_SPACE,"
    "NO_UNSIGNED_SUBTRACTION,HIGH_NOT_PRECEDENCE,ONLY_FULL_GROUP_BY,STRICT_ALL_TABLES,NO_ZERO_DATE",
    "time_zone": "+05:45",
    "transaction_isolation": "SERIALIZABLE",
    "tx_isolation": "SERIALIZABLE",
}
SWITCHES = ("optimizer_switch",)
_NUMBERS = """
SELECT variable_name, {} FROM information_schema.system_variables
 WHERE variable_scope = 'SESSION' AND read_only = 'NO' AND numeric_min_value IS NOT NULL
"""


def set_unusual(connection: "pymysql.connections.Connection[Any]", highest: bool) -> dict[str, Value]:
    """What new sessions begin with from now on, by the names of the variables. `highest`: of numbers the greatest."""
    with connection.cursor() as cursor:
        names = _of_sessions(cursor)
        limits = _limits(cursor, highest)
        return {name: value for name in names if (value := _changed(cursor, name, limits.get(name))) is not None}


def _of_sessions(cursor: Any) -> list[str]:
    """Those that both the server and a session have."""
    found = []
    for scope in ("GLOBAL", "SESSION"):
        cursor.execute(f"SHOW {scope} VARIABLES")
        found.append({str(name).lower() for name, _ in cursor.fetchall()})
    names = []
    for name in sorted((found[0] & found[1]) - LEFT.keys()):
        with suppress(pymysql.MySQLError):  # one of the server alone is shown as the session's as well
            cursor.execute(f"SELECT @@SESSION.{name}")
            names.append(name)
    return names


def _limits(cursor: Any, highest: bool) -> dict[str, str]:
    edge = "max" if highest else "min"
    for query in (
        _NUMBERS.format(f"numeric_{edge}_value"),
        f"SELECT variable_name, {edge}_value FROM performance_schema.variables_info",
    ):
        with suppress(pymysql.MySQLError):
            cursor.execute(query)
            return {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    return {}


def _changed(cursor: Any, name: str, limit: str | None) -> Value | None:
    """The value that it has now; None: it stayed as it was."""
    before = _global(cursor, name)
    for value in _candidates(name, before, limit):
        with suppress(pymysql.MySQLError):
            cursor.execute(f"SET GLOBAL {name} = {value}")
            if (now := _global(cursor, name)) != before:
                return now
    return None


def _global(cursor: Any, name: str) -> Value:
    cursor.execute(f"SELECT @@GLOBAL.{name}")
    (found,) = cursor.fetchone()
    return found if isinstance(found, int | float) else str(found)


def _candidates(name: str, before: Value, limit: str | None) -> Iterable[str]:
    if name in TEXTS:
        yield f"'{TEXTS[name]}'"
    if name in SWITCHES:
        yield "'" + ",".join(f"{one.partition('=')[0]}=off" for one in str(before).split(",")) + "'"
    if before in (0, 1):
        yield str(1 - int(before))
    if limit is not None and limit not in ("", "0", "None"):
        yield limit
    # Numbers stand for the members of an enumeration, too.
    yield from ("0", "1", "2", "3")


def idle_sessions_hold_nothing(connection: "pymysql.connections.Connection[Any]", tables: Sequence[str]) -> None:
    """While nothing is written or read, no session is in a transaction, and every table can be changed."""
    with connection.cursor() as cursor:
        seen = []
        for _ in range(2):  # a look at the catalog is a short transaction of its own
            cursor.execute("SELECT trx_id, trx_mysql_thread_id, trx_started FROM information_schema.innodb_trx")
            seen.append(set(cursor.fetchall()))
            time.sleep(3)
        assert not seen[0] & seen[1]
        cursor.execute("SET SESSION lock_wait_timeout = 3")
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} COMMENT = 'changed'")


# ---- PostgreSQL ----

KEPT = {
    "session_preload_libraries": "no library is there",
    "local_preload_libraries": "no library is there",
    "role": "another role has other rights",
    "session_authorization": "another role has other rights",
    "default_tablespace": "there is no other",
    "temp_tablespaces": "there is no other",
    "default_table_access_method": "there is no other",
    "allow_system_table_mods": "of the server's own work",
    "ignore_system_indexes": "of the server's own work",
    "zero_damaged_pages": "hides damage",
    "ignore_checksum_failure": "hides damage",
    "session_replication_role": "of sessions that write",
    "exit_on_error": "ends any session with its first error",
    "log_statement": "only the log",
    "wal_consistency_checking": "of the server's own work",
    "restrict_nonsystem_relation_kind": "of dumps",
    "debug_discard_caches": "takes minutes",
    "temp_file_limit": "only superusers may lift it",
    "io_combine_limit": "of the server's own work",
    "client_connection_check_interval": "the platform may lack it",
}
PG_TEXTS = {
    "DateStyle": "SQL, DMY",
    "TimeZone": "Asia/Kathmandu",
    "client_encoding": "LATIN1",
    "search_path": "elsewhere",
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "timezone_abbreviations": "Australia",
    "default_text_search_config": "pg_catalog.german",
    "transaction_timeout": "300ms",  # of less, a session would end before it can set another
}


def set_unusual_in_postgresql(connection: psycopg.Connection, role: str, database: str, highest: bool) -> list[str]:
    """The settings that the role, or the database, has from now on for sessions to come."""
    rows = connection.execute(
        "SELECT name, setting, vartype, min_val, max_val, enumvals FROM pg_settings"
        " WHERE context IN ('user', 'superuser') ORDER BY name"
    ).fetchall()
    changed = []
    for number, (name, setting, kind, least, most, members) in enumerate(rows):
        value = _unusual(name, setting, kind, (least, most, members), highest)
        if name in KEPT or name.startswith(("log_", "debug_")) or value is None:
            continue
        place = sql.SQL("ROLE {}").format(sql.Identifier(role)) if number % 2 else None
        place = place or sql.SQL("DATABASE {}").format(sql.Identifier(database))
        statement = sql.SQL("ALTER {} SET {} = {}").format(place, sql.Identifier(name), sql.Literal(value))
        with suppress(psycopg.Error):
            connection.execute(statement)
            changed.append(name)
    return changed


def _unusual(
    name: str, setting: str, kind: str, limits: tuple[str, str, list[str] | None], highest: bool
) -> str | None:
    if name in PG_TEXTS:
        return PG_TEXTS[name]
    if kind == "bool":
        return "off" if setting == "on" else "on"
    if kind == "enum":
        return next((m for m in (limits[2] or [])[:: -1 if highest else 1] if m != setting), None)
    if kind in ("integer", "real"):
        # 0 is often no limit at all: 1 then is the lowest.
        least = "1" if limits[0] in ("0", "-1") and setting == limits[0] else limits[0]
        return limits[1] if highest else least
    return None
