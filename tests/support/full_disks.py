"""Disks that are full: small file systems in memory, mounted as root."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LEFT = 1 << 20
"""Bytes that are left on a full disk."""


@contextmanager
def mounted(place: Path, owner: Path, size: str) -> Iterator[None]:
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True)
    try:
        told = owner.stat()
        os.chown(place, told.st_uid, told.st_gid)
        place.chmod(told.st_mode & 0o777)
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def on_small_disk(data: Path, size: str) -> Iterator[None]:
    """The data directory of a server that does not run yet."""
    aside = data.with_name("aside")
    data.rename(aside)
    with mounted(data, aside, size):
        subprocess.run(["cp", "-a", f"{aside}/.", str(data)], check=True)
        shutil.rmtree(aside)
        yield
    shutil.rmtree(data.parent)  # what the server's end could not remove while the disk was mounted


@contextmanager
def full(disks: list[Path]) -> Iterator[None]:
    for disk in disks:
        (disk / "filler").write_bytes(bytes(max(0, shutil.disk_usage(disk).free - LEFT)))
    try:
        yield
    finally:
        for disk in disks:
            (disk / "filler").unlink()
