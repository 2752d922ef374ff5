"""The data's part of `tailrace drop`: target tables and the change log itself, as far as they are this change log's.

A table goes if the change log knew its place and the table's own state carries this log's id; what carries that goes
last, so that a table that was put there since is never taken for a remainder of this one. Where the catalog is no
folder, its entry says so, and without one the files do only if a deletion of this table had begun. Of the change log's
location only its own folders go, so that what others keep at the same places stays.
"""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from tailrace.changelog import paths
from tailrace.changelog.followers import FOLLOWERS
from tailrace.changelog.logged import place_of
from tailrace.changelog.records.terms import Closed
from tailrace.errors import CorruptLog, StorageFull
from tailrace.places import Places
from tailrace.removal import claims
from tailrace.removal.claims import Known
from tailrace.spark.on_demand import on_demand
from tailrace.storage.probe import PROBES
from tailrace.storage.store import NotFound, Storage
from tailrace.targets.api import TableName, TargetRemoval

OURS = (paths.SEGMENTS, PROBES, FOLLOWERS, paths.ROLLUPS, paths.PARTS, paths.JOURNAL)
"""The folders at a change log's location. The journal goes after everything that it alone names; a roll-up before the
parts that it names. In each of them the newest goes first, so that what is left is an older journal, or none."""
NOTES = (paths.FIRST_START, paths.RENEWAL, paths.FRESHNESS, paths.DROPPED)
"""The one that makes the deletion repeatable goes last."""
STARTED = "a process has started with it since"
Line = tuple[str, Literal["dropped", "kept", "absent"], str]


class Proven(Closed):
    """The note that makes a deletion repeatable: a half-deleted journal no longer names log or tables. A start at this
    place removes it: what is written then is to stay."""

    owner: str
    log_id: str
    """The id of the change log that is being deleted: the note proves nothing about another one."""
    epoch: int
    """The log's newest: the note is void for a Replicator that has started with the log since."""
    tables: tuple[TableName, ...]
    """Schema and name."""


def drop(known: Known, places: Places, run_dir: Path, by_now: Callable[[], Known]) -> Iterator[Line]:
    """`by_now` reads the change log once more: what another writer has started to fill since `known` was read stays."""
    storage, target = places.storage, places.target
    before = _of_this_log(noted(storage), known)
    why = _not_ours(known, before)
    if why is not None:
        yield f"change log {storage.root}", "kept", why
        yield f"tables at {target.place}", "kept", why
        return
    if before is None and (known.log is None or known.log.origin is None):
        yield f"change log {storage.root}", "absent", ""
        return
    spark = on_demand(lambda: places.spec, target, run_dir, run_dir / "spark.log")
    tables = target.removal(spark.session)
    try:
        note = yield from _prove(known, before, tables)
        # Dying from here on leaves the note, and the next call continues from it. A start begins its epoch first and
        # removes the note then: one that this look does not find yet will be told by the note's absence.
        why = _put(note, storage, by_now) or _begun_since(note, by_now())
        if why is None:
            why = yield from _drop_tables(note, storage, tables)
    finally:
        spark.stop()
    if why is not None:
        storage.delete(paths.DROPPED)
        yield f"change log {storage.root}", "kept", why
        return
    _drop_log(storage)
    # Where another Replicator has its tables or its change log beside ours, the folder is not empty.
    tables.finish(note.log_id)
    storage.prune_root()
    yield f"change log {storage.root}", "dropped", ""


def _not_ours(known: Known, before: Proven | None) -> str | None:
    # Who began it owned the log. What is left of its journal may name the one before, or nobody.
    if before is None:
        return claims.foreign(known)
    return None if before.owner == known.owner else f"{before.owner} began to delete it"


def _prove(known: Known, before: Proven | None, tables: TargetRemoval) -> Generator[Line, None, Proven]:
    """Determines what is deleted; yields a line for what stays."""
    begun, origin = () if before is None else before.tables, None if known.log is None else known.log.origin
    begun += () if known.log is None else tuple(d.place for d in known.log.dropped if d.begun)
    log_id = origin.log_id if origin is not None else "" if before is None else before.log_id
    proven: dict[TableName, None] = {}
    for name in dict.fromkeys([*begun, *_places(known)]):
        kept = _unproven(tables, name, log_id, begun=name in begun)
        if kept is None:
            proven[name] = None
        elif tables.exists(name):
            yield tables.location(name), "kept", kept
    epoch = max(-1 if known.log is None else known.log.epoch, -1 if before is None else before.epoch)
    return Proven(owner=known.owner, log_id=log_id, epoch=epoch, tables=tuple(proven))


def _begun_since(note: Proven, now: Known) -> str | None:
    """The owner that has started with this change log since it was read; None: there is none."""
    log = now.log
    if log is None or log.origin is None or (log.origin.log_id == note.log_id and log.epoch <= note.epoch):
        return None
    return claims.foreign(now) or STARTED


def _put(note: Proven, storage: Storage, by_now: Callable[[], Known]) -> str | None:
    """Writes the note; returns the reason if it cannot. Where the disk is full, segments make room for it: they are
    about to go, unless a Replicator starts with this log meanwhile, which is checked before each of them."""
    spare: Iterator[str] | None = None
    while True:
        try:
            storage.put(paths.DROPPED, note.model_dump_json().encode())
            return None
        except StorageFull:
            if (why := _begun_since(note, by_now())) is not None:
                return why
            if spare is None:
                spare = (path for folder in (PROBES, paths.SEGMENTS) for path, _ in storage.list(folder))
            path = next(spare, None)
            if path is None:
                raise
            storage.delete(path)


def _drop_tables(note: Proven, storage: Storage, tables: TargetRemoval) -> Generator[Line, None, str | None]:
    """Returns the reason why the rest stays; None: all of them are gone, and the change log may go."""
    for name in note.tables:
        if noted(storage) != note:
            return STARTED
        tables.drop(name)
        yield tables.location(name), "dropped", ""
    return None if noted(storage) == note else STARTED


def _drop_log(storage: Storage) -> None:
    for folder in OURS:
        for path in sorted((path for path, _ in storage.list(folder)), reverse=True):
            storage.delete(path)
        storage.delete_unfinished(folder)
        storage.prune(folder)
    for path in NOTES:
        storage.delete(path)


def noted(storage: Storage) -> Proven | None:
    """None: no deletion was interrupted."""
    try:
        return Proven.model_validate_json(storage.get(paths.DROPPED))
    except NotFound:
        return None
    except ValidationError as error:
        raise CorruptLog(f"{storage.uri(paths.DROPPED)} is not readable", "Remove it.") from error


def _of_this_log(note: Proven | None, known: Known) -> Proven | None:
    void = note is not None and _begun_since(note, known) is not None
    return None if void else note


def _unproven(tables: TargetRemoval, name: TableName, log_id: str, *, begun: bool) -> str | None:
    """The reason why the table is not this change log's; None: it is. `begun`: an earlier call may have deleted half of
    it."""
    if not begun and not tables.in_catalog(name):
        # Its files may be in use under another name: renaming a table in a catalog leaves them where they are.
        return "the catalog has no such table"
    found = tables.owner(name)
    if found is None:
        return "it carries no change log's state"
    return None if found.log_id == log_id else f"its state is of change log {found.log_id}, not of {log_id}"


def _places(known: Known) -> list[TableName]:
    """The places where this log may have written: of every table, for a target exists before the journal says so, and
    of those that came before them."""
    log = known.log
    if log is None:
        return []
    return [*map(place_of, log.tables.values()), *log.forgotten_tables, *(d.place for d in log.dropped)]
