"""Column metrics from a footer in memory are those that Iceberg reads from the file."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from support.iceberg import LOG, folder_catalog
from support.lake import table_schema
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage
from tailrace.targets.lake.files.access import footer_of
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.files.write import write_files
from tailrace.targets.lake.iceberg.commit import Builder
from tailrace.targets.lake.iceberg.table import IcebergTable

# PySpark leaves the sockets of collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
AT = dt.datetime(2026, 2, 3, 4, 5, 6, 789)
VALUES: dict[str, list[Any]] = {
    "int32": [-3, None, 5], "int64": [2**40, 1, None], "bool": [True, None, False], "float32": [1.5, -2.5, None],
    "float64": [float("nan"), 1.0, -0.0], "string": ["é" * 20, None, "z" * 40], "binary": [b"\xff" * 20, b"", None],
    "date": [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)], "time": [dt.time(1), None, dt.time(2)],
    "timestamp": [AT, None, AT], "timestamptz": [AT.replace(tzinfo=dt.UTC), None, None],
    "decimal(9,2)": [Decimal("-1.25"), None, Decimal("7.5")], "decimal(38,10)": [Decimal("1e20"), None, Decimal("-1")],
    "list<int32>": [[1, None], None, []], 'struct<"a":int64,"b":string>': [{"a": 1, "b": "x"}, None, {"a": None}],
}  # fmt: skip


def test_metrics_are_those_that_iceberg_reads(spark: SparkSession, tmp_path: Path) -> None:
    catalog, storage = folder_catalog(spark), Storage.open(StorageLocation(location=tmp_path.as_uri()))
    columns = [("id", "int64"), *((f"c{number}", kind) for number, kind in enumerate(VALUES))]
    schema = table_schema(columns, ["id"], name="metrics")
    table = IcebergTable(catalog, storage, "public", "metrics")
    table.ensure(schema, LOG)
    layout = Layout(schema, table.arrow_schema(schema))
    given = {f"c{number}": pa.array(values, layout.arrow.field(number + 1).type)
             for number, values in enumerate(VALUES.values())}  # fmt: skip
    rows = pa.table({"id": pa.array(np.arange(3)), **given})
    made = next(iter(write_files(storage, table.location, layout, [rows, rows]))).file

    def described(metrics: Any) -> dict[str, Any]:
        file = builder._data(made.path, made.size).withMetrics(metrics).build()
        return builder.describe(file)

    iceberg = table._open()[0].table
    java = table._java
    builder = Builder.of(java, storage, iceberg)
    footer: pq.FileMetaData = footer_of(storage, made.path)
    read = java.iceberg.parquet.ParquetUtil.fileMetrics(
        iceberg.io().newInputFile(made.path, made.size), builder.metrics
    )
    expected = described(read)
    assert described(java.metrics(footer, builder.metrics)) == expected
    assert len(expected["lower-bounds"]["keys"]) > len(VALUES) - 3
