"""Builds Kubernetes, etcd and CoreDNS from their Go modules: part `kubernetes` of `tools/bootstrap.py`.

One link step for all of Kubernetes keeps this under ten minutes on two cold cores, and under one with a warm Go cache.
The other Go programs are built with the same flags, so that Go's own library is compiled once. Standard library only.
"""

import os
from collections.abc import Callable
from pathlib import Path

from . import places

FLAGS = ("-trimpath", "-gcflags=all=-dwarf=false")
"""Nobody debugs these programs; without symbols for a debugger the compiler needs 12 % less time."""


def environment(**more: str) -> dict[str, str]:
    """The environment of a `go` command. The compiler collects garbage less often than by default: it needs 15 % less
    time."""
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOGC": "400", **more}


def build_programs(folder: Path, run: Callable[[list[str], dict[str, str], Path], None]) -> None:
    """Fill `folder` with `kubernetes`, `coredns`, `pause` and the links; `run` runs a command in a folder or raises."""
    version = places.kubernetes_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    stamp = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamp.items())
    command = ["go", "build", *FLAGS, "-buildvcs=false", "-mod=readonly", "-ldflags", f"-s -w {flags}"]
    run([*command, "-o", f"{folder}/", "./kubernetes", "./coredns", "./pause"], environment(), places.PROGRAMS)
    for name in places.NAMES:
        (folder / name).symlink_to("kubernetes")
