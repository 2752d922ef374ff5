"""`make release`: checks that every place names the same version, then builds the wheel and the chart into `dist/`.

The version is `tailrace.__version__`; nothing else decides it. docs/dev/releasing.md describes a release.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import tailrace
from cluster import places

ROOT = Path(__file__).resolve().parents[1]
PLACES = {
    "charts/tailrace/Chart.yaml": (r"^version: (\S+)$", r"^appVersion: (\S+)$", r"image: tailrace-\w+:(\S+)$"),
    "examples/argocd/operator.yaml": (r"targetRevision: v(\S+)$",),
    "examples/flux/operator.yaml": (r"tag: v([^}\s]+)",),
    "examples/kubectl/replicator-iceberg-claim.yaml": (r"tailrace-spark:(\S+)$",),
    "docs/kubernetes.md": (r"tailrace-(?:operator|spark):(\d[\w.]*)",),
    "manifests/install.yaml": (r"app.kubernetes.io/version: (\S+)$", r"tailrace-(?:operator|spark):(\S+)$"),
    "Dockerfile": (r"tailrace-operator:(\S+)", r"tailrace-spark:(\S+)"),
}
"""Files that have to name the version themselves, with a pattern for each place."""


def differing(root: Path, version: str) -> Iterator[str]:
    """A line for each place that does not name `version`, or where nothing was found."""
    for name, patterns in PLACES.items():
        text = (root / name).read_text()
        for pattern in patterns:
            found = re.findall(pattern, text, re.MULTILINE)
            if not found:
                yield f"{name}: nothing matches {pattern!r}"
            yield from (f"{name}: {other}, not {version}" for other in found if other != version)


def unreleasable(root: Path, version: str) -> Iterator[str]:
    """Yields the other reasons that keep `version` from being released."""
    if f"## [{version}]" not in (root / "CHANGELOG.md").read_text():
        yield f"CHANGELOG.md: no section ## [{version}]"
    status = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True)
    if status.stdout:
        yield f"uncommitted changes:\n{status.stdout.rstrip()}"


def main() -> int:
    version = tailrace.__version__
    problems = [*differing(ROOT, version), *unreleasable(ROOT, version)]
    for problem in problems:
        print(f"release {version}: {problem}", file=sys.stderr)
    if problems:
        return 1
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(dist),
        ".",
    ]
    subprocess.run(pip, cwd=ROOT, check=True)
    chart = [str(places.helm()), "package", "charts/tailrace", "--destination", str(dist)]
    subprocess.run(chart, cwd=ROOT, check=True)
    for path in sorted(dist.iterdir()):
        print(path.relative_to(ROOT))
    print(f"Next: git tag v{version}, push it, and push the images that the Dockerfile builds (docs/dev/releasing.md).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
