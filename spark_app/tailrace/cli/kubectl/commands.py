"""The commands of `kubectl tailrace`. Each takes the parsed options and returns the exit code."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from tailrace.cli import request_options
from tailrace.cli.kubectl import PROGRAM, view
from tailrace.cli.kubectl.applied import Unasked, as_stored
from tailrace.cli.kubectl.cluster import REPLICATORS, REQUESTS, Cluster, Document, KubectlFailed, named
from tailrace.errors import InvalidManifest, TailraceError
from tailrace.logs import visible

MANIFEST = "/etc/tailrace/replicator/replicator.yaml"
"""The manifest in a driver's pod."""
PAUSE = 2.0
"""Seconds between two looks at the cluster."""
PATIENCE = 120.0
"""Seconds for which a cluster that does not answer is asked again: an API server may be restarting."""
PAUSE_ANNOTATION = "tailrace.dev/pause-reconciliation"
WARNING = (
    "meanwhile PostgreSQL keeps its log, and its disk may fill; MySQL and MariaDB delete theirs when it expires, after"
    " which every table must be read again"
)
Found = TypeVar("Found")


class DriverMissing(TailraceError):
    """No pod of the driver runs that could do what was asked."""

    usual_fix = "Ask again once the driver runs."


class SnapshotUnfinished(TailraceError):
    """`--wait`: the snapshot did not complete, or not in time."""

    usual_fix = "See what the message names, and create another request."


def cluster_of(options: argparse.Namespace) -> Cluster:
    return Cluster(options.namespace, options.context)


def status(options: argparse.Namespace) -> int:
    if options.replicator is not None and options.all_namespaces:
        raise InvalidManifest("--all-namespaces does not go with a name", "Leave it out, and name one with -n.")
    cluster = cluster_of(options)
    if not options.watch:
        print(_text(options, *cluster.documents(options.all_namespaces)))
        return 0
    last = ""
    for found in _looks(lambda: cluster.documents(options.all_namespaces)):
        text = _text(options, *found)
        if text != last:
            clear = "\x1b[H\x1b[J" if sys.stdout.isatty() and not options.json else ""
            print(clear + text, flush=True)
        last = text
    return 0


def _text(options: argparse.Namespace, replicators: list[Document], requests: list[Document]) -> str:
    name = options.replicator
    if name is not None:
        replicators = [named(replicators, name, "Replicator")]
        requests = [item for item in requests if item["spec"]["replicator"] == name]
    if options.json:
        return json.dumps({"replicators": replicators, "snapshotRequests": requests})
    if name is not None:
        return "\n".join(view.detail(replicators[0], requests, datetime.now(UTC)))
    return "\n".join(view.overview(replicators, options.all_namespaces) if replicators else ["no Replicators found"])


def _looks(look: Callable[[], Found]) -> Iterator[Found]:
    """Yields the observed state again and again; a cluster that does not answer for a while is waited for."""
    answered_at = time.monotonic()
    while True:
        try:
            found = look()
        except KubectlFailed:
            if time.monotonic() > answered_at + PATIENCE:
                raise
        else:
            answered_at = time.monotonic()
            yield found
        time.sleep(PAUSE)


def tables(options: argparse.Namespace) -> int:
    cluster = cluster_of(options)
    found = cluster.find(REPLICATORS, options.replicator)
    counts = view.status_of(found).get("tables") or {}
    listed = counts.get("worst", [])
    if options.all:
        _check_driver(found)
        listed = json.loads(cluster.from_driver(options.replicator, *_in_pod("status"), "--json"))["tables"]
    if options.json:
        print(json.dumps(listed))
        return 0
    print("\n".join(view.tables(listed) if listed else ["no table is known to fail"]))
    left = counts.get("total", 0) - len(listed)
    if left > 0 and not options.all:
        way = f"`{PROGRAM} tables {options.replicator} --all` lists them"
        print(f"and {left:,} more; {way if _driver_runs(found) else 'they cannot be listed while no driver runs'}")
    return 0


