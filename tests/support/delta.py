"""A Delta table under Tailrace's commits and the smallest possible apply, for tests."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Row, SparkSession

from support.lake import new_location, table_schema
from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import RecordNumber, Seq, TableSchema
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage
from tailrace.targets.lake.delta.direct_log import DirectLog
from tailrace.targets.lake.delta.table import DeltaTable
from tailrace.targets.lake.files import write as files
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.files.locate import locate
from tailrace.targets.lake.model import DataFile, NewFile, TableCommit

COLUMNS = [("id", "int64"), ("name", "string"), ("price", "decimal(12,2)"), ("seen", "timestamptz")]
SCHEMA = table_schema(COLUMNS, ["id"])
LOG = "log-1"


class Target:
    """A table, its storage and the smallest possible apply: upserts and deletes of whole rows."""

    def __init__(self, spark: SparkSession, folder: Path, schema: TableSchema = SCHEMA) -> None:
        self.spark = spark
        self.storage = Storage.open(StorageLocation(location=f"file://{folder}"))
        self.location = new_location(folder)
        self.schema = schema
        self.table = self.reopen()

    def reopen(self) -> DeltaTable:
        table = DeltaTable(lambda: self.spark, self.storage, self.location)
        self.applied = table.ensure(self.schema, LOG)
        return table

    @property
    def layout(self) -> Layout:
        return Layout(self.schema, self.table.arrow_schema(self.schema))

    def marks(self, keys: list[int]) -> dict[str, BitMap64]:
        have: Mapping[str, DataFile] = {file.path: file for file in self.table.files()}
        found = locate(self.storage, list(have.values()), self.layout, pa.table({"id": keys}))
        return {path: have[path].dead | BitMap64(rows.positions) for path, rows in found.items()}

    def write(self, rows: Mapping[int, str]) -> list[NewFile]:
        table = pa.table({"id": list(rows), "name": list(rows.values())})
        return [made.file for made in files.write_files(self.storage, self.location, self.layout, [table])]

    def state(self, step: int) -> AppliedState:
        return AppliedState(
            LOG, Seq(step * 10), RecordNumber(step), frozenset(), self.schema.version, self.schema.table_id
        )

    def change(self, step: int, upserts: Mapping[int, str], deletes: list[int] | None = None) -> TableCommit:
        return TableCommit(self.state(step), self.write(upserts), self.marks([*upserts, *(deletes or [])]))

    def apply(self, step: int, upserts: Mapping[int, str], deletes: list[int] | None = None) -> None:
        self.table.commit(self.change(step, upserts, deletes))

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """The commit of another program."""
        read = DirectLog(self.storage, self.location).read()
        assert read is not None and read.state is not None
        metadata = read.state.metadata
        actions: list[dict[str, Any]] = [
            {"commitInfo": {"operation": "SET TBLPROPERTIES"}},
            {"metaData": {**metadata, "configuration": {**metadata["configuration"], **properties}}},
        ]
        text = "\n".join(json.dumps(action) for action in actions)
        self.storage.create(f"{self.location}/_delta_log/{read.version + 1:020d}.json", text.encode())

    def sql(self, text: str) -> list[Row]:
        return self.spark.sql(text.format(t=f"delta.`{self.location}`")).collect()

    def rows(self) -> dict[int, str]:
        """By delta-rs, for a hundredth of what Spark costs."""
        return read_by_delta_rs(self.location)

    def rows_by_spark(self) -> dict[int, str]:
        return by_key((row.id, row.name) for row in self.sql("SELECT id, name FROM {t}"))


def by_key(found: Iterable[tuple[int, str]]) -> dict[int, str]:
    pairs = list(found)
    rows = dict(pairs)
    assert len(rows) == len(pairs), "a key stands twice"
    return rows


def read_by_delta_rs(location: str) -> dict[int, str]:
    """By an implementation that shares no code with Spark's: column mapping and deletion vectors included."""
    table = deltalake.DeltaTable(location)
    found = pa.table(deltalake.QueryBuilder().register("t", table).execute("SELECT id, name FROM t").read_all())
    return by_key(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))
