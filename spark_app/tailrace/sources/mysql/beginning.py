"""Where a change log may begin, and whether it may be continued. Reads only: MySQL keeps nothing for its readers, so
there is nothing to make. Called by `subscription`.
"""

from collections.abc import Mapping

from tailrace.changelog.records import Origin, Position, ResumePoint
from tailrace.contract.resources import Replicator
from tailrace.errors import PositionLost, SourceRefused
from tailrace.sources.api import Interrupted, Patience
from tailrace.sources.mysql import ends, position, sql
from tailrace.sources.mysql.connect import Connection, MyConfig, Server, execute, server_of, source_errors
from tailrace.sources.mysql.gtid import GtidSet, MariaPosition
from tailrace.sources.mysql.log import witness
from tailrace.sources.mysql.state import SourceState, Witness

PRODUCT, SERVER, SERVER_ID = "product", "server", "server id"
"""Keys of an origin's identity: which of the two products, which server, and who we are to it."""
LOOK = 0.5
"""Seconds between two looks at what a beginning waits for."""
_OURS = 1 << 31
"""Ids from here on are Tailrace's: people number their servers from below."""
Files = Mapping[int, tuple[str, int]]
"""Of the log, by number: names and sizes."""
_RESYNC = "Run `tailrace resync -f <manifest> --all`, then start: every table is read again."


def identity(server: Server, replicator: Replicator, log_id: str) -> dict[str, str]:
    """For an origin. `log_id`: of which our id as a client is made, unless the manifest names one."""
    return {PRODUCT: server.product, SERVER: server.identity, SERVER_ID: str(server_id(replicator, log_id))}


def server_id(replicator: Replicator, log_id: str) -> int:
    given = replicator.spec.source.mysql.server_id
    return given if given is not None else _OURS + int(log_id.replace("-", "")[-7:], 16)


def here(config: MyConfig, connection: Connection) -> ResumePoint:
    """The end of the log now. The state decides what the server will send: it is read first, so that nothing lies
    between the two that would be neither sent nor below the position. Its witness is the beginning of the file."""
    executed = ends.seen(connection).removeprefix("gtid:")
    end = ends.log_end(connection)
    done = executed if server_of(connection).product == "mysql" else _mariadb_state(connection, end)
    file, _ = witness.files(connection)[end >> position.OFFSET_BITS]
    at = Position(position.of(file, witness.FIRST))
    return ResumePoint(end, str(SourceState(done, witness.witness_at(_bound(config, connection), file, at))))


def _bound(config: MyConfig, connection: Connection) -> MyConfig:
    return config.bound_to(server_of(connection).identity)


def _mariadb_state(connection: Connection, at: Position) -> str:
    """The last transaction of each domain at this place of the log."""
    with source_errors("looking at the source's transactions"):
        file = str(execute(connection, "SHOW MASTER STATUS")[0][0]).rpartition(".")[0]
        number, _, offset = position.text(at).partition(":")
        found = execute(connection, f"SELECT BINLOG_GTID_POS({sql.text(f'{file}.{number}')}, {offset})")
    return str(found[0][0] or "")


def quiet(config: MyConfig, connection: Connection, patience: Patience) -> ResumePoint:
    """The end of the log at a moment at which no XA transaction was prepared: the rows of one are in the log from its
    XA PREPARE on, and would lie before the point while its XA COMMIT comes behind."""
    while True:
        while waiting := _prepared(connection):
            patience.waits_for(f"prepared XA transaction {min(waiting)}: XA COMMIT or XA ROLLBACK it")
            if patience.stopping.wait(LOOK):
                raise Interrupted("capture was stopped while it waited for prepared XA transactions")
        patience.waits_for(None)
        point = here(config, connection)
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


def check_point(config: MyConfig, connection: Connection, point: ResumePoint) -> None:
    """`PositionLost` unless this is the log that was read, and the server still has everything after the point."""
    end, state = ends.log_end(connection), SourceState.read(point.source_state)
    if point.position > end:
        raise PositionLost(
            f"the binary log ends at {position.text(end)}, before the change log's {position.text(point.position)}:"
            " the server was restored or its log was reset",
            _RESYNC,
        )
    files = witness.files(connection)
    _check_size(files, point.position)
    if state.witness is not None:
        _check_witness(_bound(config, connection), files, state.witness)
    if server_of(connection).product == "mysql":
        _check_gtids(connection, GtidSet(state.done))
    else:
        _check_file(connection, files, point.position, MariaPosition(state.done))


def _check_size(files: Files, at: Position) -> None:
    """After a crash a server begins another file: what one has lost never comes back in the same place."""
    _, size = files.get(at >> position.OFFSET_BITS, ("", None))
    if size is not None and size < at & ((1 << position.OFFSET_BITS) - 1):
        raise PositionLost(
            f"the binary log was read up to {position.text(at)}, and its file has {size} bytes now: the server has lost"
            " the end of it in a crash, or was restored",
            f"Set sync_binlog = 1, so that this cannot happen again. {_RESYNC}",
        )


def _check_witness(config: MyConfig, files: Files, known: Witness) -> None:
    """A file that was purged proves nothing; what follows it in the log must fit then."""
    file, _ = files.get(known.at >> position.OFFSET_BITS, ("", 0))
    if file and witness.witness_at(config, file, known.at) != known:
        raise PositionLost(
            f"the binary log has another event at {position.text(known.at)} than the one that was read there: another"
            " server has the address, or this one was restored or its log was reset",
            _RESYNC,
        )


def _check_gtids(connection: Connection, ours: GtidSet) -> None:
    with source_errors("looking at the source's transactions"):
        purged, executed = execute(connection, "SELECT @@GLOBAL.gtid_purged, @@GLOBAL.gtid_executed")[0]
    if not ours >= GtidSet(str(purged)):
        raise PositionLost("the server has purged binary logs that are not in the change log", _RESYNC)
    if not GtidSet(str(executed)) >= ours:
        raise PositionLost("the server does not know transactions that are in the change log: it was restored", _RESYNC)


def _check_file(connection: Connection, files: Files, at: Position, ours: MariaPosition) -> None:
    if at >> position.OFFSET_BITS not in files:
        raise PositionLost(f"the server has purged the binary log {position.text(at)}", _RESYNC)
    if not MariaPosition(_mariadb_state(connection, at)) >= ours:
        raise PositionLost("the server does not know transactions that are in the change log: it was reset", _RESYNC)
