"""`in_memory.py GIB COMMAND...`: COMMAND's temporary files, pytest's among them, are in memory where GIB of it are free
and the tests' servers can live there, else where they always are. They go at its end.

Tests wait for the disk as long as they work: each server begins with a copy of 40 MB, and the product writes through.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")
GIB = 1 << 30


def main(arguments: Sequence[str]) -> int:
    needed, *command = arguments
    with folder(int(needed) * GIB) as found:
        child = subprocess.Popen(command, env=os.environ | environment(found))
        # Who ends this process means the command; what a terminal sends comes to both.
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return child.wait()


@contextmanager
def folder(needed: int, memory: Path = MEMORY) -> Iterator[Path | None]:
    """A new one in memory; None: there is no room, or servers cannot live there."""
    if not memory.is_dir() or min(shutil.disk_usage(memory).free, available()) < needed:
        yield None
        return
    # A short path: sockets are in these folders, and theirs has 107 characters at most.
    made = Path(tempfile.mkdtemp(prefix="t", dir=memory))
    try:
        made.chmod(0o755)  # PostgreSQL runs as another user
        yield made if habitable(made) else None
    finally:
        shutil.rmtree(made, ignore_errors=True)


def environment(found: Path | None) -> Mapping[str, str]:
    if found is None:
        return {}
    return {"TMPDIR": str(found), "PYTEST_ADDOPTS": f"--basetemp={found}/p {os.environ.get('PYTEST_ADDOPTS', '')}"}


def available(root: Path = Path("/")) -> int:
    """Bytes of memory that the system has, and at most what a container is allowed in all."""
    told = root / "proc/meminfo"
    lines = told.read_text().splitlines() if told.exists() else []
    found = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")] or [0]
    limits = [root / "sys/fs/cgroup" / name for name in ("memory.max", "memory/memory.limit_in_bytes")]
    texts = [limit.read_text().strip() for limit in limits if limit.exists()]
    return min(found + [int(text) for text in texts if text.isdigit()])


def habitable(place: Path) -> bool:
    """True if a program there may be started (containers often forbid it), and a file may have attributes (an S3
    server's metadata; not before Linux 6.6)."""
    probe = place / "probe"
    probe.write_text("#!/bin/sh\n")
    probe.chmod(0o755)
    try:
        os.setxattr(probe, "user.probe", b"")
        return subprocess.run([probe], check=False).returncode == 0
    except OSError:
        return False
    finally:
        probe.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
