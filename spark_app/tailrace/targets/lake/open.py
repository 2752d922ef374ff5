"""Opens target tables and gives the apply workers their engine: the only place that knows both lake formats."""

import uuid
from collections.abc import Callable
from functools import cache, partial

from pyspark.sql import SparkSession

from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import TableSlice
from tailrace.changelog.records import ChunkRegistered
from tailrace.changelog.state import TableLog
from tailrace.contract.resources import ReplicatorSpec
from tailrace.errors import TargetRefused
from tailrace.storage.path_names import former_folder, table_folder
from tailrace.storage.store import Storage
from tailrace.targets.lake.delta.table import DeltaTable
from tailrace.targets.lake.engine.build import build
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.engine.spread import spread
from tailrace.targets.lake.files.compact import Limits, compact
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.iceberg.catalog import IcebergCatalog
from tailrace.targets.lake.iceberg.java import Java
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.model import Admit, Commit, LakeTable


class LakeEngine:
    """`apply.table_worker.Engine` over one change log and one target."""

    def __init__(self, spark: SparkSession, log: Storage, lake: Storage) -> None:
        self._spread = partial(spread, spark)
        self._log = log
        self._lake = lake

    def build(self, part: TableSlice, table: LakeTable, layout: Layout) -> Commit:
        files = () if part.clear else tuple(table.files())
        return build(PartInput(part, layout, self._log, self._lake, table.location, files), self._spread)

    def lost(self, part: TableSlice) -> tuple[ChunkRegistered, ...]:
        # The end of a snapshot reads the keys of files, too, that were adopted before, and compacted away since.
        needed = [*part.chunks, *(chunk for finish in part.finished for chunk in finish.chunks)]
        files = {chunk.path: chunk for chunk in needed if chunk.path is not None}
        return tuple(chunk for path, chunk in files.items() if not self._lake.exists(path))

    def compact(self, table: LakeTable, layout: Layout, applied: AppliedState) -> int:
        return compact(table, self._lake, layout, applied, Limits())


def opener(spec: ReplicatorSpec, spark: SparkSession, lake: Storage, admit: Admit) -> Callable[[TableLog], LakeTable]:
    """Makes the `LakeTable` of a source table; nothing is read before its `ensure`. The first name stays: a renamed
    table keeps its place."""
    if spec.target.type == "delta":

        @cache
        def prove_exclusive() -> None:
            """Once: a store that does not keep its word is refused before the first version."""
            lake.require_exclusive(f"_tailrace_probe-{uuid.uuid4().hex}")

        def delta(table: TableLog) -> LakeTable:
            prove_exclusive()
            require_no_former_place(lake, table, "_delta_log/", literal=lake.local)
            return DeltaTable(spark, lake, location(lake.root, table), admit=admit)

        return delta
    catalog = IcebergCatalog.open(Java.of(spark), spec.target)

    def iceberg(table: TableLog) -> LakeTable:
        if catalog.folder:  # any other catalog knows where its tables lie
            require_no_former_place(lake, table, "metadata/", literal=True)
        first = table.schemas[0].table
        return IcebergTable(catalog, lake, first.schema_name, first.table_name, admit=admit)

    return iceberg


def location(root: str, table: TableLog) -> str:
    """`<location>/<schema>/<table>`, see `storage.path_names`."""
    first = table.schemas[0].table
    return f"{root}/{table_folder(first.schema_name, first.table_name)}"


def require_no_former_place(lake: Storage, table: TableLog, mark: str, *, literal: bool) -> None:
    """`TargetRefused` for a table that an older version wrote to another folder: two copies would both look alive.
    `mark`: the folder that a table of the format has."""
    first = table.schemas[0].table
    former = former_folder(first.schema_name, first.table_name, literal=literal)
    now = table_folder(first.schema_name, first.table_name)
    if former == now or {".", ".."} & set(former.split("/")):
        return  # no version has written to a folder of dots
    if next(lake.list(f"{former}/{mark}"), None) is not None:
        raise TargetRefused(
            f"{first.name} was written to {lake.root}/{former} by an older version, its folder is now {now}",
            "Delete the old folder, or move it out of the target's location, and order a snapshot of the table.",
        )
