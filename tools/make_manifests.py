"""Writes `manifests/install.yaml`, for those who install with kubectl alone: what the chart gives by default.

Called by `make manifests`; a test compares. Helm's own labels and annotations are left out (nobody but Helm should
claim the objects), and the namespace, which Helm makes by itself, is added.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from cluster import places
from make_crds import ROOT, dump

CHART = ROOT / "charts" / "tailrace"
INSTALL = ROOT / "manifests" / "install.yaml"
RELEASE, NAMESPACE = "tailrace", "tailrace-system"
HEADER = "# Generated from charts/tailrace by `make manifests`; do not edit. kubectl apply --server-side -f …\n"
HELMS_OWN = ("helm.sh/chart", "helm.sh/resource-policy", "app.kubernetes.io/managed-by")
Json = dict[str, Any]


def rendered(*arguments: str, release: str = RELEASE, namespace: str = NAMESPACE) -> list[Json]:
    """The chart's objects; `arguments` as of `helm template`."""
    command = [str(places.helm()), "template", release, str(CHART), "--namespace", namespace, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"helm template: {done.stderr.strip()}")
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def without_helm(document: Json) -> Json:
    metadata = dict(document["metadata"])
    for kind in ("labels", "annotations"):
        kept = {k: v for k, v in metadata.pop(kind, {}).items() if k not in HELMS_OWN}
        if kept:
            metadata[kind] = kept
    return document | {"metadata": metadata}


def documents() -> list[Json]:
    labels = {"app.kubernetes.io/part-of": "tailrace", "pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    return [namespace, *(without_helm(one) for one in rendered("--skip-tests"))]


def text() -> str:
    return HEADER + "---\n".join(dump(document) for document in documents())


def main() -> int:
    INSTALL.parent.mkdir(exist_ok=True)
    INSTALL.write_text(text(), encoding="utf-8")
    print(f"manifests: wrote {Path('manifests') / INSTALL.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
