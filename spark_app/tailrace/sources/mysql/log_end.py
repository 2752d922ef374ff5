"""The end of a server's log, and the transactions that a read that begins now will see. Called by chunks, sessions and
the log.

The chunk rule (docs/dev/design.md#the-chunk-rule) needs what a read sees *before* it and the log's end *after* it: a
transaction is in the log before others see it, and in the executed set only after.
"""

import pymysql
from pymysql.constants import ER

from tailrace.changelog.records.terms import Position
from tailrace.databases.mysql.connect import Connection, execute, server_of, source_errors
from tailrace.databases.mysql.faults import START_OVER
from tailrace.errors import SourceRefused
from tailrace.sources.mysql.facts import account
from tailrace.sources.mysql.position import Numbering
from tailrace.sources.mysql.visibility import GTIDS, POSITION, position_text, snapshot_text

LISTING = "looking for prepared XA transactions, for which MySQL asks the right XA_RECOVER_ADMIN"
"""A description of the step; without the right the server reports a fatal error instead."""


def log_end(connection: Connection, numbering: Numbering) -> Position:
    """`SourceRefused`: the server writes no log, or shows its end to others only."""
    server = server_of(connection)
    renamed = server.product == "mysql" and server.version >= (8, 2)
    with source_errors("looking at the end of the binary log"):
        try:
            found = execute(connection, "SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS")
        except pymysql.OperationalError as error:
            if error.args[0] != ER.SPECIFIC_ACCESS_DENIED_ERROR:
                raise
            right = "REPLICATION CLIENT" if server.product == "mysql" else "BINLOG MONITOR"
            user = account(connection)
            what = f"{user} lacks {right}, without which the server does not show the end of its log"
            raise SourceRefused(what, f"Run `GRANT {right} ON *.* TO {user}`.") from None
    if not found:
        fix = (
            "Set log_bin (MySQL: remove skip_log_bin) and restart the server; MariaDB also stops its log by itself if"
            f" it cannot write it. What was changed meanwhile is in no copy that there was before: {START_OVER}"
        )
        raise SourceRefused("the server writes no binary log", fix)
    return numbering.of(str(found[0][0]), int(found[0][1]))


def visible_transactions(connection: Connection, numbering: Numbering) -> str:
    """The transactions that every read that begins later sees at least: `gtid:<set>`, or `maria:<position>` but for the
    XA transactions that were listed after it, if there are any: `maria:<position>/<numbers>` (`visibility`)."""
    with source_errors("looking at what is visible"):
        if server_of(connection).product == "mysql":
            executed = str(execute(connection, "SELECT @@GLOBAL.gtid_executed")[0][0])
            return GTIDS + "".join(executed.split())
        found = dict(execute(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
    at = {str(name).lower(): str(value) for name, value in found.items()}
    position = numbering.of(at["binlog_snapshot_file"], int(at["binlog_snapshot_position"]))
    return POSITION + position_text(position, prepared(connection))


def current_snapshot(connection: Connection, numbering: Numbering) -> str:
    """The snapshot of a chunk that would be read now (`sources.api.ChunkRead.snapshot`)."""
    return snapshot_text(visible_transactions(connection, numbering), server_of(connection).identity, numbering)


def prepared(connection: Connection) -> set[str]:
    """The XA transactions that are prepared now, as `Transaction.prepares` names them."""
    mysql = server_of(connection).product == "mysql"
    with source_errors(LISTING):
        found = execute(connection, "XA RECOVER CONVERT XID" if mysql else "XA RECOVER")
    return {_xid(int(form), int(length), _bytes(data)) for form, length, _, data in found}


def _xid(form: int, length: int, data: bytes) -> str:
    return f"x'{data[:length].hex()}',x'{data[length:].hex()}',{form}"


def _bytes(data: bytes | str) -> bytes:
    """MySQL writes them as hexadecimal digits."""
    return data if isinstance(data, bytes) else bytes.fromhex(data.removeprefix("0x"))
