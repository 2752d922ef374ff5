"""The data's part of `tailrace drop`: target tables and the change log itself, as far as they are this change log's.

A table goes if the change log knew its place and the table's own state carries this log's id. Of the change log's
location only its own folders go, so that what others keep at the same places stays.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from tailrace.changelog import paths
from tailrace.changelog.records import Closed
from tailrace.changelog.table_events import place_of
from tailrace.contract.resources import ReplicatorSpec
from tailrace.errors import CorruptLog, TargetRefused
from tailrace.path_names import table_folder
from tailrace.run import claims
from tailrace.run.claims import Known
from tailrace.run.places import PROBES
from tailrace.storage import NotFound, Storage
from tailrace.targets.lake import log_of_table
from tailrace.targets.lake.iceberg_state import STATE

OURS = (paths.SEGMENTS, PROBES, paths.ROLLUPS, paths.PARTS, paths.JOURNAL)
"""What lies at a change log's location. The journal goes after everything that it alone names; a roll-up before the
parts that it names. In each of them the newest goes first, so that what is left is an older journal, or none."""
NOTES = (paths.FIRST_START, paths.RENEWAL, paths.DROPPED)
"""The one that makes the deletion repeatable goes last."""
Line = tuple[str, Literal["dropped", "kept", "absent"], str]


class Proven(Closed):
    """The note that makes a deletion repeatable: half-deleted tables and journals prove nothing any more. A start at
    this place removes it: what is written then is to stay."""

    owner: str
    log_id: str
    """Of the change log that is being deleted: the note says nothing about another one."""
    tables: tuple[tuple[str, str], ...]
    """Schema and name."""


def drop(known: Known, storage: Storage, run_dir: Path) -> Iterator[Line]:
    before = _of_this_log(noted(storage), known)
    # Who began it owned the log. What is left of its journal may name the one before, or nobody.
    why = claims.foreign(known) if before is None else None
    if before is not None and before.owner != known.owner:
        why = f"{before.owner} began to delete it"
    if why is not None:
        yield f"change log {storage.root}", "kept", why
        yield f"tables at {known.replicator.spec.target.location}", "kept", why
        return
    origin = known.log.origin if known.log is not None else None
    if origin is None and before is None:
        yield f"change log {storage.root}", "absent", ""
        return
    lake = Lake(known.replicator.spec, run_dir)
    try:
        begun = before.tables if before is not None else ()
        proven: dict[tuple[str, str], None] = {}
        log_id = origin.log_id if origin is not None else before.log_id if before is not None else ""
        if log_id:
            for name in dict.fromkeys([*begun, *_places(known)]):
                kept = _unproven(lake, name, log_id, begun=name in begun)
                if kept is None:
                    proven[name] = None
                elif lake.holds(name):
                    yield lake.what(name), "kept", kept
        # Dying from here on leaves the note, and the next call goes on from it.
        note = Proven(owner=known.owner, log_id=log_id, tables=tuple(proven))
        storage.put(paths.DROPPED, note.model_dump_json().encode())
        for name in proven:
            lake.drop(name)
            yield lake.what(name), "dropped", ""
    finally:
        lake.close()
    for folder in OURS:
        for path in sorted((path for path, _ in storage.list(folder)), reverse=True):
            storage.delete(path)
        storage.prune(folder)
    for path in NOTES:
        storage.delete(path)
    yield f"change log {storage.root}", "dropped", ""


def noted(storage: Storage) -> Proven | None:
    """None: no deletion was interrupted."""
    try:
        return Proven.model_validate_json(storage.get(paths.DROPPED))
    except NotFound:
        return None
    except ValidationError as error:
        raise CorruptLog(f"{storage.uri(paths.DROPPED)} is not readable", "Remove it.") from error


def _of_this_log(note: Proven | None, known: Known) -> Proven | None:
    origin = known.log.origin if known.log is not None else None
    return note if note is None or origin is None or origin.log_id == note.log_id else None


def _unproven(lake: "Lake", name: tuple[str, str], log_id: str, *, begun: bool) -> str | None:
    """Why the table is not this change log's; None: it is. `begun`: it was, and may be half deleted."""
    found = lake.log_id(name)
    if found is None and begun:
        return None
    if found is None:
        return "it carries no change log's state"
    return None if found == log_id else f"its state is of change log {found}, not of {log_id}"


