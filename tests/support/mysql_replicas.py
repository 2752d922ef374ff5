"""A MySQL or MariaDB that replicates another one, and copies of a shop (`mysql_shop`) that follow one or the other."""

from pathlib import Path

from support import mysql_shop
from support.mysql import MysqlServer
from support.pipeline import Pipeline
from support.resources import replicator as document_of
from tailrace.changelog.records.terms import Position


def follow(replica: MysqlServer, primary: MysqlServer) -> None:
    if replica.mariadb:
        ((there,),) = replica.execute("SELECT @@GLOBAL.gtid_binlog_pos")
        place = f"MASTER_HOST = '{primary.host}', MASTER_PORT = {primary.port}, MASTER_USER = 'repl'"
        how = "MASTER_PASSWORD = 'r', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, MASTER_SSL = 0"
        replica.script(f"SET GLOBAL gtid_slave_pos = '{there}'", f"CHANGE MASTER TO {place}, {how}", "START SLAVE")
        return
    place = f"SOURCE_HOST = '{primary.host}', SOURCE_PORT = {primary.port}, SOURCE_USER = 'repl', SOURCE_PASSWORD = 'r'"
    how = "SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1"
    replica.script(f"CHANGE REPLICATION SOURCE TO {place}, {how}", "START REPLICA")


def caught_up(replica: MysqlServer, primary: MysqlServer) -> None:
    if replica.mariadb:
        ((written,),) = primary.execute("SELECT @@GLOBAL.gtid_binlog_pos")
        assert replica.execute("SELECT MASTER_GTID_WAIT(%s, 60)", (written,)) == [(0,)]
        return
    ((executed,),) = primary.execute("SELECT @@GLOBAL.gtid_executed")
    assert replica.execute("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, 60)", (executed,)) == [(0,)]


def promote(replica: MysqlServer) -> None:
    replica.script("STOP REPLICA", "RESET REPLICA ALL")


def copy_of(server: MysqlServer, folder: Path) -> Pipeline:
    document = document_of(
        source=mysql_shop.spec(server),
        tables={"include": ["shop.*"]},
        target={"type": "delta", "location": (folder / "lake").as_uri()},
        storage={"location": (folder / "log").as_uri()},
        snapshot={"chunkRows": 50, "parallelism": 2},
    )
    return Pipeline(document, mysql_shop.source(server), folder)


def read_all(copy: Pipeline) -> None:
    """To where the source's log ends now."""
    origin = copy.state.origin
    assert origin is not None
    with copy.source.bound_to(origin).session() as session:
        end = session.log_end()
    copy.settle(Position(end))
    assert copy.driver.faults() == {}


def level(server: MysqlServer, copy: Pipeline) -> None:
    """Source and target are equal."""
    read_all(copy)
    assert not mysql_shop.differences(server, lambda name: copy.lake.table("shop", name).rows())
