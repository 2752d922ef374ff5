"""The actions of the console in a cluster: each writes a resource, or starts a command in the driver's pod, with the
caller's own token, after the API server has said that its user may do so (SelfSubjectAccessReview)."""

import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import yaml

from tailrace.cli.console.actions import REQUESTS as ASKED
from tailrace.cli.console.actions import requested
from tailrace.cli.console.cluster_api import ClusterApi, Document, Right
from tailrace.cli.console.pod_commands import CONTAINER, CommandEnd, refusal_of
from tailrace.cli.console.refusal import ApiRefusal
from tailrace.cli.console.watched import Plan
from tailrace.cli.snapshot_choice import UNDER_WAY, WrongSnapshot
from tailrace.contract.base import API_VERSION
from tailrace.contract.console import ActionAnswer, ActionBody, RefusedAction, Verb
from tailrace.errors import InvalidManifest

REPLICATORS, REQUESTS = "replicators", "snapshotrequests"
MANIFEST = "/etc/tailrace/replicator/replicator.yaml"
"""The manifest in a driver's pod."""
NEEDED: dict[Verb, tuple[str, str]] = {
    "snapshot": ("create", REQUESTS),
    "verify": ("create", REQUESTS),
    "repair": ("create", REQUESTS),
    "resync": ("create", REQUESTS),
    "pause": ("patch", REQUESTS),
    "resume": ("patch", REQUESTS),
    "stop": ("delete", REQUESTS),
    "suspend": ("patch", REPLICATORS),
    "unsuspend": ("patch", REPLICATORS),
    "shutDown": ("patch", REPLICATORS),
    "startUp": ("patch", REPLICATORS),
    "cut": ("create", "pods"),
    "dropCut": ("create", "pods"),
}
"""The right that an action needs."""
CUTS: tuple[Verb, ...] = ("cut", "dropCut")
"""API group and subresource of a right that is not about Tailrace's own resources."""
PREFIX = ("kubectl", "exec")
OPTIONS = {"snapshot": (), "verify": ("--verify",), "repair": ("--repair",), "resync": ("--resync",)}
PATCHES: dict[Verb, tuple[str, str, dict[str, Any], str]] = {
    "suspend": (
        "pause",
        "apply",
        {"spec": {"apply": {"suspend": True}}},
        "stops writing to the target; the source is still captured",
    ),
    "unsuspend": ("resume", "apply", {"spec": {"apply": {"suspend": False}}}, "continues to write to the target"),
    "shutDown": (
        "pause",
        "replicator",
        {"spec": {"suspend": True}},
        "shuts the driver down; meanwhile the source keeps its log",
    ),
    "startUp": ("resume", "replicator", {"spec": {"suspend": False}}, "starts the driver again"),
}
"""Command of `kubectl tailrace` and its object, the change of the Replicator, and its meaning."""


class Changed(Protocol):
    """The Replicator that an action is about."""

    @property
    def api(self) -> ClusterApi: ...
    @property
    def namespace(self) -> str: ...
    @property
    def own(self) -> str: ...
    @property
    def item(self) -> Document: ...
    @property
    def requests(self) -> Sequence[Document]: ...


def refused(one: Changed, caller: str) -> tuple[RefusedAction, ...]:
    """The actions that the caller may not carry out."""
    said = {verb: reason for verb in NEEDED if (reason := _refusal(one, verb, caller, fresh=False)) is not None}
    return tuple(RefusedAction(verb=verb, why=why) for verb, why in said.items())


def _refusal(one: Changed, verb: Verb, caller: str, *, fresh: bool) -> str | None:
    rights = exec_rights(one) if verb in CUTS else (Right(*NEEDED[verb], one.namespace),)
    lacking = next((right for right in rights if not one.api.may(caller, right, fresh=fresh)), None)
    return None if lacking is None else f"{one.api.user(caller)} may not {lacking}"


def plan(one: Changed, body: ActionBody, caller: str, now: float) -> Plan:
    """Raises `InvalidManifest`, `WrongSnapshot`. Right before it acts, the API server is asked for the right."""
    why = _refusal(one, body.verb, caller, fresh=not body.preview)
    if body.verb in CUTS:
        return _cut(one, body, caller, why, now)
    if body.verb in PATCHES:
        return _patched(one, body.verb, caller, why)
    if body.verb in ("pause", "resume", "stop"):
        return _changed(one, body, caller, why)
    request, manifest = requested(one.own, body, now, one.namespace)
    document = yaml.safe_load(manifest)

    def act() -> str:
        one.api.create(caller, REQUESTS, one.namespace, document)
        return f"SnapshotRequest {request.metadata.name} is created"

    command = _kubectl(one, "snapshot", one.own, *OPTIONS[body.verb], "--tables", *body.tables)
    return ActionAnswer(done=False, message=ASKED[body.verb], command=command, manifest=manifest, refused=why), act


