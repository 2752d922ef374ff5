"""The repairs that docs/operations.md names for a target that others change and for a disk that is full, executed with
Spark: broken, named, repaired as told, equal. (The disks are small file systems in memory, mounted as root.)

The tables are real, the source is in memory, and all of Tailrace is in the test's process. The commands themselves:
`test_verification.py`.
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from demo.compare import READERS
from support.pipeline import RETRY_SECONDS, lake
from support.scripted_database import Change
from support.scripted_runs import Copy, by_key, filled, manifest
from support.versions import turns
from tailrace import seams
from tailrace.contract.driver import VerificationReport
from tailrace.contract.resources import Replicator
from tailrace.driver.telling.applied_report import Reporter
from tailrace.errors import StorageFull, where_of

# Py4J closes its idle connections from the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
EXPECTED = {
    "written": "ForeignChange",
    "added": "ForeignChange",
    "replaced": "TargetChanged",
    "hollow": "TargetChanged",
    "dropped": "LogTrimmed",
}
TABLES = tuple(EXPECTED)
ROWS, DISK = 100, 32 << 20


@pytest.fixture(params=turns("delta", "iceberg"))
def shop(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Copy]:
    """The change log and the target lie on disks of their own. It is running, and everything is copied."""
    with ExitStack() as stack:
        for place in (tmp_path / "log", tmp_path / "lake"):
            stack.enter_context(disk(place))
        tables = lake(Replicator.model_validate(manifest(tmp_path, request.param)), spark)
        made = Copy(filled(*TABLES, rows=ROWS), tmp_path, request.param, tables)
        made.document["spec"]["snapshot"] = {"parallelism": 2}
        made.document["spec"]["retention"] = {"time": "1s"}
        stack.enter_context(made.running())
        settled(made)
        yield made


@contextmanager
def disk(place: Path) -> Iterator[None]:
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def change(shop: Copy) -> None:
    """Every table."""
    end = shop.database.end
    for number in range(1, len(TABLES) + 1):
        shop.database.commit(Change("U", number, 50, f"at {end}"), Change("I", number, 1000 + end, "+"))


def settled(shop: Copy) -> None:
    """After more changes nothing fails, and a reader that is not ours finds what the source has."""
    change(shop)
    shop.level()
    assert shop.driver.faults() == {}
    for number, name in enumerate(TABLES, 1):
        found = READERS[kind(shop)](place(shop, name)).select(["id", "v"])
        assert by_key(found) == shop.database.rows(number), name


def kind(shop: Copy) -> str:
    return str(shop.document["spec"]["target"]["type"])


def place(shop: Copy, table: str) -> Path:
    return shop.folder / "lake" / "main" / table


def forget_what_is_applied(shop: Copy) -> None:
    """Until then the log has all that a table which was deleted needs, and it comes back by itself."""
    held = set(segments(shop))
    time.sleep(1.1)  # `retention.time`
    Reporter(shop.driver.client, shop.driver.progress, lambda: RETRY_SECONDS).report(shop.state, force=True)
    shop.level()
    shop.stop()  # a run that ends trims
    shop.start()
    assert held and not held & set(segments(shop))


def segments(shop: Copy) -> list[Path]:
    return [path for path in (shop.folder / "log" / "segments").rglob("*") if path.is_file()]


def of_others(spark: SparkSession, shop: Copy) -> Callable[[str], str]:
    """What another program calls a target table."""
    if kind(shop) == "delta":
        return lambda table: f"delta.`{place(shop, table)}`"
    settings = {"type": "hadoop", "cache-enabled": "false", "warehouse": str(shop.folder / "lake")}
    name = f"others{abs(hash(shop.folder))}"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
    return lambda table: f"{name}.main.{table}"


def break_all(spark: SparkSession, shop: Copy) -> None:
    name = of_others(spark, shop)
    spark.sql(f"INSERT INTO {name('written')} VALUES (999, 'foreign')").collect()
    spark.sql(f"INSERT INTO {name('added')} VALUES (999, 'foreign'), (1, 'twice')").collect()
    spark.sql(f"DELETE FROM {name('written')} WHERE id = 7").collect()
    spark.sql(f"UPDATE {name('written')} SET v = 'foreign' WHERE id = 8").collect()
    if kind(shop) == "delta":
        spark.sql(f"RESTORE TABLE {name('replaced')} TO VERSION AS OF 1").collect()
    else:
        spark.sql(f"CREATE OR REPLACE TABLE {name('replaced')} (x string) USING iceberg").collect()
    for file in (place(shop, "hollow") / "data").rglob("*.parquet"):
        file.unlink()
    shutil.rmtree(place(shop, "dropped"))


def repair(shop: Copy, table: str) -> None:
    """By the command that the status names for it."""
    shop.until(lambda _: shop.driver.faults().get(f"main.{table}") == EXPECTED[table], work=True)
    (advice,) = (t.fault.fix for t in shop.driver.control.status().tables if t.fault and t.name == f"main.{table}")
    if EXPECTED[table] == "ForeignChange":
        assert "tailrace verify" in advice and "--repair" in advice, advice
        asked = taken_over_by_one_that_dies(shop, table)
        if table == "added":
            shop.driver.control.stop_snapshot(asked)  # its rows are not compared: all of them are read
            return
        (found,) = report(shop, asked).tables
        counts, rows = found.compared, len(shop.database.rows(1 + TABLES.index(table)))
        assert (counts.rows, counts.missing, counts.extra, counts.different) == (rows, 1, 1, 1), found
        return
    resync = EXPECTED[table] == "TargetChanged"
    assert f"tailrace {'resync' if resync else 'snapshot'}" in advice, advice
    shop.ask(f"main.{table}", resync=resync)


def taken_over_by_one_that_dies(shop: Copy, table: str) -> str:
    """A repair whose process ends between the takeover and the comparison, and the next process."""
    seams._plan, seams._visits = {"takeover.after-commit": ("fail", 1)}, {}
    asked = shop.ask(f"main.{table}", mode="Repair")
    shop.until(lambda _: seams._visits, work=True)
    shop.stop()
    seams._plan = {}
    shop.start()
    (part,) = shop.state.snapshots[asked].tables.values()
    assert (part.chunks_done, part.finished) == (0, None), "its rows are Tailrace's by now, and nobody knows them"
    return asked


def report(shop: Copy, asked: str) -> VerificationReport:
    """Once it has ended."""
    shop.until(lambda state: state.snapshots[asked].ended is not None, work=True)
    return shop.driver.control.report(asked)


@pytest.mark.timeout(600)
def test_what_others_do_to_a_target_and_a_full_disk_are_named_and_repaired_as_told(
    shop: Copy, spark: SparkSession
) -> None:
    forget_what_is_applied(shop)
    break_all(spark, shop)
    change(shop)
    shop.until(lambda _: all_named(shop), work=True)
    (looked,) = report(shop, shop.ask("main.written", mode="Verify")).tables
    assert looked.fault is not None and "main.written is stopped (ForeignChange" in looked.fault.message, looked
    for table in EXPECTED:
        repair(shop, table)
    settled(shop)
    whole = [s.plan.tables for name, s in shop.state.snapshots.items() if name.endswith("-failed")]
    assert whole == [(1 + TABLES.index("added"),)]
    (equal,) = report(shop, shop.ask("main.written", mode="Verify")).tables
    assert equal.compared.rows and not equal.compared.differences and equal.fault is None, equal
    with full(shop.folder / "lake"):
        change(shop)
        shop.until(lambda _: "StorageFull" in shop.driver.faults().values(), work=True)
    settled(shop)
    with full(shop.folder / "log"):
        change(shop)
        assert where_of(shop.broken(StorageFull)) == "storage"
    shop.start()
    settled(shop)


def all_named(shop: Copy) -> bool:
    return shop.driver.faults() == {f"main.{table}": name for table, name in EXPECTED.items()}


@contextmanager
def full(place: Path) -> Iterator[None]:
    with (place / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass
    yield
    (place / "filler").unlink()
