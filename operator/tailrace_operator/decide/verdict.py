"""How ready a Replicator is: a list of checks, the first that has something to say decides. Pure."""

from tailrace.contract.status import Status
from tailrace_operator.decide.model import Limits, Wanted
from tailrace_operator.decide.story import Story, error_of
from tailrace_operator.observe.model import PodSeen, ReplicatorSeen
from tailrace_operator.resources import names
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Reason, Verdict
from tailrace_operator.status.models import ReplicatorState

IMAGE_FAULTS = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
CONFIG_FAULTS = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
Judged = tuple[ReplicatorState, Verdict]


def judge(seen: ReplicatorSeen, wanted: Wanted, story: Story, limits: Limits) -> Judged:
    found = _troubled(seen, wanted, story) or _suspended(seen, wanted) or _halted(story) or _refused(seen, story)
    found = found or _absent(wanted, story) or _rolling(seen, wanted, story) or _pod(story)
    return found or _driver(seen, story, limits)


def _moving(reason: Reason, message: str, state: ReplicatorState = "Starting") -> Judged:
    return state, Verdict("False", reason, message, progress=True)


def _troubled(seen: ReplicatorSeen, wanted: Wanted, story: Story) -> Judged | None:
    if wanted.trouble is None or not wanted.trouble.stuck:
        return None
    return _meanwhile(story), Verdict("False", wanted.trouble.reason, wanted.trouble.message, stuck=True)


def _meanwhile(story: Story) -> ReplicatorState:
    """While what is wanted cannot be made, what was made before may run on."""
    return "Running" if story.pod is not None and story.pod.ready else "Pending"


def _suspended(seen: ReplicatorSeen, wanted: Wanted) -> Judged | None:
    if wanted.spec is None or not wanted.spec.suspend:
        return None
    if seen.pods:
        return _moving(Reason.SUSPENDING, f"waits for pod {seen.pods[0].name} to end.", "Suspended")
    text = "spec.suspend is true; the source keeps its log meanwhile."
    return "Suspended", Verdict("True", Reason.SUSPENDED, text)


def _halted(story: Story) -> Judged | None:
    if story.halt is None:
        return None
    return "Stopped", Verdict("False", Reason(story.halt.reason), story.halt.message, stuck=True)


def _refused(seen: ReplicatorSeen, story: Story) -> Judged | None:
    if seen.refusal is None:
        return None
    text = f"{seen.refusal.what} cannot be made: {seen.refusal.message}"
    return _meanwhile(story), Verdict("False", Reason.OBJECT_REFUSED, text, stuck=True)


def _absent(wanted: Wanted, story: Story) -> Judged | None:
    if wanted.trouble is None:
        return None
    return _moving(wanted.trouble.reason, wanted.trouble.message, _meanwhile(story))


def _rolling(seen: ReplicatorSeen, wanted: Wanted, story: Story) -> Judged | None:
    if f"StatefulSet/{names.driver(seen.meta.name)}" not in seen.children:
        return _moving(Reason.STARTING, "the driver is being set up.")
    if story.pod is None:
        return _moving(Reason.STARTING, "waits for the driver's pod.")
    if story.pod.template_hash != wanted.template_hash:
        return _moving(Reason.ROLLING_OUT, f"pod {story.pod.name} is being replaced by one with the new settings.")
    return None


def _pod(story: Story) -> Judged | None:
    pod = story.pod
    assert pod is not None
    if pod.running_since is not None:
        return None
    if pod.waiting in IMAGE_FAULTS:
        text = f"pod {pod.name}: {pod.waiting}: {pod.waiting_message} Correct spec.image or imagePullSecrets."
        return _moving(Reason.IMAGE_PULL_FAILED, text)
    if pod.ended is not None:
        error = error_of(pod)
        last = f"{error.name}: {error.message}" if error is not None else f"code {pod.ended.code}"
        text = f"the driver ended {story.failures.count} times and is started again; last: {last}"
        return _moving(Reason.DRIVER_CRASH_LOOP, text, "Failing")
    if pod.unscheduled is not None:
        return _moving(Reason.POD_PENDING, f"pod {pod.name} cannot be scheduled: {pod.unscheduled}")
    if pod.waiting in CONFIG_FAULTS:
        return _moving(Reason.POD_PENDING, f"pod {pod.name}: {pod.waiting}: {pod.waiting_message}")
    return _moving(Reason.STARTING, f"pod {pod.name} is starting.")


def _driver(seen: ReplicatorSeen, story: Story, limits: Limits) -> Judged:
    pod, driver = story.pod, seen.driver
    assert pod is not None and pod.running_since is not None
    if driver.status is None:
        if _believed(seen, pod, limits):
            ready = next(c for c in seen.status.conditions if c.type == "Ready")
            return seen.status.state, Verdict("True", Reason(ready.reason), ready.message)
        if seen.now - pod.running_since < limits.start_seconds:
            return _moving(Reason.DRIVER_STARTING, f"the driver in pod {pod.name} is starting.")
        return _unreachable(pod.name, seen.now - pod.running_since, driver.error)
    if driver.silent_since is not None and driver.answered_at is not None:
        silence = seen.now - driver.answered_at
        if silence >= limits.silent_seconds:
            return _unreachable(pod.name, silence, driver.error)
    return _said(driver.status, pod.name)


def _believed(seen: ReplicatorSeen, pod: PodSeen, limits: Limits) -> bool:
    """This operator has just begun to ask, and the last one saw the same container ready: an answer may be late."""
    before, silent = seen.status, seen.driver.silent_since
    same = (before.driver.pod_uid, before.observed_generation) == (pod.uid, seen.meta.generation)
    same = same and pod.running_since is not None and before.driver.started_at == times.text(pod.running_since)
    ready = any(c.type == "Ready" and c.status == "True" for c in before.conditions)
    return same and ready and silent is not None and seen.now - silent < limits.silent_seconds


def _unreachable(pod: str, silence: float, error: str) -> Judged:
    text = f"the driver in pod {pod} has not answered for {times.span(silence)} ({error})."
    return "Failing", Verdict("Unknown", Reason.DRIVER_UNREACHABLE, text, progress=True)


def _said(status: Status, pod: str) -> Judged:
    match status.state:
        case "Running":
            return "Running", Verdict("True", Reason.STREAMING, status.message)
        case "Suspended":
            return "Running", Verdict("True", Reason.APPLY_SUSPENDED, status.message)
        case "Starting":
            return _moving(Reason.DRIVER_STARTING, status.message)
        case "Stopped":
            return _moving(Reason.DRIVER_STARTING, f"the driver in pod {pod} is ending: {status.message}")
        case "Failing":
            return "Failing", Verdict("False", _why(status), status.message)


def _why(status: Status) -> Reason:
    name = status.fault.name if status.fault is not None else ""
    if status.tables_failing and status.fault is None:
        return Reason.TABLES_FAILING
    if name.startswith("Source") or name == "CaptureEnded":
        return Reason.SOURCE_UNREACHABLE
    if name.startswith(("Target", "Storage")):
        return Reason.TARGET_UNREACHABLE
    return Reason.FAILING
