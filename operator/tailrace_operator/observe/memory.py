"""The memory of the process between rounds, which may be lost: every entry saves work, and no result depends on one."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tailrace_operator.observe.model import DriverAnswer, ObjectKey, ObservedDrop, Refusal
from tailrace_operator.resources import names

REFUSAL_SECONDS = 60.0
"""Seconds after which a request that the API server refused is repeated: quotas and admission rules change."""
REMEMBER_SECONDS = 3 * REFUSAL_SECONDS
"""It stays reported while it is retried; what is no longer sent is forgotten after this."""


@dataclass
class Memory:
    clock: Callable[[], float]
    answers: dict[str, DriverAnswer] = field(default_factory=dict)
    """The driver's answer to the last verb, by a SnapshotRequest's uid; to its last spec, by a Replicator's."""
    drops: dict[str, ObservedDrop] = field(default_factory=dict)
    """The driver's answer to the order to drop, by a Replicator's uid."""
    applied: dict[tuple[str, str, str], tuple[str, str]] = field(default_factory=dict)
    """Content hash and version after the operator's own apply, by kind, namespace and name of a child."""
    hashes: dict[tuple[str, str, str], tuple[str, str]] = field(default_factory=dict)
    """Version and hash of the data, by kind, namespace and name of a Secret or ConfigMap."""
    ending: set[str] = field(default_factory=set)
    """UIDs of Replicators in whose namespaces nothing can be created any longer. Not the namespaces' names: another one
    may be made under the same name."""
    _refusals: dict[ObjectKey, tuple[float, Refusal]] = field(default_factory=dict)

    def refuse(self, key: ObjectKey, refusal: Refusal) -> None:
        now = self.clock()
        self._refusals[key] = (now + REMEMBER_SECONDS, replace(refusal, again_at=now + REFUSAL_SECONDS))

    def refusal(self, key: ObjectKey) -> Refusal | None:
        until, refusal = self._refusals.get(key, (0.0, None))
        return refusal if self.clock() < until else None

    def accept(self, key: ObjectKey, what: str) -> None:
        """The API server took it after all."""
        known = self._refusals.get(key)
        if known is not None and known[1].what == what:
            del self._refusals[key]

    def forget(self, key: ObjectKey, uid: str) -> None:
        self.answers.pop(uid, None)
        self.drops.pop(uid, None)
        self.ending.discard(uid)
        self._refusals.pop(key, None)
        if key.kind == "Replicator":
            children = {
                *names.secrets(key.name),
                *(name(key.name) for name in (names.driver, names.executors, names.drop, names.log_check)),
            }
            for known in (self.applied, self.hashes):
                for place in [p for p in known if p[1] == key.namespace and p[2] in children]:
                    del known[place]
