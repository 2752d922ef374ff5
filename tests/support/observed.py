"""Observations for tests of the operator's decisions: everything well, unless told otherwise."""

from dataclasses import replace
from typing import Any

from tailrace.contract.resources import ReplicatorSpec
from tailrace.contract.status import Fault, Status
from tailrace_operator.decide.desired import resolve
from tailrace_operator.decide.model import Action, ApplyChild, Decision, Limits
from tailrace_operator.observe.model import (
    FINALIZER,
    Child,
    Ended,
    Meta,
    ObservedDriver,
    ObservedPod,
    ObservedReplicator,
    ObservedRequest,
)
from tailrace_operator.resources import driver
from tailrace_operator.status.models import Condition, DriverSummary, ReplicatorStatus, SnapshotRequestStatus

NOW = 1_800_000_000.0
LIMITS = Limits(image="registry.example/tailrace-spark:1")
SPEC: dict[str, Any] = {
    "source": {
        "type": "postgresql",
        "host": "shop-db",
        "database": "shop",
        "username": "tailrace",
        "credentials": {"secretName": "shop-db"},
    },
    "tables": {"include": ["public.*"]},
    "target": {"type": "delta", "location": "s3://lake/shop", "credentials": {"secretName": "lake"}},
    "storage": {"location": "s3://lake/_tailrace/shop", "credentials": {"secretName": "lake"}},
}
OWN = {"Secret/shop-driver": "t1", "Secret/shop-spark": "s1"}
"""What the operator makes, with the hashes of what it made."""
MADE = {place: Child("Secret", place.partition("/")[2], place, "1", "") for place in OWN}
HASHES = {"Secret/shop-db": "p1", "Secret/lake": "l1", **OWN}


def meta(**change: Any) -> Meta:
    plain = Meta("team", "shop", "11111111-1111-4111-8111-111111111111", 1, "7", (FINALIZER,))
    return replace(plain, **change)


def observed(**change: Any) -> ObservedReplicator:
    """Nothing made yet but the Secrets, and everything that the spec needs exists."""
    plain = ObservedReplicator(NOW, meta(), SPEC, ReplicatorStatus(), data_hashes=HASHES, children=MADE)
    return replace(plain, **change)


def template(observed: ObservedReplicator) -> str:
    found = resolve(observed, LIMITS).template_hash
    assert found is not None
    return found


def running(status: Status | None = None, **change: Any) -> ObservedReplicator:
    """A driver that runs the wanted template and answers with `status`."""
    base = observed(**change)
    child = Child("StatefulSet", "shop-driver", "s-uid", "1", "", template(base), 1)
    answer = ObservedDriver(status if status is not None else reported(), base.now)
    return replace(
        base,
        children={**MADE, "StatefulSet/shop-driver": child},
        pods=(pod(template_hash=template(base)),),
        driver=answer,
    )


def pod(**change: Any) -> ObservedPod:
    plain = ObservedPod(
        name="shop-driver-0",
        uid="p-uid",
        template_hash="",
        ready=True,
        phase="Running",
        created=NOW - 100,
        ip="127.0.0.2",
        running_since=NOW - 90,
    )
    return replace(plain, **change)


def after_end(seen: ObservedReplicator, code: int, fault: Fault | None = None, **change: Any) -> ObservedReplicator:
    """The observation after the driver's container ended with this code."""
    gone = pod(template_hash=template(seen), running_since=None, ready=False, ended=ended(code, fault))
    return replace(seen, pods=(replace(gone, **change),), driver=ObservedDriver())


def ended(code: int, fault: Fault | None = None, at: float = NOW - 5, reason: str = "Error") -> Ended:
    return Ended(code, reason, fault, at)


def reported(**change: Any) -> Status:
    plain: dict[str, Any] = {
        "name": "shop",
        "state": "Running",
        "started_at": NOW - 90,
        "updated_at": NOW,
        "tables_total": 2,
        "tables_replicating": 2,
        "executors_wanted": 0,
    }
    return Status(**{**plain, **change})


def request(**change: Any) -> ObservedRequest:
    """A new SnapshotRequest whose Replicator has a driver that answers."""
    plain = ObservedRequest(
        now=NOW,
        meta=meta(name="again", uid="22222222-2222-4222-8222-222222222222"),
        spec={"replicator": "shop", "tables": ["public.orders"]},
        status=SnapshotRequestStatus(),
        replicator=True,
        driver=ObservedDriver(reported(), NOW),
    )
    return replace(plain, **change)


# ---- what was decided ----


def kinds(decision: Decision[ReplicatorStatus]) -> set[str]:
    """The types of the conditions that are present."""
    return {c.type for c in decision.status.conditions}


def condition(decision: Decision[ReplicatorStatus], kind: str) -> Condition:
    return next(c for c in decision.status.conditions if c.type == kind)


def verdict(decision: Decision[ReplicatorStatus], kind: str) -> tuple[str, str]:
    """The status and the reason of a condition."""
    found = condition(decision, kind)
    return found.status, found.reason


def reason(decision: Decision[ReplicatorStatus]) -> str:
    return condition(decision, "Ready").reason


def replicas(decision: Decision[ReplicatorStatus]) -> int | None:
    """The replicas of the StatefulSet that is applied; None: the driver is left alone."""
    made = applied(decision.actions).get("StatefulSet")
    return made["spec"]["replicas"] if made is not None else None


def emitted(decision: Decision[Any]) -> list[tuple[str, str]]:
    """The type and the reason of each event."""
    return [(e.type, e.reason) for e in decision.events]


def applied(actions: tuple[Action, ...]) -> dict[str, Any]:
    return {str(a.document["kind"]): a.document for a in actions if isinstance(a, ApplyChild)}


def recorded(observed: ObservedReplicator, **change: Any) -> ObservedReplicator:
    """The observation with this in its status."""
    return replace(observed, status=observed.status.model_copy(update=change))


def with_driver(observed: ObservedReplicator, **status: Any) -> ObservedReplicator:
    """The operator has seen this driver before."""
    driver = DriverSummary(pod="shop-driver-0", pod_uid="p-uid")
    return replace(observed, status=ReplicatorStatus(driver=driver, **status))


def of_driver(spec: ReplicatorSpec) -> dict[str, Any]:
    """The spec of the driver's pod."""
    found: dict[str, Any] = driver.stateful_set("shop", spec, "image", "hash", 1)["spec"]["template"]["spec"]
    return found


def of_cron_job(document: dict[str, Any]) -> dict[str, Any]:
    """The template of its pods."""
    found: dict[str, Any] = document["spec"]["jobTemplate"]["spec"]["template"]
    return found
