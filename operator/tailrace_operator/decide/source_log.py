"""The log that a source keeps while no driver reports. Pure.

While no driver is meant to run, a CronJob asks the source (`resources.log_check`). Until it has, and while a driver
that is meant to run does not answer, the last number is outdated, and the log continues to grow.
"""

from collections.abc import Iterable

from tailrace.contract.units import size_text
from tailrace_operator.decide import claims
from tailrace_operator.decide.driver_history import DriverHistory, has_run, replicas
from tailrace_operator.decide.model import Desired, Limits
from tailrace_operator.observe.model import ObservedReplicator
from tailrace_operator.resources import log_check, names
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Claim, Reason, bounded, sentence
from tailrace_operator.status.models import CaptureSummary

PATIENCE = 600.0
"""Seconds without an answer of a driver that is meant to run: a restart or a node that is replaced takes less."""

MAX_WHY = 500
"""Characters of a reason in a message that continues."""
FRESH = 3 * log_check.MINUTES * 60.0
"""Seconds for which a check's number counts: the next may be late."""


def asks(observed: ObservedReplicator, desired: Desired, wanted: int) -> bool:
    """True if the CronJob should exist. `wanted`: how many drivers should run."""
    keeps = desired.spec is not None and desired.spec.source.keeps_log
    return keeps and wanted == 0 and has_run(observed)


def without_driver(
    observed: ObservedReplicator, desired: Desired, history: DriverHistory, limits: Limits
) -> Iterable[Claim]:
    """While no driver is meant to run, or none has answered for a while, of a source that keeps log for it."""
    if desired.spec is None or not desired.spec.source.keeps_log or not has_run(observed) or answers(observed):
        return
    capture, wanted = observed.status.capture, replicas(desired, history)
    measured_at = times.seconds(capture.retained_at) if capture is not None else None
    if wanted and (measured_at is None or observed.now - measured_at < PATIENCE):
        return
    check = observed.log_check
    if not wanted and check is not None and not check.error and observed.now - check.at < FRESH:
        yield claims.retained(check.bytes or 0, limits, ", and no driver runs;")
        return
    text = "no driver runs that could say how much log the source keeps for this Replicator; its disk may fill"
    if capture is not None and capture.retained_bytes is not None and measured_at is not None:
        text += f" ({size_text(capture.retained_bytes)} at {times.text(measured_at)})"
    why = _cannot_ask(observed, desired)
    if why:
        text += f". It cannot be asked: {bounded(why, MAX_WHY)}"
    elif check is not None and check.error:
        text += f". It was asked at {times.text(check.at)}, in vain: {bounded(check.error, MAX_WHY)}"
    yield Claim("SourceLogAtRisk", "Unknown", Reason.NOT_OBSERVED, sentence(text))


def _cannot_ask(observed: ObservedReplicator, desired: Desired) -> str:
    """The reason why there is no pod that asks, or none that could begin. Empty: no obstacle is known."""
    if desired.blocker is not None:
        return desired.blocker.message
    if refused(observed):
        assert observed.refusal is not None
        return f"{observed.refusal.what} cannot be created: {observed.refusal.message}"
    places = (place.partition("/") for place in observed.refused_pods)
    jobs = [f"{kind}/{name}" for kind, _, name in places if names.is_log_check(kind, name)]
    return f"{jobs[0]} cannot create its pod: {observed.refused_pods[jobs[0]]}" if jobs else ""


def refused(observed: ObservedReplicator) -> bool:
    """True if the CronJob cannot be created."""
    refusal = observed.refusal
    return refusal is not None and refusal.what == f"CronJob {names.log_check(observed.meta.name)}"


def observed_last(observed: ObservedReplicator, capture: CaptureSummary) -> CaptureSummary:
    """With the newest number that is known, and its time."""
    check, at = observed.log_check, since(observed, capture)
    if check is not None and not check.error and check.at >= (times.seconds(at) or 0.0):
        return capture.model_copy(update={"retained_bytes": check.bytes, "retained_at": times.text(check.at)})
    return capture.model_copy(update={"retained_at": at}) if capture.retained_bytes is not None else capture


def answers(observed: ObservedReplicator) -> bool:
    return observed.driver.status is not None and observed.driver.silent_since is None


def since(observed: ObservedReplicator, capture: CaptureSummary) -> str:
    """The time of a driver's last report on its size. An operator that never heard this one knows but that it has
    run."""
    if capture.retained_at is not None:
        return capture.retained_at
    if observed.driver_answered_at is not None:
        return times.text(observed.driver_answered_at)
    driver = observed.status.driver
    return driver.last_exit_at or driver.started_at or times.text(observed.now)
