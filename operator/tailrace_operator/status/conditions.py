"""Turns a judgement into conditions that kstatus, Flux, Argo CD and `kubectl wait` understand. Pure.

`Reconciling` and `Stalled` are present only while true, `Ready` always; a condition's time moves only when its status
flips. `violations` states the rules; the property tests hold every decision against it.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from typing_extensions import override

from tailrace_operator.status import times
from tailrace_operator.status.models import Condition

MAX_MESSAGE = 1024
MAX_CLAUSE = 80
"""Characters of a clause: a line of `kubectl get -o wide` has other columns, too."""
_CLAUSE_ENDS = re.compile(r"; |[.?!] | Fix: ")
Truth = Literal["True", "False", "Unknown"]


class Reason(Enum):
    """Every reason that the operator writes."""

    STREAMING = "Streaming"
    APPLY_SUSPENDED = "ApplySuspended"
    CUT_OVER = "CutOver"
    SUSPENDED = "Suspended"
    SUSPENDING = "Suspending"
    RECONCILIATION_PAUSED = "ReconciliationPaused"
    STARTING = "Starting"
    DRIVER_STARTING = "DriverStarting"
    ROLLING_OUT = "RollingOut"
    APPLYING_SPEC = "ApplyingSpec"
    WAITING_FOR_TURN = "WaitingForTurn"
    DRIVER_UNREACHABLE = "DriverUnreachable"
    DRIVER_CRASH_LOOP = "DriverCrashLoop"
    POD_PENDING = "PodPending"
    NODE_LOST = "NodeLost"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    INVALID_SPEC = "InvalidSpec"
    OBJECT_REFUSED = "ObjectRefused"
    SECRET_NOT_FOUND = "SecretNotFound"
    CONFIG_MAP_NOT_FOUND = "ConfigMapNotFound"
    SOURCE_UNREACHABLE = "SourceUnreachable"
    TARGET_UNREACHABLE = "TargetUnreachable"
    STORAGE_UNREACHABLE = "StorageUnreachable"
    CAPTURE_ENDED = "CaptureEnded"
    DEGRADED = "Degraded"
    TABLES_FAILING = "TablesFailing"
    TABLES_STOPPED = "TablesStopped"
    TABLES_WORK = "TablesWork"
    VALUES_AS_THEY_ARE = "ValuesAsTheyAre"
    VALUES_NULLED = "ValuesNulled"
    COPY_EQUAL = "CopyEqual"
    COPY_DIFFERS = "CopyDiffers"
    FAILING = "Failing"
    INVALID_MANIFEST = "InvalidManifest"
    CONFIGURATION_REFUSED = "ConfigurationRefused"
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    POSITION_LOST = "PositionLost"
    FENCED = "Fenced"
    RESTART_LIMIT_EXCEEDED = "RestartLimitExceeded"
    DELETING = "Deleting"
    ALL_EXACT = "AllExact"
    COLUMNS_NOT_EXACT = "ColumnsNotExact"
    TABLES_NOT_COPIED = "TablesNotCopied"
    INITIAL_SNAPSHOT_COMPLETED = "InitialSnapshotCompleted"
    SNAPSHOTTING = "Snapshotting"
    SNAPSHOT_FAILED = "SnapshotFailed"
    LAG_HIGH = "LagHigh"
    LAG_LOW = "LagLow"
    LAG_UNKNOWN = "LagUnknown"
    FRESHNESS_MISSED = "FreshnessMissed"
    EXECUTORS_RUNNING = "ExecutorsRunning"
    EXECUTORS_STARTING = "ExecutorsStarting"
    EXECUTORS_NOT_NEEDED = "ExecutorsNotNeeded"
    EXECUTORS_MISSING = "ExecutorsMissing"
    EXECUTOR_FAILED = "ExecutorFailed"
    RETAINED_LOG_HIGH = "RetainedLogHigh"
    RETAINED_LOG_LOW = "RetainedLogLow"
    NOT_OBSERVED = "NotObserved"
    MET = "Met"
    NOT_MET = "NotMet"
    ROWS_READ_AGAIN = "RowsReadAgain"
    FOLLOWERS_READ = "FollowersRead"
    FOLLOWER_SILENT = "FollowerSilent"
    NOT_SUSPENDED = "NotSuspended"
    PENDING = "Pending"
    RUNNING = "Running"
    PAUSED = "Paused"
    COMPLETED = "Completed"
    NOT_COMPLETED = "NotCompleted"
    FAILED = "Failed"
    NOT_FAILED = "NotFailed"
    CANCELLED = "Cancelled"
    REPLICATOR_NOT_FOUND = "ReplicatorNotFound"
    REPLICATOR_SUSPENDED = "ReplicatorSuspended"
    REPLICATOR_NOT_READY = "ReplicatorNotReady"
    REQUEST_REFUSED = "RequestRefused"

    @classmethod
    @override
    def _missing_(cls, value: object) -> "Reason":
        """A word of another version, out of a status that it stored."""
        return cls.FAILING


@dataclass(frozen=True)
class Claim:
    """One condition before its times are known."""

    type: str
    status: Truth
    reason: Reason
    message: str = ""


@dataclass(frozen=True)
class Readiness:
    """The readiness of an object: the one input of Ready, Reconciling and Stalled.

    `progress`: the operator is on its way and expects to arrive. `stuck`: it is not: manual action is required.
    """

    ready: Truth
    reason: Reason
    message: str = ""
    progress: bool = False
    stuck: bool = False

    def claims(self) -> tuple[Claim, ...]:
        found = [Claim("Ready", self.ready, self.reason, self.message)]
        if self.stuck:
            found.append(Claim("Stalled", "True", self.reason, self.message))
        elif self.progress:
            found.append(Claim("Reconciling", "True", self.reason, self.message))
        return tuple(found)


def conditions(
    claims: Iterable[Claim], before: Sequence[Condition], generation: int, now: float
) -> tuple[Condition, ...]:
    """The new conditions; those of `before` that are no longer claimed are gone."""
    old = {c.type: c for c in before}
    made = []
    for claim in claims:
        was = old.get(claim.type)
        since = was.last_transition_time if was is not None and was.status == claim.status else times.text(now)
        made.append(
            Condition(
                type=claim.type,
                status=claim.status,
                reason=claim.reason.value,
                message=sentence(claim.message),
                last_transition_time=since,
                observed_generation=generation,
            )
        )
    return tuple(made)


def sentence(message: str) -> str:
    """The message as conditions and events show it, whatever its origin: a capital first, a full stop last, bounded. A
    first word that is a path (`spec.suspend`), a value or an error's name stays as it is. Empty stays empty."""
    line = " ".join(message.split())
    if re.fullmatch(r"[a-z]+('s)?,?", line.partition(" ")[0]):
        line = line[0].upper() + line[1:]
    return bounded(line if not line or line.endswith((".", "?", "!", "…")) else f"{line}.")


