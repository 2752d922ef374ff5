"""The cluster, by way of `kubectl`: its contexts, its logins and its rights are the user's, and need no second client.

What comes back are plain documents: the resources may be of another version than this program. Called by `commands`.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from tailrace.errors import InvalidManifest, TailraceError

REPLICATORS = "replicators.tailrace.dev"
REQUESTS = "snapshotrequests.tailrace.dev"
KINDS = {REPLICATORS: "Replicator", REQUESTS: "SnapshotRequest"}
CONTAINER = "tailrace"
"""The driver's, in its pod `<replicator>-driver-0`."""
ANSWER_SECONDS = 30
"""Seconds for any answer but a stream."""
FIXES = {
    "the server doesn't have a resource type": "Install Tailrace's CRDs there, or choose another cluster with"
    " --context.",
    "orbidden": "Ask for the cluster's role `view` in that namespace; to change something, `edit`.",
    "already exists": "Choose another --id.",
    "is invalid": "Correct the value that the message names.",
    "does not exist": "Correct --context; `kubectl config get-contexts` lists them.",
}
"""The fix for each message of kubectl."""
_ITS_LOG = re.compile(r"[EWI]\d{4} |Warning: ")
Document = dict[str, Any]


class KubectlFailed(TailraceError):
    """kubectl is missing, or the cluster did not do what it was asked."""

    usual_fix = "See whether `kubectl cluster-info` works."


@dataclass(frozen=True)
class Cluster:
    namespace: str | None
    """None: the context's."""
    context: str | None
    """None: the kubeconfig's current one."""

    def documents(self, everywhere: bool = False) -> tuple[list[Document], list[Document]]:
        """All Replicators and all SnapshotRequests of the namespace, or of all namespaces, in one question."""
        scope = ["--all-namespaces"] if everywhere else []
        items = self._json("get", f"{REPLICATORS},{REQUESTS}", *scope)["items"]
        kinds = [[item for item in items if item["kind"] == kind] for kind in KINDS.values()]
        return kinds[0], kinds[1]

    def find(self, resource: str, name: str) -> Document:
        """Raises `InvalidManifest` with the names that exist."""
        items = self._json("get", resource)["items"]
        return named(items, name, KINDS[resource])

    def get(self, resource: str, name: str) -> Document:
        """With who set which of its fields."""
        return self._json("get", resource, name, "--show-managed-fields")

    def would_apply(self, document: Document, *way: str) -> Document:
        """The document that `kubectl apply` would store; nothing is stored."""
        return self._json("apply", "--dry-run=server", *way, "-f", "-", stdin=json.dumps(document, default=str))

    def create(self, document: Document) -> Document:
        return self._json("create", "-f", "-", stdin=json.dumps(document))

    def patch(self, resource: str, name: str, change: Document) -> Document:
        return self._json("patch", resource, name, "--type=merge", "-p", json.dumps(change))

    def in_driver(self, replicator: str, *command: str, stdin: bytes | None = None) -> int:
        """Runs it there, with this process's output. Returns its exit code."""
        attached = [] if stdin is None else ["-i"]
        with _kubectl_named():
            full = self._command(*self._exec(replicator, command, *attached))
            return subprocess.run(full, input=stdin, check=False).returncode

    def from_driver(self, replicator: str, *command: str) -> str:
        """The output of a command in the driver's pod."""
        return self._call(*self._exec(replicator, command))

    @contextmanager
    def driver_log(self, replicator: str, *options: str) -> Iterator[Iterator[str]]:
        """Lines of the driver's log. Raises `KubectlFailed` when kubectl ends with a complaint of its own."""
        command = self._command("logs", f"{replicator}-driver-0", "-c", CONTAINER, *options)
        with _kubectl_named():
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace")
        assert process.stdout is not None and process.stderr is not None
        with process:
            try:
                yield iter(process.stdout)
                said = process.stderr.read()
                if process.wait():
                    _refuse(said, "logs")
            finally:
                process.kill()

    def _exec(self, replicator: str, command: Sequence[str], *options: str) -> list[str]:
        return ["exec", *options, f"{replicator}-driver-0", "-c", CONTAINER, "--", *command]

    def _command(self, *arguments: str) -> list[str]:
        place = ["--context", self.context] if self.context is not None else []
        place += ["--namespace", self.namespace] if self.namespace is not None else []
        return ["kubectl", *place, *arguments]

    def _json(self, *arguments: str, stdin: str | None = None) -> Document:
        verb, *rest = arguments
        limit = f"--request-timeout={ANSWER_SECONDS}s"
        answer = json.loads(self._call(verb, *rest, "-o", "json", limit, stdin=stdin))
        assert isinstance(answer, dict)
        return answer

    def _call(self, *arguments: str, stdin: str | None = None) -> str:
        with _kubectl_named():
            done = subprocess.run(
                self._command(*arguments), input=stdin, capture_output=True, check=False, text=True, errors="replace"
            )
        if done.returncode:
            _refuse(done.stderr, arguments[0])
        return done.stdout


def named(items: Sequence[Document], name: str, kind: str) -> Document:
    found = [item for item in items if item["metadata"]["name"] == name]
    if found:
        return found[0]
    names = ", ".join(sorted(item["metadata"]["name"] for item in items)) or "none"
    raise InvalidManifest(f"there is no {kind} {name!r} (found: {names})", "Correct the name, or choose -n.")


@contextmanager
def _kubectl_named() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise KubectlFailed("the program kubectl is missing", "Install kubectl, and put it into PATH.") from error


def _refuse(said: str, verb: str) -> NoReturn:
    lines = [line.strip() for line in said.splitlines() if line.strip() and not _ITS_LOG.match(line)]
    text = " ".join(lines).removeprefix("error: ").removeprefix("Error from server ")
    text = text or f"kubectl {verb} failed without a message"
    fix = next((fix for part, fix in FIXES.items() if part in text), "")
    raise KubectlFailed(text, fix)
