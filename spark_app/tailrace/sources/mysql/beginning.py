"""Where a change log may begin, and whether it may be continued. Reads only: MySQL keeps nothing for its readers, so
there is nothing to make. Called by `subscription`.
"""

from tailrace.changelog.records import Origin, Position, ResumePoint
from tailrace.contract.resources import Replicator
from tailrace.errors import PositionLost, SourceRefused
from tailrace.sources.api import Interrupted, Patience
from tailrace.sources.mysql import ends, position, sql
from tailrace.sources.mysql.connect import Connection, Server, execute, server_of, source_errors
from tailrace.sources.mysql.gtid import GtidSet

PRODUCT, SERVER, SERVER_ID = "product", "server", "server id"
"""Keys of an origin's identity: which of the two products, which server, and who we are to it."""
LOOK = 0.5
"""Seconds between two looks at what a beginning waits for."""
_OURS = 1 << 31
"""Ids from here on are Tailrace's: people number their servers from below."""
_RESYNC = "Run `tailrace resync -f <manifest> --all`, then start: every table is read again."


def identity(server: Server, replicator: Replicator, log_id: str) -> dict[str, str]:
    """For an origin. `log_id`: of which our id as a client is made, unless the manifest names one."""
    return {PRODUCT: server.product, SERVER: server.identity, SERVER_ID: str(server_id(replicator, log_id))}


def server_id(replicator: Replicator, log_id: str) -> int:
    given = replicator.spec.source.mysql.server_id
    return given if given is not None else _OURS + int(log_id.replace("-", "")[-7:], 16)


def here(connection: Connection) -> ResumePoint:
    """The end of the log now. The state decides what the server will send: it is read first, so that nothing lies
    between the two that would be neither sent nor below the position."""
    server = server_of(connection)
    if server.product == "mysql":
        state = ends.seen(connection).removeprefix("gtid:")
        return ResumePoint(position=ends.log_end(connection), source_state=state)
    end = ends.log_end(connection)
    return ResumePoint(position=end, source_state=_mariadb_state(connection, end))


def _mariadb_state(connection: Connection, at: Position) -> str:
    """The last transaction of each domain at this place of the log."""
    with source_errors("looking at the source's transactions"):
        file = str(execute(connection, "SHOW MASTER STATUS")[0][0]).rpartition(".")[0]
        number, _, offset = position.text(at).partition(":")
        found = execute(connection, f"SELECT BINLOG_GTID_POS({sql.text(f'{file}.{number}')}, {offset})")
    return str(found[0][0] or "")


def quiet(connection: Connection, patience: Patience) -> ResumePoint:
    """The end of the log at a moment at which no XA transaction was prepared: the rows of one are in the log from its
    XA PREPARE on, and would lie before the point while its XA COMMIT comes behind."""
    while True:
        while waiting := _prepared(connection):
            patience.waits_for(f"prepared XA transaction {min(waiting)}: XA COMMIT or XA ROLLBACK it")
            if patience.stopping.wait(LOOK):
                raise Interrupted("capture was stopped while it waited for prepared XA transactions")
        patience.waits_for(None)
        point = here(connection)
        if not _prepared(connection):
            return point


def _prepared(connection: Connection) -> set[str]:
    mysql = server_of(connection).product == "mysql"
    with source_errors("looking for prepared XA transactions"):
        found = execute(connection, "XA RECOVER CONVERT XID" if mysql else "XA RECOVER FORMAT='SQL'")
    return {str(row[-1]) for row in found}


def check_server(origin: Origin, server: Server) -> None:
    """`SourceRefused` unless this is the server that the change log was made of."""
    if origin.identity[SERVER] != server.identity or origin.identity[PRODUCT] != server.product:
        raise SourceRefused(
            f"the server is {server.identity}, the change log belongs to {origin.identity[SERVER]}",
            f"Connect to that server, or give its log up: {_RESYNC}",
        )


def check_point(connection: Connection, point: ResumePoint) -> None:
    """`PositionLost` unless the server still has everything after the point, and its history holds what came before."""
    end = ends.log_end(connection)
    if point.position > end:
        raise PositionLost(
            f"the binary log ends at {position.text(end)}, before the change log's {position.text(point.position)}:"
            " the server was restored or its log was reset",
            _RESYNC,
        )
    if server_of(connection).product == "mysql":
        _check_gtids(connection, GtidSet(point.source_state or ""))
    else:
        _check_file(connection, point)


def _check_gtids(connection: Connection, ours: GtidSet) -> None:
    with source_errors("looking at the source's transactions"):
        purged, executed = execute(connection, "SELECT @@GLOBAL.gtid_purged, @@GLOBAL.gtid_executed")[0]
    if not ours >= GtidSet(str(purged)):
        raise PositionLost("the server has purged binary logs that are not in the change log", _RESYNC)
    if not GtidSet(str(executed)) >= ours:
        raise PositionLost("the server does not know transactions that are in the change log: it was restored", _RESYNC)


def _check_file(connection: Connection, point: ResumePoint) -> None:
    with source_errors("looking at the source's binary logs"):
        kept = {position.of(str(row[0]), 0) for row in execute(connection, "SHOW BINARY LOGS")}
    file = position.of(f".{point.position >> position.OFFSET_BITS}", 0)
    if file not in kept:
        raise PositionLost(f"the server has purged the binary log {position.text(point.position)}", _RESYNC)
    there, ours = _numbers(_mariadb_state(connection, point.position)), _numbers(point.source_state or "")
    if any(there.get(domain, 0) < number for domain, number in ours.items()):
        raise PositionLost("the server does not know transactions that are in the change log: it was reset", _RESYNC)


def _numbers(state: str) -> dict[str, int]:
    """The last number of each domain in `domain-server-number,…`."""
    parts = (part.split("-") for part in state.split(",") if part)
    return {domain: int(number) for domain, _, number in parts}
