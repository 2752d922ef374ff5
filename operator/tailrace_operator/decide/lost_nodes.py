"""When a driver's pod is on a node that does not respond. Pure.

Kubernetes taints such a node, and evicts its pods after the time that they tolerate (300 s; `driver.podTemplate` may
say another). Then the pod waits for its kubelet, which is gone. What the pod itself shows is enough: it is evicted by
a taint, its grace period has passed, and no kubelet has said that its container ended. No right to read nodes is
needed.
"""

from tailrace_operator.observe.model import ObservedPod, ObservedReplicator

PATIENCE = 60.0
"""Seconds after the end of the grace period, when a kubelet that works has long killed the container and said so."""


def forced_at(pod: ObservedPod) -> float | None:
    """The time at which it is removed by force; None: never."""
    return pod.evicted_until + PATIENCE if pod.evicted_until is not None else None


def lost(observed: ObservedReplicator) -> ObservedPod | None:
    """The driver's pod whose kubelet should have ended it, and has not."""
    late = (p for p in observed.pods if p.evicted_until is not None and observed.now >= p.evicted_until)
    return next(late, None)


def wait(observed: ObservedReplicator) -> float | None:
    """Seconds until something is due about such a pod; None: there is none."""
    times = [at for p in observed.pods for at in (p.evicted_until, forced_at(p)) if at is not None]
    if not times:
        return None
    return max(min((at - observed.now for at in times if at > observed.now), default=PATIENCE), 1.0)
