"""Turns documents of the API server into the views that decisions take. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from tailrace.contract.base import OWNER_LABEL
from tailrace.contract.driver import DropReport, LastWords
from tailrace.contract.pod_template import CONTAINER
from tailrace.contract.resources import RecoverSpec, SnapshotRequestSpec
from tailrace.contract.snapshot_request import EVERY_TABLE
from tailrace.errors import error_line
from tailrace_operator.observe.model import (
    PAUSED,
    REQUESTED_AT,
    Child,
    Ended,
    Eviction,
    LogCheck,
    Meta,
    ObservedPod,
    ObservedResync,
    RefusedPod,
)
from tailrace_operator.resources import names
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Reason
from tailrace_operator.status.load import known, load
from tailrace_operator.status.models import FINAL, SnapshotRequestStatus

Document = Mapping[str, Any]
_WORKLOADS = ("StatefulSet", "Job", "CronJob")
"""Controllers write their status all the time."""
MAX_LINE = 300
"""Characters of a line of the log that are kept."""


def meta(document: Document) -> Meta:
    head = document["metadata"]
    return Meta(
        namespace=head["namespace"],
        name=head["name"],
        uid=head["uid"],
        generation=int(head.get("generation", 0)),
        resource_version=head.get("resourceVersion", ""),
        finalizers=tuple(head.get("finalizers", ())),
        deleted_at=times.seconds(head.get("deletionTimestamp")),
        requested_at=head.get("annotations", {}).get(REQUESTED_AT, "")[:128] or None,
        owners=tuple((k, v) for k, v in sorted(head.get("labels", {}).items()) if k.startswith(OWNER_LABEL)),
        paused=head.get("annotations", {}).get(PAUSED) == "true",
    )


def component(document: Document) -> str:
    """The part of a Replicator that an object is."""
    return str(document["metadata"].get("labels", {}).get(names.COMPONENT_LABEL, ""))


def resync(document: Document) -> ObservedResync | None:
    """None: the SnapshotRequest does not start every table over, is suspended, or has ended."""
    head, status = document["metadata"], load(SnapshotRequestStatus, document.get("status"))
    try:
        spec = SnapshotRequestSpec.model_validate(document.get("spec", {}))
    except ValidationError:
        return None
    over = "deletionTimestamp" in head or status.state in FINAL
    if over or spec.suspend or not spec.starts_all_over:
        return None
    taken = status.record is not None or status.started_at is not None
    return ObservedResync(head["name"], head["uid"], spec, taken)


def recovery(name: str, uid: str, spec: Mapping[str, Any]) -> ObservedResync | None:
    """`spec.recover` as the SnapshotRequest that it stands for; None: the Replicator has none. Its id is no UUID, so
    that the snapshot continues when the field is removed."""
    try:
        wanted = RecoverSpec.model_validate(spec.get("recover"))
    except ValidationError:
        return None
    every = SnapshotRequestSpec(replicator=name, tables=(EVERY_TABLE,), resync=True)
    return ObservedResync(f"recover-{wanted.nonce}", f"recover-{wanted.nonce}-{uid}", every, taken=False)


def cut_over(replicator: Document) -> bool:
    """True if a cutover has ended its replication."""
    halt = replicator.get("status", {}).get("halt") or {}
    return bool(halt.get("reason") == Reason.CUT_OVER.value)


def pod(document: Document) -> ObservedPod:
    head, status = document["metadata"], document.get("status", {})
    container = _container(status.get("containerStatuses", ()))
    state = container.get("state", {})
    waiting = state.get("waiting", {})
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    scheduled, disruption = conditions.get("PodScheduled", {}), conditions.get("DisruptionTarget", {})
    return ObservedPod(
        name=head["name"],
        uid=head["uid"],
        template_hash=head.get("annotations", {}).get(names.TEMPLATE_HASH, ""),
        ready=conditions.get("Ready", {}).get("status") == "True",
        phase=status.get("phase", "Pending"),
        created=times.seconds(head.get("creationTimestamp")) or 0.0,
        deleting="deletionTimestamp" in head,
        ip=status.get("podIP"),
        running_since=times.seconds(state.get("running", {}).get("startedAt")),
        waiting=waiting.get("reason"),
        waiting_message=waiting.get("message", ""),
        restarts=int(container.get("restartCount", 0)),
        ended=_ended(state.get("terminated")) or _ended(container.get("lastState", {}).get("terminated")),
        unscheduled=scheduled.get("message") if scheduled.get("status") == "False" else None,
        node=document.get("spec", {}).get("nodeName", ""),
        evicted_until=_evicted_until(head, disruption, state),
        disrupted=disruption.get("message", "") if disruption.get("status") == "True" else "",
    )


def _evicted_until(head: Document, disruption: Document, state: Document) -> float | None:
    """A pod's deletionTimestamp is the end of its grace period."""
    by_taint = (disruption.get("status"), disruption.get("reason")) == ("True", "DeletionByTaintManager")
    return times.seconds(head.get("deletionTimestamp")) if by_taint and not state.get("terminated") else None


