"""A month of small commits in minutes: what a table costs after it is what it cost after the first hour.

All of Tailrace in one process, on real tables. Its periods (how long versions and the change log are kept, upkeep) are
shorter in the same proportion as commits are closer to each other: a commit each five seconds becomes some 25 a second.
`TAILRACE_SOAK_MONTH` is the number of commits to one table (default 20,000; a month at the default freshness would be
500,000), `TAILRACE_SOAK_MONTH_TABLES` to each of 200. What is measured is printed, a line each tenth.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import deltalake
import psutil
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from bench.session import jvm_pid
from support.pipeline import RETRY_SECONDS, lake
from support.scripted_database import Change, Database
from support.scripted_runs import Copy, manifest
from tailrace.apply import applier, upkeep
from tailrace.capture import loop, retention_job
from tailrace.changelog import trim, writer
from tailrace.contract.resources import Replicator
from tailrace.driver.telling import applied_report
from tailrace.targets.lake import table as lake_table
from tailrace.targets.lake.delta import cleanup as delta_cleanup
from tailrace.targets.lake.delta import schema as delta_schema
from tailrace.targets.lake.iceberg import cleanup as iceberg_cleanup
from tailrace.targets.lake.iceberg import history as iceberg_history
from tailrace.targets.lake.kept import HISTORY_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
COMMITS = int(os.environ.get("TAILRACE_SOAK_MONTH", "20000"))
TABLES_COMMITS = int(os.environ.get("TAILRACE_SOAK_MONTH_TABLES", "500"))
FASTER = 125
"""An hour becomes 29 seconds: five seconds become 0.04."""
ROWS, KEYS = 5_000, 10
TENTHS, LOOKS, READS = 10, 5, 30
OF_OTHERS = "lake", "log"
"""Folders that are target and change log; the rest of a run's folder is its own."""
GROWN = 1.3
"""The last tenth may have so many times what the second one has."""


@dataclass(frozen=True)
class Measure:
    cpu_ms: float
    """Of this process, for each commit of a table."""
    jvm_ms: float
    log_files: int
    """Of the tables: transaction logs, manifests, metadata."""
    log_bytes: int
    data_files: int
    """With vectors of deleted rows."""
    data_bytes: int
    journal_files: int
    journal_bytes: int
    run_files: int
    """Of the run directory: what capture and driver keep beside target and log."""
    run_bytes: int
    memory: int
    """Bytes, this process."""
    jvm_memory: int
    read_ms: float
    """CPU of a full read of one table by another implementation, the mean of several: the system counts in 10 ms."""


def sizes(folder: Path) -> dict[Path, int]:
    """By file; some are deleted meanwhile."""
    found = dict[Path, int]()
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                found[path] = path.stat().st_size
    return found


