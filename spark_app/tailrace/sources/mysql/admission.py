"""The checks that a change log may begin at a place, or may be continued. Reads only: MySQL keeps nothing for its
readers, so there is nothing to create. Called by `subscription`."""

import threading
from collections.abc import Mapping, Sequence

from pymysql.err import MySQLError

from tailrace.changelog.records import Origin
from tailrace.changelog.records.terms import Position, ResumePoint
from tailrace.contract.resources import Replicator
from tailrace.databases.mysql import faults
from tailrace.databases.mysql.connect import (
    SERVER_ID_PREFIX,
    Connection,
    Server,
    execute,
    server_of,
    source_errors,
)
from tailrace.databases.mysql.faults import START_OVER
from tailrace.errors import PositionLost, SourceRefused
from tailrace.sources.api import Interrupted, Patience
from tailrace.sources.mysql import failover, log_end, sql
from tailrace.sources.mysql.failover import MariadbRead, MysqlRead, NewLog, ReadBefore
from tailrace.sources.mysql.gtid import GtidSet, MariaPosition
from tailrace.sources.mysql.log import anchor
from tailrace.sources.mysql.position import OWN, Numbering, file_of, offset_of
from tailrace.sources.mysql.source_config import SourceConfig
from tailrace.sources.mysql.state import Anchor, SourceState

PRODUCT, SERVER, SERVER_ID, SHIFT = "product", "server", "server id", "files before"
"""Keys of an origin's identity: which of the two products, which server, who we are to it, and how its files are
counted (`position.Numbering`; missing: as the server does)."""
WAITING_COMMIT = 30.0
"""Seconds that a commit may wait for a replica: three times what MySQL allows by default."""
LOOK = 0.5
"""Seconds between two looks at what a beginning waits for."""
_OURS = 1 << 31
"""Ids from here on are Tailrace's: people number their servers from below."""
Files = Mapping[int, tuple[str, int]]
"""The files of the log, by number: names and sizes."""
_PAGE = 1000
"""Events."""
_LONG = 200
"""Characters of a list of transactions in a message."""


def identity(server: Server, replicator: Replicator, log_id: str) -> dict[str, str]:
    """The identity of the server, for an origin. `log_id`: the change log from which Tailrace's id as a client is
    derived, unless the manifest names one."""
    return {PRODUCT: server.product, SERVER: server.identity, SERVER_ID: str(server_id(replicator, log_id))}


def server_id(replicator: Replicator, log_id: str) -> int:
    given = replicator.spec.source.mysql.server_id
    return given if given is not None else _OURS + int(log_id.replace("-", "")[-7:], 16)


def bound(config: SourceConfig, origin: Origin) -> SourceConfig:
    """A copy that accepts only the origin's server, and counts its files as in the change log."""
    return config.bound_to(origin.identity[SERVER], Numbering(int(origin.identity.get(SHIFT, "0"))))


def end_of_log(config: SourceConfig, connection: Connection) -> ResumePoint:
    """The end of the log now. The state decides what the server will send: it is read first, so that nothing is between
    the two that would be neither sent nor below the position. Its anchor is the beginning of the file."""
    server = server_of(connection)
    before = (
        log_end.visible_transactions(connection, OWN).removeprefix("gtid:")
        if server.product == "mysql"
        else _logged(connection)
    )
    end = log_end.log_end(connection, OWN)
    file, _ = anchor.files(connection, OWN)[file_of(end)]
    done = before if server.product == "mysql" else _mariadb_state(connection, before, file, offset_of(end))
    known = anchor.anchor_at(config.bound_to(server.identity), file, OWN.of(file, anchor.FIRST))
    return ResumePoint(end, str(SourceState(done, known)))


def _mariadb_state(connection: Connection, before: str, file: str, offset: int) -> str:
    """The last transaction of each domain at this place of the log; of the other servers those that were in it before,
    or more."""
    with source_errors("looking at the source's transactions"):
        found = execute(connection, f"SELECT BINLOG_GTID_POS({sql.text(file)}, {offset})")
    return str(MariaPosition(",".join(filter(None, (before, str(found[0][0] or ""))))))


def end_without_prepared(config: SourceConfig, connection: Connection, patience: Patience) -> ResumePoint:
    """The end of the log at a moment at which no XA transaction was prepared: the rows of one are in the log from its
    XA PREPARE on, and would be before the point while its XA COMMIT comes behind."""
    while True:
        while waiting := _prepared(connection):
            patience.waits_for(f"prepared XA transaction {min(waiting)}: XA COMMIT or XA ROLLBACK it")
            if patience.stopping.wait(LOOK):
                raise Interrupted("capture was stopped while it waited for prepared XA transactions")
        patience.waits_for(None)
        point = end_of_log(config, connection)
        if not _prepared(connection):
            return point


def _prepared(connection: Connection) -> set[str]:
    mysql = server_of(connection).product == "mysql"
    with source_errors(log_end.LISTING):
        found = execute(connection, "XA RECOVER CONVERT XID" if mysql else "XA RECOVER FORMAT='SQL'")
    return {str(row[-1]) for row in found}


