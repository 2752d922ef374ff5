"""Programs that are not ours can read a table at any time: during commits, checkpoints, compaction and clean-up."""

import time
from functools import partial
from itertools import count
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession
from typing_extensions import override

from demo.compare import READERS, read_delta
from support.iceberg import local
from support.maintenance import DeltaWalk, IcebergWalk, Walk
from support.postgres import PostgresServer
from support.proof.on_s3 import OnS3
from support.readers import Reads, reading
from support.s3 import S3Server
from support.spark import use_bucket
from support.versions import turns
from tailrace.contract.resources import Catalog, Credentials, TargetSpec
from tailrace.storage.store import Storage
from tailrace.targets.lake.iceberg.catalog import IcebergCatalog
from tailrace.targets.lake.iceberg.java import Java

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
COMMITS, MOST, TIDY = 24, 1200, 6
"""Commits at least and at most, and after how many of them the table is cleaned up."""
READS = 6
"""Of each reader at least: on a slow machine there are more commits until then."""
WHOLE_SECONDS = 1.5
"""An object store lists the times of its objects in whole seconds: up to one too early. Among files of a local folder
there is no such doubt. (In the product both are within `SKEW_SECONDS`.)"""


def work(table: Walk, reads: Reads, skew: float = 0.0) -> None:
    """Everything that a writer does to a table in its life. A clean-up forgets all that no read which is under way can
    have found: a version is dated before its commit, so the longest commit is added."""
    first, longest = {file.path for file in table.table.files()}, 0.0
    for number in count(1):
        begun = time.time()
        table.commit(table.values(table.rng.sample(range(300), 12)), table.some_keys(6))
        if number % 2 == 0:
            table.checkpoint()
        if number % TIDY == 0:
            table.compact()
        longest = max(longest, time.time() - begun)
        if number % TIDY == 0:
            table.kept = table.kept[-1:]
            before = reads.since() - longest - skew
            table.expire(before, table.needed_chunks())
            table.table.sweep(before, table.needed_chunks(), skew)
            forgot = not all(map(table.storage.exists, first))
            if number >= COMMITS and min(reads.done) >= READS and forgot:
                break
            assert number < MOST, "the clean-up forgot nothing"
    print(f"{number} commits, the longest {longest:.1f} s, reads {list(reads.done)}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("format", "walk"), turns(("delta", DeltaWalk), ("iceberg", IcebergWalk)))
def test_readers_meet_no_half_written_and_no_missing_file(
    spark: SparkSession, tmp_path: Path, format: str, walk: type[Walk]
) -> None:
    table = walk(spark, tmp_path, 5)
    table.commit(table.values(range(300)), [])
    with reading(partial(READERS[format], local(table.table.location))) as reads:
        work(table, reads)
    assert not reads.faults


def place(s3: S3Server, folder: Path, **more: object) -> TargetSpec:
    on_s3 = OnS3(s3, folder / "s3-keys")
    on_s3.write_keys()
    return TargetSpec.model_validate({**on_s3.place("lake"), **more})


class DeltaOnS3(DeltaWalk):
    def __init__(self, spark: SparkSession, target: TargetSpec) -> None:
        self._target = target
        super().__init__(spark, Path(), 5)

    @override
    def _storage(self, folder: Path) -> Storage:
        self.location = f"{self._target.lake.location}/readers"
        return Storage.open(self._target.lake)


@pytest.mark.timeout(300)
def test_readers_of_a_delta_table_on_s3_meet_no_half_written_and_no_missing_file(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    use_bucket(spark, s3)
    table = DeltaOnS3(spark, place(s3, tmp_path, type="delta"))
    table.commit(table.values(range(300)), [])
    with reading(partial(read_delta, table.location, OnS3(s3, tmp_path).delta_options)) as reads:
        work(table, reads, WHOLE_SECONDS)
    assert not reads.faults


class IcebergOnS3(IcebergWalk):
    def __init__(self, spark: SparkSession, target: TargetSpec) -> None:
        self._target = target
        super().__init__(spark, Path(), 5)

    @override
    def _storage(self, folder: Path) -> Storage:
        self.catalog, self.namespace = IcebergCatalog.open(Java.of(self.spark), self._target, {}), "readers"
        return Storage.open(self._target.lake)


def read_by_catalog(uri: str, properties: dict[str, str]) -> pa.Table:
    """By pyiceberg, from the place that the catalog's row names at this moment."""
    with psycopg.connect(uri) as connection:
        row = connection.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
    assert row is not None
    return StaticTable.from_metadata(row[0], properties).scan().to_arrow()


@pytest.mark.timeout(300)
def test_readers_of_an_iceberg_table_on_s3_meet_no_missing_file(
    spark: SparkSession, s3: S3Server, postgres: PostgresServer, tmp_path: Path
) -> None:
    login = tmp_path / "catalog-login"
    login.write_text("username=postgres\npassword=not-asked-for\n")
    server = f"postgresql://{postgres.host}:{postgres.port}/postgres"
    catalog = Catalog(type="jdbc", uri=f"jdbc:{server}", credentials=Credentials(file=str(login)))
    table = IcebergOnS3(spark, place(s3, tmp_path, type="iceberg", catalog=catalog))
    table.commit(table.values(range(300)), [])
    uri = server.replace("//", "//postgres@")
    with reading(partial(read_by_catalog, uri, OnS3(s3, tmp_path).iceberg_properties)) as reads:
        work(table, reads, WHOLE_SECONDS)
    assert not reads.faults
