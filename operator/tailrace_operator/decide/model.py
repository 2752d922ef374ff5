"""The parts of a decision: a status, and actions that bring the cluster closer to it. Pure types."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from tailrace.contract.resources import DeletionPolicy, ReplicatorSpec, SnapshotRequestSpec
from tailrace_operator.resources.defaults import NO_DEFAULTS, PodDefaults
from tailrace_operator.status.conditions import Reason
from tailrace_operator.status.models import ReplicatorStatus, SnapshotRequestStatus

Status = TypeVar("Status", ReplicatorStatus, SnapshotRequestStatus)


@dataclass(frozen=True)
class ApplyChild:
    """Server-side apply of a child, with our owner reference and content hash."""

    document: Mapping[str, Any]
    content_hash: str


@dataclass(frozen=True)
class MakeSecret:
    """Create one of `names.secrets` with a fresh random value, unless it exists."""

    name: str


@dataclass(frozen=True)
class Delete:
    """Delete a child, if it still has this uid."""

    kind: str
    name: str
    uid: str
    force: bool = False
    """A pod: without waiting for its kubelet."""


@dataclass(frozen=True)
class TryPod:
    """Have the StatefulSet's controller try at once to make its pod."""

    name: str


@dataclass(frozen=True)
class SetFinalizers:
    """On the object itself."""

    finalizers: tuple[str, ...]


@dataclass(frozen=True)
class SubmitSnapshot:
    """Give a SnapshotRequest to the driver."""

    snapshot_id: str
    spec: SnapshotRequestSpec


@dataclass(frozen=True)
class Pause:
    snapshot_id: str
    suspend: bool


@dataclass(frozen=True)
class Cancel:
    snapshot_id: str


@dataclass(frozen=True)
class ChangeSpec:
    """Have the running driver work by this spec."""

    generation: int
    spec: ReplicatorSpec


@dataclass(frozen=True)
class DropSource:
    """Ask the driver to leave as the policy says: to drop what it made in its source, or not; and how far it is."""

    policy: DeletionPolicy


Action = (
    ApplyChild
    | MakeSecret
    | Delete
    | TryPod
    | SetFinalizers
    | SubmitSnapshot
    | Pause
    | Cancel
    | ChangeSpec
    | DropSource
)


@dataclass(frozen=True)
class EmitEvent:
    """An Event on the object."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    parting: bool = False
    """True for the end of the object's deletion, which is reported elsewhere if its namespace ends, too."""


Asks = Literal["given", "moving", "steady"]
"""`moving`: progress is under way that people wait for; `steady`: a driver only follows changes."""


@dataclass(frozen=True)
class Decision(Generic[Status]):
    status: Status
    """Written before the actions when its intent changed, else when it is worth a write."""
    actions: tuple[Action, ...] = ()
    events: tuple[EmitEvent, ...] = ()
    again: float = 300.0
    """Seconds until the next look if nothing happens."""
    asks: Asks = "given"
    """The kind of that pause: with many objects each is longer (`handlers.reconcile`)."""
    intent: bool = False
    """The status records something that the actions rely on: no action without it."""


@dataclass(frozen=True)
class Limits:
    """The limits that the operator's flags may change."""

    image: str
    """Image of drivers and executors unless a spec names one."""
    pods: PodDefaults = NO_DEFAULTS
    """Defaults of all Replicators' pods, overridden by what each Replicator sets itself."""
    driver_peers: tuple[Mapping[str, Any], ...] | None = None
    """Peers that may reach drivers over HTTP, as in a NetworkPolicy's rule; empty: anyone. None: drivers and executors
    have no NetworkPolicy."""
    poll_seconds: float = 10.0
    """A driver is asked at least this often, while there are few of them; a dead one must show within 30 s."""
    rollout: int = 5
    """The number of drivers that restart at the same time for a new default image."""
    restart_limit: int = 5
    """Ends of the driver before it is stopped; `retry.time` must have passed, too."""
    healthy_seconds: float = 600.0
    """After running this long, earlier ends are forgotten."""
    settle_seconds: float = 30.0
    """A driver that has failed repeatedly counts as recovered once it works this long after its start."""
    start_seconds: float = 180.0
    """A driver that has not answered for this long since its start is unreachable."""
    silent_seconds: float = 12.0
    """A driver that answered before and now does not is unreachable after this."""
    executors_seconds: float = 60.0
    """Executors that have not started after this are missing."""
    lag_seconds: float = 300.0
    """A larger lag sets `Lagging`."""
    retained_bytes: int = 10 << 30
    """A source that keeps more log sets `SourceLogAtRisk`."""
    cleanup_seconds: float = 600.0
    """A deletion waits this long for source and storage, then ends and reports what stays."""
    cancel_seconds: float = 60.0
    """The deletion of a SnapshotRequest waits this long for a driver."""


@dataclass(frozen=True)
class Blocker:
    """The reason why the newest spec does not run."""

    reason: Reason
    message: str
    stuck: bool
    """True if manual action is required; otherwise it may recover without action."""


@dataclass(frozen=True)
class Desired:
    """The spec that ought to run, and what is in its way."""

    spec: ReplicatorSpec | None
    """The newest valid one; None: there never was one."""
    generation: int
    """The generation of that spec."""
    spec_hash: str
    template_hash: str | None
    """None: something that the pod needs does not exist."""
    image: str
    blocker: Blocker | None = None
    data_hash: str | None = None
    """Hash of all Secrets and ConfigMaps that the pod needs; None: one of them does not exist."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """Hash of each of them and of the operator's own, by kind and name."""
    waits_for: str | None = None
    """The default image that it does not run yet, since it is not its turn; `image` is what runs."""
    rolls: bool = False
    """It is restarted because of the default image alone."""

    @property
    def suspended(self) -> bool:
        return self.spec is not None and self.spec.suspend
