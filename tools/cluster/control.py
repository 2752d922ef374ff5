"""The control plane's command lines: etcd, API server, controller-manager, scheduler.

Pure but for the certificates. The tests' API server (`tests/support/kube.py`) runs the first two or three of them on
loopback, `node.py` all of them in the cluster's network namespace.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from . import places
from .pki import Authority

SERVICE_RANGE = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"
"""The address of the Service `kubernetes`: the first of the range."""
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}
"""The audit policy for the pods that are not the cluster's own, without contents."""


@dataclass(frozen=True)
class ControlPlane:
    """One control plane with its state in `folder`, on `address`."""

    folder: Path
    address: str
    api_port: int
    etcd_port: int
    peer_port: int
    manager_port: int = 10257
    scheduler_port: int = 10259
    kubelets: bool = False
    """True if nodes join: pods get service accounts, the API server finds kubelets and advertises its address."""

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.api_port}"

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    def certificates(self) -> Authority:
        """Make what is missing; `admin.conf` is the kubeconfig for people and tests."""
        authority = Authority(self.pki)
        names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
        hosts = [f"DNS:{name}" for name in (*names, "kubernetes.default.svc.cluster.local")]
        hosts += [f"IP:{address}" for address in sorted({"127.0.0.1", self.address, SERVICE_ADDRESS})]
        authority.server("apiserver", "kube-apiserver", hosts)
        authority.client("apiserver-kubelet", "apiserver-kubelet", "system:masters")
        authority.client("admin", "admin", "system:masters")
        authority.client("controller-manager", "system:kube-controller-manager")
        authority.client("scheduler", "system:kube-scheduler")
        for name in ("admin", "controller-manager", "scheduler"):
            authority.kubeconfig(name, self.server)
        return authority

    def etcd(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.peer_port}"
        return [
            str(places.program("etcd")),
            *("--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync", "--log-level", "warn"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
        ]

    def api_server(self) -> list[str]:
        pki = self.pki
        return [
            str(places.program("kube-apiserver")),
            *("--etcd-servers", f"http://127.0.0.1:{self.etcd_port}", "--cert-dir", str(self.folder)),
            *("--bind-address", self.address, "--secure-port", str(self.api_port)),
            *("--tls-cert-file", f"{pki}/apiserver.crt", "--tls-private-key-file", f"{pki}/apiserver.key"),
            *("--client-ca-file", f"{pki}/ca.crt", "--service-cluster-ip-range", SERVICE_RANGE),
            *("--service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
            *("--service-account-key-file", f"{pki}/sa.pub", "--service-account-signing-key-file", f"{pki}/sa.key"),
            "--allow-privileged=true",
            *(self._with_kubelets() if self.kubelets else self._alone()),
        ]

    @property
    def audit_log(self) -> Path:
        """The log of the pods' requests to the API server: a line of JSON for each answer. Only with kubelets."""
        return self.folder / "audit.log"

    def write_audit_policy(self) -> None:
        self._audit_policy.write_text(json.dumps(AUDIT_POLICY))

    @property
    def _audit_policy(self) -> Path:
        return self.folder / "audit.json"

    def _with_kubelets(self) -> list[str]:
        pki = self.pki
        return [
            *("--audit-policy-file", str(self._audit_policy), "--audit-log-path", str(self.audit_log)),
            *("--advertise-address", self.address, "--authorization-mode", "Node,RBAC"),
            *("--enable-admission-plugins", "NodeRestriction"),
            # Without this the API server asks for a node by its name, which nothing here resolves: no `kubectl logs`.
            *("--kubelet-preferred-address-types", "InternalIP", "--kubelet-certificate-authority", f"{pki}/ca.crt"),
            *("--kubelet-client-certificate", f"{pki}/apiserver-kubelet.crt"),
            *("--kubelet-client-key", f"{pki}/apiserver-kubelet.key"),
        ]

    def _alone(self) -> list[str]:
        # A loopback address is no endpoint of a Service, and nobody makes the service accounts that pods would need.
        without = ("--disable-admission-plugins", "ServiceAccount", "--endpoint-reconciler-type", "none")
        return [*without, "--advertise-address", self.address, "--authorization-mode", "RBAC"]

    def controller_manager(self) -> list[str]:
        pki = self.pki
        return [
            str(places.program("kube-controller-manager")),
            *("--kubeconfig", f"{pki}/controller-manager.conf", "--cert-dir", str(self.folder)),
            *("--bind-address", "127.0.0.1", "--secure-port", str(self.manager_port), "--leader-elect=false"),
            *("--use-service-account-credentials", "--service-account-private-key-file", f"{pki}/sa.key"),
            *("--root-ca-file", f"{pki}/ca.crt"),
        ]

    def scheduler(self) -> list[str]:
        return [
            str(places.program("kube-scheduler")),
            *("--kubeconfig", f"{self.pki}/scheduler.conf", "--cert-dir", str(self.folder)),
            *("--bind-address", "127.0.0.1", "--secure-port", str(self.scheduler_port), "--leader-elect=false"),
        ]
