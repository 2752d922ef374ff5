"""MySQL as a source: its log to segments and a table to Parquet, against the same bytes unread and against PyMySQL and
python-mysql-replication.

The incumbents read a part of the rows: they take a minute for a million. Capture's own start is measured first, and
subtracted.
"""

import os
import select
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pymysql.cursors import SSCursor
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from demo.mysql_server import MYSQL, MysqlServer
from tailrace.changelog.records.terms import Position
from tailrace.contract.resources import Replicator
from tailrace.databases.mysql.connect import Connection, connect
from tailrace.sources.mysql.log.connection import LogConnection, Request
from tailrace.sources.mysql.log.framing import Event, EventBatch
from tailrace.sources.mysql.log_end import log_end
from tailrace.sources.mysql.packets import PreparedAnswer
from tailrace.sources.mysql.position import OWN
from tailrace.sources.mysql.source_config import SourceConfig

from . import snapshot
from .capture import Capture
from .measure import Result, Watch, cpu_seconds, until

Write = Callable[[MysqlServer, str, int, int], None]
COLUMNS = """
    id bigint PRIMARY KEY, customer_id bigint NOT NULL, status varchar(20) NOT NULL, amount decimal(12, 2) NOT NULL,
    qty int NOT NULL, price double, paid boolean, created_at timestamp(6) NOT NULL, day date, note text
"""
ROW = """
    g, g * 7919 % 1000003, ELT(1 + g % 4, 'new', 'paid', 'sent', 'done'), g % 100000 / 100.0, g % 50, g * 0.25,
    g % 3 = 0, '2026-01-01' + INTERVAL g SECOND, '2026-01-01' + INTERVAL g % 365 DAY,
    CASE WHEN g % 5 > 0 THEN CONCAT('note ', LEFT(SHA2(g, 256), 32)) END
"""
"""A row as in the stages over PostgreSQL."""
TABLE = "bench.read_me"
SNAPSHOT, ROWS = "MySQL: snapshot", 2_000_000
READER_ID = 4_100_000_000


def server() -> MysqlServer:
    return MysqlServer(MYSQL, innodb_buffer_pool_size="512M", innodb_redo_log_capacity="1G")


def create(server: MysqlServer, table: str) -> None:
    server.script("CREATE DATABASE IF NOT EXISTS bench", f"CREATE TABLE {table} ({COLUMNS})")


def insert(server: MysqlServer, table: str, first: int, last: int) -> None:
    """Rows with these ids, in one transaction."""
    numbers = f"WITH RECURSIVE n (g) AS (SELECT {first} UNION ALL SELECT g + 1 FROM n WHERE g < {last})"
    server.script(
        f"SET cte_max_recursion_depth = {last - first + 1}", f"INSERT INTO {table} {numbers} SELECT {ROW} FROM n"
    )


def insert_one_by_one(server: MysqlServer, table: str, first: int, last: int) -> None:
    """Rows with these ids, each in a transaction of its own."""
    loop = f"DECLARE g int DEFAULT {first}; WHILE g <= {last} DO INSERT INTO {table} SELECT {ROW}; SET g = g + 1"
    server.script(f"CREATE PROCEDURE bench.fill() BEGIN {loop}; END WHILE; END", "CALL bench.fill()")
    server.execute("DROP PROCEDURE bench.fill")


def update(server: MysqlServer, table: str, first: int, last: int) -> None:
    server.execute(f"UPDATE {table} SET qty = qty + 1, status = 'late' WHERE id BETWEEN {first} AND {last}")


def replicator(server: MysqlServer, folder: str, include: str) -> Replicator:
    """A Replicator over the tables `include` with everything below `folder` (a `file://` URI)."""
    source = {"type": "mysql", "host": server.host, "port": server.port, "username": server.user,
              "tls": {"mode": "disable"}}  # fmt: skip
    return Replicator.model_validate({
        "apiVersion": "tailrace.dev/v1alpha1", "kind": "Replicator", "metadata": {"name": "bench"},
        "spec": {"source": source, "tables": {"include": [include]}, "storage": {"location": f"{folder}/log"},
                 "target": {"type": "delta", "location": f"{folder}/lake"}, "apply": {"freshness": "500ms"}},
    })  # fmt: skip


def session(server: MysqlServer) -> Connection:
    return connect(SourceConfig(server.host, server.port, None, server.user, "tailrace bench", tls_mode="disable"))


def end(server: MysqlServer) -> Position:
    with closing(session(server)) as connection:
        return log_end(connection, OWN)


def drain(server: MysqlServer, executed: str, to: Position) -> float:
    """Read the stream behind these transactions up to the position, checksums included, and drop it; CPU seconds."""
    reached = Position(0)
    file = to >> 40 << 40

    def many(events: EventBatch) -> None:
        nonlocal reached
        reached = Position(file + int(events.end[-1]))

    def one(event: Event) -> None:
        nonlocal reached
        reached = Position(file + event[4])

    stream = LogConnection(session(server), Request(READER_ID, executed), mariadb=False)
    with closing(stream):
        begun = time.process_time()
        while reached < to:
            select.select([stream.fileno()], [], [], 10)
            stream.read(one, 1 << 26, 1.0, many)
        return time.process_time() - begun


