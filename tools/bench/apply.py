"""Applying changes to a large table: locate and mark (engine and commit) against Spark's MERGE on a copy.

Every case updates whole rows by key. Both sides read the same segment; afterwards counts and sums must be equal. MERGE
is tuned: newest row per key by `max_by`, key range in the condition, deletion vectors, no adaptive execution; for
Iceberg no redistribution of written rows and a hash join.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Row, SparkSession

from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import TableSlice
from tailrace.changelog.bundles import Bundle, encoded
from tailrace.changelog.records import Segment
from tailrace.changelog.records.terms import Column, RecordNumber, Seq, TableSchema
from tailrace.changelog.segments import segment_of, segment_schema, write_segment
from tailrace.contract.resources import StorageLocation, TargetSpec
from tailrace.storage.store import Storage
from tailrace.targets.lake.delta import classes
from tailrace.targets.lake.delta.table import DeltaTable
from tailrace.targets.lake.engine.spread import spread
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.files.write import write_files
from tailrace.targets.lake.iceberg.catalog import IcebergCatalog
from tailrace.targets.lake.iceberg.java import Java
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.model import FormatTable, TableCommit
from tailrace.targets.lake.table import LakeTable

from .measure import Result, Watch
from .session import ICEBERG

TYPES = {"id": "int64", "customer_id": "int64", "status": "string", "amount": "decimal(12,2)", "qty": "int32",
         "created_at": "timestamptz", "updated_at": "timestamptz", "note": "string"}  # fmt: skip
SCHEMA = TableSchema(
    table_id=4711, schema_name="bench", table_name="orders", version=1,
    columns=tuple(
        Column(name=name, id=number, source_type=kind, type=kind, nullable=name != "id",
               key=0 if name == "id" else None)
        for number, (name, kind) in enumerate(TYPES.items(), start=1)
    ),
)  # fmt: skip
DDL = ("id bigint, customer_id bigint, status string, amount decimal(12,2), qty int, created_at timestamp,"
       " updated_at timestamp, note string")  # fmt: skip
SUMS = "SELECT count(*), count(DISTINCT id), sum(qty), sum(amount), sum(crc32(note)) FROM {}"
CHECKSUM_FILES = "spark.databricks.delta.writeChecksumFile.enabled"
"""Off in Tailrace's session, on in Delta's defaults: without them MERGE computes the table's state from its log."""
LOG, FILES, MERGE_CONF = "bench", 10, {"spark.sql.join.preferSortMergeJoin": "false"}
V3 = ("'format-version'='3','write.delete.mode'='merge-on-read','write.update.mode'='merge-on-read',"
      "'write.merge.mode'='merge-on-read','write.distribution-mode'='none',"
      "'write.merge.distribution-mode'='none'")  # fmt: skip
Ints = NDArray[np.int64]


def rows(ids: Ints, salt: int) -> pa.Table:
    """Whole rows with these keys."""
    mixed = ids * 7919 + salt
    at = pa.array(1_767_225_600_000_000 + ids * 1_000_000).cast(pa.timestamp("us", tz="UTC"))
    text = pa.array(mixed).cast(pa.string())
    status = pa.array(["new", "paid", "sent"]).take(pa.array(mixed % 3))
    cents = pa.array(mixed % 100_000).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2))
    return pa.table({
        "id": ids, "customer_id": mixed % 1_000_003, "status": status,
        "amount": cents.cast(pa.decimal128(12, 2)), "qty": (mixed % 50).astype(np.int32), "created_at": at,
        "updated_at": at, "note": pc.binary_join_element_wise("note", text, text, "-"),
    })  # fmt: skip


@dataclass
class Side:
    """One format: Tailrace's table and the copy that MERGE works on."""

    format: str
    table: FormatTable
    ours: str
    """Tailrace's table as Spark's SQL names it."""
    copy: str


