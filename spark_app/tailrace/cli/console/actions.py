"""The actions of `tailrace console`: each with the command and, where there is one, the manifest that do the same."""

import shlex
import time
from typing import Protocol

import yaml
from pydantic import ValidationError

from tailrace.cli import snapshot_choice
from tailrace.cli.client import DriverClient
from tailrace.cli.console.watched import Plan
from tailrace.contract.base import API_VERSION
from tailrace.contract.console import ActionAnswer, ActionBody, RefusedAction
from tailrace.contract.driver import SnapshotBody, SpecBody
from tailrace.contract.manifest import invalid
from tailrace.contract.resources import ReplicatorSpec, SnapshotRequest
from tailrace.errors import InvalidManifest

MODES = {"verify": "Verify", "repair": "Repair"}
REQUESTS = {
    "snapshot": "reads all rows of these tables again",
    "verify": "compares these tables with their source",
    "repair": "compares these tables with their source, and reads rows that differ again",
    "resync": "starts these tables over: all rows are read into a new copy, which then replaces the present one",
}
IMPOSSIBLE = (
    RefusedAction(verb="shutDown", why="end `tailrace run` where it runs, with Ctrl-C"),
    RefusedAction(verb="startUp", why="start `tailrace run`"),
)
OPTIONS = {"verify": "verify", "repair": "verify --repair", "snapshot": "snapshot", "resync": "resync"}


class Commanded(Protocol):
    """A Replicator whose driver takes commands."""

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> tuple[str, ...]: ...
    def driver(self) -> DriverClient: ...
    def running_spec(self) -> ReplicatorSpec: ...


def plan(watched: Commanded, body: ActionBody, now: float) -> Plan:
    """Raises `InvalidManifest`, `WrongSnapshot`."""
    match body.verb:
        case "shutDown" | "startUp":
            (why,) = (one.why for one in IMPOSSIBLE if one.verb == body.verb)
            raise InvalidManifest("the console cannot start or stop drivers on this machine", f"{why.capitalize()}.")
        case "snapshot" | "verify" | "repair" | "resync":
            return _request(watched, body, now)
        case "pause" | "resume" | "stop":
            return _change(watched, body)
        case "cut" | "dropCut":
            return _cut(watched, body, now)
        case "suspend" | "unsuspend":
            return _suspend(watched, body.verb == "suspend")


def _command(watched: Commanded, verb: str, *arguments: str) -> str:
    first, *more = verb.split()
    return shlex.join(["tailrace", first, *watched.options, *more, *arguments])


def _request(watched: Commanded, body: ActionBody, now: float) -> Plan:
    from tailrace.snapshot.planner import request_id  # brings pyarrow, which the console in a cluster does without

    request, manifest = requested(watched.name, body, now)
    name, spec = request.metadata.name, request.spec

    def act() -> str:
        answer = watched.driver().request(request_id(request), SnapshotBody(name=name, spec=spec))
        return f"{answer.id}: accepted, {', '.join(answer.tables)}"

    command = _command(watched, OPTIONS[body.verb], "--tables", *body.tables)
    return ActionAnswer(done=False, message=REQUESTS[body.verb], command=command, manifest=manifest), act


def requested(
    replicator: str, body: ActionBody, now: float, namespace: str | None = None
) -> tuple[SnapshotRequest, str]:
    """The SnapshotRequest of an action, and its manifest."""
    spec: dict[str, object] = {"replicator": replicator, "tables": list(body.tables)}
    spec |= {"mode": MODES[body.verb]} if body.verb in MODES else {}
    spec |= {"resync": True} if body.verb == "resync" else {}
    name = time.strftime("console-%Y%m%d-%H%M%S", time.gmtime(now)) + f"-{int(now * 1000) % 1000:03d}"
    metadata = {"name": name} | ({"namespace": namespace} if namespace is not None else {})
    document = {"apiVersion": API_VERSION, "kind": "SnapshotRequest", "metadata": metadata, "spec": spec}
    try:
        request = SnapshotRequest.model_validate(document)
    except ValidationError as error:
        raise invalid(error, "request", SnapshotRequest) from error
    return request, yaml.safe_dump(document, sort_keys=False)


def _change(watched: Commanded, body: ActionBody) -> Plan:
    chosen = snapshot_choice.choose(watched.driver().status().snapshots, body.snapshot, body.verb)
    if chosen.state not in snapshot_choice.UNDER_WAY:
        raise snapshot_choice.WrongSnapshot(f"snapshot {chosen.id} has ended: {chosen.state}", "Request another one.")

    def act() -> str:
        if body.verb == "stop":
            watched.driver().stop(chosen.id)
        else:
            watched.driver().suspend(chosen.id, body.verb == "pause")
        return f"{chosen.id}: {body.verb} done"

    message = {
        "pause": f"pauses snapshot {chosen.id}: chunks being read are finished, no new one begins",
        "resume": f"continues snapshot {chosen.id}",
        "stop": f"stops snapshot {chosen.id} for good; rows already read stay",
    }[body.verb]
    return ActionAnswer(done=False, message=message, command=_command(watched, body.verb, chosen.id)), act


def _cut(watched: Commanded, body: ActionBody, now: float) -> Plan:
    name = body.cut or time.strftime("%Y%m%d_%H%M%S", time.gmtime(now))
    if body.verb == "dropCut" and body.cut is None:
        raise InvalidManifest("dropCut needs the name of a cut", "`tailrace cuts` shows the names.")

    def act() -> str:
        if body.verb == "dropCut":
            watched.driver().drop_cut(name)
            return f"{name}: dropped"
        made = watched.driver().make_cut(name)
        what = "all tables are in it" if made.complete else "tables are on their way"
        return f"{made.name}: record {made.record}, {what}"

    if body.verb == "dropCut":
        return ActionAnswer(
            done=False,
            message=f"no longer keeps the versions of cut {name}",
            command=_command(watched, "cut", "--drop", name),
        ), act
    message = f"keeps, as cut {name}, the version of every table that holds the same moment of the source"
    return ActionAnswer(done=False, message=message, command=_command(watched, "cut", name)), act


def _suspend(watched: Commanded, suspend: bool) -> Plan:
    def act() -> str:
        spec = watched.running_spec()
        changed = spec.model_copy(update={"apply": spec.apply.model_copy(update={"suspend": suspend})})
        answer = watched.driver().change_spec(SpecBody(spec=changed))
        return f"in effect: {', '.join(answer.changed)}" if answer.changed else "nothing changed"

    what = "continues to write to the target"
    if suspend:
        what = "stops writing to the target; the source is still captured"
    manifest = yaml.safe_dump({"spec": {"apply": {"suspend": suspend}}}, sort_keys=False)
    message = f"{what}; the next reload or start of the driver follows the manifest again, so change it there, too"
    return ActionAnswer(done=False, message=message, command=_command(watched, "reload"), manifest=manifest), act
