"""The observations of one round: frozen values, created by `observe.gather`, assessed by `decide`. Pure types."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.contract.driver import DropAnswer, DropReport, Problem
from tailrace.contract.resources import SnapshotRequestSpec
from tailrace.contract.status import Fault, SnapshotStatus, Status
from tailrace_operator.status.models import ReplicatorStatus, SnapshotRequestStatus

REQUESTED_AT = "reconcile.fluxcd.io/requestedAt"
PAUSED = "tailrace.dev/pause-reconciliation"
"""Annotation; with the value `true` the operator watches and reports, and changes nothing."""
FINALIZER = "tailrace.dev/finalizer"


@dataclass(frozen=True)
class ObjectKey:
    """One object in the queue."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class Meta:
    """Metadata of a Replicator or SnapshotRequest."""

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    finalizers: tuple[str, ...] = ()
    deleted_at: float | None = None
    """The time at which its deletion was requested."""
    requested_at: str | None = None
    """Flux' annotation, as much of it as the status has room for."""
    owners: tuple[tuple[str, str], ...] = ()
    """The labels that name owners, with their values."""
    paused: bool = False
    """True while the annotation `tailrace.dev/pause-reconciliation` is set."""

    @property
    def deleting(self) -> bool:
        return self.deleted_at is not None


@dataclass(frozen=True)
class Ended:
    """A container that ended."""

    code: int
    reason: str
    fault: Fault | None
    """The error in its termination message; None: it left none."""
    at: float
    log_line: str = ""
    """The last line of its log, which the kubelet keeps of a container that left no last words; empty: none."""


_BEGINNING = ("ContainerCreating", "PodInitializing")
"""The reasons for which a container waits that is about to begin."""


@dataclass(frozen=True)
class ObservedPod:
    name: str
    uid: str
    template_hash: str
    ready: bool
    phase: str
    created: float
    deleting: bool = False
    ip: str | None = None
    running_since: float | None = None
    """Start of the driver's container that runs now."""
    waiting: str | None = None
    """The reason why its container waits (`CrashLoopBackOff`, `ImagePullBackOff`)."""
    waiting_message: str = ""
    restarts: int = 0
    ended: Ended | None = None
    """The newest end of its container."""
    unscheduled: str | None = None
    """The reason why it cannot be scheduled."""
    node: str = ""
    evicted_until: float | None = None
    """Kubernetes evicts it from a node with a taint, as one that does not respond: its container had to end by then,
    and the kubelet has not said that it did. None: not so."""
    disrupted: str = ""
    """The reason why Kubernetes removes it: preempted, evicted from a node that is drained."""

    @property
    def cannot_begin(self) -> str | None:
        """The reason, for people, why its container has not begun; None: it has, or no obstacle is known."""
        if self.running_since is not None:
            return None
        if self.unscheduled is not None:
            return f"pod {self.name} cannot be scheduled: {self.unscheduled}"
        if self.waiting is None or self.waiting in _BEGINNING:
            return None
        return f"pod {self.name}: {self.waiting}: {self.waiting_message}"


@dataclass(frozen=True)
class RefusedPod:
    """The newest attempt of a StatefulSet or a Job to make its pod that the API server did not allow."""

    message: str
    at: float


@dataclass(frozen=True)
class Eviction:
    """The driver's node, or the scheduler, took the pod away, as an event says: a driver that ends in time leaves a pod
    that merely succeeded."""

    pod: str
    uid: str
    message: str
    at: float


@dataclass(frozen=True)
class Child:
    """An object that a Replicator owns, as far as decisions need it."""

    kind: str
    name: str
    uid: str
    version: str
    """resourceVersion, or the generation of objects whose status others write."""
    content_hash: str
    """Our annotation: what we applied last."""
    template_hash: str = ""
    replicas: int | None = None
    succeeded: bool = False
    failed: bool = False
    drifted: bool = False
    """True if it was changed by others after the operator applied it."""
    image: str = ""
    """The image of a StatefulSet; empty for others."""
    tried_at: float | None = None
    """The time at which its controller was last made to retry the creation of its pod."""


@dataclass(frozen=True)
class ObservedDriver:
    """The driver's answer when it was last asked."""

    status: Status | None = None
    answered_at: float | None = None
    silent_since: float | None = None
    """The first of the questions without an answer since; None: it answers."""
    error: str = ""


