"""One target table in either format, for tests of what becomes of it when another generation begins."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from demo.compare import read_delta, read_iceberg
from support.iceberg import folder_catalog, local
from support.lake import table_schema
from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import RecordNumber, Seq, TableSchema
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage
from tailrace.targets.lake.delta.table import DeltaTable
from tailrace.targets.lake.files import write as files
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.model import FormatTable, TableCommit

LOG = "log-1"
STRUCT = 'struct<"a":int32,"b c":string>'
SAMPLES: dict[str, list[Any]] = {
    "int32": [1, 2, 3],
    "int64": [2**40, 2**41, 2**42],
    "string": ["a", "b", "c"],
    "float64": [0.5, 1.5, 2.5],
    "bool": [True, False, True],
    "list<int32>": [[1, None], [], None],
    STRUCT: [{"a": 1, "b c": "x"}, {"a": None, "b c": ""}, None],
    "list<string>": [["b,c", ""], None, [None]],
}


@dataclass
class Place:
    """Where one target table lies, and how it is read by others."""

    spark: SparkSession
    storage: Storage
    open: Callable[[], FormatTable]
    sql_name: str
    read: Callable[[], pa.Table]
    """By delta-rs or pyiceberg."""

    @classmethod
    def make(cls, format: str, spark: SparkSession, folder: Path) -> "Place":
        name = f"t{uuid.uuid4().hex[:8]}"
        if format == "delta":
            storage = Storage.open(StorageLocation(location=folder.as_uri()))
            location = f"{folder.as_uri()}/{name}"
            read = partial(read_delta, folder / name)
            return cls(
                spark, storage, lambda: DeltaTable(lambda: spark, storage, location), f"delta.`{location}`", read
            )
        catalog = folder_catalog(spark)
        storage = Storage.open(StorageLocation(location=catalog.location))
        read = partial(read_iceberg, local(catalog.location) / name / "t")
        return cls(spark, storage, lambda: IcebergTable(catalog, storage, name, "t"), f"iceberg.{name}.t", read)

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.read().to_pylist(), key=str)

    def rows_by_spark(self) -> list[dict[str, Any]]:
        self.spark.catalog.clearCache()
        self.spark.sql(f"REFRESH TABLE {self.sql_name}")
        return sorted(
            (r.asDict(recursive=True) for r in self.spark.sql(f"SELECT * FROM {self.sql_name}").collect()), key=str
        )

    def versions(self) -> list[int]:
        """Oldest first."""
        if self.sql_name.startswith("delta"):
            return sorted(row.version for row in self.spark.sql(f"DESCRIBE HISTORY {self.sql_name}").collect())
        self.spark.sql(f"REFRESH TABLE {self.sql_name}")
        found = self.spark.sql(f"SELECT snapshot_id FROM {self.sql_name}.snapshots ORDER BY committed_at").collect()
        return [row.snapshot_id for row in found]

    def rows_at(self, version: int) -> list[dict[str, Any]]:
        found = self.spark.sql(f"SELECT * FROM {self.sql_name} VERSION AS OF {version}").collect()
        return sorted((row.asDict(recursive=True) for row in found), key=str)


def write(
    table: FormatTable,
    place: Place,
    schema: TableSchema,
    state: AppliedState,
    record: int,
    *,
    evolve: TableSchema | None = None,
) -> list[dict[str, Any]]:
    """One commit with three rows; what a reader should see of it."""
    layout = Layout(schema, table.arrow_schema(schema))
    columns = {c.name: pa.array(SAMPLES[c.type], layout.fields[c.name].type) for c in schema.columns}
    made = files.write_files(place.storage, table.location, layout, [pa.table(columns)])
    applied = replace(state, applied_seq=Seq(state.applied_seq + 3), applied_record=RecordNumber(record))
    table.commit(TableCommit(applied, [result.file for result in made], evolve=evolve))
    return sorted(pa.table(columns).to_pylist(), key=str)


def random_schema(random: Random, table_id: int) -> TableSchema:
    """Names come again with other types, at other places, and in the key or not."""
    names = random.sample(["id", "a", "b", "c.d", "e"], random.randint(1, 5))
    key = random.sample(names, random.randint(1, len(names)))
    kinds = {name: random.choice(sorted(SAMPLES)) for name in names}
    kinds |= {name: random.choice(["int32", "int64", "string"]) for name in key}
    return table_schema(list(kinds.items()), key, table_id=table_id)
