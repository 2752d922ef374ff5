"""Deletes the copies of tables that were dropped in the source, where `onTableDrop` is `Drop`.

Called in a loop by the driver, on a separate thread: deletion may take long, or fail while the target is unreachable,
and no other table waits for it. For each copy that is due (`tailrace.changelog.dropped`):

    policy still Drop, copy proven ours ── record begun ── proven again, deleted ── record dropped

Dying anywhere is safe: before `begun` nothing was touched, and after it the next step, of whatever process, continues.
"""

import logging
import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Literal

from tailrace.capture.client import CaptureClient
from tailrace.changelog.dropped import due
from tailrace.changelog.records.tables import CopyRemoval
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import DroppedTable
from tailrace.contract.faults import fault_of
from tailrace.contract.resources import ReplicatorSpec
from tailrace.contract.status import Fault
from tailrace.errors import Fenced, TailraceError
from tailrace.errors.backoff import Backoff
from tailrace.seams import seam
from tailrace.sources.dropped import drops
from tailrace.targets.api import Admit, TableName, TargetRemoval

log = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0
"""Seconds between two attempts at a copy that cannot be deleted."""


class DroppedCopies:
    def __init__(
        self,
        journal: SharedJournal,
        client: CaptureClient,
        target: Callable[[], TargetRemoval],
        admit: Admit,
        *,
        spec: Callable[[], ReplicatorSpec],
        is_done_with: Callable[[DroppedTable], bool],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`target` is asked when it is first needed. `spec`: as it is now. `is_done_with`: whether no thread of this
        process works at its copy any longer."""
        self._journal, self._client = journal, client
        self._open = target
        self._opened: TargetRemoval | None = None
        self._admit, self._spec, self._is_done_with = admit, spec, is_done_with
        self._clock, self._monotonic = clock, monotonic
        self._lock = Lock()
        self._pauses: dict[TableName, Backoff] = {}
        self._faults: dict[TableName, Fault] = {}

    @property
    def faults(self) -> Mapping[TableName, Fault]:
        """The reasons why copies still exist, by place."""
        return dict(self._faults)

    def step(self) -> None:
        """One attempt at each copy that is due. Nothing happens while apply is suspended: the target stands still."""
        with self._lock:
            self._turn()

    def _turn(self) -> None:
        state = self._journal.state
        known = {dropped.place for dropped in state.dropped}
        self._pauses = {place: pause for place, pause in self._pauses.items() if place in known}
        self._faults = {place: fault for place, fault in self._faults.items() if place in known}
        for dropped in due(state):
            if self._spec().apply.suspend:
                return
            pause = self._pauses.setdefault(dropped.place, Backoff(LONGEST_PAUSE))
            if not pause.is_waiting(self._monotonic()):
                self._try(dropped, pause)

    def _try(self, dropped: DroppedTable, pause: Backoff) -> None:
        try:
            if self._remove(dropped):
                pause.reset()
                self._faults.pop(dropped.place, None)
        except Fenced:
            raise
        except Exception as error:  # the boundary of one table: named in the status and tried again
            pause.failed(self._monotonic())
            fault = fault_of(error, self._clock(), "target")
            before = self._faults.get(dropped.place)
            if before is not None:
                fault = fault.model_copy(update={"since": before.since, "count": before.count + 1})
            self._faults[dropped.place] = fault
            known = isinstance(error, TailraceError)
            text = error if known else fault.message
            log.warning("the copy of the dropped table %s is still there: %s", _name(dropped), text, exc_info=not known)

    def _remove(self, dropped: DroppedTable) -> bool:
        """False: not yet."""
        target = self._target()
        if not dropped.begun:
            why = self._why_kept(target, dropped)
            if why is not None:
                self._keep(dropped, why)
                return True
            seam("dropped.before-begun")
            # Dying around the record leaves the copy whole: the next step reads what became of it.
            if not self._record(dropped, "begun"):
                return True  # its place was taken meanwhile
        if not self._is_done_with(dropped):
            return False
        why = self._why_kept(target, dropped)
        if why is not None and target.exists(dropped.place):
            self._keep(dropped, why)
            return True
        seam("dropped.before-deletion")
        # Dying in here leaves what says whose it is: the next step continues, for the record says that it was begun.
        target.drop(dropped.place, self._admit)
        seam("dropped.after-deletion")
        self._record(dropped, "dropped")
        log.info("%s was dropped in the source: its copy was deleted (onTableDrop: Drop)", _name(dropped))
        return True

    def _why_kept(self, target: TargetRemoval, dropped: DroppedTable) -> str | None:
        """None: the copy is the dropped table's, and to go."""
        if not dropped.begun and not drops(self._spec(), *dropped.place):
            return "onTableDrop is no longer Drop, or tables no longer select it"
        if not dropped.begun and not target.in_catalog(dropped.place):
            return "the target's catalog has no such table"
        origin, found = self._journal.state.origin, target.owner(dropped.place)
        if found is None:
            return "it carries no change log's state"
        if origin is None or found.log_id != origin.log_id:
            return f"its state is of change log {found.log_id}"
        if found.altered:
            return "somebody else has changed or replaced it"
        newer = found.generation is None or found.generation > dropped.generation
        return "it is the copy of another table" if newer or found.table_id not in dropped.table_ids else None

    def _keep(self, dropped: DroppedTable, why: str) -> None:
        self._record(dropped, "kept")
        if self._target().exists(dropped.place):
            log.warning("%s was dropped in the source: its copy stays, because %s", _name(dropped), why)

    def _record(self, dropped: DroppedTable, step: Literal["begun", "dropped", "kept"]) -> bool:
        """Records the step. Returns True if the journal holds it afterwards."""
        schema, table = dropped.place
        self._client.append([CopyRemoval(schema_name=schema, table_name=table, step=step)])
        known = {now.place: now for now in self._journal.look().dropped}
        return known[dropped.place].begun if step == "begun" and dropped.place in known else step != "begun"

    def _target(self) -> TargetRemoval:
        if self._opened is None:
            self._opened = self._open()
        return self._opened


def _name(dropped: DroppedTable) -> str:
    return ".".join(dropped.place)