def _container(statuses: Sequence[Document]) -> Document:
    return next((s for s in statuses if s["name"] == CONTAINER), {})


def _ended(terminated: Document | None) -> Ended | None:
    if not terminated:
        return None
    words = _last_words(terminated)
    return Ended(
        code=int(terminated.get("exitCode", 1)),
        reason=terminated.get("reason", ""),
        fault=words.fault if words is not None else None,
        at=times.seconds(terminated.get("finishedAt")) or 0.0,
        log_line="" if words is not None else _last_line(terminated.get("message", "")),
    )


def _last_line(log: str) -> str:
    """The message in the driver's last log line, or the line itself: a driver that died early may have written
    anything."""
    line = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return line[:MAX_LINE]
    return str(found["message"] if isinstance(found, dict) and "message" in found else line)[:MAX_LINE]


def _last_words(terminated: Document) -> LastWords | None:
    """None: the container left none, or the kubelet took the end of its log instead."""
    try:
        found = json.loads(terminated.get("message", ""))
        return known(LastWords, found) if isinstance(found, dict) and found.get("kind") == "last-words" else None
    except (ValueError, RecursionError):
        return None


def report(document: Document) -> DropReport | None:
    """The report in a pod's termination message of what it dropped; None: it dropped nothing."""
    container = _container(document.get("status", {}).get("containerStatuses", ()))
    for state in (container.get("state", {}), container.get("lastState", {})):
        words = _last_words(state.get("terminated", {}))
        if words is not None and words.drop is not None:
            return words.drop
    return None


def log_check(document: Document) -> LogCheck | None:
    """The result of a pod that asked the source how much log it keeps; None: it is running, or about to."""
    status = document.get("status", {})
    state = _container(status.get("containerStatuses", ())).get("state", {})
    words = _last_words(state.get("terminated") or {})
    if words is not None and words.retained is not None:
        return LogCheck(words.retained.at, words.retained.bytes)
    asking = pod(document)
    why = _in_vain(asking, status)
    at = asking.ended.at if asking.ended is not None else 0.0
    return LogCheck(at or asking.created, None, why) if why else None


def _in_vain(asking: ObservedPod, status: Document) -> str:
    """The reason why it did not ask, or cannot. Empty: it still may."""
    if asking.ended is not None and asking.ended.fault is not None:
        fault = asking.ended.fault
        return error_line(fault.name, fault.message, fault.fix)
    if asking.phase == "Failed" and status.get("reason"):  # by its deadline, or from its node
        why = f"pod {asking.name}: {status['reason']}: {status.get('message', '')}".rstrip(": .")
        begun = asking.ended is not None and asking.ended.at
        return why if begun else f"{why}. Its container never began; see `kubectl describe pod {asking.name}`"
    if asking.ended is not None:
        return f"exit code {asking.ended.code}"
    return asking.cannot_begin or ""


def refused_pod(event: Document) -> RefusedPod:
    """The reason alone: what stands before it says which controller tried to make which pod."""
    text = str(event.get("message", ""))
    for lead in ("failed error: ", "Error creating: "):
        text = text.rpartition(lead)[2]
    return RefusedPod(text, _time_of(event))


def eviction(event: Document) -> Eviction:
    about = event.get("involvedObject", {})
    text = str(event.get("message", "")).strip().rstrip(".")
    return Eviction(about.get("name", ""), about.get("uid", ""), text, _time_of(event))


def _time_of(event: Document) -> float:
    times_of = (event.get("lastTimestamp"), event.get("eventTime"), event["metadata"].get("creationTimestamp"))
    return next((at for at in map(times.seconds, times_of) if at is not None), 0.0)


def child(kind: str, document: Document) -> Child:
    head, status = document["metadata"], document.get("status", {})
    annotations = head.get("annotations", {})
    conditions = {c["type"] for c in status.get("conditions", ()) if c.get("status") == "True"}
    return Child(
        kind=kind,
        name=head["name"],
        uid=head["uid"],
        version=version(kind, document),
        content_hash=annotations.get(names.CONTENT_HASH, ""),
        template_hash=annotations.get(names.TEMPLATE_HASH, ""),
        image=_image(document) if kind == "StatefulSet" else "",
        replicas=document.get("spec", {}).get("replicas") if kind == "StatefulSet" else None,
        succeeded=kind == "Job" and "Complete" in conditions,
        failed=kind == "Job" and "Failed" in conditions,
        tried_at=times.seconds(annotations.get(names.TRIED_AT)),
    )


def _image(stateful_set: Document) -> str:
    template = stateful_set.get("spec", {}).get("template", {}).get("spec", {})
    images = (c.get("image", "") for c in template.get("containers", ()) if c["name"] == CONTAINER)
    return str(next(images, ""))


def version(kind: str, document: Document) -> str:
    """The version of the fields that the operator applied; status writes of controllers do not change it."""
    head = document["metadata"]
    return str(head["generation"] if kind in _WORKLOADS else head.get("resourceVersion", ""))
