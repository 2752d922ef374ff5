"""Iceberg tables in a JDBC catalog on a real PostgreSQL, their files on a real S3 server."""

import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.iceberg import LOG, Orders, create_namespace_late, random_rows
from support.postgres import PostgresServer
from support.s3 import S3Server
from tailrace.contract.resources import Catalog, Credentials, TargetSpec
from tailrace.storage.store import Storage
from tailrace.targets.lake.iceberg.catalog import IcebergCatalog, catalog_options, table_location
from tailrace.targets.lake.iceberg.java import CommitConflict, Java
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.model import TableCommit
from tailrace.targets.lake.removal import LakeRemoval

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark leaves the sockets of `collect` to the garbage collector."""


def _target(postgres: PostgresServer, s3: S3Server, folder: Path) -> TargetSpec:
    keys, login = folder / "s3-keys", folder / "catalog-login"
    keys.write_text(f"accessKeyId={s3.access_key}\nsecretAccessKey={s3.secret_key}\n")
    login.write_text("username=postgres\npassword=not-asked-for\n")
    return TargetSpec(
        type="iceberg",
        location=f"s3://{s3.bucket}/lake",
        endpoint=s3.endpoint,
        region=s3.region,
        path_style=True,
        credentials=Credentials(file=str(keys)),
        catalog=Catalog(
            type="jdbc",
            uri=f"jdbc:postgresql://{postgres.host}:{postgres.port}/postgres",
            credentials=Credentials(file=str(login)),
        ),
    )


@pytest.fixture
def on_s3(spark: "SparkSession", postgres: PostgresServer, s3: S3Server, tmp_path: Path) -> Orders:
    target = _target(postgres, s3, tmp_path)
    name = f"jdbc{postgres.port}"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.cache-enabled", "false")
    for option, value in catalog_options(target, {}).items():
        spark.conf.set(f"spark.sql.catalog.{name}.{option}", value)
    # Spark finds tables by the catalog's name, which the JDBC catalog keeps in its rows.
    catalog = IcebergCatalog.open(Java.of(spark), target, {}, name=name)
    return Orders(spark, catalog, name, Storage.open(target.lake))


def test_rows_and_state_on_s3_with_a_jdbc_catalog(on_s3: Orders) -> None:
    on_s3.apply(random_rows(random.Random(1), range(30)))
    on_s3.apply(random_rows(random.Random(2), range(20, 40)), deletes=[0, 1])
    assert on_s3.table.location == f"{on_s3.catalog.location}/{on_s3.namespace}/orders"
    on_s3.call("rewrite_data_files", ", options => map('rewrite-all', 'true')")
    again = on_s3.another_opened()
    assert again.refresh().applied_record == 2
    assert on_s3.read() == on_s3.rows
    on_s3.apply({3: (Decimal("3.00"), "after compaction")}, deletes=[4])
    assert on_s3.read() == on_s3.rows


def test_tables_that_are_opened_first_at_the_same_time_share_a_namespace(on_s3: Orders) -> None:
    create_namespace_late(on_s3)


def test_the_jdbc_catalog_refuses_the_second_of_two_writers(on_s3: Orders) -> None:
    on_s3.apply(random_rows(random.Random(1), range(5)))
    other = on_s3.another_opened()
    state = on_s3.next()
    on_s3.apply({1: (Decimal("1.00"), "winner")})
    with pytest.raises(CommitConflict):
        other.commit(TableCommit(state, [], on_s3.marks({1}, other)))
    assert other.refresh() == state


def test_a_table_that_somebody_replaced_in_the_catalog_inherits_the_state_and_is_told_from_ours(
    on_s3: Orders, postgres: PostgresServer, s3: S3Server, tmp_path: Path
) -> None:
    on_s3.apply(random_rows(random.Random(1), range(5)))
    removal, name = LakeRemoval(_target(postgres, s3, tmp_path), lambda: on_s3.spark), (on_s3.namespace, "orders")
    removal._opened = on_s3.catalog  # under the name that Spark has here
    on_s3.call("rewrite_data_files", ", options => map('rewrite-all', 'true')")
    ours = removal.owner(name)
    assert ours is not None and (ours.log_id, ours.altered) == (LOG, False)
    on_s3.spark.sql(f"CREATE OR REPLACE TABLE {on_s3.sql_name} USING iceberg AS SELECT 1 AS theirs")
    theirs = removal.owner(name)
    assert theirs is None or theirs.altered
    removal.drop(name)
    assert not removal.in_catalog(name) and not removal.exists(name)


def test_a_table_dropped_from_the_catalog_is_named(on_s3: Orders) -> None:
    on_s3.apply(random_rows(random.Random(1), range(5)))
    on_s3.spark.sql(f"DROP TABLE {on_s3.sql_name}")
    with pytest.raises(CommitConflict, match="dropped or re-created"):
        on_s3.table.refresh()


def test_names_that_need_quoting_get_a_place_of_their_own(on_s3: Orders) -> None:
    odd = IcebergTable(on_s3.catalog, on_s3.access, 'My"S', "a/b.c%")
    assert odd.ensure(on_s3.schema, LOG).applied_record == 0
    assert odd.location == table_location(on_s3.catalog.location, 'My"S', "a/b.c%")
    assert odd.location.endswith("/My!22S/a!2fb.c!25")
