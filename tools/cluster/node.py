"""One whole node: a network namespace, the control plane, containerd, kubelet, kube-proxy and the cluster's DNS.

`up()` leaves alone what runs already; `down()` ends everything by pid and removes the namespace and the files. All of
it needs root. `forward.py` lends the API server's port to this machine's loopback, so that nobody else has to enter
the namespace.
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import cgroups, debian, images, node_files, places
from .control import SERVICE_RANGE, ControlPlane
from .node_files import NODE, NODE_ADDRESS, POD_RANGE
from .services import Services

Say = Callable[[str], None]
IN_ORDER_OF_END = ("forward", "kubelet", "kube-proxy")
LENT = "lent-"
"""How the names of processes begin that lend a port for a while; the owner's process id follows."""


@dataclass(frozen=True)
class Node:
    """A cluster of one node, by name: several may run at the same time."""

    name: str

    @property
    def state(self) -> Path:
        return places.cluster_dir(self.name)

    @property
    def namespace(self) -> Path:
        return Path("/var/run/netns") / f"tailrace-{self.name}"

    @property
    def cgroup(self) -> str:
        """The pods' cgroups lie below it: kubelets that share one clear away each other's pods."""
        return f"tailrace-{self.name}"

    @property
    def plane(self) -> ControlPlane:
        return ControlPlane(self.state, NODE_ADDRESS, 6443, 2379, 2380, kubelets=True)

    @property
    def kubeconfig(self) -> Path:
        """The configuration for use from outside the namespace."""
        return self.state / "kubeconfig"

    @property
    def services(self) -> Services:
        prefix = ("nsenter", f"--net={self.namespace}")
        return Services(self.state / "services", prefix, debian.environment(os.environ))

    def inside(self, *command: str, check: bool = True, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in the namespace, as administrator of the cluster."""
        environment = {**self.services.environment, "KUBECONFIG": str(self.plane.pki / "admin.conf")}
        return _run([*self.services.prefix, *command], environment, check=check, stdin=stdin)

    def ready(self) -> bool:
        """True if the node reports that it is ready."""
        path = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
        if not self.namespace.exists() or not (self.plane.pki / "admin.conf").exists():
            return False
        return self.inside("kubectl", "get", "node", NODE, "-o", path, check=False).stdout == "True"

    def up(self, say: Say) -> None:
        """Until the node is Ready and names resolve."""
        if os.geteuid() != 0:
            raise PermissionError("a node of its own needs root (sudo make cluster), or set KUBECONFIG to a cluster")
        self._network()
        self._control_plane()
        say("API server answers")
        self._runtime()
        images.load(self.ctr, ("pause", "coredns"))
        self._kubelet()
        say("node Ready")
        self.inside("kubectl", "apply", "-f", "-", stdin=node_files.COREDNS)
        self._forward()

    def wait_for_names(self) -> None:
        self.inside("kubectl", "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")

    def _network(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        if not self.namespace.exists():
            _run(["ip", "netns", "add", self.namespace.name])
        link = "ip link show node >/dev/null 2>&1 || { ip link add node type bridge && "
        link += f"ip address add {NODE_ADDRESS}/32 dev node && ip link set node up; }}"
        # A packet to an unknown place must get an answer: refused, not lost. One to a Service needs a route of any kind
        # before kube-proxy's rules give it another address.
        route = f"ip route replace {SERVICE_RANGE} dev node && ip route replace unreachable default metric 9999"
        forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        _run([*self.services.prefix, "sh", "-ec", f"ip link set lo up; {link}; {route}; {forward}"])

    def _control_plane(self) -> None:
        plane, services = self.plane, self.services
        authority = plane.certificates()
        authority.server("kubelet-server", NODE, (f"DNS:{NODE}", f"IP:{NODE_ADDRESS}"))
        authority.client("kubelet", f"system:node:{NODE}", "system:nodes")
        authority.client("proxy", "system:kube-proxy")
        for name in ("kubelet", "proxy"):
            authority.kubeconfig(name, plane.server)
        plane.write_audit_policy()
        services.start("etcd", plane.etcd())
        services.start("api-server", plane.api_server())
        ready = ("kubectl", "get", "--raw", "/readyz")
        services.wait("API server", lambda: not self.inside(*ready, check=False).returncode, 180, "api-server")
        services.start("controller-manager", plane.controller_manager())
        services.start("scheduler", plane.scheduler())
        account = ("kubectl", "get", "serviceaccount", "default")
        services.wait(
            "service accounts", lambda: not self.inside(*account, check=False).returncode, 120, "controller-manager"
        )

    def _runtime(self) -> None:
        (self.state / "cni").mkdir(exist_ok=True)
        (self.state / "cni" / "10-pods.conflist").write_text(node_files.cni(self.state))
        programs = places.node_tools_dir() / "usr" / "lib" / "cni"
        (self.state / "containerd.toml").write_text(node_files.containerd(self.state, programs))
        (self.state / "resolv.conf").write_text("")  # pods get the cluster's names and no others
        self.services.start("containerd", ["containerd", "--config", str(self.state / "containerd.toml")])
        self.services.wait("containerd", lambda: not self.ctr("version", check=False).returncode, 60, "containerd")

    def _kubelet(self) -> None:
        cgroups.make(self.cgroup)
        (self.state / "kubelet.json").write_text(node_files.kubelet(self.state, self.cgroup))
        self.services.start(
            "kube-proxy",
            [
                *("kube-proxy", "--kubeconfig", f"{self.plane.pki}/proxy.conf", "--hostname-override", NODE),
                *("--proxy-mode", "iptables", "--cluster-cidr", POD_RANGE, "--conntrack-max-per-core", "0"),
                *("--iptables-localhost-nodeports=false", "--healthz-bind-address", "127.0.0.1:10256"),
                *("--metrics-bind-address", "127.0.0.1:10249"),
            ],
        )
        kubelet = [
            *("kubelet", "--config", f"{self.state}/kubelet.json", "--kubeconfig", f"{self.plane.pki}/kubelet.conf"),
            *("--root-dir", f"{self.state}/kubelet", "--cert-dir", f"{self.plane.pki}/kubelet"),
            *("--hostname-override", NODE, "--node-ip", NODE_ADDRESS),
        ]

        def ready() -> bool:
            # containerd answers before its part for Kubernetes does, and a kubelet that meets it then ends.
            self.services.start("kubelet", kubelet)
            return self.ready()

        self.services.wait("node Ready", ready, 180, "kubelet")

    def _forward(self) -> None:
        """`kubeconfig` names a port of this machine's loopback; the certificate holds for it."""
        if self.services.alive("forward"):
            return
        port = self._start_forward("forward", NODE_ADDRESS, self.plane.api_port)
        text = (self.plane.pki / "admin.conf").read_text().replace(self.plane.server, f"https://127.0.0.1:{port}")
        self.kubeconfig.write_text(text)
        self.kubeconfig.chmod(0o600)

    @contextmanager
    def lend(self, host: str, port: int) -> Iterator[int]:
        """A port on this machine's loopback that leads to an address of the cluster, as long as the block lasts."""
        self._end_lent(lambda owner: not Path(f"/proc/{owner}").exists())  # of processes that were killed
        name = f"{LENT}{os.getpid()}-{secrets.token_hex(4)}"  # the same address may be lent several times at once
        try:
            yield self._start_forward(name, host, port)
        finally:
            self.services.stop(name)
            (self.services.folder / f"{name}.log").unlink(missing_ok=True)

    def _end_lent(self, ends: Callable[[str], bool]) -> None:
        """Ends the nodes whose owner's process id `ends` accepts."""
        for file in self.services.folder.glob(f"{LENT}*.pid"):
            if ends(file.stem.split("-")[1]):
                self.services.stop(file.stem)
                file.with_suffix(".log").unlink(missing_ok=True)

    def _start_forward(self, name: str, host: str, port: int) -> int:
        with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
            script = str(Path(__file__).with_name("forward.py"))
            arguments = (str(listener.fileno()), str(self.namespace), host, str(port))
            outside = Services(self.services.folder, (), self.services.environment)
            outside.stop(name)
            outside.start(name, [sys.executable, "-I", script, *arguments], keep=(listener.fileno(),))
            return int(listener.getsockname()[1])

    def ctr(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """containerd's own client, in the kubelet's name space of images and containers."""
        return self.inside("ctr", "-a", f"{self.state}/containerd.sock", "-n", "k8s.io", *arguments, check=check)

    def down(self) -> None:
        """End and remove everything; what is not there is passed over."""
        self._end_lent(lambda _: True)
        for name in IN_ORDER_OF_END:
            self.services.stop(name, patience=2)
        if self.services.alive("containerd"):
            self._end_containers()
        # A graceful API server waits up to a minute for its watches.
        for name in ("scheduler", "controller-manager", "api-server"):
            self.services.stop(name)
        for name in ("etcd", "containerd"):
            self.services.stop(name, patience=5)
        self._unmount()
        if self.namespace.exists():
            _run(["ip", "netns", "delete", self.namespace.name])
        for link in Path("/var/log/containers").glob("*.log"):
            if link.is_symlink() and str(link.readlink()).startswith(str(self.state)):
                link.unlink()
        cgroups.remove(self.cgroup)
        if self.state.exists():
            shutil.rmtree(self.state)

    def _end_containers(self) -> None:
        for task in self.ctr("tasks", "ls", "-q", check=False).stdout.split():
            self.ctr("tasks", "kill", "-s", "SIGKILL", task, check=False)
        time.sleep(0.5)
        for task in self.ctr("tasks", "ls", "-q", check=False).stdout.split():
            self.ctr("tasks", "rm", "-f", task, check=False)
        for container in self.ctr("containers", "ls", "-q", check=False).stdout.split():
            self.ctr("containers", "rm", container, check=False)

    def _unmount(self) -> None:
        """Unmounts what kubelet, containerd and CNI would have unmounted; the last mount first."""
        inside = f"{self.state}/"
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for path in reversed([mount for mount in mounts if mount.startswith(inside)]):
            _run(["umount", "-l", path], check=False)


def _run(
    command: Sequence[str], environment: dict[str, str] | None = None, *, check: bool = True, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, input=stdin or "")
    if check and done.returncode:
        said = (done.stderr or done.stdout)[-2000:]
        raise RuntimeError(f"`{' '.join(command)}` ended with {done.returncode}: {said}")
    return done
