"""One round of the loop: observe, decide, record the intent, act. Called by the scheduler for whatever is due."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tailrace.errors import TailraceError
from tailrace.seams import seam
from tailrace_operator.act.events import Events
from tailrace_operator.act.perform import Performer
from tailrace_operator.act.status import StatusWriter
from tailrace_operator.decide import replicator, request
from tailrace_operator.decide.model import Asks, Decision, Limits
from tailrace_operator.handlers.turns import Turns
from tailrace_operator.kube import ApiNotFound, Kube, Where
from tailrace_operator.observe.gather import Gatherer
from tailrace_operator.observe.index import Index
from tailrace_operator.observe.memory import Memory
from tailrace_operator.observe.mistakes import MISTAKES
from tailrace_operator.observe.model import ObjectKey, ObservedReplicator, ObservedRequest
from tailrace_operator.status.models import ReplicatorStatus, SnapshotRequestStatus

log = logging.getLogger(__name__)

REPLICATOR, REQUEST = "Replicator", "SnapshotRequest"
FAST_SECONDS = 25.0
"""Longest pause between two questions to a driver however many there are: a dead one must show within 30 s."""
QUESTIONS_PER_SECOND = 50
STEADY_PER_SECOND, STEADY_SECONDS = 10, 10.0
"""Questions to drivers that only follow changes, while each is asked at least so often."""
UNWATCHED_SECONDS = 30.0
"""Pause of what may not be decided; it is woken when it may."""
SOON_SECONDS = 5.0
"""After actions: what they changed is looked at soon, even if a watch is late."""
Observed = ObservedReplicator | ObservedRequest
Decided = Decision[ReplicatorStatus] | Decision[SnapshotRequestStatus]


class Undecided(TailraceError):
    """A bug of the operator, met with one object."""


@contextmanager
def _assessing(key: ObjectKey) -> Iterator[None]:
    """A guard around a round: what it cannot cope with is that object's trouble, not the end of the operator."""
    try:
        yield
    except MISTAKES as error:
        log.error("%s %s/%s cannot be assessed", key.kind, key.namespace, key.name, exc_info=error)
        raise Undecided(f"a mistake in the operator: {error!r}", "Report it with the log's traceback.") from error


def pace(again: float, asks: Asks, count: int, moving: int) -> float:
    """Seconds until a driver is asked again, when `count` are asked. Of those the `moving` ones share as many questions
    among themselves; few of the others are asked as often as `again` says, a hundred every 10 s."""
    if again > FAST_SECONDS:
        return again
    wait = max(again, (moving if asks == "moving" else count) / QUESTIONS_PER_SECOND)
    if asks == "steady":
        wait = max(wait, min(count / STEADY_PER_SECOND, STEADY_SECONDS))
    return min(wait, FAST_SECONDS)


@dataclass(frozen=True)
class ReconcilerParts:
    kube: Kube
    index: Index
    gatherer: Gatherer
    writer: StatusWriter
    performer: Performer
    events: Events
    memory: Memory
    limits: Limits
    turns: Turns
    watched: Callable[[ObjectKey], bool]
    """False: what is known of it may be old. Nothing is decided then, and nothing written."""


class Reconciler:
    def __init__(self, parts: ReconcilerParts) -> None:
        self._parts = parts
        self._uids: dict[ObjectKey, str] = {}
        self._moving: set[ObjectKey] = set()

    async def round(self, key: ObjectKey) -> float | None:
        """Seconds until the next round; None: the object is gone."""
        if not self._parts.watched(key):
            return UNWATCHED_SECONDS
        with _assessing(key):
            try:
                return await (self._replicator(key) if key.kind == REPLICATOR else self._request(key))
            except ApiNotFound as error:
                # Its status has nowhere to go: it may be deleted, and the watch has not shown it yet.
                if not await self._gone(key):
                    raise error
                return None

    async def _replicator(self, key: ObjectKey) -> float | None:
        observed = await self._parts.gatherer.replicator(key)
        if not self._parts.watched(key):
            return UNWATCHED_SECONDS
        if observed is None:
            self._forget(key)
            return None
        turns = self._parts.turns
        decision = replicator.decide(replace(observed, turn=turns.free(key)), self._parts.limits)
        turns.note(key, decision.status.rollout_since is not None and not observed.meta.deleting)
        decision = replace(decision, again=self._pace(key, decision))
        return await self._carry_out(key, observed, decision, observed.meta.name)

    def _pace(self, key: ObjectKey, decision: Decided) -> float:
        """Seconds until its next round."""
        if decision.asks == "moving":
            self._moving.add(key)
        else:
            self._moving.discard(key)
        if decision.asks == "given" and key.kind == REQUEST:
            return decision.again  # no driver is asked
        return pace(decision.again, decision.asks, self._parts.index.count(REPLICATOR), len(self._moving))

    async def _request(self, key: ObjectKey) -> float | None:
        observed = await self._parts.gatherer.request(key)
        if not self._parts.watched(key):
            return UNWATCHED_SECONDS
        if observed is None:
            self._forget(key)
            return None
        decision = request.decide(observed, self._parts.limits)
        decision = replace(decision, again=self._pace(key, decision))
        return await self._carry_out(key, observed, decision, str(observed.spec.get("replicator", "")))

    async def _carry_out(self, key: ObjectKey, observed: Observed, decision: Decided, driver_of: str) -> float:
        meta, now = observed.meta, observed.now
        self._uids[key] = meta.uid
        old, new = observed.status, decision.status
        # The intent stands in the status before anything is touched. Dying before the write: the next process decides
        # the same again. Dying after it: it finds the intent, sees what is missing and does the rest.
        seam("operator.before-status")
        written = await self._parts.writer.write(key, meta, new, old, decision.intent)
        if written is not None:
            self._parts.index.put(key.kind, written)
            for event in decision.events:
                await self._parts.events.emit(key, meta, event, now)
            seam("operator.after-status")
        elif new == old:
            for event in decision.events:
                await self._parts.events.emit(key, meta, event, now)
        for action in decision.actions:
            if not self._parts.watched(key):
                return UNWATCHED_SECONDS
            await self._parts.performer.perform(key, meta, driver_of, action)
        held = self._parts.writer.wait(meta.uid, new, old) if written is None else None
        delay = decision.again if held is None else min(decision.again, held)
        return min(delay, SOON_SECONDS) if decision.actions else delay

    async def _gone(self, key: ObjectKey) -> bool:
        """Ask; remove it from the index if so."""
        uid = self._uids.get(key)
        try:
            document = await self._parts.kube.call("GET", Where(key.kind, key.namespace, key.name))
        except ApiNotFound:
            self._parts.index.remove(key.kind, key.namespace, key.name)
            self._forget(key)
            return True
        if document["metadata"]["uid"] != uid:
            self._parts.index.put(key.kind, document)
        return False

    def keys(self) -> list[ObjectKey]:
        """The objects of which anything is remembered; some may be gone."""
        return list(self._uids)

    def _forget(self, key: ObjectKey) -> None:
        self._moving.discard(key)
        uid = self._uids.pop(key, "")
        self._parts.writer.forget(uid)
        self._parts.memory.forget(key, uid)
        self._parts.turns.note(key, False)
        self._parts.index.use_data(key, set())