def _in_pod(verb: str) -> tuple[str, ...]:
    return ("tailrace", verb, "-f", MANIFEST)


def _driver_runs(replicator: Document) -> bool:
    return bool((view.status_of(replicator).get("driver") or {}).get("startedAt"))


def _check_driver(replicator: Document) -> None:
    if not _driver_runs(replicator):
        found, name = view.status_of(replicator), replicator["metadata"]["name"]
        message = found.get("message") or "the operator has not reported one yet"
        fix = f"Run `{PROGRAM} resume replicator {name}` first." if _is_suspended(replicator) else ""
        raise DriverMissing(f"no driver of {name} runs: {message}", fix)


def _is_suspended(replicator: Document) -> bool:
    return bool(replicator["spec"].get("suspend"))


def logs(options: argparse.Namespace) -> int:
    chosen = [
        *(["--follow"] if options.follow else []),
        *(["--previous"] if options.previous else []),
        *([f"--tail={options.tail}"] if options.tail is not None else []),
    ]
    cluster = cluster_of(options)
    found = cluster.find(REPLICATORS, options.replicator)
    try:
        with cluster.driver_log(options.replicator, *chosen) as lines:
            for line in lines:
                print(line.rstrip("\n") if options.json else visible(_line(line)), flush=options.follow)
    except KubectlFailed as error:
        if "(NotFound)" in error.message:
            _check_driver(found)
        raise
    return 0