def _places(known: Known) -> list[tuple[str, str]]:
    """Where this log may have written: of every table, for a target is there before the journal says so, and of those
    that came before them."""
    log = known.log
    return [] if log is None else [*map(place_of, log.tables.values()), *log.forgotten_tables]


class Lake:
    """The target, as far as it is needed to delete tables. A catalog that is no folder is spoken to through a JVM."""

    def __init__(self, spec: ReplicatorSpec, run_dir: Path) -> None:
        self._spec = spec
        self._run_dir = run_dir
        self._lake = Storage.open(spec.target)
        catalog = spec.target.catalog
        self._iceberg = spec.target.type == "iceberg"
        self._by_catalog = self._iceberg and catalog is not None and catalog.type != "folder"
        self._session: Any = None
        self._catalog: Any = None

    def what(self, name: tuple[str, str]) -> str:
        return f"table {self._lake.root}/{table_folder(*name)}"

    def holds(self, name: tuple[str, str]) -> bool:
        return next(self._lake.list(table_folder(*name) + "/"), None) is not None

    def log_id(self, name: tuple[str, str]) -> str | None:
        """Of the table's state; None: it has none that can be read."""
        try:
            if self._by_catalog:
                return self._log_id_by_catalog(name)
            read = log_of_table.iceberg_folder if self._iceberg else log_of_table.delta
            return read(self._lake, table_folder(*name))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def drop(self, name: tuple[str, str]) -> None:
        """The catalog's entry first; the files are deleted like any others."""
        if self._by_catalog:
            self._drop_from_catalog(name)
        for path, _ in self._lake.list(table_folder(*name) + "/"):
            self._lake.delete(path)
        self._lake.prune(table_folder(*name))

    def close(self) -> None:
        if self._session is not None:
            from tailrace.run import session

            session.stop(self._session)
            self._session = None

    def _log_id_by_catalog(self, name: tuple[str, str]) -> str | None:
        from tailrace.targets.lake.iceberg_java import guarded

        catalog, identifier = self._open(), self._identifier(name)
        with guarded(".".join(name), "looking at"):
            if not catalog.catalog.tableExists(identifier):
                return None
            text = catalog.catalog.loadTable(identifier).properties().get(STATE)
        return log_of_table.iceberg_property(text)

    def _drop_from_catalog(self, name: tuple[str, str]) -> None:
        from tailrace.targets.lake.iceberg_java import guarded

        catalog, identifier = self._open(), self._identifier(name)
        with guarded(".".join(name), "dropping"):
            if catalog.catalog.tableExists(identifier) and not catalog.catalog.dropTable(identifier, False):
                raise TargetRefused(f"the catalog does not drop {'.'.join(name)}", "Drop it by hand.")

    def _identifier(self, name: tuple[str, str]) -> Any:
        return self._open().identifier(*name)

    def _open(self) -> Any:
        """The catalog; its JVM is started when it is first needed."""
        if self._catalog is None:
            from tailrace.run import class_archive, session
            from tailrace.targets.lake.iceberg_catalog import IcebergCatalog
            from tailrace.targets.lake.iceberg_java import Java

            self._run_dir.mkdir(parents=True, exist_ok=True)
            log_file = self._run_dir / "spark.log"
            self._session = session.start(self._spec, self._run_dir, log_file, class_archive.java_options())
            self._catalog = IcebergCatalog.open(Java.of(self._session), self._spec.target, os.environ)
        return self._catalog
