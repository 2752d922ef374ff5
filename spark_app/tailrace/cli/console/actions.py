"""The actions of the console: each with the command and, where there is one, the manifest that do the same."""

import shlex
import time
from collections.abc import Callable

import yaml
from pydantic import ValidationError

from tailrace.cli import snapshot_choice
from tailrace.cli.console.watched import Watched
from tailrace.contract.base import API_VERSION
from tailrace.contract.console import ActionAnswer, ActionBody
from tailrace.contract.driver import SnapshotBody, SpecBody
from tailrace.contract.manifest import invalid
from tailrace.contract.resources import SnapshotRequest
from tailrace.errors import InvalidManifest
from tailrace.snapshot.planner import request_id

MODES = {"verify": "Verify", "repair": "Repair"}
OPTIONS = {"verify": "verify", "repair": "verify --repair", "snapshot": "snapshot", "resync": "resync"}


def plan(watched: Watched, body: ActionBody, now: float) -> tuple[ActionAnswer, Callable[[], str]]:
    """The answer of a preview, and what carries the action out and says what happened. Raises `InvalidManifest`,
    `WrongSnapshot`."""
    match body.verb:
        case "snapshot" | "verify" | "repair" | "resync":
            return _request(watched, body, now)
        case "pause" | "resume" | "stop":
            return _change(watched, body)
        case "cut" | "dropCut":
            return _cut(watched, body, now)
        case "suspend" | "unsuspend":
            return _suspend(watched, body.verb == "suspend")


def _command(watched: Watched, verb: str, *arguments: str) -> str:
    first, *more = verb.split()
    return shlex.join(["tailrace", first, *watched.options, *more, *arguments])


def _request(watched: Watched, body: ActionBody, now: float) -> tuple[ActionAnswer, Callable[[], str]]:
    spec: dict[str, object] = {"replicator": watched.name, "tables": list(body.tables)}
    spec |= {"mode": MODES[body.verb]} if body.verb in MODES else {}
    spec |= {"resync": True} if body.verb == "resync" else {}
    name = time.strftime("console-%Y%m%d-%H%M%S", time.gmtime(now)) + f"-{int(now * 1000) % 1000:03d}"
    document = {"apiVersion": API_VERSION, "kind": "SnapshotRequest", "metadata": {"name": name}, "spec": spec}
    try:
        request = SnapshotRequest.model_validate(document)
    except ValidationError as error:
        raise invalid(error, "request", SnapshotRequest) from error

    def act() -> str:
        answer = watched.driver().request(request_id(request), SnapshotBody(name=name, spec=request.spec))
        return f"{answer.id}: accepted, {', '.join(answer.tables)}"

    command = _command(watched, OPTIONS[body.verb], "--tables", *body.tables)
    message = {
        "snapshot": "reads all rows of these tables again",
        "verify": "compares these tables with their source",
        "repair": "compares these tables with their source, and reads rows that differ again",
        "resync": "starts these tables over: all rows are read into a new copy, which then replaces the present one",
    }[body.verb]
    manifest = yaml.safe_dump(document, sort_keys=False)
    return ActionAnswer(done=False, message=message, command=command, manifest=manifest), act


def _change(watched: Watched, body: ActionBody) -> tuple[ActionAnswer, Callable[[], str]]:
    chosen = snapshot_choice.choose(watched.status().snapshots, body.snapshot, body.verb)
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


def _cut(watched: Watched, body: ActionBody, now: float) -> tuple[ActionAnswer, Callable[[], str]]:
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


def _suspend(watched: Watched, suspend: bool) -> tuple[ActionAnswer, Callable[[], str]]:
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
