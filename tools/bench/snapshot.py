"""Reading a table: chunk readers to Parquet, against COPY's bytes alone and against Spark's JDBC source.

Chunk readers run in processes of their own, as Spark's Python workers do in the driver; they are warm when measured.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import psycopg
import pyarrow as pa
from pyspark.sql import SparkSession

from demo.postgres_server import PostgresServer
from tailrace import sources
from tailrace.contract.resources import Replicator
from tailrace.reading.task import ChunkTask, perform
from tailrace.sources.api import KeyRange
from tailrace.storage.store import Storage
from tailrace.targets.lake.chunk_writer import LakeChunkWriter
from tailrace.targets.lake.files.layout import Layout, physical_field

from . import source
from .measure import Result, Watch
from .session import jvm_pid

STAGE = "snapshot"
TABLE = "public.read_me"
ROWS, CHUNK_ROWS = 2_000_000, 250_000


def tasks(replicator: Replicator, folder: Path, rows: int) -> list[ChunkTask]:
    """The table in chunks of equal size."""
    opened = sources.open(replicator.spec.source, "tailrace bench")
    with opened.session() as session:
        (table,) = session.tables(replicator.spec.tables, ())
    schema = table.schema
    layout = Layout(schema, pa.schema([physical_field(f"c{c.id}", c.type, c.id) for c in schema.columns]))
    writer = LakeChunkWriter(layout, (folder / "chunks").as_uri(), Storage.open(replicator.spec.target.lake))
    ends = [*range(CHUNK_ROWS, rows, CHUNK_ROWS), rows]
    parts = [KeyRange((str(low),), (str(high),)) for low, high in zip([0, *ends], ends, strict=False)]
    return [ChunkTask(opened.reader(), table, part, None, writer, "bench", number) for number, part in enumerate(parts)]


def read(task: ChunkTask) -> int:
    return perform(task).rows


def warm(pool: ProcessPoolExecutor, work: list[ChunkTask], readers: int) -> None:
    list(pool.map(read, [replace(work[0], part=KeyRange(None, ("1",)))] * (2 * readers)))


def ours(work: list[ChunkTask], server: PostgresServer, readers: int) -> Result:
    with ProcessPoolExecutor(readers, mp_context=get_context("spawn")) as pool:
        warm(pool, work, readers)
        with Watch([os.getpid()], server.pid) as watch:
            rows = sum(pool.map(read, work))
    return watch.result(STAGE, f"chunks to Parquet, {readers} reader(s)", "tailrace", rows)


def ceiling(server: PostgresServer, rows: int) -> Result:
    """COPY in binary, bytes counted and dropped."""
    with psycopg.connect(server.dsn()) as connection, Watch([os.getpid()], server.pid) as watch:
        statement = f"COPY (SELECT * FROM {TABLE}) TO STDOUT (FORMAT binary)"
        size = 0
        with connection.cursor().copy(statement.encode()) as copy:
            for data in copy:
                size += len(data)
    return watch.result(STAGE, "COPY, bytes only, 1 reader", "ceiling", rows, f"{size / rows:.0f} bytes a row")


def jdbc(spark: SparkSession, server: PostgresServer, folder: Path, rows: int) -> Result:
    """Two partitions by key range, 10,000 rows a fetch, zstd as ours; a small read first warms the JVM."""

    def write(upper: int, name: str) -> None:
        reader = spark.read.format("jdbc").options(
            url=f"jdbc:postgresql://{server.host}:{server.port}/postgres", user="postgres",
            driver="org.postgresql.Driver",
            dbtable=f"(SELECT * FROM {TABLE} WHERE id <= {upper}) t", partitionColumn="id", lowerBound="1",
            upperBound=str(upper), numPartitions="2", fetchsize="10000",
        )  # fmt: skip
        reader.load().write.option("compression", "zstd").parquet(str(folder / name))

    write(max(rows // 10, 1), "jdbc-warm")
    with Watch([jvm_pid(spark)], server.pid) as watch:
        write(rows, "jdbc")
    found = spark.read.parquet(str(folder / "jdbc")).count()
    return watch.result(STAGE, "Spark JDBC to Parquet, 2 partitions", "incumbent", found)


def run(server: PostgresServer, folder: Path, scale: float) -> list[Result]:
    """Ours and the ceiling; the table stays for `jdbc`."""
    rows = int(ROWS * scale)
    source.create(server, TABLE)
    source.insert(server, TABLE, 1, rows)
    server.execute(f"VACUUM ANALYZE {TABLE}")
    work = tasks(source.replicator(server, folder.as_uri(), TABLE), folder, rows)
    results = [ours(work, server, 1), ours(work, server, 2), ceiling(server, rows)]
    if {result.rows for result in results} != {rows}:
        raise AssertionError(f"{rows} rows to read, {[result.rows for result in results]} were read")
    return results
