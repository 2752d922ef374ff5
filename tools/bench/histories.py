"""The price of a history against `Current`, in every target; and a table of all versions, read at a point in time.

    PYTHONPATH=tools python -m bench.histories [--rows 100000] [--updates 1000000] [--batch 40000]
        [--targets delta,iceberg,postgresql,mysql] [--histories Current,SoftDelete,Versions,Changes]

Each target gets a table of eight columns for each history, by the apply stage alone (no source, no capture): the rows,
and then updates of whole rows with random keys, in batches. Counted is the CPU of the updates, commits and upkeep
included: of this process, of the JVM below it, and apart of the target's server. Then Spark and DuckDB count and sum
the rows of a lake's `Versions` at a moment in the middle.
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import servers
from demo.mysql_server import MYSQL, MysqlServer
from demo.postgres_server import PostgresServer
from tailrace import targets
from tailrace.batch.applied import FIRST, AppliedState
from tailrace.batch.history import stored_slice
from tailrace.batch.slice import TableSlice
from tailrace.changelog.history import stored
from tailrace.changelog.records.terms import RecordNumber, Seq, TableSchema
from tailrace.changelog.segments import segment_schema, write_segment
from tailrace.contract.resources import Replicator, StorageLocation, TargetSpec
from tailrace.storage.store import Storage
from tailrace.targets.api import NeededChunks, Opening, Runtime, Unit, UnitBatch

from . import apply, session
from .measure import Watch, machine

LOG, TIDY = "bench", 8
"""Change log's name, and after how many batches the table is tidied up."""
BEGIN, STEP = 1_767_225_600_000_000, 864_000
"""Time of the first commit, and microseconds from one update to the next: a million are of ten days."""
HISTORIES = ("Current", "SoftDelete", "Versions", "Changes")
AT_MOMENT = "SELECT count(*), sum(qty) FROM t WHERE _valid_from <= {0} AND (_valid_to > {0} OR _valid_to IS NULL)"


@dataclass
class Place:
    """One target."""

    name: str
    spec: TargetSpec
    spark: Callable[[], SparkSession]
    server: int | None = None
    """The process of its server."""


class Table:
    """One table of the target, which batches are applied to."""

    def __init__(self, place: Place, folder: Path, history: str, number: int) -> None:
        self.place, self.folder, self.history = place, folder, history
        named = {"table_id": number, "table_name": history.lower()}
        named |= {} if history == "Current" else {"history": history}
        self.schema: TableSchema = apply.SCHEMA.model_copy(update=named)
        self.log = Storage.open(StorageLocation(location=(folder / "log").as_uri()))
        run = Runtime(self.log, lambda: None, place.spark, "memory")
        units = targets.open(place.spec).units(replace(run, scratch=folder / "scratch", scratch_size=1 << 30))
        self.unit: Unit = units.alone()
        kept = stored(self.schema)
        (opened,) = self.unit.open({number: Opening(kept, FIRST)}, LOG).values()
        self.applied: AppliedState = opened.applied

    def change(self, letter: str, keys: apply.Ints) -> None:
        schema, first, count = segment_schema(self.schema), self.applied.applied_seq + 1, len(keys)
        seq = np.arange(first, first + count)
        head = [pa.array(seq), pa.array([letter] * count), pa.array(BEGIN + seq * STEP).cast(pa.timestamp("us", "UTC"))]
        nulls = [pa.nulls(count, schema.field(name).type) for name in schema.names[3:5]]
        rows = pa.table([*head, *nulls, *apply.rows(keys, int(first)).columns], schema=schema)
        part = TableSlice(
            applied=self.applied, table_id=self.schema.table_id, schema=self.schema, versions={1: self.schema},
            start_seq=self.applied.applied_seq, through_seq=Seq(int(seq[-1])),
            through_record=RecordNumber(self.applied.applied_record + 1), clear=False,
            segments=(write_segment(self.log, self.schema, rows),), truncates=(), chunks=(), finished=(), repair=False,
        )  # fmt: skip
        number = self.schema.table_id
        batch = UnitBatch(part.through_record, frozenset({number}), {number: stored_slice(part)})
        self.applied = self.unit.apply(batch)[number]

    def tidy(self) -> None:
        self.unit.tidy(stored(self.schema), self.applied, NeededChunks(frozenset()), 0.0)

    @property
    def path(self) -> Path:
        return self.folder / "lake" / self.schema.schema_name / self.schema.table_name


