"""The history of the driver's container: ends counted, errors named, and the decision to stop trying. Pure.

Exit codes that no restart can cure stop the driver at once; all others are left to the kubelet's back-off until the
restart limit. The stop (a halt) lasts until its possible cause has changed: `_lifted_by` says what that is for each
reason. What a system refused is tried again slowly meanwhile (`retry.halted`), since it may have been repaired there;
the halt stays, and so does Stalled, until that attempt works.

A driver that ended because a cutover has handed its copies over to programs has succeeded: no failure, and no Stalled.
"""

from dataclasses import dataclass

from tailrace.contract.units import seconds
from tailrace.errors import CutOver, error_line, with_fix
from tailrace_operator.decide import summary
from tailrace_operator.decide.model import Desired, Limits
from tailrace_operator.observe.model import ObservedPod, ObservedReplicator
from tailrace_operator.resources import hashing
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Reason, bounded, sentence
from tailrace_operator.status.models import DriverSummary, Failures, FaultStatus, Halt

STOPPING: dict[int, tuple[Reason, str]] = {
    2: (Reason.INVALID_MANIFEST, "Correct the spec."),
    10: (Reason.CONFIGURATION_REFUSED, "Remove the cause."),
    11: (Reason.AUTHENTICATION_FAILED, "Correct the Secret or the role."),
    12: (Reason.POSITION_LOST, "Set spec.recover, or create a SnapshotRequest with resync: true and tables: ['*.*']."),
    13: (Reason.FENCED, "Stop the other writer, then change spec.restartNonce."),
}
"""The fix for an error that names none."""
STEPS = {Reason.POSITION_LOST: "spec.recover", Reason.FENCED: "spec.restartNonce"}
"""The step that is named in any case, unless the error names it: the error's own fix alone starts no driver."""
ON_CHANGE = "as soon as the spec (spec.restartNonce, for example) or a Secret that it names is changed"
SLOWLY = (Reason.CONFIGURATION_REFUSED.value, Reason.AUTHENTICATION_FAILED.value)
"""Refused by source, target or storage, where it may be repaired without a change in the cluster."""
BY_CHANGE = (*SLOWLY, Reason.INVALID_MANIFEST.value, Reason.RESTART_LIMIT_EXCEEDED.value)
"""Lifted by another spec, Secret or image; of the others the messages say what helps."""
STAYING = (Reason.FENCED.value, Reason.CUT_OVER.value)
"""Not lifted by Flux' annotation."""
FENCED = 13
LOST = Reason.POSITION_LOST.value
OOM = "OOMKilled"
FOLLOW_LOG = "Change restartNonce to start it again, and follow the log of its pod."
ANOTHER_NUMBER = "The number in spec.recover has been used: set another."
NOT_FOR_THIS = "spec.recover does not help here: it is for PositionLost only."
NODE_RESTARTED = (255, "Unknown")
"""Exit code and reason that containerd gives to a container whose end nobody saw."""
EVICTED = "Evicted"
_EVICTED_FOR = {
    'EmptyDir volume "tailrace-': "Raise spec.driver.scratch.",
    "low on resource: memory": "Raise spec.driver.memoryRequest.",
}
"""Words of the kubelet, and what helps."""
NEWS_SECONDS = 600.0
"""Seconds after an eviction for which it is given as the reason why no pod exists."""
MAX_WORDS = 700
"""Characters of an error in the message of a halt, which continues with the fix."""


@dataclass(frozen=True)
class DriverHistory:
    pod: ObservedPod | None
    """The driver's pod that counts: the newest that is not being deleted."""
    driver: DriverSummary
    failures: Failures
    halt: Halt | None
    resync_uid: str | None
    """The SnapshotRequest that the driver starts with, or the last that one started with."""
    error: FaultStatus | None
    """The error of that end, if it is new."""
    ended: bool
    """The container ended since the last look."""
    evicted: bool = False
    """`error` is that the pod was evicted."""

    @property
    def cut_over(self) -> bool:
        """True if a cutover has ended the replication, for good and as was asked."""
        return after_cutover(self.halt)


def after_cutover(halt: Halt | None) -> bool:
    """True if a cutover has ended the replication: programs write to the copies."""
    return halt is not None and halt.reason == Reason.CUT_OVER.value


def replicas(desired: Desired, history: DriverHistory) -> int:
    """The number of drivers that should run."""
    halted = history.halt is not None and history.halt.retried_at is None
    return 0 if halted or desired.suspended else 1