@dataclass(frozen=True)
class ObservedDrop:
    """The driver's answer when it was last asked to drop what it made."""

    at: float
    answer: DropAnswer | None = None
    """None: it did not take the order."""
    problem: Problem | None = None
    code: int = 0
    """HTTP status code; 0: no answer."""


@dataclass(frozen=True)
class LogCheck:
    """The result of asking the source, without a driver, how much log it keeps."""

    at: float
    bytes: int | None
    """None: it keeps none, or did not say."""
    error: str = ""
    """The reason why it is not known; empty: it is."""


@dataclass(frozen=True)
class Refusal:
    """An object cannot be made: the API server does not take it, or another owner has one of its name."""

    what: str
    """Kind and name."""
    content_hash: str
    """Empty: of a Secret that the operator makes."""
    message: str
    again_at: float = math.inf
    """Time before which the same is not sent again."""


@dataclass(frozen=True)
class ObservedResync:
    """A SnapshotRequest that can bring a Replicator back whose position is lost."""

    name: str
    uid: str
    spec: SnapshotRequestSpec
    taken: bool
    """A driver had it once: what it asks for is under way, and it may have no further effect."""


@dataclass(frozen=True)
class ObservedReplicator:
    now: float
    meta: Meta
    spec: Mapping[str, Any]
    status: ReplicatorStatus
    running_spec: Mapping[str, Any] | None = None
    """The spec in the ConfigMap: the last one that was valid. None: no driver was ever set up."""
    data_hashes: Mapping[str, str] = field(default_factory=dict)
    """`Secret/name` and `ConfigMap/name` -> hash of the data; those that exist."""
    children: Mapping[str, Child] = field(default_factory=dict)
    """Children by `kind/name`."""
    pods: tuple[ObservedPod, ...] = ()
    executors: tuple[ObservedPod, ...] = ()
    cleaners: tuple[ObservedPod, ...] = ()
    """Pods of the clean-up Job."""
    log_check: LogCheck | None = None
    """The newest; None: there is none."""
    driver: ObservedDriver = ObservedDriver()
    driver_answered_at: float | None = None
    """The time at which a driver of it last answered this operator."""
    requests: tuple[str, ...] = ()
    """UIDs of the SnapshotRequests that name this Replicator, oldest first."""
    resyncs: tuple[ObservedResync, ...] = ()
    """Those of them that ask for every table to start over and have not ended, oldest first."""
    recovery: ObservedResync | None = None
    """The request of `spec.recover`; its uid contains the nonce."""
    dropping: ObservedDrop | None = None
    """The driver's last answer to the order to drop."""
    reports: tuple[DropReport, ...] = ()
    """Reports of pods of this name that dropped something and ended: drivers and clean-ups, including pods that are
    gone."""
    spec_answer: "DriverAnswer | None" = None
    """The driver's answer when it was last sent another spec."""
    refusal: Refusal | None = None
    refused_pods: Mapping[str, str] = field(default_factory=dict)
    """`kind/name` of a StatefulSet or Job -> why it cannot make its pod."""
    evicted: Eviction | None = None
    """The newest of its drivers."""
    turn: bool = True
    """A new default image may restart it now."""
    namespace_ends: bool = False
    """The namespace is being deleted: nothing new can be made in it."""


@dataclass(frozen=True)
class DriverAnswer:
    """The driver's answer to the last verb for a request."""

    accepted: bool
    record: int | None = None
    problem: Problem | None = None
    code: int = 0
    at: float = 0.0
    """The time of the answer."""


@dataclass(frozen=True)
class ObservedRequest:
    now: float
    meta: Meta
    spec: Mapping[str, Any]
    status: SnapshotRequestStatus
    replicator: bool = False
    """The Replicator exists and is not being deleted."""
    replicator_idle: str | None = None
    """The reason why no driver is meant to run: suspended, or stopped after an error."""
    replicator_cut_over: bool = False
    """A cutover has ended its replication: no driver will run by this spec."""
    target_suspended: bool = False
    """The Replicator's `apply.suspend`."""
    replicator_generation: int = 0
    """The generation of a rewind's Replicator, as the API server has it now: the index may lag behind one
    that was applied together with the request."""
    executors_missing: str = ""
    """The reason why none of the Replicator's executors runs; empty: one does, or none is requested."""
    driver: ObservedDriver = ObservedDriver()
    snapshot: SnapshotStatus | None = None
    """The driver's entry with our uid."""
    answer: DriverAnswer | None = None
    """The answer to this operator's last verb."""
