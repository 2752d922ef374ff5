"""The readiness of a Replicator: a list of checks, of which the first with a result decides. Pure."""

from tailrace.contract.status import Status
from tailrace.errors import RemovalUnconfirmed, Where, error_line, with_fix
from tailrace_operator.decide import lost_nodes, source_log, summary
from tailrace_operator.decide.claims import failing
from tailrace_operator.decide.driver_history import (
    NEWS_SECONDS,
    DriverHistory,
    answers_as_working,
    error_of,
    handed_over,
    has_run,
    message_of,
)
from tailrace_operator.decide.executors import CONFIG_FAULTS, IMAGE_FAULTS
from tailrace_operator.decide.model import Desired, Limits
from tailrace_operator.decide.summary import BAD, WORKING
from tailrace_operator.observe.model import Eviction, ObservedPod, ObservedReplicator
from tailrace_operator.resources import names
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Readiness, Reason
from tailrace_operator.status.models import ReplicatorState

LOOP = 3
"""Ends, without a healthy while between them, that are no longer an accident."""
TRIED = "It is tried again every minute."
Assessed = tuple[ReplicatorState, Readiness]


def assess(observed: ObservedReplicator, desired: Desired, history: DriverHistory, limits: Limits) -> Assessed:
    found = (
        _blocked(observed, desired, history)
        or _succeeded(observed, desired, history)
        or _suspended(observed, desired, history)
        or _halted(observed, desired, history)
        or _refused(observed, history)
    )
    found = found or _absent(desired, history) or _rolling(observed, desired, history)
    found = found or _pod(history) or _crash_loop(observed, history, limits)
    return found or _with_its_spec(observed, desired, _driver(observed, desired, history, limits))


def _moving(reason: Reason, message: str, state: ReplicatorState = "Starting") -> Assessed:
    return state, Readiness("False", reason, message, progress=True)


def _blocked(observed: ObservedReplicator, desired: Desired, history: DriverHistory) -> Assessed | None:
    if desired.blocker is None or not desired.blocker.stuck:
        return None
    return _meanwhile(history), Readiness("False", desired.blocker.reason, desired.blocker.message, stuck=True)


def _meanwhile(history: DriverHistory) -> ReplicatorState:
    """While what is wanted cannot be made, what was made before may run on."""
    return "Running" if history.pod is not None and history.pod.ready else "Pending"


def _succeeded(observed: ObservedReplicator, desired: Desired, history: DriverHistory) -> Assessed | None:
    """The success of a cutover; that it is suspended, too, changes nothing."""
    if history.halt is None or not history.cut_over:
        return None
    return "Succeeded", Readiness("True", Reason.CUT_OVER, message_of(history.halt, observed, desired))


def _suspended(observed: ObservedReplicator, desired: Desired, history: DriverHistory) -> Assessed | None:
    if desired.spec is None or not desired.spec.suspend:
        return None
    if not source_log.refused(observed) and (refused := _refused(observed, history)) is not None:
        return refused  # what would end the driver, say
    if observed.pods:
        return _moving(Reason.SUSPENDING, f"waiting for pod {observed.pods[0].name} to shut down.", "Suspended")
    kept = desired.spec.source.unread_log if has_run(observed) else "nothing has been made in the source yet"
    text = f"spec.suspend is true; {kept}."
    return "Suspended", Readiness("True", Reason.SUSPENDED, text)


def _halted(observed: ObservedReplicator, desired: Desired, history: DriverHistory) -> Assessed | None:
    if history.halt is None:
        return None
    return "Stopped", Readiness(
        "False", Reason(history.halt.reason), message_of(history.halt, observed, desired), stuck=True
    )


def _refused(observed: ObservedReplicator, history: DriverHistory) -> Assessed | None:
    if observed.refusal is None:
        return None
    text = f"{observed.refusal.what} cannot be created: {observed.refusal.message}"
    return _meanwhile(history), Readiness("False", Reason.OBJECT_REFUSED, text, stuck=True)


def _absent(desired: Desired, history: DriverHistory) -> Assessed | None:
    if desired.blocker is None:
        return None
    return _moving(desired.blocker.reason, desired.blocker.message, _meanwhile(history))


