"""The S3 server of the tests: exclusive creation, Spark tables of both formats, and what a stop looks like."""

import obstore
import pytest
from obstore.store import S3Store
from pyspark.sql import SparkSession

from support.postgres import PostgresServer
from support.s3 import S3Server
from support.spark import use_bucket


def test_only_the_first_of_two_creations_succeeds(s3: S3Server) -> None:
    store = _store(s3)
    obstore.put(store, "journal/1.json", b"first", mode="create")
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.put(store, "journal/1.json", b"second", mode="create")
    assert bytes(obstore.get(store, "journal/1.json").bytes()) == b"first"


def test_every_test_gets_an_empty_bucket(s3: S3Server) -> None:
    assert list(obstore.list(_store(s3)).collect()) == []


def test_delta_tables_live_in_a_bucket(s3: S3Server, spark: SparkSession) -> None:
    use_bucket(spark, s3)
    table = f"delta.`s3a://{s3.bucket}/t`"
    spark.sql(f"CREATE TABLE {table} USING delta AS SELECT id FROM range(10)")
    spark.sql(f"DELETE FROM {table} WHERE id < 4")
    assert spark.table(table).count() == 6


@pytest.mark.postgres(18)
def test_iceberg_tables_live_in_a_bucket_behind_a_jdbc_catalog(
    s3: S3Server, spark: SparkSession, postgres: PostgresServer
) -> None:
    postgres.execute("CREATE DATABASE catalog")
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:postgresql://127.0.0.1:{postgres.port}/catalog",
        ".jdbc.user": "postgres",
        ".jdbc.schema-version": "V1",
        ".warehouse": f"s3://{s3.bucket}/warehouse",
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".client.region": s3.region,
        ".s3.endpoint": s3.endpoint,
        ".s3.path-style-access": "true",
        ".s3.access-key-id": s3.access_key,
        ".s3.secret-access-key": s3.secret_key,
    }
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.bucket{name}", value)
    spark.sql("CREATE NAMESPACE bucket.shop")
    spark.sql("CREATE TABLE bucket.shop.t (id bigint) USING iceberg TBLPROPERTIES ('format-version' = '3')")
    spark.sql("INSERT INTO bucket.shop.t SELECT id FROM range(10)")
    assert spark.table("bucket.shop.t").count() == 10


def _store(s3: S3Server) -> S3Store:
    return S3Store(
        s3.bucket,
        endpoint=s3.endpoint,
        region=s3.region,
        access_key_id=s3.access_key,
        secret_access_key=s3.secret_key,
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
    )
