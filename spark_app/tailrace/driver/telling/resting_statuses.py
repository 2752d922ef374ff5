"""The statuses of tables as they were last assembled: those that nothing has happened to are taken over.

The status of thousands of tables is assembled several times a minute, for the display and for the last hour's numbers,
while most of them rest. Held by the driver's control; used by `driver.telling.status`.
"""

from collections.abc import Callable, Container
from dataclasses import fields
from operator import attrgetter

from tailrace.apply.progress import TableProgress
from tailrace.changelog.state import TableLog
from tailrace.contract.status import TableStatus

OTHERS = attrgetter(*(field.name for field in fields(TableProgress) if field.name != "applied_record"))
"""All of a table's progress but the record up to which it is covered: each record moves that."""


class RestingStatuses:
    def __init__(self) -> None:
        self._known: dict[int, tuple[TableLog, TableProgress, TableStatus]] = {}
        """Tables at rest."""

    def status(
        self, log: TableLog, progress: TableProgress, rests: bool, assemble: Callable[[], TableStatus]
    ) -> TableStatus:
        """`rests`: nothing is read of the table, and its rate is 0."""
        known = self._known.get(log.table_id) if rests else None
        if known is not None and _is_same(known, log, progress):
            status, record = known[2], max(progress.applied_record, 0)
            if status.applied_record != record:
                status = status.model_copy(update={"applied_record": record})
                self._known[log.table_id] = log, progress, status
            return status
        status = assemble()
        if rests and _stays(status, log, progress):
            self._known[log.table_id] = log, progress, status
        else:
            self._known.pop(log.table_id, None)
        return status

    def keep(self, tables: Container[int]) -> None:
        """Forgets all others."""
        for table_id in [table_id for table_id in list(self._known) if table_id not in tables]:
            self._known.pop(table_id, None)


def _is_same(known: tuple[TableLog, TableProgress, TableStatus], log: TableLog, progress: TableProgress) -> bool:
    if known[0] is not log or progress.applied_record < known[1].applied_record:
        return False
    return known[1] is progress or OTHERS(known[1]) == OTHERS(progress)


def _stays(status: TableStatus, log: TableLog, progress: TableProgress) -> bool:
    """True if neither time nor what happens to other tables changes it."""
    well = status.state == "REPLICATING" and status.fault is None and log.unread is None
    lacks = log.segments.record_after(progress.applied_record) is not None or bool(log.cascades)
    return well and not lacks
