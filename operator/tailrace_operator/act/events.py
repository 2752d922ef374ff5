"""Events on our resources. The same event again counts up the first one: its name is made of what it says."""

import hashlib
import logging
from dataclasses import dataclass, replace

from tailrace.contract.resources import API_VERSION
from tailrace.errors import TailraceError
from tailrace_operator.decide.model import EmitEvent
from tailrace_operator.kube import MERGE, NAMESPACE_ENDS, ApiConflict, ApiRefused, Kube, Where
from tailrace_operator.observe.model import Meta, ObjectKey
from tailrace_operator.resources.names import MANAGER
from tailrace_operator.status import times
from tailrace_operator.status.conditions import bounded

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Object:
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Events:
    def __init__(self, kube: Kube, instance: str, home: Where) -> None:
        """`home`: the operator's Lease. In a namespace that is being deleted no event can be written: the end of a
        Replicator's deletion is reported on the Lease, in the operator's namespace, where it outlives the other."""
        self._kube = kube
        self._instance = instance
        self._home = home

    async def emit(self, key: ObjectKey, meta: Meta, event: EmitEvent, now: float) -> None:
        """An event that cannot be written is only logged: nothing may depend on it."""
        level = logging.WARNING if event.type == "Warning" else logging.INFO
        log.log(
            level, "%s: %s", event.reason, event.message, extra={"object": f"{key.kind}/{key.namespace}/{key.name}"}
        )
        about = _Object(API_VERSION, key.kind, meta.namespace, meta.name, meta.uid)
        try:
            await self._write(about, event, now)
        except ApiRefused as error:
            if NAMESPACE_ENDS not in error.message:
                log.warning("event %s of %s/%s not written: %s", event.reason, key.namespace, key.name, error.message)
            elif event.parting:
                await self._write_home(key, event, now)
            else:  # a Secret that went first, a driver that was ended: nobody has to do anything about it
                log.info("event %s of %s/%s not written: its namespace ends", event.reason, key.namespace, key.name)
        except TailraceError as error:
            log.warning("event %s of %s/%s not written: %s", event.reason, key.namespace, key.name, error.message)

    async def _write_home(self, key: ObjectKey, event: EmitEvent, now: float) -> None:
        where = f"{key.kind} {key.namespace}/{key.name}"
        await self.report(replace(event, message=f"{where}: {event.message}"), now)

    async def report(self, event: EmitEvent, now: float) -> None:
        """On the Lease, what is about no object, or about one whose namespace takes no events."""
        elsewhere = replace(event, message=bounded(event.message))
        try:
            lease = await self._kube.call("GET", self._home)
            head = lease["metadata"]
            about = _Object("coordination.k8s.io/v1", "Lease", head["namespace"], head["name"], head["uid"])
            await self._write(about, elsewhere, now)
        except TailraceError as error:
            log.warning("event %s not written: %s (%s)", event.reason, error.message, elsewhere.message)

    async def _write(self, meta: _Object, event: EmitEvent, now: float) -> None:
        digest = hashlib.sha256(f"{meta.uid}{event.type}{event.reason}{event.message}".encode()).hexdigest()[:16]
        name = f"{meta.name[:230].rstrip('-.')}.{digest}"
        at = times.text(now)
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": meta.namespace},
            "involvedObject": {
                "apiVersion": meta.api_version,
                "kind": meta.kind,
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
            },
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "source": {"component": MANAGER},
            "reportingComponent": MANAGER,
            "reportingInstance": self._instance,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        try:
            await self._kube.call("POST", Where("Event", meta.namespace), body=body)
        except ApiConflict:
            where = Where("Event", meta.namespace, name)
            known = await self._kube.call("GET", where)
            change = {"count": int(known.get("count", 1)) + 1, "lastTimestamp": at}
            await self._kube.call("PATCH", where, body=change, content=MERGE)