def replicate(server: MysqlServer, executed: str, rows: int) -> float:
    """Replicates with python-mysql-replication, as Python values, until it has given so many rows; CPU seconds."""
    settings = {"host": server.host, "port": server.port, "user": server.user, "password": ""}
    kinds = [WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent]
    stream = BinLogStreamReader(settings, READER_ID, only_events=kinds, auto_position=executed, blocking=True)
    with closing(stream):
        begun, seen = time.process_time(), 0
        for event in stream:
            seen += len(event.rows)
            if seen >= rows:
                break
        return time.process_time() - begun


def case(server: MysqlServer, folder: Path, name: str, rows: int, write: Write, *, filled: int = 0) -> list[Result]:
    """One kind of writing: capture, its ceiling and the incumbent, which takes a twentieth of the rows."""
    table, stage = f"bench.c_{name}", f"MySQL: capture, {name}"
    create(server, table)
    if filled:
        insert(server, table, 1, filled)
    capture = Capture(replicator(server, (folder / name).as_uri(), table), folder / name)
    capture.start()
    until(lambda: capture.holds(0), "capture answers")
    start_up = cpu_seconds(capture.process.pid)
    capture.stop()
    server.execute("FLUSH BINARY LOGS")
    executed = "".join(str(server.execute("SELECT @@GLOBAL.gtid_executed")[0][0]).split())
    write(server, table, 1, rows)
    high = end(server)
    few = max(rows // 20, 1)
    lines: list[tuple[str, str, int, Callable[[], float]]] = [
        ("drain the stream", "ceiling", rows, lambda: drain(server, executed, high)),
        ("python-mysql-replication", "incumbent", few, lambda: replicate(server, executed, few)),
    ]
    others = []
    for what, role, some, measured in lines:
        with Watch([os.getpid()], server.pid) as watch:
            spent = measured()
        others.append(Result(stage, what, role, some, watch.wall, spent, watch.source_cpu))
    with Watch([], server.pid) as watch:
        capture.start()
        until(lambda: capture.holds(high), "capture has it all", pause=0.2)
        spent = cpu_seconds(capture.process.pid) - start_up
    capture.stop()
    server.execute(f"DROP TABLE {table}")
    return [Result(stage, "capture to segments", "tailrace", rows, watch.wall, spent, watch.source_cpu), *others]


def chunks(server: MysqlServer, folder: Path, rows: int) -> list[Result]:
    """Ours, the rows in the binary protocol unread, and PyMySQL's rows to Parquet."""
    create(server, TABLE)
    insert(server, TABLE, 1, rows)
    work = snapshot.tasks(replicator(server, folder.as_uri(), TABLE), folder, rows)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        snapshot.warm(pool, work, 1)
        with Watch([os.getpid()], server.pid) as watch:
            read = sum(pool.map(snapshot.read, work))
    results = [watch.result(SNAPSHOT, "chunks to Parquet, 1 reader", "tailrace", read)]
    with closing(session(server)) as connection, Watch([os.getpid()], server.pid) as watch:
        read = sum(len(block.starts) for block in PreparedAnswer(connection, f"SELECT * FROM {TABLE}").blocks())
    results.append(watch.result(SNAPSHOT, "binary protocol, unread", "ceiling", read))
    few = max(rows // 10, 1)
    with Watch([os.getpid()], server.pid) as watch:
        read = by_pymysql(server, folder / "pymysql.parquet", few)
    return [*results, watch.result(SNAPSHOT, "PyMySQL's rows to Parquet", "incumbent", read)]


def by_pymysql(server: MysqlServer, path: Path, rows: int) -> int:
    with closing(server.connect(cursorclass=SSCursor)) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {TABLE} WHERE id <= {rows}")
        names = [column[0] for column in cursor.description]
        batches: list[Any] = []
        while found := cursor.fetchmany(50_000):
            batches.append(pa.table([pa.array(column) for column in zip(*found, strict=True)], names))
    table = pa.concat_tables(batches, promote_options="permissive")
    pq.write_table(table, path, compression="zstd")
    return int(table.num_rows)


def run(server: MysqlServer, folder: Path, scale: float) -> list[Result]:
    folder.mkdir()
    rows, small = int(1_000_000 * scale), int(200_000 * scale)
    return [
        *case(server, folder, "inserts_in_one_transaction", rows, insert),
        *case(server, folder, "updates_in_one_transaction", rows, update, filled=rows),
        *case(server, folder, "single_row_transactions", small, insert_one_by_one),
        *chunks(server, folder, int(ROWS * scale)),
    ]
