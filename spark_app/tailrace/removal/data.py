"""The data's part of `tailrace drop`: target tables and the change log itself, as far as they are this change log's.

A table goes if the change log knew its place and the table's own state carries this log's id; what carries that goes
last, so that a table that somebody has put there since is never taken for the rest of ours. Where the catalog is no
folder, its entry says so, and without one the files do only if a deletion of this table had begun. Of the change log's
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
from tailrace.removal import claims
from tailrace.removal.claims import Known
from tailrace.storage.path_names import table_folder
from tailrace.storage.store import NotFound, Storage
from tailrace.targets.lake import log_of_table
from tailrace.targets.lake.iceberg.state import STATE
from tailrace.targets.places import PROBES

OURS = (paths.SEGMENTS, PROBES, paths.ROLLUPS, paths.PARTS, paths.JOURNAL)
"""What lies at a change log's location. The journal goes after everything that it alone names; a roll-up before the
parts that it names. In each of them the newest goes first, so that what is left is an older journal, or none."""
NOTES = (paths.FIRST_START, paths.RENEWAL, paths.DROPPED)
"""The one that makes the deletion repeatable goes last."""
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
"""Whatever lies there: no state that can be read."""
Line = tuple[str, Literal["dropped", "kept", "absent"], str]


class Proven(Closed):
    """The note that makes a deletion repeatable: a half-deleted journal names neither log nor tables any more. A start
    at this place removes it: what is written then is to stay."""

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
    # Where another Replicator has its tables or its change log beside ours, the folder is not empty.
    lake.prune_root()
    storage.prune_root()
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
    """Why the table is not this change log's; None: it is. `begun`: an earlier call may have deleted half of it."""
    if not begun and not lake.lists(name):
        # Its files may be in use under another name: renaming a table in a catalog leaves them where they are.
        return "the catalog has no such table"
    found = lake.log_id(name)
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

    def lists(self, name: tuple[str, str]) -> bool:
        """In a folder catalog, and for Delta, the files are the entry."""
        return not self._by_catalog or self._entry(name) is not None

    def log_id(self, name: tuple[str, str]) -> str | None:
        """Of the table's state; None: it has none that can be read."""
        try:
            if self._by_catalog and (entry := self._entry(name)) is not None:
                return log_of_table.iceberg_property(entry.properties().get(STATE))
        except _UNREADABLE:
            return None
        # Half deleted it has lost its entry in the catalog, if it had one: the files say whose they are.
        proof = self._proof(name)
        return None if proof is None else proof.log_id

    def drop(self, name: tuple[str, str]) -> None:
        """The catalog's entry first; the files are deleted like any others, the newest state last. What else makes a
        table of them goes before its data: half deleted, it cannot be read as one with fewer rows."""
        if self._by_catalog:
            self._drop_from_catalog(name)
        proof, folder = self._proof(name), table_folder(*name) + "/"
        last = None if proof is None else proof.path
        metadata = (folder + "_delta_log/", folder + "metadata/")
        paths = [path for path, _ in self._lake.list(folder)]
        for path in sorted(paths, key=lambda path: (path == last, not path.startswith(metadata), path)):
            # Dying here leaves the state: the next call finds it and goes on.
            self._lake.delete(path)
        self._lake.prune(table_folder(*name))

    def prune_root(self) -> None:
        self._lake.prune_root()

    def _proof(self, name: tuple[str, str]) -> log_of_table.Proof | None:
        read = log_of_table.iceberg_folder if self._iceberg else log_of_table.delta
        try:
            return read(self._lake, table_folder(*name))
        except _UNREADABLE:
            return None

    def close(self) -> None:
        if self._session is not None:
            from tailrace.spark import session

            session.stop(self._session)
            self._session = None

    def _entry(self, name: tuple[str, str]) -> Any:
        """The catalog's table; None: it has none of this name."""
        from tailrace.targets.lake.iceberg.java import guarded

        catalog, identifier = self._open(), self._identifier(name)
        with guarded(".".join(name), "looking at"):
            return catalog.catalog.loadTable(identifier) if catalog.catalog.tableExists(identifier) else None

    def _drop_from_catalog(self, name: tuple[str, str]) -> None:
        from tailrace.targets.lake.iceberg.java import guarded

        catalog, identifier = self._open(), self._identifier(name)
        with guarded(".".join(name), "dropping"):
            if catalog.catalog.tableExists(identifier) and not catalog.catalog.dropTable(identifier, False):
                raise TargetRefused(f"the catalog does not drop {'.'.join(name)}", "Drop it by hand.")

    def _identifier(self, name: tuple[str, str]) -> Any:
        return self._open().identifier(*name)

    def _open(self) -> Any:
        """The catalog; its JVM is started when it is first needed."""
        if self._catalog is None:
            from tailrace.spark import class_archive, session
            from tailrace.targets.lake.iceberg.catalog import IcebergCatalog
            from tailrace.targets.lake.iceberg.java import Java

            self._run_dir.mkdir(parents=True, exist_ok=True)
            log_file = self._run_dir / "spark.log"
            self._session = session.start(self._spec, self._run_dir, log_file, class_archive.java_options())
            self._catalog = IcebergCatalog.open(Java.of(self._session), self._spec.target, os.environ)
        return self._catalog
