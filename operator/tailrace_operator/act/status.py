"""The only writer of the resources' status: writes what changed, at most every 30 s unless something flipped."""

from collections.abc import Callable
from typing import Any

from tailrace.contract.resources import API_VERSION
from tailrace_operator import metrics
from tailrace_operator.kube import APPLY, Kube, Where
from tailrace_operator.observe.model import Meta, ObjectKey
from tailrace_operator.resources.names import MANAGER
from tailrace_operator.status.load import dump
from tailrace_operator.status.models import ReplicatorStatus, SnapshotRequestStatus

QUIET_SECONDS = 30.0
Status = ReplicatorStatus | SnapshotRequestStatus
Document = dict[str, Any]


class StatusWriter:
    def __init__(self, kube: Kube, clock: Callable[[], float], quiet: float = QUIET_SECONDS) -> None:
        self._kube = kube
        self._clock = clock
        self._quiet = quiet
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
        return max(self._written.get(uid, 0.0) + self._quiet - self._clock(), 0.1)

    def forget(self, uid: str) -> None:
        self._written.pop(uid, None)

    def _due(self, uid: str, new: Status, old: Status, intent: bool) -> bool:
        if new == old:
            return False
        if intent or flipped(new, old):
            return True
        return self._clock() - self._written.get(uid, 0.0) >= self._quiet


def flipped(new: Status, old: Status) -> bool:
    """True if a change between the two may end a wait (`kubectl wait`, a roll-out)."""
    return _pairs(new) != _pairs(old) or (new.state, new.observed_generation) != (old.state, old.observed_generation)


def _pairs(status: Status) -> set[tuple[str, str, str]]:
    return {(c.type, c.status, c.reason) for c in status.conditions}
