"""The only writer of the resources' status. What flips and what actions rely on is written at once; a step of progress
when the budget has a place for it, which is at once while there are few; everything else that changes, such as the lag,
every 30 s and within the budget.
"""

import time
from collections.abc import Callable
from typing import Any

from tailrace.contract.resources import API_VERSION
from tailrace_operator import metrics
from tailrace_operator.act.budget import Budget
from tailrace_operator.decide.summary import BAD
from tailrace_operator.kube import APPLY, Kube, Where
from tailrace_operator.observe.model import Meta, ObjectKey
from tailrace_operator.resources.names import MANAGER
from tailrace_operator.status.load import dump
from tailrace_operator.status.models import ReplicatorStatus, SnapshotRequestStatus

QUIET_SECONDS = 30.0
Status = ReplicatorStatus | SnapshotRequestStatus
Document = dict[str, Any]


class StatusWriter:
    def __init__(
        self, kube: Kube, rate: float, clock: Callable[[], float] = time.monotonic, quiet: float = QUIET_SECONDS
    ) -> None:
        """`rate`: writes in a second, over all objects."""
        self._kube = kube
        self._clock = clock
        self._quiet = quiet
        self._budget = Budget(rate, clock)
        self._written: dict[str, float] = {}

    async def write(self, key: ObjectKey, meta: Meta, new: Status, old: Status, intent: bool) -> Document | None:
        """The object after the write; None: not written."""
        if not self._due(meta.uid, new, old, intent):
            return None
        body = {
            "apiVersion": API_VERSION,
            "kind": key.kind,
            # The uid: a status must not land on another object of the same name.
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "status": dump(new),
        }
        query = {"fieldManager": MANAGER, "force": "true"}
        where = Where(key.kind, meta.namespace, meta.name, "status")
        document = await self._kube.call("PATCH", where, query=query, body=body, content=APPLY)
        self._written[meta.uid] = self._clock()
        metrics.STATUS_WRITES.labels(key.kind).inc()
        return document

    def wait(self, uid: str, new: Status, old: Status) -> float | None:
        """Seconds until a change that was held back may be written; None: nothing is held back."""
        if new == old:
            return None
        quiet = 0.0 if stepped(new, old) else self._written.get(uid, 0.0) + self._quiet - self._clock()
        return max(quiet, self._budget.wait(uid), 0.1)

    def forget(self, uid: str) -> None:
        self._written.pop(uid, None)
        self._budget.forget(uid)

    def _due(self, uid: str, new: Status, old: Status, intent: bool) -> bool:
        if new == old:
            return False
        if intent or flipped(new, old):
            self._budget.force(uid)
            return True
        quiet = self._clock() - self._written.get(uid, 0.0) < self._quiet
        return (stepped(new, old) or not quiet) and self._budget.take(uid)


def flipped(new: Status, old: Status) -> bool:
    """True if a change between the two may end a wait (`kubectl wait`, a roll-out)."""
    return _pairs(new) != _pairs(old) or (new.state, new.observed_generation) != (old.state, old.observed_generation)


def stepped(new: Status, old: Status) -> bool:
    """True if progress has made a step that people wait for: a percent, or the state of a table."""
    return _step(new) != _step(old)


def _pairs(status: Status) -> set[tuple[str, str, str]]:
    return {(c.type, c.status, c.reason) for c in status.conditions}


def _step(status: Status) -> tuple[object, ...]:
    if isinstance(status, SnapshotRequestStatus):
        tables = tuple((table.name, table.finished, table.fault is not None) for table in status.tables)
        return status.progress, status.tables_summary, tables
    found, read = status.tables, status.snapshot
    states = (found.waiting, found.snapshotting, found.replicating, found.failing, found.stopped) if found else ()
    worst = tuple((table.name, table.state) for table in found.worst if table.state in BAD) if found else ()
    done = (read.running, read.tables_done, read.tables_total) if read else ()
    return status.snapshot_summary, status.tables_summary, status.executors_summary, states, worst, done