def check_server(origin: Origin, server: Server) -> None:
    """`SourceRefused` unless it can be the server that the change log is read from, or one that follows it."""
    if origin.identity[PRODUCT] != server.product:
        raise SourceRefused(
            f"the server is a {server.product}, the change log belongs to a {origin.identity[PRODUCT]}",
            f"Connect to that server, or give its log up: {START_OVER}",
        )


def check_point(
    config: SourceConfig,
    connection: Connection,
    origin: Origin,
    point: ResumePoint,
    stopping: threading.Event | None = None,
) -> None:
    """`PositionLost` unless the server has the log that was read, and still has everything after the point. Of another
    server than the origin's the GTIDs have to prove it: places in two logs cannot be compared.
    `stopping` is set: `Interrupted`."""
    state, server = SourceState.read(point.source_state), server_of(connection)
    if server.identity != origin.identity[SERVER]:
        log = NewLog(config.bound_to(server.identity), connection, stopping)
        _check_successor(log, origin, state)
        return
    # A commit that waits for a replica is in the log before the server says that it has been executed. (All is checked
    # again: a restored server that is written to may come to have as many transactions.)
    config, ending = bound(config, origin), stopping or threading.Event()
    for _ in range(int(WAITING_COMMIT / LOOK)):
        if _is_own_log(config, connection, point.position, state):
            return
        if ending.wait(LOOK):
            raise Interrupted("capture was stopped while it waited for a commit of the source")
    raise PositionLost(
        f"the server does not know transactions that are in the change log, and did not in {WAITING_COMMIT:.0f} s: it"
        " was restored",
        START_OVER,
    )


def _is_own_log(config: SourceConfig, connection: Connection, position: Position, state: SourceState) -> bool:
    """True if it is the log that was read; False: it may be, but the server has not executed all that was."""
    end, files = log_end.log_end(connection, config.numbering), anchor.files(connection, config.numbering)
    if position > end:
        at, last = map(config.numbering.text, (position, end))
        what = f"the binary log ends at {last}, before the change log's {at}"
        raise PositionLost(f"{what}: the server was restored or its log was reset", START_OVER)
    _check_size(config, files, position)
    mysql = server_of(connection).product == "mysql"
    if mysql:  # before the anchor: the server refuses to send what is found here
        _check_passed_over(config, connection, files, position, state.done)
    if state.anchor is not None:
        _check_anchor(config, files, state.anchor)
    if mysql:
        purged, executed = _gtids(connection)
        _check_purged(purged, GtidSet(state.done))
        return executed >= GtidSet(state.done)
    _check_file(config, connection, files, position, MariaPosition(state.done))
    return True


def failed_over(
    config: SourceConfig, connection: Connection, origin: Origin, point: ResumePoint
) -> tuple[dict[str, str], ResumePoint] | None:
    """Another server has taken the place of the origin's, and `check_point` has found it fit: what it has beyond the
    state is somewhere in its files. They are counted on behind the last one that was read."""
    server = server_of(connection)
    if server.identity == origin.identity[SERVER]:
        return None
    files, done = anchor.files(connection, OWN), SourceState.read(point.source_state).done
    first = failover.first_sent(connection, files, done) if server.product == "mysql" else min(files)
    shift = max(0, file_of(point.position) + 1 - first)
    found = {**origin.identity, SERVER: server.identity, SHIFT: str(shift)}
    begins = Numbering(shift).of(f".{first}", 0)
    return found, ResumePoint(begins, str(SourceState(done)))


def _check_passed_over(config: SourceConfig, connection: Connection, files: Files, at: Position, done: str) -> None:
    """Checks the files that the server passes over: what was written while `gtid_mode` was off has no GTID, and may be
    in them."""
    number = failover.first_sent(connection, files, done)
    for passed in (n for n in sorted(files) if file_of(at) <= n < number):
        begin = max(offset_of(at), anchor.FIRST) if passed == file_of(at) else anchor.FIRST
        _check_anonymous(connection, files[passed][0], begin, config.numbering.text(at))


def _check_anonymous(connection: Connection, file: str, begin: int, read: str) -> None:
    """Checks the file from this place to its end. If no event begins there, it is another log, as the anchor will
    say."""
    while True:
        with source_errors("looking for transactions without GTIDs"):
            try:
                found = execute(connection, f"SHOW BINLOG EVENTS IN {sql.text(file)} FROM {begin} LIMIT {_PAGE}")
            except MySQLError as error:
                if faults.number(error) != anchor.TORN:
                    raise
                return
        if any(row[2] == "Anonymous_Gtid" for row in found):
            what = f"the binary log {file} has transactions without GTIDs behind {read}: gtid_mode was off"
            raise PositionLost(f"{what}, and the server passes over them", START_OVER)
        if len(found) < _PAGE:
            return
        begin = int(found[-1][4])


