"""The lake as a target: opens its tables in the format of the manifest. The only module that knows both formats."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from pyspark.sql import SparkSession

from tailrace.batch.limits import BatchLimits
from tailrace.changelog.records.terms import TableSchema
from tailrace.contract import resources
from tailrace.databases.extras import Extra
from tailrace.storage.access import Access, hadoop_options, resolve
from tailrace.storage.path_names import table_folder
from tailrace.storage.probe import probe, require_exclusive
from tailrace.storage.store import Storage
from tailrace.targets.api import Runtime, SparkNeeds, TableName
from tailrace.targets.lake import spark as lake_spark
from tailrace.targets.lake.cut_files import CutFiles
from tailrace.targets.lake.delta import schema as delta_schema
from tailrace.targets.lake.delta.table import DeltaTable
from tailrace.targets.lake.engine.spread import compare_rows, spread
from tailrace.targets.lake.files.key_files import key_files
from tailrace.targets.lake.files.locate import CACHE
from tailrace.targets.lake.iceberg import schema as iceberg_schema
from tailrace.targets.lake.iceberg.catalog import IcebergCatalog, catalog_options
from tailrace.targets.lake.iceberg.java import Java
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.model import RewindableTable
from tailrace.targets.lake.removal import LakeRemoval
from tailrace.targets.lake.rewinding import LakeRewinding
from tailrace.targets.lake.table import LakeTable
from tailrace.targets.lake.unit import LakeUnits

LIMITS = BatchLimits(rows=400_000, size=128 << 20, chunk_rows=4_000_000, chunks=400)


class LakeTarget:
    """See `targets.api.Target`."""

    limits = LIMITS

    def __init__(self, spec: resources.TargetSpec) -> None:
        self._spec = spec

    @property
    def place(self) -> str:
        return self._spec.lake.location

    @property
    def folder(self) -> Access:
        return resolve(self._spec.lake, os.environ)

    def examine(self) -> bool:
        hadoop_options(self._spec.lake, os.environ)
        if self._spec.type == "iceberg":
            catalog_options(self._spec, os.environ)
        return probe(self._spec.lake, exclusive=False, part="target")

    def database_id(self) -> None:
        return None

    def obstacles(self, schemas: Sequence[TableSchema], log_id: str | None) -> tuple[()]:
        """A folder that is in the way is found when its table is opened."""
        return ()

    def lacking(self, names: Collection[TableName], log_id: str) -> tuple[()]:
        return ()

    def lacked(self, extras: Sequence[Extra], schemas: Sequence[TableSchema]) -> dict[str, list[str]]:
        return {}

    def shown(self, schema: TableSchema) -> TableSchema:
        shown = delta_schema.shown if self._spec.type == "delta" else iceberg_schema.shown
        return shown(schema)

    def spark(self) -> SparkNeeds:
        return lake_spark.needs(self._spec)

    def prepare(self, hadoop: Any) -> None:
        lake_spark.prepare(self._spec, hadoop)

    def handover(self) -> None:
        return None

    @cached_property
    def _cut_files(self) -> CutFiles | None:
        """None: tags name the versions."""
        return CutFiles(Storage.open(self._spec.lake, part="target")) if self._spec.type == "delta" else None

    def show_cut(self, log_id: str, name: str, document: Mapping[str, Any] | None) -> None:
        if self._cut_files is None:
            return
        if document is None:
            self._cut_files.hide(log_id, name)
        else:
            self._cut_files.show(log_id, name, document)

    def rewinding(self, run: Runtime) -> LakeRewinding:
        lake = Storage.open(self._spec.lake, part="target")
        return LakeRewinding(self._opener(run, lake), self.removal(run.spark))

    def shown_cuts(self, log_id: str) -> Collection[str]:
        return () if self._cut_files is None else self._cut_files.names(log_id)

    def removal(self, session: Callable[[], SparkSession]) -> LakeRemoval:
        return LakeRemoval(self._spec, session)

    def units(self, run: Runtime) -> LakeUnits:
        lake = Storage.open(self._spec.lake, part="target")
        if run.scratch is not None:
            CACHE.kept = key_files(run.scratch / "keys", run.scratch_size)
        opened = self._opener(run, lake)

        def table(schema: TableSchema) -> LakeTable:
            return LakeTable(opened(schema), run.log, lake, lambda work: spread(run.spark(), work), run.admit)

        return LakeUnits(table, lambda work: compare_rows(run.spark, work))

    def _opener(self, run: Runtime, lake: Storage) -> Callable[[TableSchema], RewindableTable]:
        """The first name stays: a renamed table keeps its place."""
        if self._spec.type == "delta":

            @cache
            def prove_exclusive() -> None:
                """Once: a store that does not keep its word is refused before the first version."""
                require_exclusive(lake)

            def delta(first: TableSchema) -> RewindableTable:
                prove_exclusive()
                return DeltaTable(run.spark, lake, location(lake.root, first), admit=run.admit)

            return delta
        catalog = IcebergCatalog(lambda: Java.of(run.spark()) if run.jvm is None else Java.on(run.jvm()), self._spec)

        def iceberg(first: TableSchema) -> RewindableTable:
            return IcebergTable(catalog, lake, first.schema_name, first.table_name, admit=run.admit)

        return iceberg


def location(root: str, first: TableSchema) -> str:
    """`<location>/<schema>/<table>`, see `storage.path_names`; `first`: the first version of the table."""
    return f"{root}/{table_folder(first.schema_name, first.table_name)}"
