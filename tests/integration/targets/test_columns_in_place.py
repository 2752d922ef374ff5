"""Columns that are dropped, renamed or of another type as programs that are not ours see them: in one version, no file
rewritten, older versions as they were."""

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from demo.compare import READERS
from support.iceberg import folder_catalog, local
from support.versions import turns
from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import Column, RecordNumber, Seq, TableSchema
from tailrace.contract.resources import StorageLocation
from tailrace.errors import TargetChanged
from tailrace.storage.store import Storage
from tailrace.targets.lake.delta.table import DeltaTable
from tailrace.targets.lake.files import write as files
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.model import FormatTable, TableCommit

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark leaves the sockets of `collect` to the garbage collector."""

Rows = list[dict[str, Any]]
RETYPED = 65540
"""Column 4 after it got another type."""
FORMS: list[tuple[dict[int, str], Rows]] = [
    ({1: "id", 2: "a", 3: "b"}, [{"id": 1, "a": "a1", "b": "b1"}]),
    ({1: "id", 2: "b", 3: "a"}, [{"id": 1, "b": "a1", "a": "b1"}]),
    ({1: "id", 3: "c", 4: "b", 5: "b.a"}, [{"id": 1, "c": "b1", "b": None, "b.a": None}]),
    ({1: "id", 4: "B", 5: "b.a"}, [{"id": 1, "B": None, "b.a": None}, {"id": 2, "B": "a2", "b.a": "a2"}]),
    (
        {1: "id", 5: "b.a", RETYPED: "B"},
        [{"id": 1, "B": None, "b.a": None}, {"id": 2, "B": None, "b.a": "a2"}, {"id": 3, "B": 3, "b.a": "a3"}],
    ),
]
"""An exchange; a drop, a rename, and both names given again, one as if it were in the other; a drop, and a rename
in case only; another type. What the row of the first version shows in each, and the rows that the last two bring."""


def schema(version: int, names: dict[int, str]) -> TableSchema:
    columns = tuple(
        Column(
            name=name,
            id=number,
            source_type="",
            type="int64" if number in (1, RETYPED) else "string",
            key=0 if number == 1 else None,
        )
        for number, name in names.items()
    )
    return TableSchema(table_id=7, schema_name="s", table_name="t", version=version, columns=columns)


def commit(table: FormatTable, storage: Storage, wanted: TableSchema, before: TableSchema | None, rows: Rows) -> None:
    state = AppliedState(
        "log", Seq(wanted.version), RecordNumber(wanted.version), schema_version=wanted.version, table_id=7
    )
    layout = Layout(wanted, table.arrow_schema(wanted, before))
    data = pa.Table.from_pylist(rows, pa.schema([(c.name, layout.fields[c.name].type) for c in wanted.columns]))
    made = files.write_files(storage, table.location, layout, [data]) if rows else ()
    table.commit(TableCommit(state, [result.file for result in made], evolve=wanted, before=before))


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_readers_see_the_new_names_from_that_version_on(spark: SparkSession, tmp_path: Path, format: str) -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    catalog = folder_catalog(spark)
    root = tmp_path.as_uri() if format == "delta" else catalog.location
    storage = Storage.open(StorageLocation(location=root))

    def opened() -> FormatTable:
        found: FormatTable = DeltaTable(lambda: spark, storage, f"{root}/{name}")
        found = IcebergTable(catalog, storage, name, "t") if format == "iceberg" else found
        found.ensure(schema(1, FORMS[0][0]), "log")
        return found

    table, before, versions = opened(), None, []
    sql_name = f"delta.`{root}/{name}`" if format == "delta" else f"iceberg.{name}.t"
    for number, (names, shown) in enumerate(FORMS, 1):
        wanted = schema(number, names)
        there = {file.path for file in table.files()}
        brings = {1: shown, 4: shown[1:], 5: shown[2:]}
        commit(table, storage, wanted, before, brings.get(number, []))
        assert there <= {file.path for file in table.files()}, "a file was rewritten"
        history = "DESCRIBE HISTORY" if format == "delta" else "SELECT snapshot_id, committed_at FROM"
        of = sql_name if format == "delta" else f"{sql_name}.snapshots ORDER BY committed_at DESC"
        newest = spark.sql(f"{history} {of}").first()
        assert newest is not None
        versions.append(newest[0])
        for reader in (table, opened()):
            assert reader.refresh().schema_version == number
            assert reader.arrow_schema(schema(1, FORMS[0][0])) == table.arrow_schema(schema(1, FORMS[0][0]))
        found = READERS[format](Path(local(table.location)))
        assert found.column_names == list(names.values())
        assert sorted(found.to_pylist(), key=str) == shown
        before = wanted
    for version, (names, shown) in zip(versions, FORMS, strict=True):
        spark.catalog.clearCache()
        told = spark.sql(f"SELECT * FROM {sql_name} VERSION AS OF {version}")
        assert told.columns == list(names.values())
        assert sorted((row.asDict() for row in told.collect()), key=str) == shown


CLAIMS = {
    "delta": [
        ("ADD CONSTRAINT short CHECK (length(b) < 9)", "DROP CONSTRAINT short", "CHECK constraint 'short'"),
        ("CLUSTER BY (b)", "CLUSTER BY NONE", "the clustering"),
    ],
    "iceberg": [
        ("WRITE ORDERED BY b", "WRITE UNORDERED", "the sort order"),
        ("ADD PARTITION FIELD bucket(4, b)", "DROP PARTITION FIELD bucket(4, b)", "the partitioning"),
    ],
}


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_a_column_that_others_have_built_on_is_not_dropped_until_they_have_removed_that(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    catalog = folder_catalog(spark)
    root = tmp_path.as_uri() if format == "delta" else catalog.location
    storage = Storage.open(StorageLocation(location=root))
    sql_name = f"delta.`{root}/{name}`" if format == "delta" else f"iceberg.{name}.t"
    for built, removed, told in CLAIMS[format]:
        table: FormatTable = DeltaTable(lambda: spark, storage, f"{root}/{name}")
        table = IcebergTable(catalog, storage, name, "t") if format == "iceberg" else table
        first = schema(1, FORMS[0][0])
        table.ensure(first, "log")
        commit(table, storage, first, None, FORMS[0][1])
        spark.sql(f"ALTER TABLE {sql_name} {built}")
        table.refresh()
        dropped = schema(2, {1: "id", 2: "a"})
        with pytest.raises(TargetChanged, match=f"column 'b' of .*, and {told}"):
            commit(table, storage, dropped, first, [])
        spark.sql(f"ALTER TABLE {sql_name} {removed}")
        table.refresh()
        commit(table, storage, dropped, first, [{"id": 2, "a": "a2"}])
        found = READERS[format](Path(local(table.location)))
        assert sorted(found.to_pylist(), key=str) == [{"id": 1, "a": "a1"}, {"id": 2, "a": "a2"}]
        name += "x"
        sql_name = sql_name.replace(name[:-1], name)