def _rolling(observed: ObservedReplicator, desired: Desired, history: DriverHistory) -> Assessed | None:
    if f"StatefulSet/{names.driver(observed.meta.name)}" not in observed.children:
        return _moving(Reason.STARTING, "the driver is being set up.")
    if history.pod is None:
        return _no_pod(observed)
    if history.pod.template_hash != desired.template_hash:
        return _moving(Reason.ROLLING_OUT, f"pod {history.pod.name} is being replaced by one with the new settings.")
    return None


def _no_pod(observed: ObservedReplicator) -> Assessed:
    refused = observed.refused_pods.get(f"StatefulSet/{names.driver(observed.meta.name)}")
    if refused is not None:
        return _moving(Reason.POD_PENDING, f"the driver's pod cannot be created: {refused.rstrip('.')}. {TRIED}")
    lost = lost_nodes.lost(observed)
    if lost is not None:
        text = f"pod {lost.name} was evicted from node {lost.node}, which does not respond; the pod is removed by force"
        return _moving(Reason.NODE_LOST, f"{text}, and the driver starts on another node.")
    evicted = observed.evicted
    why = f"; the last one: {evicted.message}" if evicted is not None and _fresh(evicted, observed) else ""
    going = next((pod for pod in observed.pods if pod.deleting), None)
    if going is not None:
        why = f" ({going.disrupted})" if going.disrupted else ""
        return _moving(
            Reason.STARTING, f"waiting for pod {going.name} to shut down{why}; then the driver starts again."
        )
    return _moving(Reason.STARTING, f"waiting for the driver's pod{why}.")


def _fresh(evicted: Eviction, observed: ObservedReplicator) -> bool:
    return observed.now - evicted.at < NEWS_SECONDS


def _pod(history: DriverHistory) -> Assessed | None:
    pod = history.pod
    assert pod is not None
    if pod.running_since is not None:
        return None
    if pod.waiting in IMAGE_FAULTS:
        why = f"{pod.waiting}: {pod.waiting_message}".rstrip(". ")
        text = f"pod {pod.name}: {why}. Correct spec.image or imagePullSecrets."
        return _moving(Reason.IMAGE_PULL_FAILED, text)
    if pod.ended is not None and not handed_over(pod):
        return _crashed(pod)
    if pod.unscheduled is not None:
        return _moving(Reason.POD_PENDING, f"pod {pod.name} cannot be scheduled: {pod.unscheduled}")
    if pod.waiting in CONFIG_FAULTS:
        return _moving(Reason.POD_PENDING, f"pod {pod.name}: {pod.waiting}: {pod.waiting_message}")
    return _moving(Reason.STARTING, f"pod {pod.name} is starting.")


def _crashed(pod: ObservedPod) -> Assessed:
    """No counts and no times: the same words for as long as the driver fails for the same reason."""
    assert pod.ended is not None
    error = error_of(pod)
    last = error_line(error.name, error.message, error.fix) if error is not None else f"exit code {pod.ended.code}"
    return _moving(Reason.DRIVER_CRASH_LOOP, f"the driver failed and is restarted; last: {last}", "Failing")


def _crash_loop(observed: ObservedReplicator, history: DriverHistory, limits: Limits) -> Assessed | None:
    """A container that runs for seconds between two ends has not recovered: recovery is reported once the driver
    works; after repeated failures, once it has worked for a while."""
    pod = history.pod
    assert pod is not None and pod.running_since is not None
    was = next((c for c in observed.status.conditions if c.type == "Ready"), None)
    failed = history.ended or (was is not None and was.reason == Reason.DRIVER_CRASH_LOOP.value)
    if pod.ended is None or handed_over(pod) or not failed or not history.failures.count:
        return None
    age = observed.now - pod.running_since
    patience = limits.settle_seconds if history.failures.count >= LOOP else 0.0
    if answers_as_working(observed):
        return _crashed(pod) if age < patience else None
    return _crashed(pod) if age < limits.start_seconds else None