def _check_size(config: SourceConfig, files: Files, at: Position) -> None:
    """After a crash a server begins another file: what one has lost never comes back in the same place."""
    _, size = files.get(file_of(at), ("", None))
    if size is not None and size < offset_of(at):
        raise PositionLost(
            f"the binary log was read up to {config.numbering.text(at)}, and its file has {size} bytes now: the server"
            " has lost the end of it in a crash, or was restored",
            f"Set sync_binlog = 1, so that this cannot happen again. {START_OVER}",
        )


def _check_anchor(config: SourceConfig, files: Files, known: Anchor) -> None:
    """A file that was purged proves nothing; what follows it in the log must fit then."""
    file, _ = files.get(file_of(known.at), ("", 0))
    _check_size(config, files, Position(known.at + 1))
    if file and anchor.anchor_at(config, file, known.at) != known:
        raise PositionLost(
            f"the binary log has another event at {config.numbering.text(known.at)} than the one that was read there:"
            " another server has the address, or this one was restored or its log was reset",
            START_OVER,
        )


def _check_successor(log: NewLog, origin: Origin, state: SourceState) -> None:
    """Refused, not lost: it may be the wrong server, or a replica that is still behind."""
    server, former = server_of(log.connection), origin.identity[SERVER]
    known = f"the server is {server.identity}, the change log is read from {former}"
    if not state.exact:
        raise SourceRefused(
            f"{known}, where XA transactions were prepared and not decided yet",
            f"Connect to that server, decide them, and move then. If it is gone: {START_OVER}",
        )
    lead = _mysql_lead if server.product == "mysql" else _mariadb_lead
    history, now = lead(log, state.done, (known, former))
    found = failover.unread_before_read(log, history, now)
    if found:
        raise SourceRefused(
            f"{known}, and this server's log has transactions that were not read ({_few(found)}) before others that"
            " were: it was written to while it was a replica",
            f"Connect to a server without them. If there is none: {START_OVER}",
        )


def _mysql_lead(log: NewLog, done: str, texts: tuple[str, str]) -> tuple[ReadBefore, str]:
    """Compares what was read with the new server's log as it is now. That it has all that was read comes before what it
    has purged: a server that was never a copy may have purged anything."""
    ours = GtidSet(done)
    purged, executed = _gtids(log.connection)
    if not executed >= ours:
        raise _lacks(texts[0])
    _check_purged(purged, ours)
    read = MysqlRead(ours, texts[1].lower(), purged)
    failover.read_over(log, read, done)
    return read, str(executed)


def _mariadb_lead(log: NewLog, done: str, texts: tuple[str, str]) -> tuple[ReadBefore, str]:
    """Makes the same comparison for MariaDB. Of a server that the new log does not know, transactions can only stand
    before the log's beginning: numbers of a domain grow, so they do if the log begins behind them."""
    ours, logged = MariaPosition(done), _logged(log.connection)
    if not ours.within(logged):
        raise _lacks(texts[0])
    read, there = ours.numbers(), MariaPosition(logged).numbers()
    unknown = {key: number for key, number in read.items() if key not in there}
    if unknown:
        first = failover.first_numbers(log, {domain for domain, _ in unknown})
        unproven = [f"{d}-{s}-{n}" for (d, s), n in unknown.items() if first.get(d, 0) <= n]
        if unproven:
            raise _lacks(f"{texts[0]}; of {_few(unproven)} and before", "may lack")
    known = {key: number for key, number in read.items() if key in there}
    return MariadbRead(known, texts[1].removeprefix(SERVER_ID_PREFIX)), logged


def _lacks(known: str, how: str = "lacks") -> SourceRefused:
    return SourceRefused(
        f"{known}, and this server {how} transactions that were read there",
        "Connect to a server that has them; a replica: wait until it has applied them. If they were lost in a"
        f" failover: {START_OVER}",
    )


def _few(names: Sequence[str]) -> str:
    text = ", ".join(names)
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"


def _logged(connection: Connection) -> str:
    """MariaDB: the last number of each domain and server that is in the log, or was."""
    with source_errors("looking at the source's transactions"):
        return str(execute(connection, "SELECT @@GLOBAL.gtid_binlog_state")[0][0] or "")


def _gtids(connection: Connection) -> tuple[GtidSet, GtidSet]:
    """The transactions that a MySQL has purged, and all that it has executed."""
    with source_errors("looking at the source's transactions"):
        purged, executed = execute(connection, "SELECT @@GLOBAL.gtid_purged, @@GLOBAL.gtid_executed")[0]
    return GtidSet(str(purged)), GtidSet(str(executed))


def _check_purged(purged: GtidSet, ours: GtidSet) -> None:
    if not ours >= purged:
        raise PositionLost("the server has purged binary logs that are not in the change log", START_OVER)


def _check_file(config: SourceConfig, connection: Connection, files: Files, at: Position, ours: MariaPosition) -> None:
    if file_of(at) not in files:
        raise PositionLost(f"the server has purged the binary log {config.numbering.text(at)}", START_OVER)
    if not ours.within(_logged(connection)):
        raise PositionLost("the server does not know transactions that are in the change log: it was reset", START_OVER)