def _cut(one: Changed, body: ActionBody, caller: str, why: str | None, now: float) -> Plan:
    """No resource makes or drops a single cut: the command runs in the driver's pod."""
    drop = body.verb == "dropCut"
    if drop and body.cut is None:
        raise InvalidManifest("dropCut needs the name of a cut", "`tailrace cuts` shows the names.")
    name = body.cut or time.strftime("%Y%m%d_%H%M%S", time.gmtime(now))
    words = ("cut", "--drop", name) if drop else ("cut", name, "--wait", "20s")

    def act() -> str:
        ended = in_driver(one, caller, *words)
        if ended.code != 0:
            raise refusal_of(ended)
        return ended.output.strip()

    message = f"keeps, as cut {name}, the version of every table that holds the same moment of the source"
    if drop:
        message = f"no longer keeps the versions of cut {name}"
    command = shlex.join(
        [*PREFIX, "-n", one.namespace, f"{one.own}-driver-0", "-c", CONTAINER, "--", *_tailrace(words)]
    )
    return ActionAnswer(done=False, message=message, command=command, refused=why), act


def in_driver(one: Changed, caller: str, *words: str) -> CommandEnd:
    """The end of a command of `tailrace` in the driver's pod, started with the caller's token."""
    return one.api.execute(caller, one.namespace, f"{one.own}-driver-0", _tailrace(words))


def _tailrace(words: Sequence[str]) -> list[str]:
    return ["tailrace", words[0], "-f", MANIFEST, *words[1:]]


def may_execute(one: Changed, caller: str) -> None:
    """Raises `ApiRefusal` if the caller may not start commands in the driver's pod."""
    for right in exec_rights(one):
        if not one.api.may(caller, right, fresh=True):
            raise ApiRefusal(403, "Forbidden", f"{one.api.user(caller)} may not {right}", "Ask for the right.")


def exec_rights(one: Changed) -> tuple[Right, ...]:
    """A command is asked for by a WebSocket, which is a GET; since 1.35 the API server wants the right to `create`,
    too."""
    return tuple(Right(verb, "pods", one.namespace, "", "exec") for verb in ("create", "get"))


def _kubectl(one: Changed, *words: str) -> str:
    return shlex.join(["kubectl", "tailrace", words[0], "-n", one.namespace, *words[1:]])


def _patched(one: Changed, verb: Verb, caller: str, why: str | None) -> Plan:
    word, what, change, meaning = PATCHES[verb]

    def act() -> str:
        one.api.patch(caller, REPLICATORS, one.namespace, one.own, change)
        return f"Replicator {one.own} is changed"

    message = f"{meaning}; change it in the manifest, too, or whatever applies that changes it back"
    manifest = _manifest("Replicator", one.namespace, one.own, change)
    command = _kubectl(one, word, what, one.own)
    return ActionAnswer(done=False, message=message, command=command, manifest=manifest, refused=why), act


def _changed(one: Changed, body: ActionBody, caller: str, why: str | None) -> Plan:
    name = _request(one, body.snapshot)
    if body.verb == "stop":

        def delete() -> str:
            one.api.delete(caller, REQUESTS, one.namespace, name)
            return f"SnapshotRequest {name} is deleted"

        message = f"deletes SnapshotRequest {name}, which stops its snapshot for good; rows already read stay"
        command = shlex.join(["kubectl", "delete", "-n", one.namespace, "snapshotrequest", name])
        return ActionAnswer(done=False, message=message, command=command, refused=why), delete
    suspend = body.verb == "pause"
    change = {"spec": {"suspend": suspend}}

    def act() -> str:
        one.api.patch(caller, REQUESTS, one.namespace, name, change)
        return f"SnapshotRequest {name} is changed"

    message = f"continues snapshot {name}"
    if suspend:
        message = f"pauses snapshot {name}: chunks being read are finished, no new one begins"
    manifest = _manifest("SnapshotRequest", one.namespace, name, change)
    command = _kubectl(one, body.verb, "snapshot", name)
    return ActionAnswer(done=False, message=message, command=command, manifest=manifest, refused=why), act


def _manifest(kind: str, namespace: str, name: str, change: Mapping[str, Any]) -> str:
    document = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **change}
    return yaml.safe_dump(document, sort_keys=False)


def _request(one: Changed, wanted: str | None) -> str:
    """The name of the SnapshotRequest under way that is meant by its name, or by its snapshot's id."""
    for request in one.requests:
        metadata = request["metadata"]
        if wanted in (metadata["name"], metadata["uid"]):
            state = (request.get("status") or {}).get("state", "Pending")
            if state not in UNDER_WAY:
                raise WrongSnapshot(f"SnapshotRequest {metadata['name']} has ended: {state}", "Create another one.")
            return str(metadata["name"])
    raise WrongSnapshot(
        f"there is no SnapshotRequest for snapshot {wanted!r}",
        "Only snapshots that a SnapshotRequest asked for can be changed here; to end another, change the Replicator.",
    )