def _line(line: str) -> str:
    """A log document as people read it; anything else as it is."""
    try:
        document = json.loads(line)
        at = datetime.fromtimestamp(document["time"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{at} {document['level']:7} {document['message']}"
    except (ValueError, TypeError, KeyError, OverflowError):
        return line.rstrip("\n")


def snapshot(options: argparse.Namespace) -> int:
    more = {"resync": options.resync, "mode": options.mode, "sample": options.sample}
    request = request_options.of_rows(options, options.replicator, PROGRAM, **more)
    limit = _limit(options.timeout)
    cluster = cluster_of(options)
    found = cluster.find(REPLICATORS, options.replicator)
    name = request.metadata.name
    _create(cluster, json.loads(request.model_dump_json(by_alias=True, exclude_defaults=True)))
    if _is_suspended(found):
        print(f"{options.replicator} is suspended: the snapshot begins once it is resumed")
    if not options.wait:
        print(f"SnapshotRequest {name} created; `{PROGRAM} status {options.replicator}` shows its progress")
        return 0
    return _wait(cluster, name, limit)


def _limit(timeout: str) -> float | None:
    """Seconds; None: no limit."""
    from tailrace.contract.units import seconds

    try:
        return seconds(timeout) or None
    except InvalidManifest as error:
        raise InvalidManifest(f"--timeout: {error.message}", error.fix) from error


def _create(cluster: Cluster, document: Document) -> None:
    try:
        cluster.create(document)
    except KubectlFailed as error:
        if "(AlreadyExists)" not in error.message:
            raise
        there = cluster.find(REQUESTS, document["metadata"]["name"])
        if any(there["spec"].get(field) != value for field, value in document["spec"].items()):
            raise


def _wait(cluster: Cluster, name: str, limit: float | None) -> int:
    end = None if limit is None else time.monotonic() + limit
    shown = ""
    for request in _looks(lambda: cluster.find(REQUESTS, name)):
        line = view.request_bar(request, datetime.now(UTC))
        if line != shown:
            print(f"\r\x1b[K{line}" if sys.stdout.isatty() else line, end=_end(), flush=True)
            shown = line
        found = view.status_of(request)
        if found.get("state") in view.ENDED:
            print(end="\n" if sys.stdout.isatty() else "")
            if found["state"] == "Completed":
                return 0
            raise SnapshotUnfinished(f"snapshot {name} has ended: {found['state']}")
        if end is not None and time.monotonic() > end:
            raise SnapshotUnfinished(
                f"snapshot {name} has not ended within {limit:.0f} s", "It continues: see its status."
            )
    raise AssertionError("unreachable")


def _end() -> str:
    return "" if sys.stdout.isatty() else "\n"


def change_pause(options: argparse.Namespace) -> int:
    """pause, resume."""
    cluster, paused = cluster_of(options), options.command == "pause"
    resource = REQUESTS if options.what == "snapshot" else REPLICATORS
    found = cluster.find(resource, options.name)
    state = view.status_of(found).get("state")
    if options.what == "snapshot" and state in view.ENDED:
        raise InvalidManifest(f"snapshot {options.name} has ended: {state}", "Request another one.")
    cluster.patch(resource, options.name, _change(options.what, paused))
    print(f"{options.what} {options.name}: {'paused' if paused else 'continues'}")
    if options.what == "replicator" and paused:
        print(WARNING)
    return 0


def _change(what: str, paused: bool) -> dict[str, Any]:
    """The merge patch."""
    if what == "reconciliation":
        return {"metadata": {"annotations": {PAUSE_ANNOTATION: "true" if paused else None}}}
    if what == "apply":
        return {"spec": {"apply": {"suspend": paused}}}
    return {"spec": {"suspend": paused}}


def doctor(options: argparse.Namespace) -> int:
    cluster = cluster_of(options)
    _check_driver(cluster.find(REPLICATORS, options.replicator))
    as_json = ("--json",) if options.json else ()
    return cluster.in_driver(options.replicator, *_in_pod("doctor"), *as_json)


def diff(options: argparse.Namespace) -> int:
    """Compares in the pod: the driver's own manifest, the Secrets and the route to the source are there."""
    changed = b"\n---\n".join(_content(path) for path in options.file)
    cluster = cluster_of(options)
    _check_driver(cluster.find(REPLICATORS, options.replicator))
    try:
        changed = as_stored(cluster, options.replicator, changed)
    except Unasked as why:
        print(f"compared as the file is, not as the cluster would store it: {visible(str(why))}", file=sys.stderr)
    command = ("tailrace", "diff", "-f", "-", "--name", options.replicator)
    as_json = ("--json",) if options.json else ()
    return cluster.in_driver(options.replicator, *command, *as_json, stdin=changed)


def _content(path: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise InvalidManifest(f"cannot read {path}: {error.strerror or error}", "Correct --file.") from error


def restart(options: argparse.Namespace) -> int:
    cluster = cluster_of(options)
    found = cluster.find(REPLICATORS, options.replicator)
    nonce = found["spec"].get("restartNonce", 0) + 1
    cluster.patch(REPLICATORS, options.replicator, {"spec": {"restartNonce": nonce}})
    print(f"{options.replicator}: spec.restartNonce is now {nonce}; the driver restarts and continues where it was")
    if found["spec"].get("suspend"):
        print(f"It is suspended; `{PROGRAM} resume replicator {options.replicator}` starts it.")
    return 0


def recover(options: argparse.Namespace) -> int:
    cluster = cluster_of(options)
    found = cluster.find(REPLICATORS, options.replicator)
    halt = view.status_of(found).get("halt") or {}
    if halt.get("reason") != "PositionLost":
        reason = halt.get("reason") or view.status_of(found).get("state", "Pending")
        raise InvalidManifest(
            f"the position of {options.replicator} is not lost: it is {reason}",
            f"See `{PROGRAM} status {options.replicator}`.",
        )
    nonce = (found["spec"].get("recover") or {}).get("nonce", 0) + 1
    cluster.patch(REPLICATORS, options.replicator, {"spec": {"recover": {"mode": "Resnapshot", "nonce": nonce}}})
    print(f"{options.replicator}: spec.recover.nonce is now {nonce}; every table is read again")
    return 0
