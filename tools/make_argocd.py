"""Writes `argocd/argocd-cm.yaml`: the Lua of `argocd/` in the form in which Argo CD's ConfigMap takes it.

Called by `make crds`; a unit test compares, and runs the Lua.
"""

import sys
from pathlib import Path

import yaml

from make_crds import ROOT
from tailrace.contract.base import GROUP

FOLDER = ROOT / "argocd"
CONFIG = FOLDER / "argocd-cm.yaml"
KINDS = ("Replicator", "SnapshotRequest")
HEADER = """\
# Generated from the Lua beside it by `make crds`; do not edit. Teaches Argo CD health and actions of the resources:
#   kubectl -n argocd patch configmap argocd-cm --patch-file argocd/argocd-cm.yaml
"""


class _Literal(yaml.SafeDumper):
    """Scripts as block literals."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Literal.add_representer(str, _text)


def actions(kind: str) -> str:
    """The value of `resource.customizations.actions.<group>_<kind>`: YAML in a string."""
    names = sorted(path.stem for path in (FOLDER / kind).glob("*.lua") if path.stem != "discovery")
    scripts = {name: (FOLDER / kind / f"{name}.lua").read_text(encoding="utf-8") for name in names}
    document = {
        "discovery.lua": (FOLDER / kind / "discovery.lua").read_text(encoding="utf-8"),
        "definitions": [{"name": name, "action.lua": script} for name, script in scripts.items()],
    }
    return yaml.dump(document, Dumper=_Literal, sort_keys=False)


def text() -> str:
    health = (FOLDER / "health.lua").read_text(encoding="utf-8")
    data = {f"resource.customizations.health.{GROUP}_{kind}": health for kind in KINDS}
    data |= {f"resource.customizations.actions.{GROUP}_{kind}": actions(kind) for kind in KINDS}
    return HEADER + yaml.dump({"data": data}, Dumper=_Literal, sort_keys=False)


def main() -> int:
    CONFIG.write_text(text(), encoding="utf-8")
    print(f"argocd: wrote {Path('argocd') / CONFIG.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
