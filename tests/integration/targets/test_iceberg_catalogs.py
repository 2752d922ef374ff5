"""Iceberg tables in a JDBC catalog on a real PostgreSQL or behind a REST catalog, their files on a real S3 server."""

import random
import zlib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from servers import POSTGRES_VERSIONS
from support.iceberg import LOG, Orders, create_namespace_late, random_rows
from support.iceberg_rest import IcebergRest, served
from support.postgres import PostgresServer
from support.s3 import S3Server
from support.versions import turns
from tailrace.contract.resources import Catalog, Credentials, TargetSpec
from tailrace.errors import OutcomeUnknown, TargetRefused
from tailrace.storage.store import Storage
from tailrace.targets.lake.iceberg.catalog import IcebergCatalog, catalog_options, file_options, table_location
from tailrace.targets.lake.iceberg.java import CommitConflict, Java
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.model import TableCommit
from tailrace.targets.lake.removal import LakeRemoval

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark leaves the sockets of `collect` to the garbage collector."""


def _place(s3: S3Server, folder: Path, catalog: Catalog) -> TargetSpec:
    keys = folder / "s3-keys"
    keys.write_text(f"accessKeyId={s3.access_key}\nsecretAccessKey={s3.secret_key}\n")
    return TargetSpec(
        type="iceberg",
        location=f"s3://{s3.bucket}/lake",
        endpoint=s3.endpoint,
        region=s3.region,
        path_style=True,
        credentials=Credentials(file=str(keys)),
        catalog=catalog,
    )


def _login(folder: Path, *lines: str) -> Credentials:
    login = folder / "catalog-login"
    login.write_text("\n".join(lines))
    return Credentials(file=str(login))


def _jdbc(postgres: PostgresServer, folder: Path) -> Catalog:
    uri = f"jdbc:postgresql://{postgres.host}:{postgres.port}/postgres"
    return Catalog(type="jdbc", uri=uri, credentials=_login(folder, "username=postgres", "password=not-asked-for"))


@pytest.fixture(scope="module")
def rest(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    folder = tmp_path_factory.mktemp("rest")
    s3_server.new_bucket()
    options = file_options(_place(s3_server, folder, Catalog(type="rest")).lake, {})
    with (
        PostgresServer(max(POSTGRES_VERSIONS)) as postgres,
        served(folder / "server", postgres, {**options, "warehouse": f"s3://{s3_server.bucket}/elsewhere"}) as server,
    ):
        yield server


@pytest.fixture(params=turns("jdbc", "rest"))
def target(request: pytest.FixtureRequest, s3: S3Server, tmp_path: Path) -> TargetSpec:
    if request.param == "jdbc":
        return _place(s3, tmp_path, _jdbc(request.getfixturevalue("postgres"), tmp_path))
    rest: IcebergRest = request.getfixturevalue("rest")
    credentials = _login(tmp_path, f"credential={rest.credential}")
    return _place(s3, tmp_path, Catalog(type="rest", uri=rest.uri, credentials=credentials))


def _orders(spark: "SparkSession", target: TargetSpec) -> Orders:
    assert target.catalog is not None and target.catalog.uri is not None
    name = f"by{zlib.crc32(target.model_dump_json().encode())}"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.cache-enabled", "false")
    for option, value in catalog_options(target, {}).items():
        spark.conf.set(f"spark.sql.catalog.{name}.{option}", value)
    # Spark finds tables by the catalog's name, which the JDBC catalog keeps in its rows.
    catalog = IcebergCatalog.open(Java.of(spark), target, {}, name=name)
    return Orders(spark, catalog, name, Storage.open(target.lake))


@pytest.fixture
def on_s3(spark: "SparkSession", target: TargetSpec) -> Orders:
    return _orders(spark, target)


def test_rows_and_state_on_s3_with_a_catalog(on_s3: Orders) -> None:
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


def test_the_catalog_refuses_the_second_of_two_writers(on_s3: Orders) -> None:
    on_s3.apply(random_rows(random.Random(1), range(5)))
    other = on_s3.another_opened()
    state = on_s3.next()
    on_s3.apply({1: (Decimal("1.00"), "winner")})
    with pytest.raises(CommitConflict):
        other.commit(TableCommit(state, [], on_s3.marks({1}, other)))
    assert other.refresh() == state


def test_a_table_that_somebody_replaced_in_the_catalog_inherits_the_state_and_is_told_from_ours(
    on_s3: Orders, target: TargetSpec
) -> None:
    on_s3.apply(random_rows(random.Random(1), range(5)))
    removal, name = LakeRemoval(target, lambda: on_s3.spark), (on_s3.namespace, "orders")
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


def test_a_rest_catalog_that_dies_after_a_commit_leaves_the_outcome_open_until_the_table_is_read_again(
    spark: "SparkSession", rest: IcebergRest, s3: S3Server, tmp_path: Path
) -> None:
    catalog = Catalog(type="rest", uri=rest.uri, credentials=_login(tmp_path, f"token={rest.token}"))
    on_s3 = _orders(spark, _place(s3, tmp_path, catalog))
    on_s3.apply(random_rows(random.Random(1), range(5)))
    state, change = on_s3.next(), {1: (Decimal("1.00"), "unanswered")}
    commit = TableCommit(state, on_s3.write(change), on_s3.marks({1}))
    rest.die_after_the_next_commit()
    with pytest.raises(OutcomeUnknown):
        on_s3.table.commit(commit)
    assert rest.ended()
    rest.start()
    assert on_s3.another_opened().refresh() == state
    on_s3.rows |= change
    assert on_s3.read() == on_s3.rows


def test_a_rest_catalog_that_refuses_the_login_is_named(
    spark: "SparkSession", rest: IcebergRest, s3: S3Server, tmp_path: Path
) -> None:
    for line in ("token=wrong", "credential=tailrace:wrong"):
        target = _place(s3, tmp_path, Catalog(type="rest", uri=rest.uri, credentials=_login(tmp_path, line)))
        with pytest.raises(TargetRefused):
            IcebergCatalog.open(Java.of(spark), target, {})
