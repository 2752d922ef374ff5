"""Tables that were dropped in the source, and whose copy is to go (`onTableDrop: Drop`): what of it is durable.

    TableRemoved(drop) ── free ──> due ── begun ──> dropped | kept
             │                      ^
             └──── place taken ─────┘ when the table there has ended

A copy is found by its place, which another table may take at any time. So nothing is deleted before the journal, which
orders both, says `begun` while no table has the place; a table that takes it later waits until the deletion has ended.
Called by `table_events`, and by who carries it out (`tailrace.removal.dropped`).
"""

from collections.abc import Iterable, Set

from tailrace.changelog import cuts
from tailrace.changelog.folding import Folding
from tailrace.changelog.logged import DroppedTable, LogState, TableLog, place_of
from tailrace.changelog.records.tables import CopyRemoval
from tailrace.changelog.records.terms import RecordNumber

KEPT_IDS = 20
"""A copy of a table that so many others have followed is no longer in any of their places."""
Place = tuple[str, str]


def due(state: LogState) -> list[DroppedTable]:
    """Those whose copy may go, or whose deletion has begun."""
    if state.renewal is not None:
        return [d for d in state.dropped if d.begun]  # the tables that are there are about to be added again
    taken = _taken(state.tables.values()) if state.dropped else set()
    return [d for d in state.dropped if d.begun or _is_free(d, taken)]


def is_blocked(state: LogState, place: Place) -> bool:
    """True if a former table's copy is being deleted there: nothing may be written."""
    return any(d.begun and _folded(d.place) == _folded(place) for d in state.dropped)


def table_dropped(work: Folding, table: TableLog) -> None:
    place = place_of(table)
    before = _at(work, place)
    ids = () if before is None else tuple(i for i in before.table_ids if i != table.table_id)
    generation = table.generation if before is None else max(before.generation, table.generation)
    begun = before is not None and before.begun
    _put(
        work,
        DroppedTable(
            place=place,
            table_ids=(*ids, table.table_id)[-KEPT_IDS:],
            generation=RecordNumber(generation),
            begun=begun,
        ),
    )


def place_taken(work: Folding, place: Place) -> None:
    """Records that the place has a table again, which decides from now on if the place is free."""
    found = _at(work, place)
    if found is not None:
        _put(work, found.model_copy(update={"free": True}))


def copy_removal(work: Folding, event: CopyRemoval) -> None:
    """Records a step of a copy's removal. A step that no longer fits has no effect: its author reads the state
    afterwards."""
    place = event.schema_name, event.table_name
    found = _at(work, place)
    if found is None:
        return
    match event.step:
        case "free":
            _put(work, found.model_copy(update={"free": True}))
        case "begun" if work.renewal is None and _is_free(found, _taken(work.tables.values())):
            _put(work, found.model_copy(update={"begun": True}))
            cuts.copy_deleted(work, place)
        case "dropped" if found.begun:
            _remove(work, place)
            _forget(work, place)
        case "kept":
            _remove(work, place)
        case _:
            pass


def _taken(tables: Iterable[TableLog]) -> Set[Place]:
    """The places of captured tables. Names that differ in case only may be one place to a catalog."""
    return {_folded(place_of(table)) for table in tables if not table.removed}


def _is_free(dropped: DroppedTable, taken: Set[Place]) -> bool:
    return dropped.free and _folded(dropped.place) not in taken


def _forget(work: Folding, place: Place) -> None:
    """Nothing is there, so it need not be remembered."""
    work.forgotten_tables = tuple(known for known in work.forgotten_tables if known != place)
    for table in [t for t in work.tables.values() if t.removed and place_of(t) == place]:
        work.update(table, applied_record=RecordNumber(0))


def _at(work: Folding, place: Place) -> DroppedTable | None:
    return next((d for d in work.dropped if d.place == place), None)


def _put(work: Folding, dropped: DroppedTable) -> None:
    _remove(work, dropped.place)
    work.dropped = (*work.dropped, dropped)


def _remove(work: Folding, place: Place) -> None:
    work.dropped = tuple(d for d in work.dropped if d.place != place)


def _folded(place: Place) -> Place:
    return place[0].casefold(), place[1].casefold()
