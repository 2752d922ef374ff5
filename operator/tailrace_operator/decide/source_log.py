"""What can be said of the log that a source keeps while no driver tells: since when nobody has looked. Pure.

Only a driver can ask the source. While none answers, its last number is old, and the log goes on growing.
"""

from collections.abc import Iterable

from tailrace_operator.decide.children import replicas
from tailrace_operator.decide.driver_history import DriverHistory, has_run
from tailrace_operator.decide.model import Desired
from tailrace_operator.observe.model import ObservedReplicator
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Claim, Reason
from tailrace_operator.status.models import CaptureSummary

PATIENCE = 600.0
"""Seconds without an answer of a driver that is meant to run: a restart or a node that is replaced takes less."""


def unobserved(observed: ObservedReplicator, desired: Desired, history: DriverHistory) -> Iterable[Claim]:
    """While no driver is meant to run, or none has answered for a while, of a source that keeps log for it."""
    if desired.spec is None or not desired.spec.source.keeps_log or not has_run(observed) or answers(observed):
        return
    capture = observed.status.capture
    seen = times.seconds(capture.retained_at) if capture is not None else None
    if replicas(desired, history) and (seen is None or observed.now - seen < PATIENCE):
        return
    text = "no driver runs that could say how much log the source keeps for this Replicator; its disk may fill"
    if capture is not None and capture.retained_bytes is not None and seen is not None:
        text += f" ({capture.retained_bytes >> 20} MiB at {times.text(seen)})"
    yield Claim("SourceLogAtRisk", "Unknown", Reason.NOT_OBSERVED, f"{text}.")


def answers(observed: ObservedReplicator) -> bool:
    return observed.driver.status is not None and observed.driver.silent_since is None


def since(observed: ObservedReplicator, capture: CaptureSummary) -> str:
    """When a driver last said how much it is. An operator that never heard this one knows but that it has run."""
    if capture.retained_at is not None:
        return capture.retained_at
    if observed.told_at is not None:
        return times.text(observed.told_at)
    driver = observed.status.driver
    return driver.last_exit_at or driver.started_at or times.text(observed.now)
