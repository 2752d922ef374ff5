"""Reports of the driver about its tables as lineage events. `step` runs beside the main loop; `end` is the last word.

Runs that are open are kept in the run directory, and those whose end the receiver has not got, so that the next process
there can end them (ABORT). Nothing in here may stop the copy: what goes wrong with an event costs that event.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tailrace.apply.progress import NOTHING, Progress, TableProgress
from tailrace.changelog.history import stored
from tailrace.changelog.logged import place_of
from tailrace.changelog.records.terms import TableSchema
from tailrace.changelog.state import LogState, TableLog
from tailrace.contract.resources import Replicator
from tailrace.contract.status import Fault, LineageStatus
from tailrace.driver.telling.lineage import configuration, naming
from tailrace.driver.telling.lineage.runs import Saying, SeenTable, TableRuns, new_run_id
from tailrace.driver.telling.lineage.sender import CAPACITY, Sender
from tailrace.driver.telling.status import fault_of_table
from tailrace.errors import TableStop
from tailrace.targets.api import Target

if TYPE_CHECKING:
    from tailrace.driver.telling.lineage.events import LineageEvents

log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
"""Seconds that the end of the driver waits for the receiver."""
FILE = "lineage.json"


def open_lineage(
    replicator: Replicator, secrets: Path | None, folder: Path, *, once: bool = False
) -> "LineageReporter | None":
    """None: the manifest asks for no events. `InvalidManifest`: it asks for what cannot be done. Nothing is sent yet.
    `folder`: the run directory."""
    spec = replicator.spec.lineage
    if spec is None:
        return None
    emit = configuration.emitter(spec, secrets)
    from tailrace.driver.telling.lineage.events import (  # the client is installed
        LineageEvents,
        LineageOrigin,
        owners_in,
    )

    name, owners = replicator.metadata.name, owners_in(replicator.metadata.labels or {})
    events = LineageEvents(LineageOrigin(spec.namespace, name, replicator.spec, owners, once), new_run_id())
    return LineageReporter(events, name, Sender(emit), folder)


class LineageReporter:
    def __init__(
        self,
        events: "LineageEvents",
        replicator: str,
        sender: Sender,
        folder: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._events, self._replicator, self._sender, self._clock = events, replicator, sender, clock
        self._file = folder / FILE
        self._runs = TableRuns()
        self._kept: Mapping[str, str] = {}
        """The jobs of the runs that the file names."""
        self._ending: dict[str, str] = {}
        """The jobs of runs whose end was said, and has not arrived yet."""
        self._started = False
        self._seen: dict[int, tuple[TableLog, TableProgress, SeenTable]] = {}
        """The tables as last seen, by id, each behind the values that it was made of."""

    @property
    def status(self) -> LineageStatus:
        return self._sender.status

    def start(self) -> None:
        """The Replicator's own run begins, and those end that a killed process has left open."""
        now, left = self._clock(), self._left()
        self._ending |= left
        for run_id, job in left.items():
            self._put(partial(self._events.aborted, run_id, job, now), ends=run_id)
        self._kept, self._started = left, True
        self._keep()
        self._put(partial(self._events.of_replicator, "START", now))
        self._sender.start()

    def step(self, state: LogState, progress: Progress, target: Target) -> None:
        known = progress.all()
        live = [table for table in state.tables.values() if not table.removed]
        self._seen = {i: seen for i, seen in self._seen.items() if i in state.tables}
        seen = [self._table(state, table, known.get(table.table_id, NOTHING), target) for table in live]
        going = {dropped.place for dropped in state.dropped}
        self._say(self._runs.look(seen, self._clock(), lambda table: table.place in going))
        if self._ending:
            self._keep()

    def end(self, kind: Literal["COMPLETE", "ABORT"], fault: Fault | None = None, *, in_haste: bool = False) -> None:
        """The driver ends, by an error if there is a `fault`. Of tables that fail their own fault is told. `in_haste`:
        the receiver is not waited for."""
        if self._started:
            now = self._clock()
            sayings = self._runs.end(kind if fault is None else "FAIL", now, fault)
            self._say(sayings)
            failed = next((one.fault for one in sayings if one.kind == "FAIL"), fault)
            own = self._events.run_id
            self._ending[own] = self._replicator
            self._put(
                partial(self._events.of_replicator, "FAIL" if failed is not None else kind, now, failed), ends=own
            )
        self._sender.close(0.0 if in_haste else CLOSE_SECONDS)
        if not self._started:
            return
        self._started = False
        self._keep()
        if not self._kept:
            with suppress(OSError):  # an end that is told twice is no harm
                self._file.unlink(missing_ok=True)

    def _table(self, state: LogState, table: TableLog, progress: TableProgress, target: Target) -> SeenTable:
        fault, before = fault_of_table(state, table, progress), self._seen.get(table.table_id)
        if before is not None and before[0] is table and before[1] is progress and before[2].fault == fault:
            return before[2]
        held = (one.table for one in table.schemas if one.table.version == progress.schema_version)
        seen = SeenTable(
            table_id=table.table_id,
            place=place_of(table),
            source=table.schema,
            target=_shown(target, stored(next(held, table.schema))),
            generation=table.generation,
            rows=progress.counters.rows,
            version=progress.version,
            written=progress.written,
            fault=fault,
            stopped=table.stopped is not None or progress.stopped,
        )
        self._seen[table.table_id] = table, progress, seen
        return seen

    def _say(self, sayings: list[Saying]) -> None:
        if not sayings:
            return
        for one in sayings:
            if one.kind not in ("START", "RUNNING"):
                self._ending[one.run.run_id] = naming.job_of(self._replicator, one.run.place)
        # Before they are sent: dying here ends runs that nobody has heard of, which is no harm.
        self._keep()
        for saying in sayings:
            replaceable = saying.kind == "RUNNING" and saying.change is None
            run_id = saying.run.run_id
            ends = run_id if saying.kind not in ("START", "RUNNING") else None
            self._put(partial(self._events.of_table, saying), run_id if replaceable else None, ends)

    def _put(self, make: Callable[[], Any], run_id: str | None = None, ends: str | None = None) -> None:
        try:
            event = make()
        except Exception as error:  # one event is less than the copy
            log.warning("a lineage event could not be made: %s", configuration.text_of(error))
            self._sender.drop()
            return
        self._sender.put(event, run_id, ends)

    # ---- the runs that are open, or whose end nobody has, for the next process ----

    def _keep(self) -> None:
        for run_id in self._sender.take_ended():
            self._ending.pop(run_id, None)
        for run_id in list(self._ending)[:-CAPACITY]:
            del self._ending[run_id]
        jobs = {run.run_id: naming.job_of(self._replicator, run.place) for run in self._runs.open.values()}
        jobs |= self._ending
        if self._started:
            jobs[self._events.run_id] = self._replicator
        if jobs == self._kept:
            return
        try:
            fresh = self._file.with_suffix(".new")
            fresh.write_text(json.dumps(jobs), "utf-8")
            fresh.replace(self._file)
        except OSError as error:
            log.debug("the open lineage runs could not be kept: %s", error)
        self._kept = jobs

    def _left(self) -> dict[str, str]:
        try:
            found = json.loads(self._file.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(run_id): str(job) for run_id, job in found.items()} if isinstance(found, dict) else {}


def _shown(target: Target, schema: TableSchema) -> TableSchema:
    """The table under its names in the target; one that the target cannot hold is stopped, and stays as it is."""
    try:
        return target.shown(schema)
    except TableStop:
        return schema
