"""The signal table in the server's catalog. Its rows are always in the binary log; reads only.

Called by preflight and by every look at the catalog.
"""

from collections.abc import Iterator

from tailrace.contract.resources import SourceSpec
from tailrace.databases.mysql.connect import Connection, execute, source_errors
from tailrace.sources.findings import Finding
from tailrace.sources.mysql import sql
from tailrace.sources.mysql.catalog import hidden
from tailrace.sources.mysql.model import quoted
from tailrace.sources.signals import COLUMNS, SIGNAL_TABLE, SignalTable

_TEXTS = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json"))
_TYPES = "varchar(42) PRIMARY KEY", "varchar(32) NOT NULL", "varchar(2048)"


def findings(connection: Connection, source: SourceSpec) -> Iterator[Finding]:
    """None, if the manifest names no signal table."""
    signals = SignalTable.of(source)
    if signals is not None:
        fault = obstacle(connection, signals)
        yield fault or Finding(SIGNAL_TABLE, "ok", f"signals are read from {signals.name}")


def obstacle(connection: Connection, signals: SignalTable) -> Finding | None:
    """Why no signal can be read; None: they can."""
    name = ".".join(map(quoted, signals.place))
    create = f"CREATE TABLE {name} (id {_TYPES[0]}, type {_TYPES[1]}, data {_TYPES[2]})"
    place = f"table_schema = {sql.text(signals.schema_name)} AND table_name = {sql.text(signals.table_name)}"
    wanted = "SELECT column_name, data_type, table_schema, table_name FROM information_schema.columns"
    wanted += f" WHERE {place} ORDER BY ordinal_position"
    with source_errors("looking at the signal table"):
        rows = execute(connection, wanted)
        found = [(str(column), str(kind).lower()) for column, kind, *_ in rows]
        if not found and hidden(connection, *signals.place):
            user = str(execute(connection, "SELECT CURRENT_USER()")[0][0]).rpartition("@")
            grant = f"GRANT SELECT ON {name} TO {sql.text(user[0])}@{sql.text(user[2])}"
            return _fault(f"{user[0]} has no right on the signal table {signals.name}", f"Run `{grant}`.")
    if not found:
        return _fault(f"the signal table {signals.name} does not exist", f"Run `{create}`.")
    called = str(rows[0][2]), str(rows[0][3])
    if called != signals.place:  # the log has the server's name
        named = ".".join(called)
        what = f"the signal table {signals.name} is called {named} by the server (lower_case_table_names)"
        return _fault(what, f"Write source.signalTable: {named}.")
    if len(found) != COLUMNS:
        what = f"the signal table {signals.name} has {len(found)} columns instead of {COLUMNS}: id, type and data"
        return _fault(what, f"Drop it, then run `{create}`.")
    for place_of, (column, kind) in enumerate(found):
        if kind not in _TEXTS:
            what = f"column {column!r} of the signal table {signals.name} has the type {kind}, which is no text"
            alter = f"ALTER TABLE {name} MODIFY {quoted(column)} {_TYPES[place_of].removesuffix(' PRIMARY KEY')}"
            return _fault(what, f"Run `{alter}`.")
    return None


def _fault(message: str, fix: str) -> Finding:
    return Finding(SIGNAL_TABLE, "fail", message, fix)