@dataclass
class Month:
    copy: Copy
    spark: "SparkSession"
    format: str
    tables: int

    def __post_init__(self) -> None:
        self.random, self.lake = Random(1), self.copy.folder / "lake"
        driver = self.copy.driver
        self.reporter = applied_report.Reporter(driver.client, driver.progress, lambda: RETRY_SECONDS)
        self.here, self.jvm = psutil.Process(), psutil.Process(jvm_pid(self.spark))

    def tenth(self, commits: int) -> Measure:
        """So many transactions, each of which changes every table; the most that was seen meanwhile."""
        before = self._cpu()
        for _ in range(commits):
            self.commit()
        spent = [(now - then) * 1000 / commits / self.tables for now, then in zip(self._cpu(), before, strict=True)]
        looks = [self._look(commits // 20) for _ in range(LOOKS)]
        return Measure(*spent, *(max(found) for found in zip(*looks, strict=True)), read_ms=self._read())  # type: ignore[arg-type, misc]  # numbers of files and bytes

    def commit(self) -> None:
        database, v = self.copy.database, str(self.random.random())
        keys = self.random.sample(range(1, ROWS // self.tables + 1), KEYS)
        number = database.commit(*(Change("U", t, key, v) for t in range(1, self.tables + 1) for key in keys))
        while (state := self.copy.turn()).position < number or not self.copy.driver.level(state):
            pass
        database.log[number - 1] = []  # the source's own memory is not to be measured
        self.reporter.report(state)

    def _cpu(self) -> tuple[float, float]:
        return tuple(sum(process.cpu_times()[:2]) for process in (self.here, self.jvm))  # type: ignore[return-value]  # two

    def _look(self, commits: int) -> tuple[int, ...]:
        for _ in range(commits):
            self.commit()
        log = "_delta_log" if self.format == "delta" else "metadata"
        found = sizes(self.lake)
        logs = [size for path, size in found.items() if log in path.parts]
        data = [size for path, size in found.items() if log not in path.parts]
        journal = sizes(self.copy.folder / "log").values()
        beside = sizes(self.copy.folder)
        run = [size for path, size in beside.items() if path.relative_to(self.copy.folder).parts[0] not in OF_OTHERS]
        memory = self.here.memory_info().rss, self.jvm.memory_info().rss
        return len(logs), sum(logs), len(data), sum(data), len(journal), sum(journal), len(run), sum(run), *memory

    def _read(self) -> float:
        """Of one table, whose rows must be those of the source."""
        logs = "_delta_log", "metadata"
        (place,) = {p.parent for p in sizes(self.lake) if p.parent.name in logs and p.parent.parent.name == "t1"}
        begun = self._cpu()[0]
        for _ in range(READS):
            assert self._rows(place).num_rows == ROWS // self.tables
        return (self._cpu()[0] - begun) * 1000 / READS

    def _rows(self, place: Path) -> pa.Table:
        if self.format == "delta":
            table = deltalake.DeltaTable(str(place.parent))
            return pa.table(deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t"))
        newest = max(place.glob("*.metadata.json"), key=lambda path: int(path.name.strip("v").partition(".")[0]))
        return StaticTable.from_metadata(str(newest)).scan().to_arrow()


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lake_table, delta_cleanup, iceberg_history):
        monkeypatch.setattr(module, "HISTORY_SECONDS", HISTORY_SECONDS / FASTER)
    for name in delta_schema.HISTORY:
        monkeypatch.setitem(delta_schema.PROPERTIES, name, f"interval {3600 // FASTER} seconds")
    monkeypatch.setattr(lake_table, "SWEEP_SECONDS", lake_table.SWEEP_SECONDS / FASTER)
    monkeypatch.setattr(iceberg_cleanup, "RESTED_SECONDS", iceberg_cleanup.RESTED_SECONDS / FASTER)
    for name in ("TIDY_SECONDS", "IDLE_TIDY_SECONDS", "REST_TIDY_SECONDS"):
        monkeypatch.setattr(upkeep, name, getattr(upkeep, name) / FASTER)
    monkeypatch.setattr(applier, "LOOK_SECONDS", applier.LOOK_SECONDS / FASTER)
    monkeypatch.setattr(loop, "RETENTION_SECONDS", loop.RETENTION_SECONDS / FASTER)
    monkeypatch.setattr(applied_report, "SECONDS", applied_report.SECONDS / FASTER)
    monkeypatch.setattr(trim, "SHORTEST_JOURNAL", trim.SHORTEST_JOURNAL // FASTER)
    monkeypatch.setattr(writer, "ROLLUP_RECORDS", 20)  # an hour has some, also where all tables make few records
    for name in ("HOUR", "DAY"):
        monkeypatch.setattr(retention_job, name, getattr(retention_job, name) / FASTER)


@pytest.mark.usefixtures("faster")
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize(("tables", "commits"), [(1, COMMITS), (200, TABLES_COMMITS)])
def test_the_last_tenth_costs_what_the_second_one_did(
    spark: "SparkSession", tmp_path: Path, format: str, tables: int, commits: int
) -> None:
    database = Database([f"t{number}" for number in range(1, tables + 1)])
    for table in range(1, tables + 1):
        database.commit(*(Change("I", table, i, "first") for i in range(1, ROWS // tables + 1)))
    periods = {"retention": {"time": f"{3600 // FASTER}s"}, "snapshot": {"chunkRows": ROWS}}
    spec = manifest(tmp_path, format, **periods)
    copy = Copy(database, tmp_path, format, lake(Replicator.model_validate(spec), spark))
    copy.document = spec
    with copy.running():
        copy.level()
        month = Month(copy, spark, format, tables)
        found = []
        for tenth in range(TENTHS):
            begun = time.monotonic()
            found.append(month.tenth(commits // TENTHS * 4 // 5))
            took = time.monotonic() - begun
            print(f"{format}, {tables} tables, tenth {tenth + 1}, {took:.0f} s: {found[-1]}", flush=True)
    second, last = found[1], found[-1]
    pairs = {f.name: (getattr(second, f.name), getattr(last, f.name)) for f in fields(Measure)}
    grown = {name: (before, now) for name, (before, now) in pairs.items() if now > GROWN * before}
    assert not grown, grown
