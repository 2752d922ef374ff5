"""The replication filters by which a server may have left out changes as a replica, judged by database.

A server that follows the source must have all its changes. Tables that a filter has always kept away are not there to
be looked for, so a rule that names tables counts against the whole database, and one that names servers or domains
against every database. Read by `facts`, judged by `preflight`.
"""

import re
from collections.abc import Collection, Iterable, Mapping

from tailrace.databases.mysql.connect import Connection, Server, execute, replica_status, rows, source_errors
from tailrace.errors import SourceRefused

Rules = Mapping[str, frozenset[str]]
"""The items that each rule names, by the rule's name (`do_db`, `wild_ignore_table`, …)."""
NAMES = ("do_db", "ignore_db", "do_table", "ignore_table", "wild_do_table", "wild_ignore_table", "rewrite_db")
OF_ALL = ("do_domain_ids", "ignore_domain_ids", "ignore_server_ids")
"""They name no database."""
_VARIABLES = "SHOW GLOBAL VARIABLES LIKE 'replicate%'"
_STORED = (
    "SELECT filter_name, filter_rule FROM performance_schema.replication_applier_global_filters",
    "SELECT filter_name, filter_rule FROM performance_schema.replication_applier_filters",
)
_WORD = re.compile(r"[^\s,()]+")


def rules(connection: Connection, server: Server) -> Rules:
    """The rules of all channels, as far as they can be seen: MySQL shows a server that is no longer a replica its
    filters only with SELECT on performance_schema, and those of a removed channel not at all."""
    found: dict[str, set[str]] = {name: set() for name in (*NAMES, *OF_ALL)}
    for name, value in _stated(connection, server):
        known = name.lower().removeprefix("replicate_")
        if known in found:
            found[known] |= set(_WORD.findall(value.replace("`", "").replace("->", ",")))
    return {name: frozenset(items) for name, items in found.items() if items}


def _stated(connection: Connection, server: Server) -> Iterable[tuple[str, str]]:
    for statement in (_VARIABLES,) if server.product == "mariadb" else _STORED:
        for name, value in _asked(connection, statement):
            yield str(name), str(value)
    try:
        with source_errors("looking at the source's replication"):
            status = rows(connection, replica_status(server))
    except SourceRefused:  # another check names the right that is missing
        status = []
    for channel in status:
        yield from ((name, str(value or "")) for name, value in channel.items())


def _asked(connection: Connection, statement: str) -> list[tuple[object, ...]]:
    """Nothing where the right for it is missing."""
    try:
        with source_errors("looking at the source's replication filters"):
            return execute(connection, statement)
    except SourceRefused:
        return []


def left_out(found: Rules, databases: Collection[str]) -> dict[str, str]:
    """Rule -> a database of these of which it may keep changes away."""
    checks = {name: [d for d in sorted(databases) if _concerns(name, items, d, found)] for name, items in found.items()}
    return {f"replicate_{name}": concerned[0] for name, concerned in checks.items() if concerned}


def _concerns(name: str, items: frozenset[str], database: str, found: Rules) -> bool:
    """True if the rule concerns the database. Names that differ only in case depend on the settings of both servers:
    here they count against the database."""
    match name:
        case "do_db":
            return database not in items
        case "ignore_db" | "rewrite_db":
            return database.lower() in {item.lower() for item in items}
        case "do_table" | "wild_do_table":  # of a table that neither names nothing is applied
            return not any(_whole(item, database) for item in found.get("wild_do_table", ()))
        case _ if name in OF_ALL:
            return True
        case _:
            return any(_like(item.partition(".")[0], re.IGNORECASE).fullmatch(database) for item in items)


def _whole(pattern: str, database: str) -> bool:
    """True if it selects every table of the database."""
    named, _, tables = pattern.partition(".")
    return bool(tables) and not tables.strip("%") and _like(named).fullmatch(database) is not None


def _like(pattern: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """`%` and `_` as in LIKE, `\\` before one that means itself."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    return re.compile("".join(wild.get(part) or re.escape(part[-1]) for part in parts), re.DOTALL | flags)
