"""`tailrace drop`: what a Replicator leaves in the world when it goes for good. Run by hand or by the operator's Job.

Slot and publication that Tailrace made are dropped, those named in the manifest are kept. With `data`, tables and
change log go too: only tables that the change log says were applied, and of the change log's location only its own
folders, so that what somebody else keeps at the same places stays.
Every step may have been done before, by this command or by a person: it can be run again after it died anywhere.
"""

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tailrace.capture import slots
from tailrace.capture.names import Names
from tailrace.changelog import paths
from tailrace.changelog.journal import JournalReader, read_origin
from tailrace.changelog.state import LogState, TableLog
from tailrace.contract.resources import Replicator, ReplicatorSpec
from tailrace.errors import TargetRefused
from tailrace.path_names import table_folder
from tailrace.run.places import PROBES
from tailrace.sources.postgresql.connect import Connection, PgConfig, connect
from tailrace.sources.postgresql.replication import release_slot
from tailrace.storage import NotFound, Storage

log = logging.getLogger(__name__)
OURS = (paths.SEGMENTS, PROBES, paths.JOURNAL)
"""What lies at a change log's location. The journal goes after everything that it alone names."""


def drop(replicator: Replicator, secrets: Path | None, run_dir: Path, *, data: bool) -> Iterator[str]:
    """Does it and tells each step. The source first: a slot left behind fills its disk."""
    names = Names.of_log(replicator, read_origin(Storage.open(replicator.spec.storage)))
    config = PgConfig.of(replicator.spec.source, "tailrace drop", secrets)
    with connect(config) as connection:
        yield _slot(connection, names)
        yield _publication(connection, names)
    if data:
        yield from _data(replicator.spec, run_dir)


def _slot(connection: Connection, names: Names) -> str:
    if not names.slot_is_ours:
        return f"replication slot {names.slot} is named in the manifest: kept"
    if slots.find_slot(connection, names.slot) is None:
        return f"replication slot {names.slot}: there is none"
    # Held by our own process that was cut off: the server notices a dead peer only after wal_sender_timeout.
    release_slot(connection, names.slot, names.applications, time.sleep)
    if slots.find_slot(connection, names.slot) is not None:  # half made, it went with its maker
        slots.drop_slot(connection, names.slot)
    return f"replication slot {names.slot}: dropped"


def _publication(connection: Connection, names: Names) -> str:
    if not names.publication_is_ours:
        return f"publication {names.publication} is named in the manifest: kept"
    return f"publication {names.publication}: " + (
        "dropped" if slots.drop_publication(connection, names.publication) else "there is none"
    )


def _data(spec: ReplicatorSpec, run_dir: Path) -> Iterator[str]:
    storage = Storage.open(spec.storage)
    tables = [t for t in _state(storage).tables.values() if t.applied_record > 0]
    yield from _tables(spec, tables, run_dir)
    for folder in OURS:
        for path, _ in storage.list(folder):
            storage.delete(path)
        storage.prune(folder)
    yield f"change log {storage.root}: deleted"


def _state(storage: Storage) -> LogState:
    try:
        reader = JournalReader.open(storage)
    except NotFound:
        return LogState()
    while reader.poll():
        pass
    return reader.state


def _tables(spec: ReplicatorSpec, tables: list[TableLog], run_dir: Path) -> Iterator[str]:
    lake = Storage.open(spec.target)
    catalog = spec.target.catalog
    if tables and spec.target.type == "iceberg" and catalog is not None and catalog.type != "folder":
        _drop_from_catalog(spec, tables, run_dir)
    for table in tables:
        first = table.schemas[0].table
        folder = table_folder(first.schema_name, first.table_name)
        for path, _ in lake.list(folder + "/"):
            lake.delete(path)
        lake.prune(folder)
        yield f"table {lake.root}/{folder}: deleted"


def _drop_from_catalog(spec: ReplicatorSpec, tables: list[TableLog], run_dir: Path) -> None:
    """The catalog's entries; the files are deleted afterwards like any others."""
    from tailrace.run import class_archive, session
    from tailrace.targets.lake.iceberg_catalog import IcebergCatalog
    from tailrace.targets.lake.iceberg_java import Java, guarded

    run_dir.mkdir(parents=True, exist_ok=True)
    spark = session.start(spec, run_dir, run_dir / "spark.log", class_archive.java_options())
    try:
        catalog = IcebergCatalog.open(Java.of(spark), spec.target, os.environ)
        for table in tables:
            first = table.schemas[0].table
            identifier = catalog.identifier(first.schema_name, first.table_name)
            with guarded(first.name, "dropping"):
                if catalog.catalog.tableExists(identifier) and not catalog.catalog.dropTable(identifier, False):
                    raise TargetRefused(f"the catalog does not drop {first.name}", "Drop it by hand.")
    finally:
        session.stop(spark)
