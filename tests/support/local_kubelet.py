"""Runs the pods of drivers and clean-ups as processes of this machine: what a kubelet does, for an API server with
controllers and without nodes.

The container is the real `tailrace` command with the pod's own arguments, environment and files; only paths and the
port's address are this machine's. A pod's folder is its file system: it goes with the pod, not with the container.
"""

import base64
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil
from kubernetes import client

from support.kube import KubeApi, now
from support.process import Program, tail
from support.proof.process import ENVIRONMENT, TAILRACE
from tailrace.contract.faults import TERMINATION_VARIABLE
from tailrace.contract.pod_template import CONTAINER
from tailrace.spark.artifacts import cache_dir
from tailrace_operator.resources.names import HTTP_PORT

NODE = "local"
TURN_SECONDS = 0.3
RESTART_SECONDS = 2.0
"""A container that ended is started again after this, in a pod that restarts it."""
MESSAGE_BYTES = 2048
Json = dict[str, Any]


@dataclass
class LocalPod:
    """A pod that this kubelet knows, and its one container."""

    document: Json
    folder: Path
    process: Program | None = None
    restarts: int = 0
    ended: Json | None = None
    """The newest end of the container."""
    ended_at: float = 0.0
    told: set[str] = field(default_factory=set)
    temporary: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="tailrace-pod-")))
    """Short: the address of capture's socket has at most 107 bytes."""

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def root(self) -> Path:
        """The container's file system, as far as volumes are mounted in it."""
        return self.folder / "root"

    @property
    def words(self) -> Path:
        return self.folder / "termination-log"

    @property
    def log(self) -> Path:
        return self.folder / f"container-{self.restarts}.log"

    def family(self) -> list[psutil.Process]:
        """Every process of the pod, also one that has lost its parent: all have the pod's folder in their command."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            if any(str(self.folder) in argument for argument in process.info["cmdline"] or ()):
                found.append(process)
        return found

    def kill(self) -> None:
        processes = self.family()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=20)
        if self.process is not None:
            self.process.wait(20)
        shutil.rmtree(self.temporary, ignore_errors=True)


class LocalKubelet:
    """A node that takes every pod of one namespace. Claims are folders of this machine: their mount paths are its own.
    `pods` has what ran, the newest last."""

    def __init__(self, kube: KubeApi, namespace: str, folder: Path, ip: str) -> None:
        self._kube, self._namespace, self._folder, self._ip = kube, namespace, folder, ip
        self._client: Any = kube.client()
        self._core: Any = client.CoreV1Api(self._client)
        self._known: dict[str, LocalPod] = {}
        self.pods: list[LocalPod] = []
        self.images: dict[str, Path] = {}
        """Checkouts whose code is in these images; in all others is the code that the tests import."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._kube.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._end.set()
        self._thread.join(60)
        for pod in self._known.values():
            pod.kill()
        self._client.close()
        assert self.error is None or error is not None, self.error

    def told(self) -> str:
        """The newest lines of every container, for whoever looks into a test that failed."""
        logs = [log for pod in self.pods for log in sorted(pod.folder.glob("container-*.log"))]
        return "\n".join(f"--- {log.parent.name}/{log.name}\n{tail(log, 3000)}" for log in logs)

    def _run(self) -> None:
        while not self._end.wait(TURN_SECONDS):
            try:
                self._turn()
            except client.ApiException as error:
                if error.status not in (404, 409) and not self._end.is_set():
                    self.error = error
            except Exception as error:
                self.error = error
                raise

    def _turn(self) -> None:
        listed = self._client.sanitize_for_serialization(self._core.list_namespaced_pod(self._namespace))["items"]
        there = {document["metadata"]["uid"]: document for document in listed}
        for uid in set(self._known) - set(there):  # by force: nobody waited for its end
            self._known.pop(uid).kill()
        for uid, document in there.items():
            pod = self._known.get(uid)
            if pod is None and self._free(document):
                pod = self._known[uid] = self._take(uid, document)
            if pod is not None:
                self._look_after(uid, pod, "deletionTimestamp" in document["metadata"])

    def _free(self, document: Json) -> bool:
        """Of two drivers the older one has the address until it has ended."""
        component = document["metadata"]["labels"].get("app.kubernetes.io/component")
        drivers = [p for p in self._known.values() if p.process is not None and p.process.poll() is None]
        return "deletionTimestamp" not in document["metadata"] and (component != "driver" or not drivers)

    def _take(self, uid: str, document: Json) -> LocalPod:
        pod = LocalPod(document, self._folder / f"pod-{uid}")
        pod.folder.mkdir()
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name}, "target": target}
        self._core.create_namespaced_binding(self._namespace, binding, _preload_content=False)
        self.pods.append(pod)
        return pod

    def _look_after(self, uid: str, pod: LocalPod, deleted: bool) -> None:
        alive = pod.process is not None and pod.process.poll() is None
        if deleted and alive:
            assert pod.process is not None
            if "TERM" not in pod.told:
                pod.told.add("TERM")
                pod.process.process.terminate()
        elif deleted:
            pod.kill()
            self._core.delete_namespaced_pod(pod.name, self._namespace, grace_period_seconds=0)
            self._known.pop(uid)
        elif pod.process is None:
            self._start(pod)
        elif not alive and "end" not in pod.told:
            pod.told.add("end")
            self._tell_end(pod)
        elif not alive and self._restarts(pod) and time.monotonic() - pod.ended_at > RESTART_SECONDS:
            pod.told.discard("end")
            pod.restarts += 1
            self._start(pod)

    def _restarts(self, pod: LocalPod) -> bool:
        return str(pod.document["spec"].get("restartPolicy", "Always")) == "Always"

    # ---- the container ----

    def _start(self, pod: LocalPod) -> None:
        spec = pod.document["spec"]
        container = spec["containers"][0]
        mounts = self._mount(pod, spec.get("volumes", ()), container.get("volumeMounts", ()))
        pod.words.unlink(missing_ok=True)
        arguments = [_placed(argument, pod.root, mounts) for argument in container["args"]]
        arguments = [argument.replace(f"0.0.0.0:{HTTP_PORT}", f"{self._ip}:{HTTP_PORT}") for argument in arguments]
        given = {e["name"]: _placed(self._value(pod, e), pod.root, mounts) for e in container.get("env", ())}
        own = {"TMPDIR": str(pod.temporary), TERMINATION_VARIABLE: str(pod.words), "TAILRACE_CACHE": str(cache_dir())}
        # The folder's name is in every command line of the pod, by which `family` finds its processes.
        command = [*TAILRACE, *arguments[1:], "--run-dir", str(pod.folder / "run")]
        tree = self.images.get(container["image"])
        code = {"PYTHONPATH": f"{tree}/spark_app"} if tree is not None else {}
        pod.process = Program.start(command, pod.log, env=ENVIRONMENT | code | given | own, cwd=pod.folder)
        self._tell(pod, "Running", {"running": {"startedAt": now()}}, ready=True)

    def _value(self, pod: LocalPod, entry: Json) -> str:
        if "value" in entry or "valueFrom" not in entry:
            return str(entry.get("value", ""))
        path = entry["valueFrom"]["fieldRef"]["fieldPath"]
        fields = {"status.podIP": self._ip, "metadata.name": pod.name, "metadata.namespace": self._namespace}
        return str(fields[path])

    def _mount(self, pod: LocalPod, volumes: list[Json], mounts: list[Json]) -> list[str]:
        """The mount paths that are below the pod's root."""
        found, by_name = [], {volume["name"]: volume for volume in volumes}
        for mount in mounts:
            volume, place = by_name[mount["name"]], Path(f"{pod.root}{mount['mountPath']}")
            if "persistentVolumeClaim" in volume:
                continue
            if "secret" in volume:
                secret = self._core.read_namespaced_secret(volume["secret"]["secretName"], self._namespace)
                _write(place, {key: base64.b64decode(value) for key, value in (secret.data or {}).items()})
            elif "configMap" in volume:
                config = self._core.read_namespaced_config_map(volume["configMap"]["name"], self._namespace)
                _write(place, {key: value.encode() for key, value in (config.data or {}).items()})
            else:
                place.mkdir(parents=True, exist_ok=True)
            found.append(mount["mountPath"])
        return found

    def _tell_end(self, pod: LocalPod) -> None:
        assert pod.process is not None
        code = pod.process.wait(1)
        words = pod.words.read_text() if pod.words.exists() else ""
        if not words and code:
            words = pod.process.tail(MESSAGE_BYTES)
        reason = "Completed" if code == 0 else "Error"
        terminated = {"exitCode": code if code >= 0 else 128 - code, "reason": reason, "message": words}
        pod.ended, pod.ended_at = {**terminated, "startedAt": now(), "finishedAt": now()}, time.monotonic()
        phase = "Running" if self._restarts(pod) else "Failed" if code else "Succeeded"
        self._tell(pod, phase, {"terminated": pod.ended}, ready=False)

    def _tell(self, pod: LocalPod, phase: str, state: Json, *, ready: bool) -> None:
        last = {"terminated": pod.ended} if pod.ended is not None and "running" in state else {}
        container = {"name": CONTAINER, "image": "local", "imageID": "", "ready": ready, "started": ready}
        truth = "True" if ready else "False"
        kinds = {"PodScheduled": "True", "Ready": truth, "ContainersReady": truth}
        status = {
            "phase": phase,
            "podIP": self._ip,
            "podIPs": [{"ip": self._ip}],
            "conditions": [{"type": kind, "status": status} for kind, status in kinds.items()],
            "containerStatuses": [{**container, "restartCount": pod.restarts, "state": state, "lastState": last}],
        }
        self._core.patch_namespaced_pod_status(pod.name, self._namespace, {"status": status})


def _placed(text: str, root: Path, mounts: list[str]) -> str:
    """A path of the container, where this machine has it; other texts as they are."""
    inside = any(f"{text}/".startswith(f"{mount}/") or mount.startswith(f"{text}/") for mount in mounts)
    return f"{root}{text}" if inside else text


def _write(folder: Path, files: dict[str, bytes]) -> None:
    """As mounted now, and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
