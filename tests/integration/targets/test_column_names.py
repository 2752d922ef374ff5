"""Names of columns that a format's readers reserve or cannot tell apart are refused; all others can be read."""

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from support.iceberg import LOG, Orders, folder_catalog
from support.lake import new_location, table_schema
from tailrace.batch.applied import AppliedState, Generation
from tailrace.changelog.records import Column, RecordNumber, Seq, TableSchema
from tailrace.contract.resources import StorageLocation
from tailrace.errors import SchemaChangeUnsupported
from tailrace.storage.store import Storage
from tailrace.targets.lake.delta import schema as delta_schema
from tailrace.targets.lake.delta.table import DeltaTable
from tailrace.targets.lake.files import write as files
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.iceberg import schema as iceberg_schema
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.model import TableCommit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark leaves the sockets of `collect` to the garbage collector."""


def columns(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name=name, id=10 + i, source_type="text", type="string") for i, name in enumerate(names))


def with_columns(schema: TableSchema, *names: str) -> TableSchema:
    return schema.model_copy(update={"version": 2, "columns": (*schema.columns, *columns(*names))})


def test_the_names_that_iceberg_reserves_are_those_of_its_own_list(spark: "SparkSession") -> None:
    jvm = spark._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    listed = jvm.java.lang.Class.forName("org.apache.iceberg.MetadataColumns", True, loader)
    is_reserved = jvm.org.apache.iceberg.MetadataColumns.isMetadataColumn
    names = set()
    for field in listed.getFields():
        value = field.get(None)
        names.add(value if isinstance(value, str) else str(getattr(value, "name", lambda: "")()))
    assert {name for name in names if is_reserved(name)} == iceberg_schema.RESERVED
    assert len(names) > len(iceberg_schema.RESERVED), "others are free"


@pytest.mark.parametrize("name", ["_row_id", "_POS", "NOTE"])
def test_such_a_column_is_refused_when_it_is_there_when_it_comes_and_after_a_resync(
    spark: "SparkSession", name: str
) -> None:
    orders = Orders(spark)
    wider = with_columns(orders.schema, name)
    refused = pytest.raises(SchemaChangeUnsupported, match=f"{name}.* (reserves|differ only in case)")
    with refused as told:
        IcebergTable(orders.catalog, orders.access, f"t{uuid.uuid4().hex[:10]}", "orders").ensure(wider, LOG)
    assert told.value.table == "public.orders" and told.value.fix.startswith("Rename")
    assert "options[].columns" in told.value.fix and "resync" in told.value.fix
    with pytest.raises(SchemaChangeUnsupported):
        orders.table.commit(TableCommit(orders.next(schema_version=2), evolve=wider))
    with pytest.raises(SchemaChangeUnsupported):
        orders.another().ensure(wider, LOG, Generation(RecordNumber(7), Seq(70)))
    assert orders.read() == {}, "Spark reads what was there"


def test_a_column_that_is_called_like_the_elements_of_a_list_is_refused(spark: "SparkSession") -> None:
    """Iceberg would refuse the schema, with a text that may not be shown, at each attempt."""
    orders = Orders(spark)
    lists = Column(name="tags", id=20, source_type="integer[]", type="list<int32>")
    with_list = orders.schema.model_copy(update={"version": 2, "columns": (*orders.schema.columns, lists)})
    both = with_columns(with_list, "Tags.element")
    with pytest.raises(SchemaChangeUnsupported, match=r"'Tags\.element' has a name that Iceberg reserves"):
        IcebergTable(orders.catalog, orders.access, f"t{uuid.uuid4().hex[:10]}", "orders").ensure(both, LOG)
    with pytest.raises(SchemaChangeUnsupported, match=r"'Tags\.element' has a name that Iceberg reserves"):
        orders.table.commit(TableCommit(orders.next(schema_version=2), evolve=both))
    assert orders.read() == {}


FREE = ("_change_type", "_commit_version", "_commit_timestamp", "_change_ordinal", "file_path", "pos", "row_index")
"""What readers add under these names stands back behind a column."""


@pytest.mark.parametrize(
    "name", ["_metadata", "_METADATA", "_tmp_metadata_row_index", "__delta_internal_is_row_deleted"]
)
def test_a_column_that_would_be_in_the_way_of_deletion_vectors_is_refused(
    spark: "SparkSession", tmp_path: Path, name: str
) -> None:
    schema = table_schema([("id", "int64"), ("v", "string")], ["id"])
    table, _, _ = made(spark, tmp_path, "delta")
    with pytest.raises(SchemaChangeUnsupported, match=f"column '{name}' has a name that Delta reserves"):
        table.ensure(with_columns(schema, name), LOG)
    table.ensure(schema, LOG)
    with pytest.raises(SchemaChangeUnsupported, match=f"column '{name}' has a name that Delta reserves"):
        table.commit(TableCommit(state(1), evolve=with_columns(schema, name)))


@pytest.mark.parametrize(("format", "name"), [("delta", "_metadata"), ("iceberg", "_pos")])
def test_a_table_that_has_such_a_column_already_is_refused_when_it_is_opened(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, name: str
) -> None:
    schema = with_columns(table_schema([("id", "int64")], ["id"]), name)
    table, _, _ = made(spark, tmp_path, format)
    with monkeypatch.context() as former:
        for module in (delta_schema, iceberg_schema):
            former.setattr(module, "RESERVED", frozenset())
        table.ensure(schema, LOG)
    with pytest.raises(SchemaChangeUnsupported, match=f"column '{name}' has a name that \\w+ reserves"):
        table.ensure(schema, LOG)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_names_that_are_not_refused_are_read_by_spark(spark: "SparkSession", tmp_path: Path, format: str) -> None:
    table, storage, name = made(spark, tmp_path, format)
    key = Column(name="id", id=1, source_type="bigint", type="int64", nullable=False, key=0)
    schema = TableSchema(table_id=1, schema_name="public", table_name="t", version=1, columns=(key, *columns(*FREE)))
    table.ensure(schema, LOG)
    layout = Layout(schema, table.arrow_schema(schema))
    rows = pa.table({"id": [1, 2, 3], **{name: ["a", "b", "c"] for name in FREE}})
    table.commit(
        TableCommit(state(1), [new.file for new in files.write_files(storage, table.location, layout, [rows])])
    )
    (file,) = table.files()
    table.commit(TableCommit(state(2), marks={file.path: BitMap64([1])}))
    wanted = [(1, *["a"] * len(FREE)), (3, *["c"] * len(FREE))]
    assert sorted(tuple(row) for row in spark.sql(f"SELECT * FROM {name}").collect()) == wanted
    for column in FREE:
        assert [tuple(row) for row in spark.sql(f"SELECT id FROM {name} WHERE `{column}` = 'c'").collect()] == [(3,)]


def made(spark: "SparkSession", folder: Path, format: str) -> tuple[DeltaTable | IcebergTable, Storage, str]:
    if format == "iceberg":
        catalog, namespace = folder_catalog(spark), f"t{uuid.uuid4().hex[:10]}"
        storage = Storage.open(StorageLocation(location=catalog.location))
        return IcebergTable(catalog, storage, namespace, "t"), storage, f"iceberg.{namespace}.t"
    storage, location = Storage.open(StorageLocation(location=f"file://{folder}")), new_location(folder)
    return DeltaTable(spark, storage, location), storage, f"delta.`{location}`"


def state(step: int) -> AppliedState:
    return AppliedState(LOG, Seq(step), RecordNumber(step), frozenset(), 1, 1)