def follow(observed: ObservedReplicator, desired: Desired, limits: Limits) -> DriverHistory:
    before = observed.status
    pod, driver, new_ends = current_driver(observed)
    resync = _resync(observed, desired)
    halt = _kept_halt(observed, desired) if resync is None else None
    forgiven = before.halt is not None and halt is None
    failures = _failures(observed, pod, new_ends, limits, Failures() if forgiven else before.failures)
    error = error_of(pod) if new_ends and pod is not None and not handed_over(pod) else None
    eviction = None if error is not None else _eviction(observed, pod)
    if new_ends and pod is not None and (halt is None or halt.retried_at is not None):
        halt = _new_halt(observed, desired, pod, failures, limits) or halt
    return DriverHistory(
        pod, driver, failures, halt, resync or before.resync_uid, error or eviction, new_ends > 0, eviction is not None
    )


def current_driver(observed: ObservedReplicator) -> tuple[ObservedPod | None, DriverSummary, int]:
    """The pod that counts, the driver with it, and how often its container ended since the last look."""
    before, pod = observed.status.driver, current(observed.pods)
    ends = _ends(pod) if pod is not None else 0
    same = pod is not None and pod.uid == before.pod_uid
    new_ends = max(ends - before.pod_restarts, 0) if same else ends
    return pod, _summary(before, pod, ends, new_ends, has_run(observed)), new_ends


def current(pods: tuple[ObservedPod, ...]) -> ObservedPod | None:
    """A pod that is being deleted ends on purpose: its exit code says nothing."""
    alive = [p for p in pods if not p.deleting]
    return max(alive, key=lambda p: p.created, default=None)


def _ends(pod: ObservedPod) -> int:
    return pod.restarts + (1 if pod.running_since is None and pod.ended is not None else 0)


def has_run(observed: ObservedReplicator) -> bool:
    """True if a container of the driver has ever started, as far as an operator saw."""
    before = observed.status
    known = before.driver.has_run or before.driver.restarts > 0 or bool(before.made) or before.tables is not None
    return known or observed.driver.answered_at is not None or any(map(_begun, observed.pods))


def _begun(pod: ObservedPod) -> bool:
    return pod.running_since is not None or pod.ended is not None or pod.restarts > 0


def _summary(before: DriverSummary, pod: ObservedPod | None, ends: int, new_ends: int, ran: bool) -> DriverSummary:
    if pod is None:
        return before.model_copy(
            update={"pod": None, "pod_uid": None, "ready": False, "started_at": None, "pod_restarts": 0, "has_run": ran}
        )
    ended = pod.ended if new_ends else None
    return DriverSummary(
        pod=pod.name,
        pod_uid=pod.uid,
        ready=pod.ready,
        started_at=times.text(pod.running_since) if pod.running_since is not None else None,
        restarts=before.restarts + new_ends,
        pod_restarts=ends,
        has_run=ran,
        last_exit_code=min(max(ended.code, -1), 255) if ended is not None else before.last_exit_code,
        last_exit_at=times.text(ended.at) if ended is not None else before.last_exit_at,
    )


def _failures(
    observed: ObservedReplicator, pod: ObservedPod | None, new_ends: int, limits: Limits, before: Failures
) -> Failures:
    since = pod.running_since if pod is not None and pod.ready else None
    if since is not None and observed.now - since >= limits.healthy_seconds:
        return Failures()  # also of ends that are news: they lie before the healthy time
    if new_ends and not _evicted(observed, pod) and not (pod is not None and handed_over(pod)):
        return Failures(count=before.count + new_ends, since=before.since or times.text(observed.now))
    return before


def _evicted(observed: ObservedReplicator, pod: ObservedPod | None) -> bool:
    """True if its node has evicted this pod: its end is no failure of the driver."""
    return observed.evicted is not None and pod is not None and pod.uid == observed.evicted.uid


def handed_over(pod: ObservedPod) -> bool:
    """True if it ended because programs write to its copies by now."""
    return pod.ended is not None and pod.ended.fault is not None and pod.ended.fault.name == CutOver.__name__


def _kept_halt(observed: ObservedReplicator, desired: Desired) -> Halt | None:
    halt = observed.status.halt
    if halt is None or _asked(observed, halt):
        return None
    key = _lifted_by(halt.reason, desired)
    if halt.lifted_by and key not in (None, halt.lifted_by):
        return None
    if halt.retried_at is not None and observed.pods and answers_as_working(observed):
        return None
    due = retry_at(halt, desired)
    if due is not None and observed.now >= due and not observed.pods and not desired.suspended:
        return halt.model_copy(update={"retried_at": times.text(observed.now)})
    return halt if halt.lifted_by or key is None else halt.model_copy(update={"lifted_by": key})


