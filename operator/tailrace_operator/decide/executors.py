"""The number of executors that run, and the reason why fewer run than were requested. Pure.

The driver makes them itself, when its tasks need them, so no controller reports why one is missing: their pods, which
the operator watches, do. Where there is no pod to see, the driver says that it has tasks for some. Small batches need
none of them, and large ones continue in the driver: the stream may be `Ready` while snapshots wait.
"""

from collections.abc import Iterable

from tailrace.contract.pods import Executors
from tailrace.contract.status import Status
from tailrace_operator.decide.driver_history import DriverHistory
from tailrace_operator.decide.model import Desired, EmitEvent, Limits
from tailrace_operator.observe.model import ObservedPod, ObservedReplicator
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Claim, Reason, bounded, sentence
from tailrace_operator.status.models import Condition, ExecutorsSummary

TYPE = "ExecutorsReady"
WELL = (Reason.EXECUTORS_RUNNING.value, Reason.EXECUTORS_STARTING.value, Reason.EXECUTORS_NOT_NEEDED.value)
SKEW_SECONDS = 30.0
"""Clocks of API server and nodes differ by less."""
IMAGE_FAULTS = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
CONFIG_FAULTS = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_WAITS = (
    "Snapshots wait, and so does a Delta table that the driver has opened, until its first commit; the driver works "
    "large batches itself, after a minute."
)
_WHEN = "They start when there is work for them."
Shortage = tuple[Reason, str]


def summary(
    observed: ObservedReplicator, desired: Desired, history: DriverHistory, recent: Status | None, limits: Limits
) -> ExecutorsSummary:
    """`recent`: by the driver; None: nothing, or too long ago."""
    start = history.pod.running_since if history.pod is not None else None
    pods = [p for p in observed.executors if not p.deleting and start is not None and of_boot(p, start)]
    running, pending = sum(map(_runs, pods)), sum(p.phase == "Pending" for p in pods)
    idle = desired.spec is None or desired.spec.suspend or history.halt is not None
    wanted = _wanted(desired.spec.executors, recent, running + pending) if desired.spec is not None and not idle else 0
    found = ExecutorsSummary(desired=wanted, running=running, pending=pending)
    if running >= wanted or start is None:
        return found
    reason, why = _shortage(pods) or _none_yet(observed, limits)
    text = f"{running} of {wanted} executors run; {why} {_WAITS if not running else ''}"
    return found.model_copy(update={"reason": reason.value, "message": sentence(text)})


def unwanted(observed: ObservedReplicator) -> ExecutorsSummary:
    """While the Replicator is being deleted: those that are still there."""
    pods = [p for p in observed.executors if not p.deleting]
    return ExecutorsSummary(running=sum(map(_runs, pods)), pending=sum(p.phase == "Pending" for p in pods))


def _wanted(own: Executors, recent: Status | None, there: int) -> int:
    """The number of executors that Spark asks for. Those without a task are wanted until they end: they are healthy."""
    if not own.most or recent is None:
        return min(own.most, max(own.min, there))
    if recent.executors_wanted is None:  # an older driver, which does not know `max`
        return own.count
    return min(own.most, max(own.min, recent.executors_wanted, there))


def claims(found: ExecutorsSummary, desired: Desired, history: DriverHistory, recent: Status | None) -> Iterable[Claim]:
    """Without a running driver no executors are requested, and nothing is claimed; nor where there are to be none. That
    none is needed is for the driver to say."""
    spec, driver = desired.spec, history.pod
    if spec is None or spec.suspend or history.halt is not None or not spec.executors.most:
        return
    if driver is None or driver.running_since is None:
        return
    if found.reason is None and not found.desired:
        if recent is not None:
            yield Claim(TYPE, "True", Reason.EXECUTORS_NOT_NEEDED, _WHEN + _renamed(spec.executors))
    elif found.reason is None:
        yield Claim(TYPE, "True", Reason.EXECUTORS_RUNNING)
    else:
        yield Claim(TYPE, "False", Reason(found.reason), found.message)


def _renamed(own: Executors) -> str:
    """To those whose manifest is of the time when `count` executors always ran."""
    if own.max is not None or own.count == Executors().count:
        return ""
    return (
        f" executors.count is read as executors.max: write max: {own.count}, and min: {own.count} if they are to stay."
    )


def events(before: tuple[Condition, ...], after: tuple[Condition, ...]) -> Iterable[EmitEvent]:
    """Events for an obstacle that keeps executors from running, and for its end."""
    was, now = (next((c for c in found if c.type == TYPE), None) for found in (before, after))
    if now is None or (was is not None and was.reason == now.reason):
        return
    if now.reason not in WELL:
        yield EmitEvent("Warning", now.reason, now.message)
    elif now.status == "True" and was is not None and was.reason not in WELL:
        idle = now.reason == Reason.EXECUTORS_NOT_NEEDED.value
        yield EmitEvent("Normal", now.reason, "No executor is needed any longer." if idle else "All executors run.")


def of_boot(executor: ObservedPod, start: float) -> bool:
    """Made since the driver's container started; those of its earlier lives are reaped."""
    return executor.created >= start - SKEW_SECONDS


def _runs(pod: ObservedPod) -> bool:
    return pod.phase == "Running" and pod.running_since is not None


def _shortage(pods: list[ObservedPod]) -> Shortage | None:
    """The first by name that says why it does not run."""
    found = (_trouble(p) for p in sorted(pods, key=lambda p: p.name) if not _runs(p))
    return next((trouble for trouble in found if trouble is not None), None)


def _trouble(pod: ObservedPod) -> Shortage | None:
    if pod.unscheduled is not None:
        return Reason.POD_PENDING, bounded(f"an executor cannot be scheduled: {pod.unscheduled.rstrip('.')}.", 700)
    if pod.waiting in IMAGE_FAULTS:
        return Reason.IMAGE_PULL_FAILED, bounded(f"{pod.waiting}: {pod.waiting_message}", 700)
    if pod.waiting in CONFIG_FAULTS:
        return Reason.POD_PENDING, bounded(f"{pod.waiting}: {pod.waiting_message}", 700)
    if pod.phase == "Failed" and pod.ended is not None:
        return Reason.EXECUTOR_FAILED, f"an executor ended with code {pod.ended.code} ({pod.ended.reason})."
    return None


def _none_yet(observed: ObservedReplicator, limits: Limits) -> Shortage:
    """No pod says why. For a while that is how they start; then something refuses them before they exist."""
    was = next((c for c in observed.status.conditions if c.type == TYPE and c.status == "False"), None)
    since = times.seconds(was.last_transition_time) if was is not None else None
    if since is None or observed.now - since < limits.executors_seconds:
        return Reason.EXECUTORS_STARTING, "the others are starting."
    return (
        Reason.EXECUTORS_MISSING,
        "the driver asks for the others and the cluster has not started them: look at executors.podTemplate and for "
        "quotas and admission rules of the namespace, and see the log of the driver's pod.",
    )
