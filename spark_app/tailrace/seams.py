"""Named seams: places between two durable writes where the proving harness kills, stalls or fails the process.

In production the registry is empty and a seam costs one dictionary look-up. A harness sets the environment variable
`TAILRACE_SEAMS` to `name=action[@count]` pairs separated by commas: `kill` sends SIGKILL to this very process, `freeze`
SIGSTOP, as if its machine were suspended, `fail` raises `SeamFailure`, `stall:<seconds>` sleeps, `hold` waits until the
harness removes the marker file; `@3` acts at the third visit (default the first). Each acts once: per process, or, when
`TAILRACE_SEAMS_ONCE` names a folder, once for all processes that share it (a marker file is left there before the act,
so a supervisor's restart does not die again).
"""

import os
import signal
import threading
import time
from pathlib import Path


class SeamFailure(RuntimeError):
    """Raised at a seam by order of the harness."""


def _parse(text: str) -> dict[str, tuple[str, int]]:
    plan: dict[str, tuple[str, int]] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, rest = item.partition("=")
        action, _, count = rest.partition("@")
        plan[name] = (action, int(count or 1))
    return plan


_plan = _parse(os.environ.get("TAILRACE_SEAMS", ""))
_visits: dict[str, int] = {}
_once = os.environ.get("TAILRACE_SEAMS_ONCE")


def _first(name: str) -> bool:
    if _once is None:
        return True
    try:
        (Path(_once) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def seam(name: str) -> None:
    """Mark a place where dying must be safe; see the module's docstring."""
    if name not in _plan:
        return
    action, count = _plan[name]
    _visits[name] = _visits.get(name, 0) + 1
    if _visits[name] != count or not _first(name):
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "freeze":
        # To this thread: a signal to the process stops it when another thread takes it, and this one may be further.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    elif action == "fail":
        raise SeamFailure(name)
    elif action.startswith("stall:"):
        time.sleep(float(action.removeprefix("stall:")))
    elif action == "hold" and _once is not None:
        while (Path(_once) / name).exists():
            time.sleep(0.05)
    else:
        raise ValueError(f"TAILRACE_SEAMS: unknown action {action!r} for seam {name!r}")
