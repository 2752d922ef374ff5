"""The folders of a cluster's parts, and their versions: the look-up for bootstrap, the tests and the cluster.

Standard library only, as `tailrace.spark.artifacts` (whose cache folder it shares): bootstrap imports it with the
system's Python. The versions of Kubernetes, etcd and CoreDNS are those of `programs/go.mod`, and written down nowhere
else.
"""

import hashlib
import re
from pathlib import Path

from tailrace.spark import artifacts

PROGRAMS = Path(__file__).resolve().parent / "programs"
"""The Go module of the programs."""

NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl")
"""The names of the one program `kubernetes`; links in its folder."""


HELM_MODULE = "helm.sh/helm/v4"
HELM_VERSION = "v4.2.4"
"""Helm is not in go.mod: it needs newer modules than Kubernetes does."""


def kubernetes_version() -> str:
    """The version in go.mod, with its leading v."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (PROGRAMS / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise artifacts.ArtifactMissing(f"{PROGRAMS / 'go.mod'} requires no k8s.io/kubernetes.", "Restore the file.")
    return found.group(1)


def kubernetes_dir() -> Path:
    """The folder of the built programs, whether or not it is there; it changes with their sources."""
    sources = [PROGRAMS / "go.mod", *sorted(PROGRAMS.glob("*/main.go"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:8]
    return artifacts.cache_dir() / f"kubernetes-{kubernetes_version()}-{digest}"


def program(name: str) -> Path:
    """One of NAMES, `coredns` or `pause`."""
    folder = kubernetes_dir()
    if not artifacts.is_ready(folder):
        raise artifacts.ArtifactMissing(
            f"{folder} is missing or incomplete", "Run `make setup`, or `python3 tools/bootstrap.py kubernetes`."
        )
    return folder / name


def helm_dir() -> Path:
    """The folder of the built Helm, whether or not it is there."""
    return artifacts.cache_dir() / f"helm-{HELM_VERSION}"


def helm() -> Path:
    """Helm's program."""
    if not artifacts.is_ready(helm_dir()):
        raise artifacts.ArtifactMissing(
            f"{helm_dir()} is missing or incomplete", "Run `make setup`, or `python3 tools/bootstrap.py helm`."
        )
    return helm_dir() / "helm"


def node_tools_dir() -> Path:
    """Debian's packages of `debian.py`, unpacked; another release of the system gets another folder."""
    release = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    digest = hashlib.sha256("\n".join((*NODE_PACKAGES, release)).encode()).hexdigest()[:8]
    return artifacts.cache_dir() / f"node-tools-{digest}"


NODE_PACKAGES = ("containerd", "runc", "containernetworking-plugins", "iptables", "buildah", "debootstrap")
"""The packages that a node and its images need beside Kubernetes."""


def images_dir() -> Path:
    """Image archives and buildah's own storage."""
    return artifacts.cache_dir() / "cluster-images"


def cluster_dir(name: str) -> Path:
    """Everything that a running cluster has on disk; `down` removes it."""
    return artifacts.cache_dir() / f"cluster-{name}"
