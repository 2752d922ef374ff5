"""Programs that are not ours can read a table at any time: during commits, checkpoints, compaction and clean-up."""

import time
from functools import partial
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession
from typing_extensions import override

from demo.compare import READERS
from support.iceberg import local
from support.maintenance import DeltaWalk, IcebergWalk, Walk
from support.postgres import PostgresServer
from support.proof.on_s3 import OnS3
from support.readers import Reads, reading
from support.s3 import S3Server
from tailrace.contract.resources import Catalog, Credentials, TargetSpec
from tailrace.storage.store import Storage
from tailrace.targets.lake.iceberg.catalog import IcebergCatalog
from tailrace.targets.lake.iceberg.java import Java

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
COMMITS = 50
READ_SECONDS = 20.0
"""What was replaced is kept for so long, instead of an hour."""


def work(table: Walk) -> None:
    """Everything that a writer does to a table in its life."""
    for number in range(1, COMMITS + 1):
        table.commit(table.values(table.rng.sample(range(300), 12)), table.some_keys(6))
        if number % 2 == 0:
            table.checkpoint()
        if number % 10 == 0:
            table.compact()
            table.kept = table.kept[-1:]
            table.expire(time.time() - READ_SECONDS, table.needed_chunks())
            table.table.sweep(time.time() - READ_SECONDS, table.needed_chunks(), 0.0)


def check(reads: Reads) -> None:
    print(f"{COMMITS} commits, reads {reads.done}")
    assert not reads.faults
    assert min(reads.done) > 5


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("format", "walk"), [("delta", DeltaWalk), ("iceberg", IcebergWalk)])
def test_readers_meet_no_half_written_and_no_missing_file(
    spark: SparkSession, tmp_path: Path, format: str, walk: type[Walk]
) -> None:
    table = walk(spark, tmp_path, 5)
    table.commit(table.values(range(300)), [])
    with reading(partial(READERS[format], local(table.table.location))) as reads:
        work(table)
    check(reads)


def place(s3: S3Server, folder: Path, **more: object) -> TargetSpec:
    on_s3 = OnS3(s3, folder / "s3-keys")
    on_s3.write_keys()
    return TargetSpec.model_validate({**on_s3.place("lake"), **more})


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


@pytest.mark.timeout(600)
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
        work(table)
    check(reads)