def _asked(observed: ObservedReplicator, halt: Halt) -> bool:
    """True if Flux' annotation has changed. It may be put on everything at once, so it does not prove that the other
    writer is gone. After a cutover there is nothing to try."""
    asked = observed.meta.requested_at
    return asked not in (None, observed.status.last_handled_reconcile_at) and halt.reason not in STAYING


def _lifted_by(reason: str, desired: Desired) -> str | None:
    """Hash of what has to change for a driver to be started again. None: something of it is missing now. A driver that
    was fenced takes the change log from its new owner when it starts: only an explicit request for just that counts.
    One whose position is lost gains nothing from another Secret or image. One whose copies were handed over would end
    at once, whatever else of its spec is changed (`cutover` is removed, say): the report is in that target."""
    if desired.spec is None:
        return None
    if reason == Reason.FENCED.value:
        return hashing.digest([desired.spec.restart_nonce])
    if reason == Reason.CUT_OVER.value:
        spec = desired.spec
        return hashing.digest([spec.storage.location, spec.target.place, spec.restart_nonce])
    if reason == Reason.POSITION_LOST.value:
        return hashing.digest([desired.spec_hash])
    return hashing.digest([desired.spec_hash, desired.image, desired.data_hash]) if desired.data_hash else None


def retry_at(halt: Halt, desired: Desired) -> float | None:
    """The time at which the driver is tried again; None: not by itself, or it is being tried."""
    patience = seconds(desired.spec.retry.halted) if desired.spec is not None else 0.0
    if halt.reason not in SLOWLY or not patience or halt.retried_at is not None:
        return None
    return (times.seconds(halt.at) or 0.0) + patience


def message_of(halt: Halt, observed: ObservedReplicator, desired: Desired) -> str:
    """The halt, and what comes next."""
    message, no_help = _message(halt, desired), _no_help(halt, observed)
    return f"{sentence(message)}{no_help}" if no_help else message


def _no_help(halt: Halt, observed: ObservedReplicator) -> str:
    """An event for a user who has set `spec.recover` and sees nothing happen. Of a lost position: this number has had
    its turn."""
    recovery = observed.recovery
    if recovery is None:
        return ""
    used = recovery.uid == observed.status.recovery_uid
    if halt.reason == LOST:
        return f" {ANOTHER_NUMBER}" if used else ""
    return "" if used else f" {NOT_FOR_THIS}"


def _message(halt: Halt, desired: Desired) -> str:
    if halt.reason not in BY_CHANGE or FOLLOW_LOG in halt.message:
        return halt.message
    due = retry_at(halt, desired)
    after = f"Retried {ON_CHANGE}."
    if halt.retried_at is not None:
        after = "Being retried now."
    elif due is not None:
        after = f"Retried {ON_CHANGE}, and at {times.text(due)}."
    return f"{sentence(halt.message)} {after}"


def _resync(observed: ObservedReplicator, desired: Desired) -> str | None:
    """The request to start every table over that brings back a driver whose position is lost. It is chosen once: what
    came of it is in the change log, and a later loss needs another one, younger than the last: the older ones have had
    their turn. `spec.recover` comes first, if its number is new. Not before the last pod is gone, whose container could
    start again with what was mounted before."""
    halt, last = observed.status.halt, observed.status.resync_uid
    if halt is None or not _may_start_over(halt, desired) or observed.pods:
        return None
    recovery = observed.recovery
    if recovery is not None and recovery.uid != observed.status.recovery_uid and halt.reason == LOST:
        return recovery.uid  # given in advance, perhaps: not for a server that is refused as a wrong one
    older = observed.requests[: observed.requests.index(last) + 1] if last in observed.requests else ()
    return next((r.uid for r in observed.resyncs if not r.taken and r.uid not in older), None)


def _may_start_over(halt: Halt, desired: Desired) -> bool:
    """Also at a server that is refused because it does not lead on from what was read. PostgreSQL's slot is of its own
    server: another one stays refused."""
    if halt.reason == LOST:
        return True
    mysql = desired.spec is not None and desired.spec.source.type == "mysql"
    return mysql and halt.reason == Reason.CONFIGURATION_REFUSED.value and halt.message.startswith("SourceRefused")


