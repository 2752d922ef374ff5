"""The price of one commit: small batches over several tables, with the driver's own Spark settings.

    PYTHONPATH=tools python -m bench.commits [--tables 10] [--commits 60] [--formats delta,iceberg]

A batch updates ten rows: it writes a data file, extends a vector, removes a file that is dead, and commits. Printed is
the mean CPU per batch, of this process and of the JVM, and the ratio to the ceiling: one file of the format's log, as
large as the one that the commit has written, created by what creates it (for Iceberg its own library, over the same
gateway).
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from tailrace.changelog.records.terms import Seq
from tailrace.contract.resources import Replicator, TargetSpec
from tailrace.places import Places
from tailrace.spark import session
from tailrace.storage.store import Storage
from tailrace.targets.lake.delta.table import DeltaTable
from tailrace.targets.lake.files.write import write_files
from tailrace.targets.lake.iceberg.catalog import IcebergCatalog
from tailrace.targets.lake.iceberg.java import Java
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.model import FormatTable, TableCommit
from tailrace.targets.lake.table import LakeTable

from .apply import LOG, SCHEMA, Bench, Side, rows
from .measure import cpu_seconds, machine
from .session import jvm_pid

ROWS, KEYS, STEP, CEILING = 200, 10, 7, 500
"""Three of ten keys are those of the batch before, whose file gets a vector; 29 batches later all its rows are dead."""


def replicator(folder: Path, format: str) -> Replicator:
    source = {"type": "postgresql", "host": "127.0.0.1", "database": "postgres", "username": "postgres"}
    return Replicator.model_validate({
        "apiVersion": "tailrace.dev/v1alpha1", "kind": "Replicator", "metadata": {"name": "bench"},
        "spec": {"source": source, "tables": {"include": ["*.*"]}, "storage": {"location": f"{folder.as_uri()}-log"},
                 "target": {"type": format, "location": folder.as_uri()}},
    })  # fmt: skip


class Commits(Bench):
    """Tables of one format, written to in turns."""

    def __init__(self, spark: SparkSession, folder: Path, format: str, tables: int) -> None:
        super().__init__(spark, folder, ROWS)
        self._format, self._numbers = format, [count() for _ in range(tables)]
        opened = [self._open(number) for number in range(tables)]
        self.sides = [Side(format, table, "", "") for table in opened]
        for side in self.sides:
            state, first = side.table.refresh(), [rows(np.arange(ROWS, dtype=np.int64), 0)]
            new = [made.file for made in write_files(self.lake, side.table.location, self.layout(side), first)]
            side.table.commit(TableCommit(replace(state, applied_seq=Seq(1)), new))

    def _open(self, number: int) -> FormatTable:
        table: FormatTable
        if self._format == "delta":
            table = DeltaTable(lambda: self.spark, self.lake, f"{self.folder.as_uri()}/delta/t{number}")
        else:
            target = TargetSpec(type="iceberg", location=(self.folder / "iceberg").as_uri())
            catalog = IcebergCatalog.open(Java.of(self.spark), target)
            table = IcebergTable(catalog, Storage.open(target.lake), "bench", f"t{number}")
        table.ensure(SCHEMA, LOG)
        return table

    def batch(self, number: int) -> Callable[[], object]:
        """The next batch of the table, ready to be applied."""
        side, first = self.sides[number], next(self._numbers[number]) * STEP
        part = self.slice(side.table.refresh(), (first + np.arange(KEYS, dtype=np.int64)) % ROWS)
        table = LakeTable(side.table, self.log, self.lake, None)
        return lambda: table.apply(part)

    def ceiling(self) -> Callable[[], object]:
        """One file of the log, written by the format's own library."""
        jvm: Any = self.spark._jvm
        numbers = count()
        if self._format == "iceberg":
            table: Any = self.sides[0].table
            metadata = table._open()[0].table.operations().current()
            io, parser = table._open()[0].table.io(), jvm.org.apache.iceberg.TableMetadataParser
            return lambda: parser.write(
                metadata, io.newOutputFile(f"{self.folder}/bare/v{next(numbers)}.metadata.json")
            )
        newest = sorted((self.folder / "delta" / "t0" / "_delta_log").glob("*.json"))[-1].read_bytes()
        return lambda: self.lake.create(f"{self.folder.as_uri()}/bare/{next(numbers)}.json", newest)


def spent(pid: int, acts: list[Callable[[], object]]) -> tuple[float, float]:
    """CPU milliseconds per act, of this process and of the JVM."""
    here, there = cpu_self(), cpu_seconds(pid)
    for act in acts:
        act()
    here, there = cpu_self() - here, cpu_seconds(pid) - there
    return here / len(acts) * 1000, there / len(acts) * 1000


def cpu_self() -> float:
    times = os.times()
    return times.user + times.system


def mean(found: list[tuple[float, float]]) -> tuple[float, float]:
    """Not the median: the system counts in hundredths of a second, which is many times what a round costs more or
    less."""
    return statistics.fmean(one for one, _ in found), statistics.fmean(other for _, other in found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.commits", description=__doc__)
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--commits", type=int, default=60, help="of each table, measured ones; half as many before")
    parser.add_argument("--formats", default="delta,iceberg")
    options = parser.parse_args()
    print(machine())
    print("| format | what | driver, CPU ms | JVM, CPU ms | sum | ratio |\n| --- | --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as name:
        for format in options.formats.split(","):
            measure(Path(name) / format, format, options.tables, options.commits)


def measure(folder: Path, format: str, tables: int, commits: int) -> None:
    (folder / "run").mkdir(parents=True)
    spec = replicator(folder, format).spec
    spark = session.start(spec, Places(spec).target, folder / "run", folder / "run" / "spark.log")
    try:
        bench, pid = Commits(spark, folder, format, tables), jvm_pid(spark)
        for _ in range(commits // 2):
            spent(pid, [bench.batch(number) for number in range(tables)])
        found = [spent(pid, [bench.batch(number) for number in range(tables)]) for _ in range(commits)]
        bare = spent(pid, [bench.ceiling()] * CEILING)
        for what, (here, there) in (("batch and commit", mean(found)), ("ceiling: a file of the log", bare)):
            ratio = (here + there) / sum(bare)
            print(f"| {format} | {what} | {here:.1f} | {there:.1f} | {here + there:.1f} | {ratio:.1f} |", flush=True)
    finally:
        session.stop(spark)


if __name__ == "__main__":
    main()
