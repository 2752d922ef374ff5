"""The examples of docs/reading-tables.md that join two tables at a cut, run as they stand there, by every reader."""

import re
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typing_extensions import override

from support.iceberg import local
from support.lake import table_schema
from support.maintenance import DeltaWalk, IcebergWalk, Rows, Walk
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.targets.lake.cut_files import CutFiles
from tailrace.targets.lake.delta.table import DeltaTable
from tailrace.targets.lake.iceberg.table import IcebergTable

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
DOC = Path(__file__).parents[3] / "docs" / "reading-tables.md"
SCHEMAS = {
    "orders": table_schema([("id", "int64"), ("customer", "int64"), ("total", "int64")], ["id"]),
    "customers": table_schema([("id", "int64"), ("name", "string")], ["id"]),
}
EXPECTED = {("ann", 5), ("bob", 7)}


def examples(format: str) -> list[str]:
    section = DOC.read_text().partition("## Several tables")[2].partition(f"### {format}\n")[2]
    section = re.split(r"^##", section, flags=re.M)[0]
    return re.findall(r"```(?:python|sql)\n(.*?)```", section, flags=re.S)


class InDelta(DeltaWalk):
    def __init__(self, spark: SparkSession, folder: Path, name: str) -> None:
        self.place = f"file://{folder}/public/{name}"
        self.named: TableSchema = SCHEMAS[name]
        super().__init__(spark, folder, 1)

    @override
    def _make(self) -> DeltaTable:
        self.schema, self.location = self.named, self.place
        return super()._make()


class InIceberg(IcebergWalk):
    def __init__(self, spark: SparkSession, namespace: str, name: str) -> None:
        self.place, self.named = namespace, SCHEMAS[name]
        self.table_name = name
        super().__init__(spark, Path(), 1)

    @override
    def _make(self) -> IcebergTable:
        self.schema, self.namespace = self.named, self.place
        return IcebergTable(self.catalog, self.storage, self.namespace, self.table_name)


def a_cut_in_the_past(make: Callable[[str], Walk]) -> dict[str, Walk]:
    """Tables at a cut, which have moved since and keep nothing else of what they were."""
    tables = {name: make(name) for name in SCHEMAS}
    first: dict[str, Rows] = {"orders": {1: (1, 2), 2: (1, 3), 3: (2, 7)}, "customers": {1: ("ann",), 2: ("bob",)}}
    for name, table in tables.items():
        table.commit(first[name], [])
        found = table.table.version_at(RecordNumber(table.number))
        assert found is not None and found.number is not None
        table.table.keep({"before_sale": found.number})
        table.cuts["before_sale"] = table.kept[-1]
        for total in range(3):
            values: Rows = {1: (2, 100 + total)} if name == "orders" else {1: (f"ann {total}",)}
            table.commit(values, [2])
            table.checkpoint()
        table.kept = table.kept[-1:]
        table.expire(time.time(), table.needed_chunks())
        table.table.sweep(time.time(), table.needed_chunks(), 0.0)
    return tables


def run(example: str, **given: Any) -> dict[str, Any]:
    found: dict[str, Any] = dict(given)
    exec(example, found)  # what the page says is what is tried
    return found


def pairs(rows: Any) -> set[tuple[Any, ...]]:
    return {tuple(row.values()) for row in rows.to_pylist()}


def test_delta_tables_are_joined_at_a_cut(spark: SparkSession, tmp_path: Path) -> None:
    tables = a_cut_in_the_past(lambda name: InDelta(spark, tmp_path, name))
    log = local(tables["orders"].table.location) / "_delta_log"
    assert not (log / f"{0:020d}.json").exists(), "the log around the cut has gone"
    named = {f"public.{n}": {"location": f"public/{n}", "version": t.cuts["before_sale"].id} for n, t in tables.items()}
    CutFiles(tables["orders"].storage).show("log", "before_sale", {"tables": named})
    in_spark, in_python = (example.replace("/lake/shop", str(tmp_path)) for example in examples("Delta"))
    assert {tuple(row) for row in run(in_spark, spark=spark)["rows"].collect()} == EXPECTED
    found = run(in_python)
    assert pairs(found["rows"]) == pairs(found["duckdb_rows"]) == EXPECTED


def test_iceberg_tables_are_joined_at_a_cut(spark: SparkSession) -> None:
    namespace = f"cut{uuid.uuid4().hex[:8]}"
    tables = a_cut_in_the_past(lambda name: InIceberg(spark, namespace, name))
    folder = local(tables["orders"].table.location).parent
    in_spark, in_python = examples("Iceberg")
    rows = spark.sql(in_spark.replace("lake.public", f"iceberg.{namespace}")).collect()
    assert {tuple(row) for row in rows} == EXPECTED
    found = run(in_python.replace("/lake/shop/public", str(folder)))
    assert {(row["name"], row["total_sum"]) for row in found["rows"].to_pylist()} == EXPECTED
    assert pairs(found["duckdb_rows"]) == EXPECTED