def measured(table: Table, options: argparse.Namespace) -> None:
    """Fill the table, change it, say what that took."""
    random = np.random.default_rng(1)
    for keys in np.array_split(np.arange(1, options.rows + 1), max(1, options.rows // options.batch)):
        table.change("I", keys.astype(np.int64))
    batches = max(1, options.updates // options.batch)
    with Watch([os.getpid()], table.place.server) as watch:
        for number in range(1, batches + 1):
            table.change("U", random.integers(1, options.rows + 1, options.batch, dtype=np.int64))
            if number % TIDY == 0:
                table.tidy()
    count = batches * options.batch
    server = "" if watch.source_cpu is None else f", {watch.source_cpu / count * 1e6:.1f} of the server"
    print(
        f"{table.place.name}, {table.history}: {count:,} updates of {options.rows:,} rows in {watch.wall:.0f} s,"
        f" {watch.cpu / count * 1e6:.1f} µs of CPU each{server}", flush=True,
    )  # fmt: skip


def read_at_a_moment(table: Table, options: argparse.Namespace) -> None:
    format, moment = table.place.name, BEGIN + (options.rows + options.updates // 2) * STEP
    files = [path for path in table.path.rglob("*.parquet") if "_delta_log" not in path.parts]
    size = sum(path.stat().st_size for path in files)
    print(f"{format}, Versions: {len(files):,} files, {size / 1e6:.0f} MB, former ones and those of an hour included")
    spark = table.place.spark()
    view = spark.read.format(format).load(table.path.as_uri())
    view.createOrReplaceTempView("t")
    told = list[list[str]]()
    for number in range(2):
        with Watch([os.getpid()]) as watch:
            row = spark.sql(AT_MOMENT.format(f"timestamp_micros({moment})")).first()
        told.append([str(value) for value in row or ()])
        print(f"{format}, Versions at a moment, by Spark: {watch.wall:.2f} s, {watch.cpu:.2f} CPU s (run {number + 1})")
    found = by_duckdb(format, table.path, AT_MOMENT.format(f"make_timestamptz({moment})"))
    seconds = ", ".join(f"{one:.2f}" for one in found["seconds"])
    print(f"{format}, Versions at a moment, by DuckDB: {seconds} s", flush=True)
    told.append(found["row"])
    if told[0] != told[-1] or int(told[0][0]) != options.rows:
        raise AssertionError(f"the readers do not agree: {told}")


def by_duckdb(format: str, path: Path, query: str) -> dict[str, Any]:
    what = path
    if format == "iceberg":
        versions = path.glob("metadata/v*.metadata.json")
        what = max(versions, key=lambda found: int(found.name.split(".")[0][1:]))
    script = Path(__file__).parent / "by_duckdb.py"
    command = [str(servers.duckdb_readers()), str(script), format, str(what), query]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@contextmanager
def place_of(name: str, folder: Path, spark: Callable[[], SparkSession]) -> Iterator[Place]:
    if name in ("delta", "iceberg"):
        location = (folder / "lake").as_uri()
        yield Place(name, TargetSpec.model_validate({"type": name, "location": location}), spark)
    elif name == "postgresql":
        with PostgresServer() as server:
            yield Place(name, TargetSpec.model_validate(server_of(server, name) | {"database": "postgres"}),
                        no_spark, server.pid)  # fmt: skip
    else:
        with MysqlServer(MYSQL, innodb_buffer_pool_size="512M", innodb_redo_log_capacity="1G") as server:
            spec = TargetSpec.model_validate(server_of(server, name))
            yield Place(name, spec, no_spark, server.pid)


def server_of(server: PostgresServer | MysqlServer, name: str) -> dict[str, Any]:
    username = server.user if isinstance(server, MysqlServer) else "postgres"
    return {"type": name, "host": server.host, "port": server.port, "username": username}


def no_spark() -> SparkSession:
    raise AssertionError("a database needs no JVM")


def session_in(folder: Path) -> Callable[[], SparkSession]:
    """The session, which is started when it is asked for first."""
    made = list[SparkSession]()

    def spark() -> SparkSession:
        if not made:
            made.append(session.start(replicator(folder), folder))
        return made[0]

    return spark


def replicator(folder: Path) -> Replicator:
    source = {"type": "postgresql", "host": "nowhere", "database": "bench", "username": "bench"}
    return Replicator.model_validate({
        "apiVersion": "tailrace.dev/v1alpha1", "kind": "Replicator", "metadata": {"name": "bench"},
        "spec": {"source": source, "tables": {"include": ["*.*"]},
                 "storage": {"location": (folder / "nothing").as_uri()},
                 "target": {"type": "delta", "location": (folder / "lake").as_uri()}},
    })  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.histories", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--updates", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=40_000)
    parser.add_argument("--targets", default="delta,iceberg,postgresql,mysql")
    parser.add_argument("--histories", default=",".join(HISTORIES))
    options = parser.parse_args(arguments)
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as root:
        spark = session_in(Path(root))
        for name in options.targets.split(","):
            folder = Path(root) / name
            (folder / "log").mkdir(parents=True)
            with place_of(name, folder, spark) as place:
                for number, history in enumerate(options.histories.split(","), start=4711):
                    table = Table(place, folder, history, number)
                    measured(table, options)
                    if history == "Versions" and place.server is None:
                        read_at_a_moment(table, options)
    print(machine())


if __name__ == "__main__":
    main()
