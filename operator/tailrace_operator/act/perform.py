"""Carries out a decision's actions, in their order. The status that records the intent is written before.

Each action is safe to repeat: applying and deleting are idempotent, the driver's verbs are by id. Between any two of
them the process may die; the next round sees what is and does the rest.
"""

import logging
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import aiohttp

from tailrace.contract.driver import Problem
from tailrace.seams import seam
from tailrace_operator.act.snapshots import DriverVerbs
from tailrace_operator.decide.model import (
    Action,
    ApplyChild,
    Cancel,
    ChangeSpec,
    Delete,
    DropSource,
    MakeSecret,
    Pause,
    SetFinalizers,
    SubmitSnapshot,
    TryPod,
)
from tailrace_operator.kube import APPLY, MERGE, NAMESPACE_ENDS, ApiConflict, ApiNotFound, ApiRefused, Kube, Where
from tailrace_operator.observe import parse
from tailrace_operator.observe.gather import Gatherer
from tailrace_operator.observe.index import Index
from tailrace_operator.observe.memory import Memory
from tailrace_operator.observe.model import DriverAnswer, Meta, ObjectKey, ObservedDrop, Refusal
from tailrace_operator.resources import names, settings
from tailrace_operator.status import times

log = logging.getLogger(__name__)


class Performer:
    def __init__(
        self, kube: Kube, session: aiohttp.ClientSession, index: Index, gatherer: Gatherer, memory: Memory
    ) -> None:
        self._kube = kube
        self._session = session
        self._index = index
        self._gatherer = gatherer
        self._memory = memory

    async def perform(self, key: ObjectKey, meta: Meta, replicator: str, action: Action) -> None:
        """`replicator`: whose driver is meant."""
        match action:
            case ApplyChild():
                await self._apply(key, meta, action)
                seam("operator.after-apply-child")
            case MakeSecret(name=name):
                await self._make_secret(key, meta, name)
                seam("operator.after-make-secret")
            case Delete():
                await self._delete(meta.namespace, action)
                seam("operator.after-delete")
            case TryPod(name=name):
                await self._try_pod(meta.namespace, name)
                seam("operator.after-try-pod")
            case SetFinalizers():
                await self._finalizers(key, meta, action)
                seam("operator.after-set-finalizers")
            case DropSource():
                await self._drop(meta, action)
                seam("operator.after-drop-source")
            case SubmitSnapshot():
                await self._tell(key, meta.namespace, replicator, action)
                seam("operator.after-submit-snapshot")
            case Pause():
                await self._tell(key, meta.namespace, replicator, action)
                seam("operator.after-pause")
            case Cancel():
                await self._tell(key, meta.namespace, replicator, action)
                seam("operator.after-cancel")
            case ChangeSpec():
                await self._change_spec(meta, action)
                seam("operator.after-change-spec")

    async def _apply(self, key: ObjectKey, meta: Meta, action: ApplyChild) -> None:
        document = _owned(action.document, meta, action.content_hash)
        kind, name = document["kind"], document["metadata"]["name"]
        where = Where(kind, meta.namespace, name)
        unknown = (kind, name) not in self._index.owned(meta.namespace, meta.name)
        if unknown and await self._foreign(key, meta, where, action.content_hash):
            return
        query = {"fieldManager": names.MANAGER, "force": "true"}
        try:
            made = await self._kube.call("PATCH", where, query=query, body=document, content=APPLY)
        except ApiRefused as error:
            self._refused(key, meta, Refusal(f"{kind} {name}", action.content_hash, error.message), error)
            return
        self._memory.accept(key, f"{kind} {name}")
        self._memory.applied[kind, meta.namespace, name] = (action.content_hash, parse.version(kind, made))
        self._index.put_owned(kind, made)

    def _refused(self, key: ObjectKey, meta: Meta, refusal: Refusal, error: ApiRefused) -> None:
        """Remember why an object cannot be made, for the status; whatever is no verdict on the object is raised."""
        if NAMESPACE_ENDS in error.message:
            self._memory.ending.add(meta.uid)
            return
        if error.code not in (400, 403, 409, 422):
            raise error
        self._memory.refuse(key, refusal)
        log.warning("%s in %s refused: %s", refusal.what, meta.namespace, refusal.message)

    async def _foreign(self, key: ObjectKey, meta: Meta, where: Where, content_hash: str) -> bool:
        """True if the name is taken by an object of another owner: it would be overwritten, and deleted with the
        Replicator."""
        try:
            found = await self._kube.call("GET", where)
        except ApiNotFound:
            return False
        if found["metadata"].get("labels", {}).get(names.REPLICATOR_LABEL) == meta.name:
            return False  # ours, or of a Replicator of the same name that is on its way out
        what = f"{where.kind} {where.name}"
        text = f"{what} already exists and does not belong to this Replicator; rename or remove it."
        log.warning("%s/%s: %s", meta.namespace, meta.name, text)
        self._memory.refuse(key, Refusal(what, content_hash, text))
        return True

    async def _make_secret(self, key: ObjectKey, meta: Meta, name: str) -> None:
        document = _owned(settings.secret(meta.name, name, secrets.token_urlsafe(32)), meta, "")
        try:
            made = await self._kube.call("POST", Where("Secret", meta.namespace), body=document)
        except ApiConflict:
            # It exists without being known yet, or belongs to a Replicator of the same name that is on its way out:
            # the next round sees which. Or it is not the operator's.
            await self._foreign(key, meta, Where("Secret", meta.namespace, name), "")
            return
        except ApiRefused as error:
            self._refused(key, meta, Refusal(f"Secret {name}", "", error.message), error)
            return
        self._memory.accept(key, f"Secret {name}")
        head = made["metadata"]
        self._index.put_data("Secret", meta.namespace, head["name"], head["resourceVersion"])
        self._index.put_owned("Secret", {"metadata": head})

    async def _delete(self, namespace: str, action: Delete) -> None:
        body: dict[str, Any] = {"preconditions": {"uid": action.uid}, "propagationPolicy": "Background"}
        if action.force:
            log.warning("%s %s/%s is deleted by force", action.kind, namespace, action.name)
            body["gracePeriodSeconds"] = 0
        try:
            await self._kube.call("DELETE", Where(action.kind, namespace, action.name), body=body)
        except (ApiNotFound, ApiConflict):
            return  # gone already, or another one of this name

    async def _try_pod(self, namespace: str, name: str) -> None:
        """Any change of a StatefulSet makes its controller look at it."""
        head = {"annotations": {names.TRIED_AT: times.text(self._memory.clock())}}
        where = Where("StatefulSet", namespace, name)
        try:
            self._index.put_owned(
                "StatefulSet", await self._kube.call("PATCH", where, body={"metadata": head}, content=MERGE)
            )
        except ApiNotFound:
            return  # gone: the next round makes another

    async def _finalizers(self, key: ObjectKey, meta: Meta, action: SetFinalizers) -> None:
        # With the resourceVersion: the list is replaced as a whole, and others have finalizers too.
        head = {"finalizers": list(action.finalizers), "resourceVersion": meta.resource_version}
        where = Where(key.kind, meta.namespace, meta.name)
        try:
            document = await self._kube.call("PATCH", where, body={"metadata": head}, content=MERGE)
        except ApiNotFound:
            self._index.remove(key.kind, meta.namespace, meta.name, meta.uid)
            return
        except ApiConflict:
            self._index.put(key.kind, await self._kube.call("GET", where))
            raise
        if "deletionTimestamp" in document["metadata"] and not document["metadata"].get("finalizers"):
            # That was the end of it. The watch may have said so already: it must not come back.
            self._index.remove(key.kind, meta.namespace, meta.name, meta.uid)
        else:
            self._index.put(key.kind, document)

    async def _drop(self, meta: Meta, action: DropSource) -> None:
        pod = self._gatherer.pod(meta.namespace, meta.name)
        token = await self._gatherer.token(meta.namespace, meta.name)
        if pod is None or pod.ip is None or token is None:
            problem = Problem(name="DriverUnreachable", message="the driver has no address or no token")
            observed = ObservedDrop(self._memory.clock(), problem=problem)
        else:
            observed = await DriverVerbs(self._session, pod.ip, token).drop(action.policy, self._memory.clock())
        self._memory.drops[meta.uid] = observed
        if observed.problem is not None:
            log.warning(
                "drop of %s/%s: %s: %s", meta.namespace, meta.name, observed.problem.name, observed.problem.message
            )

    async def _change_spec(self, meta: Meta, action: ChangeSpec) -> None:
        verbs = await self._verbs(meta.namespace, meta.name)
        answer = verbs if isinstance(verbs, DriverAnswer) else await verbs.change_spec(action.generation, action.spec)
        self._memory.answers[meta.uid] = answer
        if answer.problem is not None:
            text = f"{answer.problem.name}: {answer.problem.message}"
            log.warning("generation %d of %s/%s: %s", action.generation, meta.namespace, meta.name, text)

    async def _verbs(self, namespace: str, replicator: str) -> DriverVerbs | DriverAnswer:
        """The running driver's interface, or the reason why no driver can be reached."""
        pod = self._gatherer.pod(namespace, replicator)
        token = await self._gatherer.token(namespace, replicator)
        if pod is not None and pod.ip is not None and token is not None:
            return DriverVerbs(self._session, pod.ip, token)
        missing = "the driver's pod has no address" if token is not None else "the driver has no token yet"
        return DriverAnswer(accepted=False, problem=Problem(name="DriverUnreachable", message=missing))

    async def _tell(
        self, key: ObjectKey, namespace: str, replicator: str, action: SubmitSnapshot | Pause | Cancel
    ) -> None:
        verbs = await self._verbs(namespace, replicator)
        if isinstance(verbs, DriverAnswer):
            answer = verbs
        else:
            match action:
                case SubmitSnapshot(snapshot_id=ident, spec=spec):
                    answer = await verbs.submit(ident, key.name, spec)
                case Pause(snapshot_id=ident, suspend=suspend):
                    answer = await verbs.pause(ident, suspend)
                case Cancel(snapshot_id=ident):
                    answer = await verbs.cancel(ident)
        if isinstance(action, SubmitSnapshot):
            self._memory.answers[action.snapshot_id] = replace(answer, at=self._memory.clock())
        if not answer.accepted and answer.problem is not None:
            text = f"{answer.problem.name}: {answer.problem.message}"
            log.warning("%s of %s/%s: %s", type(action).__name__, namespace, action.snapshot_id, text)


def _owned(document: Mapping[str, Any], meta: Meta, content_hash: str) -> dict[str, Any]:
    head = document["metadata"]
    annotations = {**head.get("annotations", {}), names.CONTENT_HASH: content_hash}
    return {
        **document,
        "metadata": {
            **head,
            "namespace": meta.namespace,
            "annotations": annotations,
            "ownerReferences": [names.owner(meta.name, meta.uid)],
        },
    }
