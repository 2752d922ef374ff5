"""Columns whose names a format's readers reserve, or cannot tell apart, are called otherwise; all can be read."""

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from support.iceberg import LOG, folder_catalog
from support.lake import new_location, table_schema
from support.one_table import OneTable
from support.postgres import PostgresServer
from support.spark import by_spark
from support.versions import turns
from tailrace.batch.applied import AppliedState, Generation
from tailrace.changelog.records.terms import Column, RecordNumber, Seq, TableSchema
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage
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


RESERVED_BY_DELTA = ("_METADATA", "_tmp_metadata_row_index", "__delta_internal_is_row_deleted")
FREE = ("_change_type", "_commit_version", "_commit_timestamp", "_change_ordinal", "file_path", "pos", "row_index")
"""What readers add under these names stands back behind a column."""


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_such_a_column_has_another_name_when_it_is_there_when_it_comes_and_in_another_generation(
    spark: "SparkSession", tmp_path: Path, format: str
) -> None:
    names = ["_row_id", "_POS", "V", *RESERVED_BY_DELTA]
    shown = {"delta": ["_row_id", "_POS", "V_1", *(f"{name}_1" for name in RESERVED_BY_DELTA)]}
    shown["iceberg"] = ["_row_id_1", "_POS_1", "V_1", *RESERVED_BY_DELTA]
    schema = table_schema([("id", "int64"), ("v", "string")], ["id"])
    wider = with_columns(schema, *names)
    table, storage, name = made(spark, tmp_path, format)
    table.ensure(schema, LOG)
    table.commit(TableCommit(state(1), evolve=wider))
    layout = Layout(wider, table.arrow_schema(wider))
    rows = pa.table({"id": [1, 2, 3], **{name: ["a", "b", "c"] for name in ("v", *names)}})
    table.commit(
        TableCommit(state(2), [new.file for new in files.write_files(storage, table.location, layout, [rows])])
    )
    (file,) = table.files()
    table.commit(TableCommit(state(3), marks={file.path: BitMap64([1])}))
    found = spark.sql(f"SELECT * FROM {name} ORDER BY id")
    assert found.columns == ["id", "v", *shown[format]]
    assert [tuple(row) for row in found.collect()] == [(1, *["a"] * 7), (3, *["c"] * 7)]
    assert with_c_in(spark, name, shown[format]) == [3]
    again = schema.model_copy(update={"columns": wider.columns[:1] + wider.columns[2:]})
    table.ensure(again, LOG, Generation(RecordNumber(7), Seq(70)))
    without = ["V" if name == "V_1" else name for name in shown[format]]
    assert spark.sql(f"SELECT * FROM {name}").columns == ["id", *without]


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
@pytest.mark.postgres(18)
def test_columns_that_differ_only_in_case_are_copied_and_follow_the_source(
    postgres: PostgresServer, spark: "SparkSession", tmp_path: Path, format: str
) -> None:
    """By chunk and by log; also where the second of them is the key, and the first one goes."""
    postgres.execute('CREATE TABLE public.t ("Id" text, id int PRIMARY KEY, _metadata text, _pos int)')
    postgres.execute("INSERT INTO public.t VALUES ('a', 1, 'm', 10), (NULL, 2, 'n', 20)")
    copy = OneTable(postgres, spark, tmp_path, format, {})
    taken = ["_metadata_1", "_pos"] if format == "delta" else ["_metadata", "_pos_1"]

    def rows(key: str, *names: str) -> list[tuple[Any, ...]]:
        found = sorted(copy.copied().to_pylist(), key=lambda row: row[key])
        assert by_spark(spark, format, copy.place, order=key) == found and set(found[0]) == {key, *names}
        return [tuple(row[name] for name in (key, *names)) for row in found]

    with copy.running():
        assert rows("id_1", "Id", *taken) == [(1, "a", "m", 10), (2, None, "n", 20)]
        postgres.execute("""UPDATE public.t SET "Id" = 'b', _pos = 11 WHERE id = 1""")
        postgres.execute("INSERT INTO public.t VALUES ('c', 3, 'o', 30)")
        postgres.execute("DELETE FROM public.t WHERE id = 2")
        assert rows("id_1", "Id", *taken) == [(1, "b", "m", 11), (3, "c", "o", 30)]
        postgres.execute('ALTER TABLE public.t DROP "Id"')
        postgres.execute("UPDATE public.t SET _pos = 31 WHERE id = 3")
        assert rows("id", *taken) == [(1, "m", 11), (3, "o", 31)]
        postgres.execute('ALTER TABLE public.t ADD "ID" text')
        postgres.execute("""INSERT INTO public.t (id, "ID") VALUES (4, 'd')""")
        assert rows("id", "ID_1", *taken) == [(1, None, "m", 11), (3, None, "o", 31), (4, "d", None, None)]
        postgres.execute('ALTER TABLE public.t ADD "ID_1" text, DROP _metadata')  # one that is really called so
        postgres.execute("""INSERT INTO public.t (id, "ID_1") VALUES (5, 'e')""")
        wanted = [(1, None, None, 11), (3, None, None, 31), (4, "d", None, None), (5, None, "e", None)]
        assert rows("id", "ID_2", "ID_1", taken[1]) == wanted
        copy.ask("public.t")
        assert rows("id", "ID_2", "ID_1", taken[1]) == wanted
        assert not any(t.state == "STOPPED" for t in copy.driver.control.status().tables)


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_other_names_stay_and_are_read_by_spark(spark: "SparkSession", tmp_path: Path, format: str) -> None:
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
    assert with_c_in(spark, name, FREE) == [3]


def with_c_in(spark: "SparkSession", name: str, columns: Iterable[str]) -> list[int]:
    """The ids of the rows that have a c in each of the columns."""
    where = " AND ".join(f"`{column}` = 'c'" for column in columns)
    return [row.id for row in spark.sql(f"SELECT id FROM {name} WHERE {where}").collect()]


def made(spark: "SparkSession", folder: Path, format: str) -> tuple[DeltaTable | IcebergTable, Storage, str]:
    if format == "iceberg":
        catalog, namespace = folder_catalog(spark), f"t{uuid.uuid4().hex[:10]}"
        storage = Storage.open(StorageLocation(location=catalog.location))
        return IcebergTable(catalog, storage, namespace, "t"), storage, f"iceberg.{namespace}.t"
    storage, location = Storage.open(StorageLocation(location=f"file://{folder}")), new_location(folder)
    return DeltaTable(lambda: spark, storage, location), storage, f"delta.`{location}`"


def state(step: int) -> AppliedState:
    return AppliedState(LOG, Seq(step), RecordNumber(step), frozenset(), 1, 1)
