"""The progress of each target table, as the apply loop reports it to the status, the planner, the cuts and the
`--once` check.

Written by the tables' workers (one thread each at a time) and the applier, read by the status server's threads: values
are replaced, never changed.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from threading import Lock

from tailrace.batch.written import WrittenFiles
from tailrace.changelog.records.terms import Key, RecordNumber, Seq
from tailrace.contract.status import Fault, TableCounters


@dataclass(frozen=True)
class TableProgress:
    applied_seq: Seq = Seq(0)
    applied_record: RecordNumber = RecordNumber(-1)
    """Covered up to here: what follows the committed record brings the table nothing. -1: the target is not read."""
    committed_record: RecordNumber = RecordNumber(-1)
    """The applied record of the target's last commit."""
    holes: frozenset[Key] = frozenset()
    counters: TableCounters = field(default_factory=TableCounters)
    """Since this driver's start."""
    fault: Fault | None = None
    failing_since: float | None = None
    """Monotonic time of the first of these failures."""
    stopped: bool = False
    """A fault that trying again will not heal."""
    away: bool = False
    """The place that it met does not answer at all, so that other tables meet the same there."""
    replacing: bool = False
    """All of this is of a new copy; readers still see the former one."""
    refused_record: RecordNumber = RecordNumber(-1)
    """The record to which the last attempt that failed was to bring the table."""
    schema_version: int = 0
    """The version of the columns that the target has; 0: the target is not read, or the table is new."""
    version: int | None = None
    """The newest version of the copy that readers see, as the target numbers it; None: not known, or the target keeps
    none."""
    written: WrittenFiles | None = None
    """The files of its commits since this driver's start; None: none, or the target has none."""


@dataclass(frozen=True)
class HeldCut:
    """The outcome of a cut for one table."""

    version: int | None = None
    why: str | None = None
    """The reason why the table is not in it; None: it is."""


NOTHING = TableProgress()


class Progress:
    """The newest `TableProgress` of every table.

    With thousands of tables most records bring most of them nothing. Those tables are quiet: they are covered together
    (`cover`), and each comes to hear of it when it is asked for.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = Lock()
        self._tables: dict[int, TableProgress] = {}
        self._cuts: dict[tuple[str, int], HeldCut] = {}
        self._quiet: set[int] = set()
        self._covered = RecordNumber(-1)
        """The record that all quiet tables hold at least."""
        self._failing: set[int] = set()
        self._with_holes: set[int] = set()
        self._news: list[set[int]] = []

    def all(self) -> Mapping[int, TableProgress]:
        with self._lock:
            for table_id in self._quiet:
                self._at(table_id)
            return dict(self._tables)

    def of(self, table_id: int) -> TableProgress:
        with self._lock:
            return self._at(table_id)

    def _at(self, table_id: int) -> TableProgress:
        known = self._tables.get(table_id, NOTHING)
        if known.applied_record < self._covered and table_id in self._quiet:
            known = self._tables[table_id] = replace(known, applied_record=self._covered)
        return known

    def failing(self) -> Mapping[int, TableProgress]:
        """Those with a fault."""
        with self._lock:
            return {table_id: self._at(table_id) for table_id in self._failing}

    def with_holes(self) -> Mapping[int, TableProgress]:
        with self._lock:
            return {table_id: self._at(table_id) for table_id in self._with_holes}

    def news(self) -> Callable[[], Set[int]]:
        """Returns a question that each time brings the tables that were put since the last time. (Not those that are
        only covered.)"""
        mine = set[int]()

        def take() -> Set[int]:
            with self._lock:
                taken = set(mine)
                mine.clear()
                return taken

        with self._lock:
            mine.update(self._tables)
            self._news.append(mine)
        return take

    def put(self, table_id: int, progress: TableProgress) -> None:
        with self._lock:
            self._tables[table_id] = progress
            self._quiet.discard(table_id)
            _note(self._failing, table_id, progress.fault is not None)
            _note(self._with_holes, table_id, bool(progress.holes))
            for news in self._news:
                news.add(table_id)

    def be_quiet(self, table_id: int) -> None:
        """No record brings the table anything, until `stir`."""
        with self._lock:
            self._quiet.add(table_id)

    def stir(self, table_id: int) -> None:
        """Ends the quiet of the table: what comes from now on does not cover it."""
        with self._lock:
            self._at(table_id)
            self._quiet.discard(table_id)

    def cover(self, number: RecordNumber) -> None:
        """All quiet tables hold the record."""
        with self._lock:
            self._covered = max(self._covered, number)

    def hold(self, cut: str, table_id: int, held: HeldCut) -> None:
        """Note what the table holds of a cut, until the journal does."""
        with self._lock:
            self._cuts[cut, table_id] = held

    def held(self) -> Mapping[tuple[str, int], HeldCut]:
        """Returns what tables hold of cuts, by cut and table."""
        with self._lock:
            return dict(self._cuts)

    def is_held(self, cut: str, table_id: int) -> bool:
        with self._lock:
            return (cut, table_id) in self._cuts

    def recorded(self, cuts: Iterable[tuple[str, int]]) -> None:
        """Forget what the journal holds by now."""
        with self._lock:
            for one in cuts:
                self._cuts.pop(one, None)

    def forget(self, table_id: int) -> None:
        with self._lock:
            self._tables.pop(table_id, None)
            for ids in (self._quiet, self._failing, self._with_holes, *self._news):
                ids.discard(table_id)

    def fail(
        self,
        table_id: int,
        fault: Fault,
        stopped: bool,
        record: RecordNumber = RecordNumber(-1),
        *,
        away: bool = False,
    ) -> None:
        """Note a failed attempt to come to `record`; `since` and `count` are those of all failures in a row, whatever
        their names: the retry time runs from the first of them, or a table that fails in two ways would never end."""
        before, since = self.of(table_id), self._monotonic()
        if before.fault is not None:
            fault = fault.model_copy(update={"since": before.fault.since, "count": before.fault.count + 1})
            since = before.failing_since if before.failing_since is not None else since
        failed = replace(before, fault=fault, failing_since=since, stopped=stopped, away=away, refused_record=record)
        self.put(table_id, failed)


def _note(ids: set[int], table_id: int, is_one: bool) -> None:
    if is_one:
        ids.add(table_id)
    else:
        ids.discard(table_id)


def add(one: TableCounters, other: TableCounters) -> TableCounters:
    return TableCounters(**{name: getattr(one, name) + getattr(other, name) for name in TableCounters.model_fields})
