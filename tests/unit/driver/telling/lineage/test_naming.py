"""Names as the client library's own helpers make them."""

from typing import Any

import pytest
from openlineage.client.naming import dataset

from support.resources import MYSQL, SOURCE
from tailrace.contract.dataset_names import DatasetName, of_source
from tailrace.contract.places import SourceSpec
from tailrace.contract.target import TargetSpec
from tailrace.driver.telling.lineage.naming import in_catalog, job_of, of_copy

PG: dict[str, Any] = {"type": "postgresql", "host": "copy", "port": 6432, "database": "dw", "username": "u"}


def source(**fields: Any) -> SourceSpec:
    return SourceSpec.model_validate(fields)


def target(**fields: Any) -> TargetSpec:
    return TargetSpec.model_validate(fields)


def named(by: dataset.DatasetNaming) -> DatasetName:
    return DatasetName(by.get_namespace(), by.get_name())


def test_tables_of_databases_are_named_by_their_server_and_its_port() -> None:
    assert of_source(source(**SOURCE), "public", "a") == named(dataset.Postgres("db", "5432", "shop", "public", "a"))
    assert of_source(source(**MYSQL), "shop", "a") == named(dataset.MySQL("db", "3306", "shop", "a"))
    assert of_copy(target(**PG), "public", "a") == named(dataset.Postgres("copy", "6432", "dw", "public", "a"))
    assert of_copy(target(**PG, schema="in"), "public", "a").name == "dw.in.a"
    into = target(type="mysql", host="copy", username="u", schema="in")
    assert of_copy(into, "shop", "a") == named(dataset.MySQL("copy", "3306", "in", "a"))
    assert of_source(source(**SOURCE | {"host": "::1"}), "s", "t").namespace == "postgres://[::1]:5432"


def test_tables_of_a_lake_are_named_by_their_folder() -> None:
    on_s3 = target(type="delta", location="s3://lake/shop/")
    assert of_copy(on_s3, "public", "a") == named(dataset.S3("lake", "shop/public/a"))
    assert of_copy(target(type="delta", location="s3://lake/x"), "public", "A b").name == "x/public/A!20b"
    local = target(type="iceberg", location="file:///data/lake")
    assert of_copy(local, "public", "a") == named(dataset.LocalFileSystem("/data/lake/public/a"))


def test_tables_of_a_warehouse_have_the_names_that_they_have_there() -> None:
    into = target(type="bigquery", bigquery={"project": "p-1", "dataset": "d", "location": "EU"})
    assert of_copy(into, "public", "straße") == named(dataset.BigQuery("p-1", "d", "stra__xdf_e"))
    where = {"account": "acme-x1", "database": "dw", "schema": "shop", "warehouse": "w", "role": "r", "user": "u"}
    into = target(type="snowflake", snowflake=where, credentials={"file": "k"})
    assert of_copy(into, "public", "straße") == ("snowflake://acme-x1", "DW.SHOP.straße")


@pytest.mark.parametrize(
    "catalog,name",
    [
        (None, ("file:///data/lake", "public.A!20b")),
        ({"type": "rest", "uri": "https://catalog"}, ("https://catalog", "public.A b")),
    ],
)
def test_a_table_in_an_iceberg_catalog_has_its_name_there_besides(
    catalog: dict[str, str] | None, name: tuple[str, str]
) -> None:
    spec = target(type="iceberg", location="file:///data/lake", catalog=catalog)
    assert in_catalog(spec, "public", "A b") == name
    assert in_catalog(target(type="delta", location="file:///data/lake"), "public", "a") is None


def test_a_job_is_named_by_replicator_and_copy() -> None:
    assert job_of("shop", ("public", "a")) == "shop.public.a"
