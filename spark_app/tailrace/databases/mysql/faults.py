"""The meaning of an error of the server, of PyMySQL or of the socket for the caller. Called by `connect` and `chunks`.

Errors are told apart by their numbers, which never change; texts do, with the server's language.
"""

import re
import ssl
from typing import Literal

import pymysql

from tailrace.errors import privacy

START_OVER = (
    "Run `tailrace resync -f <manifest> --all`, then start; in Kubernetes, create a SnapshotRequest with resync: true"
    " and tables: ['*.*']. Every table is read again."
)
"""The step, for fixes, that restores a copy that the log no longer continues."""
Kind = Literal["authentication", "refused", "right", "gone", "locked", "statement", "definition", "passing"]

_OF_ROWS = (1062, 1292, 1366, 1367, 1411, 1525, 1690, 3140, 3141)
"""Their texts repeat values."""
_STATEMENT = (1054, 1064, 1052, 1111, 1149, 1210, 1241, 1242, 1267, 1271, 1305, 1318, 1365, 1582, 1630, 3995)
"""Syntax; unknown column, function or collation."""
_KINDS: dict[Kind, tuple[int, ...]] = {
    # access denied, no such host, password expired, account locked, plugin not loaded
    "authentication": (1045, 1130, 1698, 1820, 1862, 3118, 4151, 2059, 1251),
    # TLS is required or missing
    "refused": (3159, 2026),
    # on a database, table, column, or for a statement; to list XA transactions
    "right": (1044, 1142, 1143, 1227, 1370, 1401),
    # no such table or database
    "gone": (1146, 1049, 1051),
    # lock wait timeout, metadata lock, deadlock, no lock at once
    "locked": (1205, 1213, 3572),
    "statement": _STATEMENT + _OF_ROWS,
    # what a table has, or is to have: not null, too large a row, key or number of columns, a name twice, foreign keys,
    # checks, the word of a trigger
    "definition": (1048, 1364, 1050, 1060, 1071, 1074, 1117, 1118, 1451, 1452, 1644, 3819, 4025),
}

_FULL = "End connections that nobody needs, or raise max_connections, or the user's limits (MAX_USER_CONNECTIONS, …)."
CROWDED = (1040, 1203, 1226)
"""The server, or the user, has all the connections that it may have: Tailrace's other connections continue."""
_NO_ROOM = (1021, 1114, 1878, 3675)
"""Disk full; a table (or a temporary one, a file of a statement, or a new table) found no room."""
_ERRNO_28 = re.compile(r"\berr(?:or|no|code):? 28\b", re.IGNORECASE)
"""ENOSPC of the server's system in texts of other errors. (Sessions that write have them in English.)"""
HELP = {
    **dict.fromkeys(CROWDED, _FULL),
    1461: "Raise max_prepared_stmt_count on the server: each chunk is read by a prepared statement.",
    1129: "Run `TRUNCATE TABLE performance_schema.host_cache` on the server (MariaDB: `FLUSH HOSTS`).",
    1021: "Make room on the disk of the server.",
    1205: "If it lasts: `SELECT trx_mysql_thread_id, trx_started FROM information_schema.innodb_trx` shows who has kept"
    " it locked, and `KILL` ends that session.",
    3032: "Run `SET GLOBAL offline_mode = OFF` on the server.",
}
"""The fixes for a server that is running but refuses connections, or can do nothing."""


def number(error: Exception) -> int:
    """0: the error has none."""
    first = error.args[0] if error.args else None
    return first if isinstance(first, int) and not isinstance(error, OSError) else 0


def is_no_room(error: Exception) -> bool:
    """True if a disk of the server is full."""
    said = str(error.args[1]) if number(error) and len(error.args) > 1 else ""
    return number(error) in _NO_ROOM or bool(_ERRNO_28.search(said))


def kind(error: Exception) -> Kind:
    below = getattr(error, "original_exception", error)
    if isinstance(below, ssl.SSLCertVerificationError):
        return "refused"
    found = number(error)
    return next((kind for kind, numbers in _KINDS.items() if found in numbers), "passing")


def text(error: Exception) -> str:
    """The error's message, without what may be a row's."""
    found = number(error)
    if not isinstance(error, pymysql.MySQLError):
        return _line(f"{type(error).__name__}: {error}")
    said = _line(str(error.args[1])) if len(error.args) > 1 else type(error).__name__
    if found in _OF_ROWS and not privacy.showing():
        said = privacy.WITHHELD
    return f"{said} (error {found})" if found else said


def connect_text(error: Exception) -> str:
    """No row has been asked for yet: everything may be said."""
    said = str(error.args[1]) if len(error.args) > 1 else str(error)
    return _line(said)


def _line(text: str) -> str:
    return " ".join(text.split())