class Bench:
    def __init__(self, spark: SparkSession, folder: Path, count: int) -> None:
        self.spark, self.count, self.folder = spark, count, folder
        self.log = Storage.open(StorageLocation(location=(folder / "apply-log").as_uri()))
        self.lake = Storage.open(StorageLocation(location=folder.as_uri()))
        self.random = np.random.default_rng(1)

    def delta(self) -> Side:
        place = self.folder / "delta"
        classes.ensure(self.spark._jvm)  # Spark's own statements come below
        side = Side("Delta", DeltaTable(lambda: self.spark, self.lake, f"{place.as_uri()}/orders"),
                    f"delta.`{place}/orders`", f"delta.`{place}/copy`")  # fmt: skip
        self._fill(side)
        self.spark.sql(
            f"CREATE TABLE {side.copy} ({DDL}) USING delta TBLPROPERTIES ('delta.enableDeletionVectors'='true')"
        )
        self._sorted(side).write.format("delta").mode("append").save(f"{place}/copy")
        return side

    def iceberg(self) -> Side:
        target = TargetSpec(type="iceberg", location=(self.folder / "iceberg").as_uri())
        catalog = IcebergCatalog.open(Java.of(self.spark), target)
        storage = Storage.open(target.lake)
        side = Side("Iceberg", IcebergTable(catalog, storage, "bench", "orders"),
                    f"{ICEBERG}.bench.orders", f"{ICEBERG}.bench.copy")  # fmt: skip
        self._fill(side)
        self.spark.sql(f"CREATE TABLE {side.copy} ({DDL}) USING iceberg TBLPROPERTIES ({V3})")
        self._sorted(side).writeTo(side.copy).append()
        return side

    def _sorted(self, side: Side) -> Any:
        """A copy with as many files with ranges of keys as Tailrace's table."""
        return self.spark.table(side.ours).repartitionByRange(FILES, "id").sortWithinPartitions("id")

    def _fill(self, side: Side) -> None:
        side.table.ensure(SCHEMA, LOG)
        layout = self.layout(side)
        parts = np.array_split(np.arange(1, self.count + 1, dtype=np.int64), FILES)
        new = [w.file for ids in parts for w in write_files(self.lake, side.table.location, layout, [rows(ids, 0)])]
        side.table.commit(TableCommit(AppliedState(LOG, Seq(1), RecordNumber(1), frozenset(), 1, SCHEMA.table_id), new))

    def layout(self, side: Side) -> Layout:
        arrow = side.table.arrow_schema(SCHEMA)
        assert isinstance(arrow, pa.Schema)
        return Layout(SCHEMA, arrow)

    def keys(self, kind: str, count: int) -> Ints:
        if kind == "recent":
            return self.count - self.random.choice(5 * count, count, replace=False).astype(np.int64)
        return 1 + self.random.choice(self.count, count, replace=False).astype(np.int64)

    def slice(self, applied: AppliedState, keys: Ints) -> TableSlice:
        """A batch of updates with these keys, as the change log would hold it: few rows are part of a bundle."""
        seq = np.arange(applied.applied_seq + 1, applied.applied_seq + 1 + len(keys))
        schema, count = segment_schema(SCHEMA), len(keys)
        head = [pa.array(seq), pa.array(["U"] * count), pa.array(seq).cast(pa.timestamp("us", tz="UTC"))]
        nulls = [pa.nulls(count, schema.field(name).type) for name in schema.names[3:5]]
        table = pa.table([*head, *nulls, *rows(keys, int(seq[0])).columns], schema=schema)
        segment = self._bundled(table) or write_segment(self.log, SCHEMA, table)
        return TableSlice(
            applied=applied, table_id=SCHEMA.table_id, schema=SCHEMA, versions={1: SCHEMA},
            start_seq=applied.applied_seq, through_seq=Seq(int(seq[-1])),
            through_record=RecordNumber(applied.applied_record + 1), clear=False, segments=(segment,),
            truncates=(), chunks=(), finished=(), repair=False,
        )  # fmt: skip

    def _bundled(self, table: pa.Table) -> Segment | None:
        rows = encoded(table)
        if rows is None:
            return None
        bundle, segment = Bundle(), segment_of(SCHEMA, table)
        bundle.add(segment, rows)
        path = bundle.write(self.log, token_hex(8))
        return segment.model_copy(update={"path": path, "size": len(rows)})

    def mark(self, side: Side, part: TableSlice) -> None:
        LakeTable(side.table, self.log, self.lake, partial(spread, self.spark)).apply(part)

    def merge(self, side: Side, part: TableSlice) -> None:
        (segment,) = part.segments
        frame = self.spark.read.parquet(f"{self.folder}/apply-log/{segment.path}")
        frame.createOrReplaceTempView("segment")
        newest = "SELECT max_by(struct(*), _seq) AS r FROM segment GROUP BY id"
        self.spark.sql(newest).select("r.*").createOrReplaceTempView("newest")
        bounds = self.spark.sql("SELECT min(id), max(id) FROM segment").first()
        assert bounds is not None
        hint = "/*+ SHUFFLE_HASH(s) */" if side.format == "Iceberg" else ""
        sets = ", ".join(f"t.{name} = s.{name}" for name in TYPES if name != "id")
        names, values = ", ".join(TYPES), ", ".join(f"s.{name}" for name in TYPES)
        self.spark.sql(
            f"MERGE INTO {side.copy} t USING (SELECT {hint} * FROM newest s) s"
            f" ON t.id = s.id AND t.id BETWEEN {bounds[0]} AND {bounds[1]}"
            f" WHEN MATCHED AND s._op = 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET {sets}"
            f" WHEN NOT MATCHED AND s._op <> 'D' THEN INSERT ({names}) VALUES ({values})"
        )

    def case(self, side: Side, kind: str, count: int) -> list[Result]:
        part = self.slice(side.table.refresh(), self.keys(kind, count))
        results = []
        for role, what, act in (("tailrace", "mark", self.mark), ("incumbent", "MERGE", self.merge)):
            self.spark.conf.set(CHECKSUM_FILES, str(role == "incumbent").lower())
            with Watch([os.getpid()]) as watch:
                act(side, part)
            results.append(watch.result(f"apply, {side.format}, {count:,} {kind} keys", what, role, count))
        return results

    def sums(self, table: str) -> Row | None:
        return self.spark.sql(SUMS.format(table)).first()


def run(results: list[Result], spark: SparkSession, folder: Path, scale: float, say: Callable[[str], None]) -> None:
    for name, value in MERGE_CONF.items():
        spark.conf.set(name, value)
    bench = Bench(spark, folder, int(4_000_000 * scale))
    for make in (bench.delta, bench.iceberg):
        side = make()
        say(f"apply: {side.format} tables of {bench.count:,} rows")
        for kind, count in (("random", 1000), ("recent", 1000)) * 3:
            bench.case(side, kind, count)  # the JVM's and the caches' first times count for nobody
        large = [min(n, bench.count // 2) for n in (100_000, 500_000)]
        for kind, count in (("recent", 1000), ("random", 1000), *(("random", n) for n in large)):
            results += bench.case(side, kind, count)
        ours, theirs = bench.sums(side.ours), bench.sums(side.copy)
        if ours is None or ours != theirs:
            raise AssertionError(f"{side.format}: Tailrace's table has {ours}, MERGE's copy {theirs}")
        say(f"apply: {side.format} tables are equal: {ours}")
