"""The removal of whole tables from the lake when a Replicator is deleted, or a table is dropped in the source. A
catalog that is no folder is spoken to through a JVM, for which a session is asked when it is first needed.

Driven by `removal.data` and `removal.dropped`, which decide what goes.
"""

import json
import os
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from tailrace.contract import resources
from tailrace.errors import TargetRefused
from tailrace.storage.path_names import table_folder
from tailrace.storage.probe import sweep
from tailrace.storage.store import Storage
from tailrace.targets.api import Admit, TableName, TableOwner
from tailrace.targets.lake import log_of_table
from tailrace.targets.lake.cut_files import CutFiles
from tailrace.targets.lake.iceberg.catalog import IcebergCatalog
from tailrace.targets.lake.iceberg.java import Java, guarded
from tailrace.targets.lake.model import always

ADMITTED_AT_ONCE = 100
"""Data files that are deleted between two looks at whether this is still the driver."""
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
"""Whatever is there: no state that can be read."""


class LakeRemoval:
    """See `targets.api.TargetRemoval`."""

    def __init__(self, spec: resources.TargetSpec, session: Callable[[], SparkSession]) -> None:
        self._spec, self._session = spec, session
        self._lake = Storage.open(spec.lake, part="target")
        catalog = spec.catalog
        self._iceberg = spec.type == "iceberg"
        self._by_catalog = self._iceberg and catalog is not None and catalog.type != "folder"
        self._opened: IcebergCatalog | None = None

    def location(self, name: TableName) -> str:
        return f"table {self._lake.root}/{table_folder(*name)}"

    def exists(self, name: TableName) -> bool:
        return next(self._lake.list(table_folder(*name) + "/"), None) is not None

    def in_catalog(self, name: TableName) -> bool:
        """True if the catalog lists the table: in a folder catalog, and for Delta, the files are the entry."""
        return not self._by_catalog or self._entry(name) is not None

    def owner(self, name: TableName) -> TableOwner | None:
        try:
            if self._by_catalog and (entry := self._entry(name)) is not None:
                return self._of_entry(name, entry)
        except _UNREADABLE:
            return None
        # Half deleted it has lost its entry in the catalog, if it had one: the files say whose they are.
        proof = self._proof(name)
        return None if proof is None else proof.owner

    def drop(self, name: TableName, admit: Admit | None = None) -> None:
        """The catalog's entry first; the files are deleted like any others, the newest state last. What else makes a
        table of them goes before its data: half deleted, it cannot be read as one with fewer rows."""
        admit = admit or always
        admit()
        if self._by_catalog:
            self._drop_from_catalog(name)
        proof, folder = self._proof(name), table_folder(*name) + "/"
        last = None if proof is None else proof.path
        metadata = (folder + "_delta_log/", folder + "metadata/")
        paths = [path for path, _ in self._lake.list(folder)]
        ordered = sorted(paths, key=lambda path: (path == last, not path.startswith(metadata), path))
        for number, path in enumerate(ordered):
            # The next driver may have made a table here by now. Its data files have names of their own, what else makes
            # a table of them may not.
            if path == last or path.startswith(metadata) or number % ADMITTED_AT_ONCE == 0:
                admit()
            # Dying here leaves the state: the next call finds it and continues.
            self._lake.delete(path)
        self._lake.delete_unfinished(folder)
        self._lake.prune(table_folder(*name))

    def finish(self, log_id: str) -> None:
        CutFiles(self._lake).remove(log_id)
        sweep(self._lake)
        self._lake.prune_root()

    def _proof(self, name: TableName) -> log_of_table.LogMark | None:
        read = log_of_table.iceberg_folder if self._iceberg else log_of_table.delta
        try:
            return read(self._lake, table_folder(*name))
        except _UNREADABLE:
            return None

    def _of_entry(self, name: TableName, entry: Any) -> TableOwner | None:
        with guarded(".".join(name), "looking at"):
            metadata = entry.operations().current()
            text = str(self._catalog().java.iceberg.TableMetadataParser.toJson(metadata))
        return log_of_table.iceberg(json.loads(text))

    def _entry(self, name: TableName) -> Any:
        """The catalog's table; None: it has none of this name."""
        catalog, identifier = self._catalog(), self._catalog().identifier(*name)
        with guarded(".".join(name), "looking at"):
            return catalog.catalog.loadTable(identifier) if catalog.catalog.tableExists(identifier) else None

    def _drop_from_catalog(self, name: TableName) -> None:
        catalog, identifier = self._catalog(), self._catalog().identifier(*name)
        with guarded(".".join(name), "dropping"):
            if catalog.catalog.tableExists(identifier) and not catalog.catalog.dropTable(identifier, False):
                raise TargetRefused(f"the catalog does not drop {'.'.join(name)}", "Drop it by hand.")

    def _catalog(self) -> IcebergCatalog:
        if self._opened is None:
            self._opened = IcebergCatalog.open(Java.of(self._session()), self._spec, os.environ)
        return self._opened
