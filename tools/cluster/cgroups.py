"""The control group of one cluster's pods, in every hierarchy (version 1) or in the one (version 2)."""

from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
WEIGHTS = {"cpu.shares": "8192", "cpu.weight": "800"}
"""Weights of the CPU, by version; eight times the default."""


def make(name: str) -> None:
    """The kubelet wants its root to be there."""
    for hierarchy in _hierarchies():
        folder = hierarchy / name
        folder.mkdir(exist_ok=True)
        # A new group of version 1 has no CPUs and no memory nodes: nothing could be started in it.
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (hierarchy / setting).exists() and not (folder / setting).read_text().strip():
                (folder / setting).write_text((hierarchy / setting).read_text())
        # All pods together weigh as much as one process elsewhere on the machine, unless told otherwise.
        for setting, weight in WEIGHTS.items():
            if (folder / setting).exists():
                (folder / setting).write_text(weight)


def remove(name: str) -> None:
    """Removes the groups from the leaves up; a group that still holds a process stays."""
    for hierarchy in _hierarchies():
        inner = [path for path in (hierarchy / name).rglob("*") if path.is_dir()]
        for folder in [*sorted(inner, reverse=True), hierarchy / name]:
            with suppress(OSError):
                folder.rmdir()


def _hierarchies() -> list[Path]:
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return [path for path in ROOT.iterdir() if path.is_dir() and not path.is_symlink()]
