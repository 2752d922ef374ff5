"""The runs of a Replicator's tables, and what is to be said of them. Pure: time comes in, nothing is sent here.

    (not seen) ── seen ──> START ──> RUNNING … ──> COMPLETE   no longer captured, or `--once` has ended
                             ^           │
                             │           ├──> FAIL             the table is stopped, or an error has ended the driver
                             └── healed ─┘──> ABORT            the driver was shut down, or was killed before

Everything in a RUNNING counts from the run's START, so one that is lost, or replaced by the next, loses nothing.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tailrace.batch.written import NO_FILES, WrittenFiles
from tailrace.changelog.records.terms import TableSchema
from tailrace.contract.status import Fault

Ending = Literal["COMPLETE", "FAIL", "ABORT"]
Kind = Literal["START", "RUNNING", Ending]
Change = Literal["ALTER", "DROP", "OVERWRITE"]
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 300.0
"""Seconds between two RUNNING events of a run: doubled from the first to the longest. What has changed besides rows and
versions is said after the first, and nothing is said while nothing has changed."""


@dataclass(frozen=True)
class SeenTable:
    """A captured table as it is now."""

    table_id: int
    place: tuple[str, str]
    """The name under which it was first captured: the copy's, and the job's."""
    source: TableSchema
    target: TableSchema
    """The version that the copy has."""
    generation: int
    rows: int = 0
    """Rows written since the driver's start."""
    version: int | None = None
    """The copy's newest version, or snapshot."""
    written: WrittenFiles | None = None
    """Files of its commits since the driver's start; None: the target has none."""
    fault: Fault | None = None
    stopped: bool = False

    @property
    def essence(self) -> tuple[object, ...]:
        """All but what every commit changes. A fault counts by its name: its text may differ each time."""
        fault = None if self.fault is None else self.fault.name
        return self.source, self.target, self.generation, fault, self.stopped


@dataclass(frozen=True)
class JobRun:
    """A run of the job of one table."""

    run_id: str
    place: tuple[str, str]


@dataclass(frozen=True)
class Saying:
    """An event to be sent."""

    kind: Kind
    run: JobRun
    table: SeenTable
    rows: int
    """Rows written since the run's start."""
    at: float
    change: Change | None = None
    fault: Fault | None = None
    written: WrittenFiles | None = None
    """Files of its commits since the run's start; None: the target has none."""


@dataclass
class _Open:
    run: JobRun
    table: SeenTable
    """The table as last said, ..."""
    said: float
    counted: int
    """`rows` of the table as last seen: it begins anew with a new copy."""
    rows: int = 0
    """Rows written since the run's start."""
    counted_files: WrittenFiles = NO_FILES
    """`written` of the table as last seen, ..."""
    written: WrittenFiles | None = None
    """... and the files of its commits since the run's start."""
    pause: float = field(default_factory=lambda: FIRST_PAUSE)
    """Seconds until what every commit changes is told of again."""
    newest: SeenTable | None = None
    """... and as last seen."""

    def count(self, table: SeenTable) -> None:
        self.rows += table.rows - self.counted if table.rows >= self.counted else table.rows
        self.newest, self.counted = table, table.rows
        if table.written is not None:
            self.written = (self.written or NO_FILES) + table.written.since(self.counted_files)
            self.counted_files = table.written

    def saying(self, kind: Kind, table: SeenTable, at: float, change: Change | None, fault: Fault | None) -> Saying:
        return Saying(kind, self.run, table, self.rows, at, change, fault, self.written)


def new_run_id() -> str:
    return str(uuid.uuid4())


class TableRuns:
    def __init__(self, new_id: Callable[[], str] = new_run_id) -> None:
        self._new_id = new_id
        self._open: dict[int, _Open] = {}
        self._failed: dict[int, SeenTable] = {}
        """Tables that are stopped and were said to have failed, as they were then."""

    @property
    def open(self) -> Mapping[int, JobRun]:
        return {table_id: one.run for table_id, one in self._open.items()}

    def look(self, tables: Iterable[SeenTable], now: float, dropping: Callable[[SeenTable], bool]) -> list[Saying]:
        """Returns the events about all tables that are captured. `dropping`: the copy of one that is not is deleted."""
        sayings, seen = list[Saying](), set[int]()
        for table in tables:
            seen.add(table.table_id)
            sayings += self._look(table, now)
        for table_id in self._open.keys() - seen:
            last = self._open[table_id].newest or self._open[table_id].table
            sayings.append(self._end(table_id, "COMPLETE", now, change="DROP" if dropping(last) else None))
        self._failed = {table_id: table for table_id, table in self._failed.items() if table_id in seen}
        return sayings

    def end(self, kind: Ending, now: float, fault: Fault | None = None) -> list[Saying]:
        """The end of the driver. A table that fails then has failed. `fault`: the one that ended it."""
        return [self._ended(table_id, kind, now, fault) for table_id in list(self._open)]

    def _ended(self, table_id: int, kind: Ending, now: float, fault: Fault | None) -> Saying:
        open_run = self._open[table_id]
        own = (open_run.newest or open_run.table).fault
        if own is not None and kind != "ABORT":
            return self._end(table_id, "FAIL", now, fault=own)
        return self._end(table_id, kind, now, fault=fault)

    def _look(self, table: SeenTable, now: float) -> Iterator[Saying]:
        table_id = table.table_id
        if table.stopped and table_id in self._failed:
            return
        known_run = self._open.get(table_id)
        if known_run is not None and known_run.run.place != table.place:
            yield self._end(table_id, "COMPLETE", now)  # it was renamed: another copy, so another job
        if table_id not in self._open:
            run = JobRun(self._new_id(), table.place)
            before = self._failed.pop(table_id, table)  # what has healed it is of this run
            self._open[table_id] = _Open(run, table, now, before.rows, counted_files=before.written or NO_FILES)
            yield Saying("START", run, table, 0, now)
        known = self._open[table_id]
        known.count(table)
        if table.stopped:
            self._failed[table_id] = table
            yield self._end(table_id, "FAIL", now, fault=table.fault)
        elif self._is_due(known, table, now):
            change = _change(known.table, table)
            known.pause = min(known.pause * 2, LONGEST_PAUSE)
            known.table, known.said = table, now
            yield known.saying("RUNNING", table, now, change, table.fault)

    @staticmethod
    def _is_due(known: _Open, table: SeenTable, now: float) -> bool:
        if table == known.table:
            return False
        return now - known.said >= (FIRST_PAUSE if table.essence != known.table.essence else known.pause)

    def _end(
        self, table_id: int, kind: Ending, now: float, fault: Fault | None = None, change: Change | None = None
    ) -> Saying:
        known = self._open.pop(table_id)
        last = known.newest or known.table
        return known.saying(kind, last, now, change or _change(known.table, last), fault)


def _change(before: SeenTable, now: SeenTable) -> Change | None:
    """The change of the copy as a whole; None: only rows."""
    if before.generation != now.generation:
        return "OVERWRITE"
    return "ALTER" if before.target.form != now.target.form else None
