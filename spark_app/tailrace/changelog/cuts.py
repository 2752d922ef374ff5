"""The effect of cuts' events, and of what happens to tables, on the cuts in the log's state. Called by the fold only.

A table that a cut waits for either comes to it (`CutHeld`) or never will: it starts over first, or was not whole when
the cut was made. What a table holds of cuts goes with its copy, and at once where it must be hidden.
"""

from collections.abc import Mapping, Set
from typing import TypeVar

from tailrace.changelog.folding import Folding, Handler
from tailrace.changelog.logged import LoggedCut, LogState, TableLog, converging, place_of
from tailrace.changelog.records.cuts import CutDropped, CutHeld, CutMade
from tailrace.changelog.records.terms import RecordNumber

T = TypeVar("T")

BEING_READ = "not all of its rows were read by then"
CONVERGING = "rows that foreign keys had changed below the source's log were still to be read again"
STARTED_OVER = "it started over before it came to the cut"
HIDDEN = "it started over, and hides what it held before"
DELETED = "its copy was deleted"
MADE_AGAIN = "another program deleted its copy, or put it back to an older version"


def kept_versions(state: LogState, table: TableLog) -> dict[str, int]:
    """The versions of the table's place in the target that cuts keep, by the cut's name."""
    if not state.cuts:
        return {}
    ids = of_place(state, table)
    found = {cut.name: [v for i in ids if (v := cut.versions.get(i)) is not None] for cut in state.cuts.values()}
    return {name: versions[0] for name, versions in found.items() if versions}


def of_place(state: LogState, table: TableLog) -> set[int]:
    """The ids of the tables that have, or had, the table's place in the target."""
    return {table.table_id, *_former(state.tables, place_of(table))}


def awaited_cuts(state: LogState, table: TableLog) -> list[LoggedCut]:
    """The cuts that wait for the table, the oldest first."""
    return [cut for cut in state.cuts.values() if table.table_id in cut.awaited]


def table_added(work: Folding, table_id: int, place: tuple[str, str], must_hide: bool) -> None:
    """A table begins here, or begins again."""
    _over(work, {table_id}, STARTED_OVER, kept=True)
    if must_hide:
        _over(work, {table_id, *_former(work.tables, place)}, HIDDEN)


def table_reached(work: Folding, table_id: int) -> None:
    """Foreign keys have changed rows of the table in this record, and perhaps behind the cut that it holds."""
    _over(work, {table_id}, CONVERGING, kept=True, since=work.record.number)


def copy_deleted(work: Folding, place: tuple[str, str]) -> None:
    _over(work, _former(work.tables, place), DELETED)


def table_forgotten(work: Folding, table_id: int) -> None:
    for name, cut in work.cuts.items():
        changes = {"awaited": cut.awaited - {table_id}, "versions": _less(cut.versions, {table_id})}
        work.cuts[name] = cut.model_copy(update={**changes, "without": _less(cut.without, {table_id})})


def _former(tables: Mapping[int, TableLog], place: tuple[str, str]) -> set[int]:
    return {i for i, table in tables.items() if table.removed and place_of(table) == place}


def _over(work: Folding, ids: Set[int], why: str, *, kept: bool = False, since: int = 0) -> None:
    """The tables will not come to cuts, from record `since` on, that wait for them; `kept`: what they hold of others
    stays."""
    for name, cut in work.cuts.items():
        if cut.record < since:
            continue
        ended = (cut.awaited if kept else cut.awaited.union(cut.versions)) & ids
        if ended:
            versions = cut.versions if kept else _less(cut.versions, ended)
            without = {**cut.without, **dict.fromkeys(ended, why)}
            changes = {"awaited": cut.awaited.difference(ended), "versions": versions, "without": without}
            work.cuts[name] = cut.model_copy(update=changes)


def _less(known: Mapping[int, T], gone: Set[int]) -> dict[int, T]:
    return {key: value for key, value in known.items() if key not in gone}


def _made(work: Folding, event: CutMade) -> None:
    if event.name in work.cuts:
        work.corrupt(f"cut {event.name} is made already")
    without, record = dict[int, str](), work.record
    live = [table for table in work.tables.values() if not table.removed]
    for table in live:
        if table.stopped is not None:
            without[table.table_id] = f"it was stopped ({table.stopped.error})"
        elif table.read_record <= max(table.added_record, table.reread_record) or table.unread is not None:
            without[table.table_id] = BEING_READ
        elif converging(table, record.number):
            without[table.table_id] = CONVERGING
    newest = work.state.newest_commit
    if record.commit_time is not None:
        newest = max(record.commit_time[1], newest or 0)
    work.cuts[event.name] = LoggedCut(
        name=event.name,
        scheduled=event.scheduled,
        record=RecordNumber(record.number),
        position=record.position,
        commit_time=newest,
        made_at=record.written_at,
        awaited=frozenset(table.table_id for table in live).difference(without),
        without=without,
    )


def _held(work: Folding, event: CutHeld) -> None:
    cut = work.cuts.get(event.name)
    if cut is None:
        return  # dropped meanwhile
    versions = {i: version for i, version in event.versions.items() if i in cut.awaited}
    without = {i: why for i, why in event.without.items() if i in cut.awaited or i in cut.versions}
    changes = {"versions": _less({**cut.versions, **versions}, set(without)), "without": {**cut.without, **without}}
    awaited = cut.awaited.difference(versions, without)
    work.cuts[event.name] = cut.model_copy(update={**changes, "awaited": awaited})


def _dropped(work: Folding, event: CutDropped) -> None:
    work.cuts.pop(event.name, None)


CUT_HANDLERS: Mapping[type, Handler] = {CutMade: _made, CutHeld: _held, CutDropped: _dropped}
