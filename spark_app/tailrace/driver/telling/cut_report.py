"""A cut as people and programs read it: which version of each table holds it, or why a table is not in it. Pure."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from tailrace.apply.progress import NOTHING, TableProgress
from tailrace.changelog.logged import LoggedCut, LogState, TableLog, place_of
from tailrace.changelog.records.terms import Position
from tailrace.contract.driver import CutReport, CutTable
from tailrace.storage.path_names import table_folder

LATER = "it was added later"
DROPPED = "it was dropped before it came to the cut"
COMING = "it has not come to the cut yet"


def report(
    cut: LoggedCut, state: LogState, progress: Mapping[int, TableProgress], text: Callable[[Position], str]
) -> CutReport:
    tables = tuple(_tables(cut, state, progress))
    return CutReport(
        name=cut.name,
        record=cut.record,
        position=text(cut.position),
        commit_time=None if cut.commit_time is None else cut.commit_time / 1e6,
        made=cut.made_at / 1e6,
        scheduled=cut.scheduled,
        complete=not cut.awaited and not cut.without,
        waits=any(table.waits for table in tables),
        tables=tables,
    )


def _tables(cut: LoggedCut, state: LogState, progress: Mapping[int, TableProgress]) -> Iterator[CutTable]:
    known = sorted(state.tables.values(), key=lambda table: table.schema.name)
    for table in known:
        if table.table_id in cut.versions:
            version = cut.versions[table.table_id]
            yield CutTable(name=table.schema.name, version=None if version is None else str(version))
        elif table.table_id in cut.without:
            yield CutTable(name=table.schema.name, why=cut.without[table.table_id])
        elif table.table_id in cut.awaited:
            why = _hindrance(table, progress.get(table.table_id, NOTHING))
            yield CutTable(name=table.schema.name, why=why, waits=why == COMING)
        elif not table.removed:
            yield CutTable(name=table.schema.name, why=LATER)


def _hindrance(table: TableLog, progress: TableProgress) -> str:
    if table.removed:
        return DROPPED
    if progress.fault is not None:
        return f"it is {'stopped' if progress.stopped else 'failing'}: {progress.fault.name}: {progress.fault.message}"
    return COMING


def manifest(cut: LoggedCut, state: LogState, text: Callable[[Position], str]) -> dict[str, Any]:
    """The document beside the tables, for readers of a format that has no names for versions."""
    names = {i: table.schema.name for i, table in state.tables.items()}
    held = {i: v for i, v in cut.versions.items() if v is not None and i in names}
    time = None if cut.commit_time is None else datetime.fromtimestamp(cut.commit_time / 1e6, UTC)
    return {
        "name": cut.name,
        "record": cut.record,
        "position": text(cut.position),
        "commitTime": None if time is None else time.isoformat(),
        "complete": not cut.awaited and not cut.without,
        "tables": {
            names[i]: {"location": table_folder(*place_of(state.tables[i])), "version": version}
            for i, version in held.items()
        },
        "without": {names[i]: why for i, why in cut.without.items() if i in names},
    }