def clause(message: str) -> str:
    """The first clause of a message, for a column of a table; empty stays empty."""
    first = _CLAUSE_ENDS.split(sentence(message), maxsplit=1)[0].rstrip(".:,")
    if len(first) <= MAX_CLAUSE:
        return first
    cut = textwrap.shorten(first, MAX_CLAUSE, placeholder=" …")
    return cut if cut != "…" else bounded(first, MAX_CLAUSE)


def bounded(message: str, limit: int = MAX_MESSAGE) -> str:
    """At most `limit` characters and bytes of one line."""
    line = " ".join(message.split())
    cut = line.encode()[:limit].decode(errors="ignore")
    return cut if cut == line else cut[: max(len(cut) - 4, 0)] + " …"


def short(text: str) -> str:
    """A name or a position; those that are meant never come near the limit."""
    return text[:253]


def violations(found: Sequence[Condition], observed: int, generation: int) -> list[str]:
    """Names of the rules that are broken; empty: none."""
    by_type = {c.type: c for c in found}
    ready = by_type.get("Ready")
    moving, stuck = "Reconciling" in by_type, "Stalled" in by_type
    rules = {
        "each type once": len(by_type) == len(found),
        "Ready is present": ready is not None,
        "Ready is not True while Reconciling or Stalled": ready is None
        or ready.status != "True"
        or not (moving or stuck),
        "never Reconciling and Stalled": not (moving and stuck),
        "Reconciling and Stalled are present only while true": all(
            by_type[t].status == "True" for t in ("Reconciling", "Stalled") if t in by_type
        ),
        "observedGeneration is not ahead": observed <= generation
        and all(c.observed_generation <= generation for c in found),
        "Ready is not True for an older generation": ready is None
        or ready.status != "True"
        or observed == generation == ready.observed_generation,
        "Ready Unknown implies Reconciling": ready is None or ready.status != "Unknown" or moving,
        "messages are sentences": all(c.message == sentence(c.message) for c in found),
        "messages are bounded": all(len(c.message.encode()) <= MAX_MESSAGE for c in found),
    }
    return [name for name, holds in rules.items() if not holds]
