"""What the processes of a `tailrace run` have in memory: proportional set sizes, in which shared pages count once."""

from pathlib import Path

import psutil

from support.process import Program

_KINDS = {"bin/java": "jvm", "tailrace.capture": "capture", "worker_daemon": "workers"}


def by_part(run: Program) -> dict[str, int]:
    """Bytes of driver, jvm, workers and capture. A process that has just ended has none."""
    parts: dict[str, int] = {}
    for process in run.family():
        name, size = _pss(process)
        parts[name] = parts.get(name, 0) + size
    return parts


def text(parts: dict[str, int]) -> str:
    """In MiB."""
    total = sum(parts.values()) >> 20
    return f"{total} MiB ({', '.join(f'{kind} {size >> 20}' for kind, size in sorted(parts.items()))})"


def _pss(process: psutil.Process) -> tuple[str, int]:
    try:
        command = " ".join(process.cmdline())
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except (OSError, psutil.Error):
        return "ended", 0
    sizes = [int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")]
    return next((kind for part, kind in _KINDS.items() if part in command), "driver"), sum(sizes)
