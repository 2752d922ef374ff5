"""Helpers of the Iceberg tests: local files, tables made for a test, rows written and marked as apply does."""

import io
import random
import uuid
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import Column, RecordNumber, Seq, TableSchema
from tailrace.contract.resources import StorageLocation, TargetSpec
from tailrace.storage.store import Storage
from tailrace.targets.lake.iceberg.catalog import IcebergCatalog
from tailrace.targets.lake.iceberg.java import Java
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.model import NewFile, TableCommit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = "log-1"


def local(uri: str) -> Path:
    return Path(uri.removeprefix("file:").replace("//", "/"))


def orders(version: int = 1, *extra: Column) -> TableSchema:
    columns = (
        Column(name="id", id=1, source_type="bigint", type="int64", nullable=False, key=0),
        Column(name="amount", id=2, source_type="numeric(10,2)", type="decimal(10,2)"),
        Column(name="note", id=3, source_type="text", type="string"),
    )
    return TableSchema(
        table_id=4711, schema_name="public", table_name="orders", version=version, columns=columns + extra
    )


class Orders:
    """A target table `orders` in a namespace of its own, and the rows it should have."""

    def __init__(
        self,
        spark: "SparkSession",
        catalog: IcebergCatalog | None = None,
        spark_catalog: str = "iceberg",
        access: Storage | None = None,
    ) -> None:
        self.spark, self.namespace = spark, f"t{uuid.uuid4().hex[:10]}"
        self.catalog = catalog or folder_catalog(spark)
        self.access = access or Storage.open(StorageLocation(location=self.catalog.location))
        self.sql_name = f"{spark_catalog}.{self.namespace}.orders"
        self.spark_name = spark_catalog
        self.schema = orders()
        self.table = self.another()
        self.state = self.table.ensure(self.schema, LOG)
        self.rows: dict[int, tuple[Any, ...]] = {}

    @property
    def place(self) -> TargetSpec:
        return TargetSpec(type="iceberg", location=self.catalog.location)

    def another(self) -> IcebergTable:
        """The same table opened by another writer."""
        return IcebergTable(self.catalog, self.access, self.namespace, "orders")

    def another_opened(self) -> IcebergTable:
        table = self.another()
        table.ensure(self.schema, LOG)
        return table

    def next(self, holes: Sequence[tuple[str, ...]] = (), **changes: Any) -> AppliedState:
        known = self.table.refresh()
        return AppliedState(
            LOG,
            Seq(known.applied_seq + 10),
            RecordNumber(known.applied_record + 1),
            frozenset(holes),
            changes.get("schema_version", known.schema_version),
            known.table_id,
        )

    def write(
        self, rows: Mapping[int, tuple[Any, ...]], table: IcebergTable | None = None, dead: Sequence[int] = ()
    ) -> list[NewFile]:
        if not rows:
            return []
        table = table or self.table
        arrow = table.arrow_schema(self.schema)
        data = {name: [] for name in arrow.names}  # type: dict[str, list[Any]]
        for key, values in sorted(rows.items()):
            for name, value in zip(arrow.names, (key, *values), strict=True):
                data[name].append(value)
        uri = f"{table.location}/data/{uuid.uuid4()}.parquet"
        sink = io.BytesIO()
        pq.write_table(pa.table(data, schema=arrow), sink, compression="zstd", store_schema=False)
        self.access.create(uri, sink.getvalue())
        return [NewFile(uri, len(rows), len(sink.getvalue()), BitMap64(dead))]

    def marks(self, keys: set[int], table: IcebergTable | None = None) -> dict[str, BitMap64]:
        """Whole new vectors for the live rows of these keys."""
        found: dict[str, BitMap64] = {}
        for file in (table or self.table).files():
            ids = pq.read_table(self.access.open_input(file.path), columns=["id"])["id"].to_pylist()
            new = BitMap64(p for p, key in enumerate(ids) if key in keys and p not in file.dead)
            if new:
                found[file.path] = file.dead | new
        return found

    def apply(self, upserts: Mapping[int, tuple[Any, ...]], deletes: Sequence[int] = (), **options: Any) -> None:
        state = self.next(options.pop("holes", ()))
        marks = self.marks(set(upserts) | set(deletes))
        self.table.commit(TableCommit(state, self.write(upserts), marks, **options))
        self.rows.update(upserts)
        for key in deletes:
            self.rows.pop(key, None)

    def read(self) -> dict[int, tuple[Any, ...]]:
        """By Spark."""
        return {row[0]: tuple(row[1:]) for row in self.spark.table(self.sql_name).collect()}

    def call(self, procedure: str, arguments: str = "") -> None:
        self.spark.sql(
            f"CALL {self.spark_name}.system.{procedure}(table => '{self.namespace}.orders'{arguments})"
        ).collect()


def folder_catalog(spark: "SparkSession") -> IcebergCatalog:
    place = spark.conf.get("spark.sql.catalog.iceberg.warehouse")
    return IcebergCatalog.open(Java.of(spark), TargetSpec(type="iceberg", location=f"file://{place}"))


def create_namespace_late(orders: Orders) -> None:
    """As a worker of another table does that looked for the namespace right before this table's created it."""
    real, looks = orders.catalog.catalog, iter([False])

    def exists(namespace: Any) -> bool:
        return next(looks, True) and bool(real.namespaceExists(namespace))

    late = SimpleNamespace(namespaceExists=exists, createNamespace=real.createNamespace)
    seen = copy(orders.catalog)
    seen._opened, seen._namespaces = (seen.java, late), set()
    seen.ensure_namespace(orders.namespace, "others")


def random_rows(rng: random.Random, keys: Sequence[int]) -> dict[int, tuple[Any, ...]]:
    from decimal import Decimal

    return {
        key: (Decimal(rng.randrange(10**6)).scaleb(-2), rng.choice([None, "", "a" * rng.randrange(40)])) for key in keys
    }
