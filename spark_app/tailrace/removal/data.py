"""The data's part of `tailrace drop`: target tables and the change log itself, as far as they are this change log's.

A table goes if the change log knew its place and the table's own state carries this log's id; what carries that goes
last, so that a table that somebody has put there since is never taken for the rest of ours. Where the catalog is no
folder, its entry says so, and without one the files do only if a deletion of this table had begun. Of the change log's
location only its own folders go, so that what others keep at the same places stays.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import ValidationError
from pyspark.sql import SparkSession

from tailrace import targets
from tailrace.changelog import paths
from tailrace.changelog.records import Closed
from tailrace.changelog.table_events import place_of
from tailrace.contract.resources import ReplicatorSpec
from tailrace.errors import CorruptLog
from tailrace.removal import claims
from tailrace.removal.claims import Known
from tailrace.storage.probe import PROBES
from tailrace.storage.store import NotFound, Storage
from tailrace.targets.api import Removal, TableName

OURS = (paths.SEGMENTS, PROBES, paths.ROLLUPS, paths.PARTS, paths.JOURNAL)
"""What lies at a change log's location. The journal goes after everything that it alone names; a roll-up before the
parts that it names. In each of them the newest goes first, so that what is left is an older journal, or none."""
NOTES = (paths.FIRST_START, paths.RENEWAL, paths.DROPPED)
"""The one that makes the deletion repeatable goes last."""
Line = tuple[str, Literal["dropped", "kept", "absent"], str]


class Proven(Closed):
    """The note that makes a deletion repeatable: a half-deleted journal names neither log nor tables any more. A start
    at this place removes it: what is written then is to stay."""

    owner: str
    log_id: str
    """Of the change log that is being deleted: the note says nothing about another one."""
    tables: tuple[TableName, ...]
    """Schema and name."""


def drop(known: Known, storage: Storage, run_dir: Path) -> Iterator[Line]:
    target = targets.open(known.replicator.spec.target)
    before = _of_this_log(noted(storage), known)
    # Who began it owned the log. What is left of its journal may name the one before, or nobody.
    why = claims.foreign(known) if before is None else None
    if before is not None and before.owner != known.owner:
        why = f"{before.owner} began to delete it"
    if why is not None:
        yield f"change log {storage.root}", "kept", why
        yield f"tables at {target.place}", "kept", why
        return
    origin = known.log.origin if known.log is not None else None
    if origin is None and before is None:
        yield f"change log {storage.root}", "absent", ""
        return
    spark = _SparkOnDemand(known.replicator.spec, run_dir)
    tables = target.removal(spark.session)
    try:
        begun = before.tables if before is not None else ()
        proven: dict[TableName, None] = {}
        log_id = origin.log_id if origin is not None else before.log_id if before is not None else ""
        if log_id:
            for name in dict.fromkeys([*begun, *_places(known)]):
                kept = _unproven(tables, name, log_id, begun=name in begun)
                if kept is None:
                    proven[name] = None
                elif tables.holds(name):
                    yield tables.what(name), "kept", kept
        # Dying from here on leaves the note, and the next call goes on from it.
        note = Proven(owner=known.owner, log_id=log_id, tables=tuple(proven))
        storage.put(paths.DROPPED, note.model_dump_json().encode())
        for name in proven:
            tables.drop(name)
            yield tables.what(name), "dropped", ""
    finally:
        spark.close()
    for folder in OURS:
        for path in sorted((path for path, _ in storage.list(folder)), reverse=True):
            storage.delete(path)
        storage.prune(folder)
    for path in NOTES:
        storage.delete(path)
    # Where another Replicator has its tables or its change log beside ours, the folder is not empty.
    tables.finish()
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


def _unproven(tables: Removal, name: TableName, log_id: str, *, begun: bool) -> str | None:
    """Why the table is not this change log's; None: it is. `begun`: an earlier call may have deleted half of it."""
    if not begun and not tables.lists(name):
        # Its files may be in use under another name: renaming a table in a catalog leaves them where they are.
        return "the catalog has no such table"
    found = tables.log_id(name)
    if found is None:
        return "it carries no change log's state"
    return None if found == log_id else f"its state is of change log {found}, not of {log_id}"


def _places(known: Known) -> list[TableName]:
    """Where this log may have written: of every table, for a target is there before the journal says so, and of those
    that came before them."""
    log = known.log
    return [] if log is None else [*map(place_of, log.tables.values()), *log.forgotten_tables]


class _SparkOnDemand:
    """A session for as long as the deletion takes, if the target asks for one."""

    def __init__(self, spec: ReplicatorSpec, run_dir: Path) -> None:
        self._spec = spec
        self._run_dir = run_dir
        self._session: SparkSession | None = None

    def session(self) -> SparkSession:
        if self._session is None:
            from tailrace.spark import class_archive, session

            self._run_dir.mkdir(parents=True, exist_ok=True)
            log_file = self._run_dir / "spark.log"
            self._session = session.start(self._spec, self._run_dir, log_file, class_archive.java_options())
        return self._session

    def close(self) -> None:
        if self._session is not None:
            from tailrace.spark import session

            session.stop(self._session)
            self._session = None
