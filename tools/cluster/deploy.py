"""A cluster to work with: kubectl, Helm, the operator's chart, and the way to a pod's port.

`Cluster.own(name)` is a one-node cluster of this machine (`node.py`), `Cluster.given(path)` any other one. Used by
`make cluster` and by the tests on whole clusters.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from . import images, places, workload
from .node import Node, Say
from .signs_of_life import signs_of_life
from .workload import Document

CHART = images.ROOT / "charts" / "tailrace"
OPERATOR_NAMESPACE = "tailrace"
UNREACHED = "TLS handshake timeout"
"""Part of what kubectl says where a busy API server did not answer in time, so that nothing was asked of it."""
TRIES = 4
"""Times that such a command is run."""


class CommandFailed(Exception):
    """kubectl or helm refused; the message is theirs."""


def waiting_reasons(pods: Sequence[Document]) -> list[str]:
    """Why containers do not start, as the kubelet tells it: `helm --wait` only says that time was up."""
    found = []
    for pod in pods:
        name, status = pod["metadata"]["name"], pod.get("status", {})
        for container in status.get("containerStatuses", []):
            waiting = container.get("state", {}).get("waiting")
            if waiting:
                said = f"{waiting.get('reason')}: {waiting.get('message', '')}".rstrip(": ")
                found.append(f"pod {name}, image {container['image']}: {said}")
        # Not placed, or evicted again: for want of memory or disk, say.
        unplaced = [c for c in status.get("conditions", []) if c["type"] == "PodScheduled" and c["status"] == "False"]
        for one in (status, *unplaced):
            if "reason" in one and "message" in one:
                found.append(f"pod {name}: {one['reason']}: {one['message']}")
    if any("Image" in line for line in found):
        found.append("The cluster must have the images: `docker build` (Dockerfile), then `kind load docker-image`.")
    return found


@dataclass(frozen=True)
class Cluster:
    kubeconfig: Path
    node: Node | None
    """None: somebody else's cluster."""

    @classmethod
    def own(cls, name: str) -> Self:
        node = Node(name)
        return cls(node.kubeconfig, node)

    @classmethod
    def given(cls, kubeconfig: Path) -> Self:
        return cls(kubeconfig, None)

    def up(self, say: Say) -> None:
        """Images and node; a cluster that was given is only asked whether it answers."""
        if self.node is None:
            self.kubectl("get", "--raw", "/readyz")
            return
        missing = [name for name in images.NAMES if images.is_missing(name)]
        if missing:
            say(f"building images: {', '.join(missing)} (5 minutes on two idle cores, longer on busy ones)")
        for name in missing:
            say(f"building image {images.NAMES[name]}")
            with signs_of_life(f"building image {images.NAMES[name]}", say):
                images.build(name)
            say(f"image {images.NAMES[name]} built")
        self.node.up(say)
        images.load(self.node.ctr, ("operator", "spark"))
        say("images loaded")
        self.node.wait_for_names()
        say("names resolve")

    def install(self, *values: str) -> None:
        """The chart, until the operator is ready; `values` as of `helm --set`."""
        chosen = [f"image.repository={_repository('operator')}", f"sparkImage.repository={_repository('spark')}"]
        if self.node is None:
            chosen = []  # the cluster has, or can pull, the images that the chart names
        settings = [part for value in (*chosen, *values) for part in ("--set", value)]
        where = ("--namespace", OPERATOR_NAMESPACE, "--create-namespace")
        with self._reasons(OPERATOR_NAMESPACE):
            self.helm("upgrade", "--install", "tailrace", str(CHART), *where, *settings, "--wait", "--timeout", "3m")

    @contextmanager
    def _reasons(self, space: str) -> Iterator[None]:
        try:
            yield
        except CommandFailed as error:
            raise CommandFailed("\n".join((str(error), *waiting_reasons(self.objects(space, "pods"))))) from error

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True, timeout: float = 180) -> str:
        return self._run([str(places.program("kubectl")), *arguments], stdin, check, timeout)

    def helm(self, *arguments: str) -> str:
        return self._run([str(places.helm()), *arguments], "", True, 300)

    def apply(self, *documents: Document) -> None:
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def get(self, space: str, kind: str, name: str) -> Document | None:
        """The object; None: there is none."""
        said = self.kubectl("-n", space, "get", kind, name, "-o", "json", "--ignore-not-found")
        found: Document | None = json.loads(said) if said.strip() else None
        return found

    def objects(self, space: str, kind: str, *selector: str) -> list[Document]:
        said = self.kubectl("-n", space, "get", kind, "-o", "json", *selector)
        found: list[Document] = json.loads(said)["items"]
        return found

    def prepare(self, space: str, password: str) -> None:
        """A namespace with PostgreSQL (`shop-db`), its Secret and a volume (`shop-data`)."""
        self._not_foreign(space)
        if self.node is not None:
            folder = workload.volume_folder(self.node, space)
            folder.mkdir(parents=True, exist_ok=True)
            os.chown(folder, workload.USER, workload.USER)
            disk = self.get(space, "persistentvolume", f"{space}-shop-data")
            if disk is not None and disk["status"].get("phase") == "Released":  # its claim was deleted
                self.kubectl("delete", "persistentvolume", disk["metadata"]["name"])
        self.apply(
            workload.namespace(space),
            workload.secret("shop-db", space, password=password),
            *workload.volume(space, self.node),
            *workload.postgres(space, self.node),
        )
        self.rolled_out(space, "deployment/shop-db")

    def rolled_out(self, space: str, what: str) -> None:
        """Wait until all pods of a Deployment or StatefulSet are ready."""
        with self._reasons(space):
            self.kubectl("-n", space, "rollout", "status", what, "--timeout=170s")

    def forget(self, space: str) -> None:
        """Remove the namespace and its volume, if they are there."""
        self._not_foreign(space)
        self.kubectl("delete", "namespace", space, "--ignore-not-found", "--timeout=170s")
        if self.node is not None:
            self.kubectl("delete", "persistentvolume", f"{space}-shop-data", "--ignore-not-found", "--timeout=60s")
            shutil.rmtree(workload.volume_folder(self.node, space), ignore_errors=True)

    def _not_foreign(self, space: str) -> None:
        """Refuses a namespace with foreign work: a cluster that was given may have one of this name."""
        found = self.get("default", "namespace", space) if self.node is None else None
        if found is not None and not workload.OURS.items() <= found["metadata"].get("labels", {}).items():
            raise CommandFailed(f"namespace {space} of this cluster was not made by `make cluster`: it is left alone")

    @contextmanager
    def port(self, space: str, service: str, port: int) -> Iterator[int]:
        """A port on this machine's loopback that leads to the Service, as long as the block lasts."""
        if self.node is not None:
            found = self.get(space, "service", service)
            if found is None:
                raise CommandFailed(f"no service {service} in {space}")
            with self.node.lend(found["spec"]["clusterIP"], port) as local:
                # A ready pod is not yet one that the node's rules lead to.
                wait_for(f"an answer of service {service} in {space}", 60, lambda: _stays_open(local))
                yield local
            return
        command = [str(places.program("kubectl")), "-n", space, "port-forward", f"service/{service}", f":{port}"]
        with subprocess.Popen(command, env=self._environment(), stdout=subprocess.PIPE, text=True) as process:
            first = process.stdout.readline() if process.stdout else ""
            named = re.search(r"127\.0\.0\.1:(\d+)", first)
            try:
                if named is None:
                    raise CommandFailed(f"kubectl port-forward said {first!r}")
                yield int(named.group(1))
            finally:
                process.kill()

    def down(self) -> None:
        """An own cluster is removed; from a given one, what `up` and `install` brought."""
        if self.node is not None:
            self.node.down()
            return
        self.helm("uninstall", "tailrace", "--namespace", OPERATOR_NAMESPACE, "--ignore-not-found", "--wait")

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def _run(self, command: Sequence[str], stdin: str, check: bool, timeout: float) -> str:
        for tries in range(TRIES):
            time.sleep(2 * tries)
            done = subprocess.run(
                command,
                env=self._environment(),
                input=stdin,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout,
            )
            if not done.returncode or UNREACHED not in done.stderr:
                break
        if check and done.returncode:
            raise CommandFailed(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr.strip()[-3000:]}")
        return done.stdout


def condition(document: Document | None, kind: str) -> str:
    """Status of a condition: `True`, `False`, `Unknown`, or empty."""
    return _condition(document, kind, "status")


def message(document: Document | None, kind: str) -> str:
    """Message of a condition, or empty."""
    return _condition(document, kind, "message")


def _condition(document: Document | None, kind: str, field: str) -> str:
    conditions: list[dict[str, Any]] = ((document or {}).get("status") or {}).get("conditions") or []
    return next((str(one.get(field, "")) for one in conditions if one["type"] == kind), "")


def wait_for(what: str, seconds: float, check: Callable[[], bool], pause: float = 0.5) -> None:
    """Until `check()`; raises with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(pause)


def _stays_open(port: int) -> bool:
    """True if something answers at the other end: a forwarder that finds nothing hangs up at once."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as probe:
            probe.settimeout(0.5)
            return probe.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


def _repository(name: str) -> str:
    return images.NAMES[name].rpartition(":")[0]
