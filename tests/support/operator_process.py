"""The operator as a process, and what stands in for nodes where there are none.

`OperatorProcess` runs the real program against a real API. `Node` does what StatefulSet controller and kubelet would do
with a driver's pod; the pod's HTTP side is the data plane's real server on a loopback address of its own.
"""

import atexit
import base64
import json
import os
import sys
import time
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any, Self

from kubernetes import client

from demo.ports import free_port
from support.forks import Forked, Forks
from support.kube import KubeApi, now
from support.process import Program
from support.seam_names import checked
from tailrace.contract.driver import (
    CutList,
    CutReport,
    DropAnswer,
    SnapshotAnswer,
    SnapshotBody,
    SpecAnswer,
    SpecBody,
    VerificationReport,
)
from tailrace.contract.history import LastHour, TableView
from tailrace.contract.resources import DeletionPolicy
from tailrace.contract.status import SnapshotStatus, Status
from tailrace.driver.asking.server import Conflict, StatusServer, Unknown
from tailrace.errors import InvalidManifest, RewindRefused

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "registry.example/tailrace-spark:1"
Json = dict[str, Any]


@cache
def operators() -> Forks:
    """What every operator of this run is forked from: its imports take more CPU time than most tests' operators do."""
    made = Forks("support.forked_operator")
    atexit.register(made.close)
    return made


class OperatorProcess:
    """Use as a context manager; `log` has what it said so far."""

    def __init__(self, kubeconfig: Path, folder: Path, namespace: str, *flags: str, seams: str = "") -> None:
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._namespace = namespace
        self._flags = flags
        self._seams = seams
        self.identity = "operator"
        """A container that is restarted keeps its pod's name, and with it the lease."""
        self.image = IMAGE
        """Of drivers and executors, unless a spec names one."""
        self.tree = ROOT
        """The checkout whose operator this is."""
        self.timers: dict[str, float] = {}
        """Constants of this operator that a test does not wait out, such as `decide.lost_nodes.PATIENCE`: seconds."""
        self.process: Program | None = None
        self.home: str | None = None
        """The operator's own namespace; None: the one that it watches."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def start(self, seams: str | None = None) -> None:
        self.port = free_port()
        environment = {
            **os.environ,
            "KUBECONFIG": str(self._kubeconfig),
            "PYTHONPATH": f"{self.tree}/spark_app:{self.tree}/operator",
            "POD_NAME": self.identity,
            "POD_NAMESPACE": self.home or self._namespace,
            "TAILRACE_SPARK_IMAGE": self.image,
            "TAILRACE_SEAMS": checked(self._seams if seams is None else seams),
        }
        arguments = ["--namespace", self._namespace, "--listen", f"127.0.0.1:{self.port}", *self._flags]
        if self.tree == ROOT:
            forks = operators()
            pid = forks.fork("run", self.log_file, arguments, environment, str(self._folder), self.timers)
            self.process = Program(Forked(forks, pid), self.log_file)
        else:
            assert not self.timers, "another checkout's operator is no fork"
            command = [sys.executable, "-m", "tailrace_operator", *arguments]
            self.process = Program.start(command, self.log_file, env=environment, cwd=self._folder)

    @property
    def log_file(self) -> Path:
        return self._folder / "operator.log"

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def lines(self) -> list[Json]:
        """The JSON documents of the log."""
        return [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()

    def stop(self, seconds: float = 20.0) -> int:
        assert self.process is not None
        return self.process.stop(seconds)

    def get(self, path: str) -> tuple[int, str]:
        """Code and body; 0 while it does not listen."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str) -> float:
        """Sum over the metric's samples."""
        lines = [line for line in self.get("/metrics")[1].splitlines() if line.startswith(name)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line[len(name)] in "{ ")


class DriverDouble:
    """The driver's answers, set by the test; snapshots behave as the contract says. Served by the real server."""

    def __init__(self, name: str, ip: str, token: str) -> None:
        now = time.time()
        self.document = Status(
            name=name, state="Running", started_at=now, updated_at=now, tables_total=2, tables_replicating=2
        )
        self.specs: list[SpecBody] = []
        self.bodies: dict[str, SnapshotBody] = {}
        self.snapshots: dict[str, SnapshotStatus] = {}
        self.asked: list[str] = []
        self.looks = 0
        """The number of questions for its status."""
        self.dropped = DropAnswer(done=False, message="the driver finishes its work first")
        self._server = StatusServer(self, ip, 8090, token)
        self._server.start()

    def close(self) -> None:
        self._server.close()

    def change_spec(self, body: SpecBody) -> SpecAnswer:
        self.specs.append(body)
        self.document = self.document.model_copy(update={"generation": body.generation})
        return SpecAnswer(changed=())

    def status(self) -> Status:
        self.looks += 1
        return self.document.model_copy(update={"snapshots": tuple(self.snapshots.values()), "updated_at": time.time()})

    def history(self) -> LastHour:
        return LastHour(step_seconds=10)

    def table(self, name: str) -> TableView:
        raise Unknown(f"no table {name!r} is captured")

    def unhealthy(self) -> str | None:
        return None

    def change(self, **update: Any) -> None:
        self.document = self.document.model_copy(update=update)

    def request(self, snapshot_id: str, body: SnapshotBody) -> SnapshotAnswer:
        self.asked.append(f"take {snapshot_id}")
        if any("nothing" in pattern for pattern in body.spec.tables):
            raise InvalidManifest(f"no table matches {body.spec.tables[0]}.", "Correct tables.")
        if body.spec.rewind is not None and not self.document.apply.suspended:
            raise RewindRefused("apply.suspend is false", "Set it to true.")
        known = self.bodies.setdefault(snapshot_id, body)
        if known.model_copy(update={"spec": body.spec}) != body:
            raise Conflict("another body", "Use another name.")
        self.snapshots.setdefault(
            snapshot_id,
            SnapshotStatus(
                id=snapshot_id, name=body.name, reason="request", state="Running", tables_total=1, rows_estimated=100
            ),
        )
        return SnapshotAnswer(id=snapshot_id, record=41 + len(self.bodies), tables=body.spec.tables)

    def cuts(self) -> CutList:
        return CutList(cuts=())

    def make_cut(self, name: str) -> CutReport:
        raise Conflict(f"no cut {name} is made here")

    def drop_cut(self, name: str) -> None:
        raise Unknown(f"there is no cut {name}")

    def report(self, snapshot_id: str) -> VerificationReport:
        raise Unknown(f"snapshot {snapshot_id} is no verification", "")

    def stop_snapshot(self, snapshot_id: str) -> None:
        self.asked.append(f"stop {snapshot_id}")
        self.let(snapshot_id, state="Stopped")

    def suspend_snapshot(self, snapshot_id: str, suspend: bool) -> None:
        self.asked.append(f"suspend {snapshot_id} {suspend}")
        self.let(snapshot_id, state="Paused" if suspend else "Running")

    def drop(self, policy: DeletionPolicy) -> DropAnswer:
        """Done when the test says so."""
        self.asked.append(f"drop {policy}")
        return self.dropped

    def let(self, snapshot_id: str, **update: Any) -> None:
        if snapshot_id not in self.snapshots:
            raise Unknown(f"no snapshot has the id {snapshot_id}.")
        self.snapshots[snapshot_id] = self.snapshots[snapshot_id].model_copy(update=update)


