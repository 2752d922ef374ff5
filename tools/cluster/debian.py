"""containerd, runc, CNI plugins, iptables, buildah and debootstrap out of Debian's packages, unpacked into the cache.

The system stays as it is: apt works on lists of its own, only downloads, and takes what the system lacks with it. Part
`node` of `tools/bootstrap.py`; `environment()` is what the unpacked programs run with. Standard library only.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from . import places


class NoPackages(Exception):
    """This system has no apt, or apt did not deliver."""


def unpack(folder: Path) -> None:
    """Fill `folder` with the files of the packages."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise NoPackages("a node of its own needs a Debian-like system (apt-get); or set KUBECONFIG to a cluster")
    apt = folder / ".apt"
    for name in ("lists/partial", "archives/partial"):
        (apt / name).mkdir(parents=True)
    places_of_apt = {"Dir::State::lists": apt / "lists", "Dir::Cache": apt, "Dir::Cache::archives": apt / "archives"}
    # Everything here belongs to this user; apt's own would find the folder's parents closed.
    options = [f"-o{name}={path}" for name, path in places_of_apt.items()] + ["-oAPT::Sandbox::User=root", "-qq"]
    _run(["apt-get", *options, "update"])
    install = ["apt-get", *options, "-y", "--no-install-recommends", "--download-only", "--reinstall", "install"]
    _run([*install, *places.NODE_PACKAGES])
    for package in sorted((apt / "archives").glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(folder)])
    shutil.rmtree(apt)
    # Which of the two the name means is decided by Debian's alternatives, when a package is installed.
    for name in ("iptables", "ip6tables"):
        for ending in ("", "-save", "-restore"):
            (folder / "usr" / "sbin" / f"{name}{ending}").symlink_to(f"{name}-nft{ending}")


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of the unpacked programs and of those that they start themselves."""
    root = places.node_tools_dir()
    libraries = [str(path) for path in sorted(root.glob("usr/lib/*-linux-gnu*"))]
    tables = next((str(path) for path in sorted(root.glob("usr/lib/*/xtables"))), "")
    programs = (str(root / "usr/sbin"), str(root / "usr/bin"), str(places.kubernetes_dir()))
    return {
        **inherited,
        "PATH": os.pathsep.join((*programs, inherited.get("PATH", ""), "/usr/sbin", "/sbin")),
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "XTABLES_LIBDIR": tables,
        "DEBOOTSTRAP_DIR": str(root / "usr/share/debootstrap"),
    }


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoPackages(f"`{' '.join(command[:1] + command[-6:])}` ended with {done.returncode}: {done.stderr[-500:]}")
