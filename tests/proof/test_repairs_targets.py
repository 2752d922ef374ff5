"""The repairs that docs/operations.md names for a target that others change and for a disk that is full, executed with
Spark: broken, named, repaired as told, equal. (The disks are small file systems in memory, mounted as root.)
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import SparkSession

from demo.compare import compare
from support.postgres import PostgresServer
from support.process import Program
from support.proof.process import Deployment, status
from support.versions import turns

# Py4J closes its idle connections from the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
EXPECTED = {
    "written": "ForeignChange",
    "replaced": "TargetChanged",
    "hollow": "TargetChanged",
    "dropped": "LogTrimmed",
}
TABLES = sorted(EXPECTED)
DISK = 96 << 20


@pytest.fixture(params=turns("delta", "iceberg"))
def shop(request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path) -> Iterator[Deployment]:
    """The change log and the target lie on disks of their own."""
    spec: dict[str, object] = {"tables": {"include": ["s.*"]}, "retention": {"time": "1s"}}
    made = Deployment(tmp_path / "shop", postgres.source(), request.param, spec)
    with ExitStack() as stack:
        for place in (made.log, made.lake):
            stack.enter_context(disk(place))
        postgres.execute("CREATE SCHEMA s")
        for table in TABLES:
            postgres.execute(f"CREATE TABLE s.{table} (id int PRIMARY KEY, v text)")
            postgres.execute(f"INSERT INTO s.{table} SELECT g, 'v' FROM generate_series(1, 300) g")
        stack.callback(made.close)
        yield made


@contextmanager
def disk(place: Path) -> Iterator[None]:
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def change(server: PostgresServer) -> None:
    for table in TABLES:
        server.execute(f"UPDATE s.{table} SET v = v || '.' WHERE id % 50 = 0")


def equal(server: PostgresServer, shop: Deployment) -> bool:
    with server.connect() as connection:
        try:
            return not compare(connection, [f"s.{table}" for table in TABLES], shop.lake, shop.format)
        except (OSError, TableNotFoundError, DeltaError):  # not there, or not whole
            return False
        except Exception as error:  # delta-rs: a file is gone; readers see that table until its new copy is there
            if "Failed to fetch metadata" not in str(error):
                raise
            return False


def faults(shop: Deployment) -> dict[str, str]:
    """Name by table; of the whole Replicator under an empty name."""
    document = status(shop)
    if document is None:
        return {}
    found = {t["name"].removeprefix("s."): t["fault"]["name"] for t in document["tables"] if t["fault"] is not None}
    return found | ({"": document["fault"]["name"]} if document["fault"] is not None else {})


def advice(shop: Deployment, table: str) -> str:
    document = status(shop)
    assert document is not None
    return str(next(t["fault"]["fix"] for t in document["tables"] if t["name"] == f"s.{table}"))


COMMANDS = {"LogTrimmed": ("snapshot",), "TargetChanged": ("resync",), "ForeignChange": ("verify", "--repair")}
"""Of the document."""
DIFFER = 3


def repair(shop: Deployment, table: str, name: str) -> None:
    done = command(shop, table, *COMMANDS[name])
    assert done.returncode == (DIFFER if name == "ForeignChange" else 0), done.stdout + done.stderr
    assert name != "ForeignChange" or "300 rows: 1 missing, 1 extra, 1 different" in done.stdout, done.stdout


def command(shop: Deployment, table: str, *words: str) -> subprocess.CompletedProcess[str]:
    here = ("-f", str(shop.manifest), "--run-dir", str(shop.state))
    return shop.command(*words, *here, "--tables", f"s.{table}", timeout=200)


def of_others(spark: SparkSession, shop: Deployment) -> Callable[[str], str]:
    """What another program calls a target table."""
    if shop.format == "delta":
        return lambda table: f"delta.`{shop.lake}/s/{table}`"
    settings = {"type": "hadoop", "cache-enabled": "false", "warehouse": str(shop.lake)}
    name = f"others{abs(hash(shop.lake))}"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
    return lambda table: f"{name}.s.{table}"


def break_all(spark: SparkSession, shop: Deployment) -> None:
    name = of_others(spark, shop)
    spark.sql(f"INSERT INTO {name('written')} VALUES (999, 'foreign')").collect()
    spark.sql(f"DELETE FROM {name('written')} WHERE id = 7").collect()
    spark.sql(f"UPDATE {name('written')} SET v = 'foreign' WHERE id = 8").collect()
    if shop.format == "delta":
        spark.sql(f"RESTORE TABLE {name('replaced')} TO VERSION AS OF 1").collect()
    else:
        spark.sql(f"CREATE OR REPLACE TABLE {name('replaced')} (x string) USING iceberg").collect()
    for file in (shop.lake / "s" / "hollow" / "data").rglob("*.parquet"):
        file.unlink()
    subprocess.run(["rm", "-r", str(shop.lake / "s" / "dropped")], check=True)


def segments(shop: Deployment) -> set[Path]:
    return {path for path in (shop.log / "segments").rglob("*") if path.is_file()}


def settled(shop: Deployment, server: PostgresServer, run: Program) -> None:
    change(server)
    run.until(lambda: not faults(shop) and equal(server, shop), 200, "source = target, and nothing fails")


@pytest.mark.timeout(900)
def test_what_others_do_to_a_target_and_a_full_disk_are_named_and_repaired_as_told(
    shop: Deployment, postgres: PostgresServer, spark: SparkSession
) -> None:
    run = shop.start()
    settled(shop, postgres, run)
    first = segments(shop)
    settled(shop, postgres, run)
    # Until then the log has all that a table which was deleted needs, and it comes back by itself.
    run.until(lambda: not first & segments(shop), 200, f"{sorted(first)} removed")
    break_all(spark, shop)
    change(postgres)
    run.until(lambda: faults(shop) == EXPECTED, 200, f"{EXPECTED}, not {faults(shop)}")
    only_looked = command(shop, "written", "verify")
    assert only_looked.returncode == 1 and "s.written is stopped (ForeignChange" in only_looked.stdout, only_looked
    for table, name in EXPECTED.items():
        assert COMMANDS[name][0] in advice(shop, table), advice(shop, table)
        repair(shop, table, name)
    settled(shop, postgres, run)
    assert command(shop, "written", "verify").returncode == 0
    for place in (shop.lake, shop.log):
        fill(place)
        change(postgres)
        run.until(lambda: "StorageFull" in faults(shop).values(), 200, f"StorageFull of {place}")
        (place / "filler").unlink()
        settled(shop, postgres, run)
    assert run.stop() == 0, run.tail()


def fill(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            return