class Node:
    """Makes and changes drivers' pods as controllers and kubelet would."""

    def __init__(self, kube: KubeApi, namespace: str) -> None:
        self._client: Any = kube.client()
        self._core: Any = client.CoreV1Api(self._client)
        self._apps: Any = client.AppsV1Api(self._client)
        self._namespace = namespace

    def close(self) -> None:
        self._client.close()

    def stateful_set(self, name: str) -> Any:
        """None: there is none."""
        try:
            return self._apps.read_namespaced_stateful_set(f"{name}-driver", self._namespace)
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise

    def token(self, name: str) -> str:
        secret = self._core.read_namespaced_secret(f"{name}-driver", self._namespace)
        return base64.b64decode(secret.data["token"]).decode()

    def make_pod(self, name: str) -> str:
        """From the StatefulSet's template; returns the pod's uid."""
        template = self._client.sanitize_for_serialization(self.stateful_set(name).spec.template)
        template["metadata"]["name"] = f"{name}-driver-0"
        template["spec"]["nodeName"] = "node"
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        return str(self._core.create_namespaced_pod(self._namespace, pod).metadata.uid)

    def make_executor(self, name: str, why: str) -> None:
        """As Spark makes it; no node takes it, in the words of the scheduler."""
        labels = {
            "app.kubernetes.io/managed-by": "tailrace-operator",
            "app.kubernetes.io/component": "executor",
            "tailrace.dev/replicator": name,
        }
        containers = [{"name": "tailrace", "image": IMAGE}]
        metadata = {"name": f"{name}-exec-1", "labels": labels}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
        self._core.create_namespaced_pod(self._namespace, pod)
        conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}]
        status = {"phase": "Pending", "conditions": conditions}
        self._core.patch_namespaced_pod_status(f"{name}-exec-1", self._namespace, {"status": status})

    def run_executor(self, name: str) -> None:
        state = {"running": {"startedAt": now()}}
        container = {"name": "tailrace", "image": IMAGE, "imageID": "", "ready": True}
        status = {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{**container, "restartCount": 0, "state": state, "lastState": {}}],
        }
        self._core.patch_namespaced_pod_status(f"{name}-exec-1", self._namespace, {"status": status})

    def run_pod(self, name: str, ip: str, restarts: int = 0, ended: Json | None = None) -> None:
        state = {"running": {"startedAt": now()}}
        self._status(name, state, ip=ip, ready=True, restarts=restarts, last={"terminated": ended} if ended else {})

    def end_pod(self, name: str, code: int, message: str = "", restarts: int = 0) -> None:
        terminated = {"exitCode": code, "reason": "Error", "message": message, "finishedAt": now()}
        self._status(name, {"terminated": terminated}, ip=None, ready=False, restarts=restarts, last={})

    def delete_pod(self, name: str) -> None:
        self._core.delete_namespaced_pod(f"{name}-driver-0", self._namespace, grace_period_seconds=0)

    def pods(self, name: str) -> list[Any]:
        return list(
            self._core.list_namespaced_pod(self._namespace, label_selector=f"tailrace.dev/replicator={name}").items
        )

    def _status(self, name: str, state: Json, *, ip: str | None, ready: bool, restarts: int, last: Json) -> None:
        container = {
            "name": "tailrace",
            "image": IMAGE,
            "imageID": "",
            "ready": ready,
            "restartCount": restarts,
            "state": state,
            "lastState": last,
        }
        conditions = [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": now()}]
        status: Json = {"phase": "Running", "conditions": conditions, "containerStatuses": [container]}
        if ip is not None:
            status |= {"podIP": ip, "podIPs": [{"ip": ip}]}
        self._core.patch_namespaced_pod_status(f"{name}-driver-0", self._namespace, {"status": status})
