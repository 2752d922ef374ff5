"""A real Kubernetes API for tests: etcd and kube-apiserver on loopback, without nodes.

What a cluster's API decides is real: schemas, defaults, pruning, CEL, conflicts, watches, server-side apply, access
rules. Nothing runs pods, and nothing makes service accounts, unless `controllers=True` starts the controller-manager
(it deletes children with their owner and rolls StatefulSets as far as pods without nodes go).
"""

import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

import yaml
from kubernetes import client, config

from cluster import places
from cluster.control import ControlPlane
from demo.ports import free_ports
from support.process import Program


class KubeApi:
    """`kubeconfig`, `client()`, `kubectl(…)`; `stop()`/`start()` keep the data, `rest()`/`go_on()` the processes."""

    def __init__(self, folder: Path, *, controllers: bool = False) -> None:
        api, etcd, peer, manager = free_ports(4)
        self.plane = ControlPlane(folder, "127.0.0.1", api, etcd, peer, manager_port=manager)
        self.plane.certificates()
        self.kubeconfig = self.plane.pki / "admin.conf"
        self._controllers = controllers
        self._processes: dict[str, Program] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._launch("etcd", self.plane.etcd())
        self._launch("api-server", self.plane.api_server())
        self._wait("api-server", "/readyz")
        if self._controllers:
            # Nodes here have no kubelet: this controller would call them lost after a minute, and their pods not ready.
            without = ("--controllers", "*,-node-lifecycle-controller")
            self._launch("controller-manager", [*self.plane.controller_manager(), *without])
            self._wait("controller-manager", "/api/v1/namespaces/default/serviceaccounts/default")

    def stop(self) -> None:
        """End everything. Killed: a graceful API server waits up to a minute for its watches."""
        for process in reversed(self._processes.values()):
            process.kill()
        self._processes.clear()

    def stop_api_server(self) -> None:
        self._processes.pop("api-server").kill()

    def start_api_server(self) -> None:
        """On the same port, with the same data."""
        self._launch("api-server", self.plane.api_server())
        self._wait("api-server", "/readyz")

    def freeze(self) -> None:
        """The API server keeps its connections and answers nothing."""
        self._processes["api-server"].process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._processes["api-server"].process.send_signal(signal.SIGCONT)

    @property
    def programs(self) -> list[Program]:
        return list(self._processes.values())

    def rest(self) -> None:
        """All stand still: idle ones take 2.4 % of a core."""
        for program in reversed(self._processes.values()):
            program.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        for program in self._processes.values():
            program.process.send_signal(signal.SIGCONT)
        self._wait("api-server", "/readyz")

    def client(self) -> client.ApiClient:
        """A client of the administrator; the caller closes it, or uses it as a context manager."""
        made: client.ApiClient = config.new_client_from_config(str(self.kubeconfig))  # type: ignore[no-untyped-call]  # untyped in kubernetes
        return made

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """What kubectl prints; with `check` off, its refusals too."""
        command = [str(places.program("kubectl")), "--kubeconfig", str(self.kubeconfig), *arguments]
        # Its own idea of what is served: in the home folder it would outlive this server, and be believed of the next.
        environment = {**os.environ, "KUBECACHEDIR": str(self.plane.folder / "kubectl")}
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, timeout=60, env=environment
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return done.stdout if check else done.stdout + done.stderr

    def apply(self, *documents: dict[str, Any]) -> str:
        return self.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def answers(self, path: str) -> bool:
        """Whether a GET by the administrator succeeds."""
        context = ssl.create_default_context(cafile=str(self.plane.pki / "ca.crt"))
        context.load_cert_chain(self.plane.pki / "admin.crt", self.plane.pki / "admin.key")
        try:
            with urllib.request.urlopen(self.plane.server + path, context=context, timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def _launch(self, name: str, command: list[str]) -> None:
        # The kernel ends the servers with the test process, however that ends.
        kept = ["setpriv", "--pdeathsig", "KILL", *command]
        self._processes[name] = Program.start(kept, self.plane.folder / f"{name}.log")

    def _wait(self, name: str, path: str) -> None:
        """Until it has done what makes the API answer to a GET of `path`."""
        self._processes[name].until(lambda: self.answers(path), 120, f"start of {name}", pause=0.1)


def now() -> str:
    """As Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