def _driver(observed: ObservedReplicator, desired: Desired, history: DriverHistory, limits: Limits) -> Assessed:
    pod, driver = history.pod, observed.driver
    assert pod is not None and pod.running_since is not None
    if driver.status is None:
        if _believed(observed, pod, limits):
            ready = next(c for c in observed.status.conditions if c.type == "Ready")
            return observed.status.state, Readiness("True", Reason(ready.reason), ready.message)
        if observed.now - pod.running_since < limits.start_seconds:
            return _moving(Reason.DRIVER_STARTING, f"the driver in pod {pod.name} is starting.")
        return _unreachable(pod.name, observed.now - pod.running_since, driver.error)
    if driver.silent_since is not None and driver.answered_at is not None:
        silence = observed.now - driver.answered_at
        if silence >= limits.silent_seconds:
            return _unreachable(pod.name, silence, driver.error)
    degrades = desired.spec is not None and desired.spec.on_table_failure == "Degrade"
    return _as_reported(driver.status, pod.name, degrades)


def _with_its_spec(observed: ObservedReplicator, desired: Desired, assessed: Assessed) -> Assessed:
    """Ready is who works by the newest spec."""
    if assessed[1].ready != "True" or not summary.lacks_spec(observed.driver, desired.generation):
        return assessed
    problem = observed.spec_answer.problem if observed.spec_answer is not None else None
    if problem is not None and problem.name == RemovalUnconfirmed.__name__:
        text = f"the driver continues with the former spec: {error_line(problem.name, problem.message, problem.fix)}"
        return "Running", Readiness("False", Reason.INVALID_MANIFEST, text, stuck=True)
    why = f": {problem.message}" if problem is not None else ""
    return _moving(Reason.APPLYING_SPEC, f"the driver takes over generation {desired.generation}{why}.", "Running")


def _believed(observed: ObservedReplicator, pod: ObservedPod, limits: Limits) -> bool:
    """This operator has just begun to ask, and the last one saw the same container ready: an answer may be late."""
    before, silent = observed.status, observed.driver.silent_since
    same = (before.driver.pod_uid, before.observed_generation) == (pod.uid, observed.meta.generation)
    same = same and pod.running_since is not None and before.driver.started_at == times.text(pod.running_since)
    ready = any(c.type == "Ready" and c.status == "True" for c in before.conditions)
    return same and ready and silent is not None and observed.now - silent < limits.silent_seconds


def _unreachable(pod: str, silence: float, error: str) -> Assessed:
    text = f"the driver in pod {pod} has not answered for {times.span(silence)} ({error})."
    return "Failing", Readiness("Unknown", Reason.DRIVER_UNREACHABLE, text, progress=True)


def _as_reported(status: Status, pod: str, degrades: bool) -> Assessed:
    match status.state:
        case "Running":
            return "Running", Readiness("True", Reason.STREAMING, status.message)
        case "Suspended":
            return "Running", Readiness("True", Reason.APPLY_SUSPENDED, status.message)
        case "Starting":
            return _moving(Reason.DRIVER_STARTING, status.message)
        case "Stopped":
            return _moving(Reason.DRIVER_STARTING, f"the driver in pod {pod} is shutting down: {status.message}")
        case "Failing":
            text = with_fix(status.message, status.fault.fix if status.fault is not None else "")
            return _tables(status, degrades) or ("Failing", Readiness("False", _why(status), text))


def _tables(status: Status, degrades: bool) -> Assessed | None:
    """Tables that fail beside others that work, or that are all stopped, which requires manual action; None: it is
    something else that fails, or `NotReady` is asked for."""
    states = {t.state for t in status.tables}
    if status.fault is not None or not states & set(BAD):
        return None
    if states == {"STOPPED"}:
        return "Failing", Readiness("False", Reason.TABLES_STOPPED, failing(status), stuck=True)
    if degrades and states & set(WORKING):
        return "Degraded", Readiness("True", Reason.DEGRADED, failing(status))
    return None


_BY_PLACE: dict[Where | None, Reason] = {
    "source": Reason.SOURCE_UNREACHABLE,
    "target": Reason.TARGET_UNREACHABLE,
    "storage": Reason.STORAGE_UNREACHABLE,
    "capture": Reason.CAPTURE_ENDED,
}


def _why(status: Status) -> Reason:
    """The reason, by the part that met the fault. Where every table is retried because of one part, it is that part,
    too."""
    if status.fault is not None:
        return _BY_PLACE.get(status.fault.where, Reason.FAILING)
    parts = {t.fault.where if t.fault is not None and t.state == "FAILING" else None for t in status.tables}
    return _BY_PLACE.get(parts.pop(), Reason.TABLES_FAILING) if len(parts) == 1 else Reason.TABLES_FAILING