def _new_halt(
    observed: ObservedReplicator, desired: Desired, pod: ObservedPod, failures: Failures, limits: Limits
) -> Halt | None:
    if pod.ended is None or answers_as_working(observed):
        return None
    fenced = pod.ended.code == FENCED and not _own_newer(observed, pod)
    if not fenced and (desired.template_hash is None or pod.template_hash != desired.template_hash):
        return None  # it ran another template: what runs now has to fail by itself, but must not take a log back
    words, known = _words(observed, pod), _explained(pod)
    if pod.ended.fault is not None and handed_over(pod):
        return _halt(observed, desired, Reason.CUT_OVER, with_fix(pod.ended.fault.message, pod.ended.fault.fix))
    if pod.ended.code in STOPPING and (fenced or pod.ended.code != FENCED):
        reason, fix = STOPPING[pod.ended.code]
        text = words if known else f"the driver ended with {words}. {fix}"
        if STEPS.get(reason, "") not in text:
            text = f"{sentence(text)} {fix}"
        return _halt(observed, desired, reason, text)
    since = times.seconds(failures.since)
    patience = seconds(desired.spec.retry.time) if desired.spec is not None else 0.0
    if failures.count <= limits.restart_limit or since is None or observed.now - since < patience:
        return None
    text = f"the driver failed {failures.count} times in {times.span(observed.now - since)}; last: {words.rstrip('.')}."
    text += "" if known else f" {FOLLOW_LOG}"
    return _halt(observed, desired, Reason.RESTART_LIMIT_EXCEEDED, text)


def _halt(observed: ObservedReplicator, desired: Desired, reason: Reason, text: str) -> Halt:
    return Halt(
        reason=reason.value,
        message=bounded(text),
        lifted_by=_lifted_by(reason.value, desired) or "",
        at=times.text(observed.now),
    )


def answers_as_working(observed: ObservedReplicator) -> bool:
    """The kubelet started it again and it works: the end is old news, of a time when no operator saw it."""
    reported = observed.driver.status
    return (
        reported is not None and observed.driver.silent_since is None and reported.state not in ("Starting", "Stopped")
    )


def _own_newer(observed: ObservedReplicator, pod: ObservedPod) -> bool:
    """A forced deletion can leave an old driver that meets the epoch of the new one."""
    return any(other.uid != pod.uid and other.created > pod.created for other in observed.pods)


def _explained(pod: ObservedPod) -> bool:
    """True if its end says why: a log that is gone with the pod cannot be read."""
    return pod.ended is not None and (pod.ended.fault is not None or pod.ended.reason == OOM or pod.ended.code == 0)


def _words(observed: ObservedReplicator, pod: ObservedPod) -> str:
    """The description of the end; if it has none, the last known state before it."""
    error, reported = error_of(pod), observed.driver.status
    if error is None:
        return _plain(pod)
    if _explained(pod):
        return bounded(error_line(error.name, error.message, error.fix), MAX_WORDS)
    fault = reported.fault if reported is not None else None
    before = f"; before: {error_line(fault.name, fault.message, fault.fix)}" if fault is not None else ""
    return bounded(f"{error.message}{before}", MAX_WORDS)


def error_of(pod: ObservedPod) -> FaultStatus | None:
    """The error of its container's newest end."""
    ended = pod.ended
    if ended is None:
        return None
    if ended.fault is not None:
        return summary.fault(ended.fault)
    if ended.reason == OOM:
        fix = "Raise spec.driver.memoryOverhead or spec.driver.memory."
        return FaultStatus(name="OutOfMemory", message="the driver was killed at its memory limit", fix=fix)
    if ended.code == 0:
        return None
    if (ended.code, ended.reason) == NODE_RESTARTED:
        message = "the driver's node, or the container runtime there, was restarted"
        return FaultStatus(name="DriverEnded", message=message, fix="Nothing is to be done: the driver starts again.")
    more = f"; last line of its log: {ended.log_line}" if ended.log_line else "; it left no message"
    fix = (
        "See the log of the driver's pod. Once the pod is gone, change restartNonce and follow the log of the new one."
    )
    return FaultStatus(name="DriverEnded", message=bounded(f"{_plain(pod)}{more}"), fix=fix)


def _eviction(observed: ObservedReplicator, pod: ObservedPod | None) -> FaultStatus | None:
    """The eviction of the pod, or of the one before while no other exists; None: it is not new."""
    found, last = observed.evicted, observed.status.last_error
    if found is None or (pod is not None and pod.uid != found.uid) or observed.now - found.at > NEWS_SECONDS:
        return None
    if last is not None and (last.name, last.since) == (EVICTED, times.text(found.at)):
        return None
    fixes = (fix for words, fix in _EVICTED_FOR.items() if words in found.message)
    text = bounded(f"pod {found.pod} was evicted: {found.message}")
    return FaultStatus(name=EVICTED, message=text, fix=next(fixes, ""), since=times.text(found.at))


def _plain(pod: ObservedPod) -> str:
    return f"exit code {pod.ended.code} ({pod.ended.reason or 'no reason given'})" if pod.ended is not None else ""
