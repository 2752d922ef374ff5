"""Writes the chart's README from the comments in its values, and its icon into `Chart.yaml`.

Called by `make crds`; a unit test compares. A comment belongs to the value below it, and each value has one.
"""

import base64
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from make_crds import ROOT

CHART = ROOT / "charts" / "tailrace"
README, VALUES, ICON, MANIFEST = (CHART / name for name in ("README.md", "values.yaml", "icon.svg", "Chart.yaml"))
HEADER = """\
# Tailrace

<!-- Generated from values.yaml by `make crds`; do not edit. -->

Keeps live copies of tables of PostgreSQL, MySQL and MariaDB: in Delta Lake, Apache Iceberg or another database. This
chart installs the operator and the resources `Replicator` and `SnapshotRequest`. Kubernetes 1.29 or newer.
```
helm upgrade --install tailrace charts/tailrace -n tailrace-system --create-namespace --wait \\
  --set image.repository=registry.example.org/tailrace-operator \\
  --set sparkImage.repository=registry.example.org/tailrace-spark
helm test tailrace -n tailrace-system
```
`helm upgrade` also upgrades the definitions of the resources. Drivers restart only if their image changes, and continue
where they were. `helm uninstall` keeps the definitions, every Replicator and every running driver.
`docs/kubernetes.md` says how to build the images and how to declare a Replicator.

## Values

Values that are not listed here are refused, and so are values of the wrong type; the message names them.

| value | default | meaning |
|---|---|---|
"""
LINE = re.compile(r"^(?P<indent> *)(?:# (?P<comment>.+)|(?P<key>\w+):(?: (?P<default>.+))?)?$")


@dataclass(frozen=True)
class Value:
    """A line of values.yaml: one value, or (`default` is None) the name over several."""

    path: str
    default: str | None
    comment: str

    def row(self) -> str:
        default = "" if self.default is None else f"`{self.default}`"
        return f"| `{self.path}` | {default} | {self.comment.replace('|', chr(92) + '|')} |\n"


def values(text: str) -> Iterator[Value]:
    """Yields the values that `text` sets, with the comment directly above."""
    parents, comment = list[str](), list[str]()
    for line in text.splitlines():
        found = LINE.match(line)
        if found is None:
            raise ValueError(f"values.yaml: write this as `key: value` on one line: {line}")
        if found["comment"]:
            comment.append(found["comment"])
        elif found["key"]:
            del parents[len(found["indent"]) // 2 :]
            parents.append(found["key"])
            # A name over values that are listed below needs no comment of its own.
            if comment or found["default"]:
                yield Value(".".join(parents), found["default"], " ".join(comment))
            comment = []
        else:
            comment = []  # a blank line: what stands above it is about the file


def readme() -> str:
    return HEADER + "".join(value.row() for value in values(VALUES.read_text(encoding="utf-8")))


def manifest() -> str:
    """`Chart.yaml` with the icon as a `data:` address: it is seen wherever the chart is, and fetched from nowhere."""
    icon = base64.b64encode(ICON.read_bytes()).decode()
    text = MANIFEST.read_text(encoding="utf-8")
    return re.sub(r"^icon: .*$", f"icon: data:image/svg+xml;base64,{icon}", text, flags=re.MULTILINE)


def main() -> int:
    README.write_text(readme(), encoding="utf-8")
    MANIFEST.write_text(manifest(), encoding="utf-8")
    print(f"chart: wrote {README.relative_to(ROOT)} and the icon in {MANIFEST.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
