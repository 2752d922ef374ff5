"""How many executors run, and why fewer than asked for. Pure.

The driver makes them itself, so no controller tells why one is missing: their pods, which the operator watches, do.
Small batches need none of them, and large ones are worked by the driver where none comes: the stream may be `Ready`
while snapshots wait.
"""

from collections.abc import Iterable

from tailrace_operator.decide.driver_history import DriverHistory
from tailrace_operator.decide.model import Desired, EmitEvent, Limits
from tailrace_operator.observe.model import ObservedPod, ObservedReplicator
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Claim, Reason, bounded, sentence
from tailrace_operator.status.models import Condition, ExecutorsSummary

TYPE = "ExecutorsReady"
WELL = (Reason.EXECUTORS_RUNNING.value, Reason.EXECUTORS_STARTING.value)
SKEW_SECONDS = 30.0
"""Clocks of API server and nodes differ by less."""
IMAGE_FAULTS = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
CONFIG_FAULTS = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_WAITS = "Snapshots wait; the driver works large batches itself, after a minute."
Shortage = tuple[Reason, str]


def summary(observed: ObservedReplicator, desired: Desired, history: DriverHistory, limits: Limits) -> ExecutorsSummary:
    idle = desired.spec is None or desired.spec.suspend or history.halt is not None
    wanted = desired.spec.executors.count if desired.spec is not None and not idle else 0
    start = history.pod.running_since if history.pod is not None else None
    pods = [p for p in observed.executors if not p.deleting and start is not None and of_boot(p, start)]
    running, pending = sum(map(_runs, pods)), sum(p.phase == "Pending" for p in pods)
    found = ExecutorsSummary(desired=wanted, running=running, pending=pending)
    if running >= wanted or start is None:
        return found
    reason, why = _shortage(pods) or _none_yet(observed, limits)
    text = f"{running} of {wanted} executors run; {why} {_WAITS if not running else ''}"
    return found.model_copy(update={"reason": reason.value, "message": sentence(text)})


def claims(found: ExecutorsSummary, driver: ObservedPod | None) -> Iterable[Claim]:
    """Without a driver that runs nobody asks for executors, and nothing is claimed."""
    if driver is None or driver.running_since is None or not found.desired:
        return
    if found.reason is None:
        yield Claim(TYPE, "True", Reason.EXECUTORS_RUNNING)
    else:
        yield Claim(TYPE, "False", Reason(found.reason), found.message)


def events(before: tuple[Condition, ...], after: tuple[Condition, ...]) -> Iterable[EmitEvent]:
    """When something keeps executors from running, and when that is over."""
    was, now = (next((c for c in found if c.type == TYPE), None) for found in (before, after))
    if now is None or (was is not None and was.reason == now.reason):
        return
    if now.reason not in WELL:
        yield EmitEvent("Warning", now.reason, now.message)
    elif now.status == "True" and was is not None and was.reason not in WELL:
        yield EmitEvent("Normal", now.reason, "All executors run.")


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
        "the driver asks for the others and the cluster has not started them: look for quotas and admission rules of "
        "the namespace, and see the log of the driver's pod.",
    )
