"""Long-running programs of a cluster: started in the background, found again by pid file, ended by pid.

A pid file also holds when the process began: a number that the system gave to somebody else is not touched.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


class NotReady(Exception):
    """Something of the cluster did not come up; the message has the end of its log."""


@dataclass(frozen=True)
class Services:
    """Programs whose logs and pid files lie in `folder`; `prefix` goes before every command."""

    folder: Path
    prefix: tuple[str, ...]
    environment: Mapping[str, str]

    def start(self, name: str, command: Sequence[str], keep: tuple[int, ...] = ()) -> None:
        """Start it unless it runs, with the descriptors `keep`. It lives on when we end."""
        if self.alive(name):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._log(name).open("ab") as log:
            process = subprocess.Popen(
                [*self.prefix, *command],
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=keep,
            )
        with suppress(OSError):  # it ended at once: `wait` shows its log
            (self.folder / f"{name}.pid").write_text(f"{process.pid} {_begun(process.pid)}")
        process.returncode = 0  # from here on the pid file stands for it, also for processes that come after us

    def pid(self, name: str) -> int | None:
        """None: it does not run."""
        with suppress(OSError, ValueError):
            pid, begun = (int(word) for word in (self.folder / f"{name}.pid").read_text().split())
            if begun == _begun(pid):
                return pid
        return None

    def alive(self, name: str) -> bool:
        pid = self.pid(name)
        with suppress(ChildProcessError):  # our own child is reaped, somebody else's is not ours to ask for
            if pid is not None:
                os.waitpid(pid, os.WNOHANG)
        return self.pid(name) is not None

    def stop(self, name: str, patience: float = 0.0) -> None:
        """SIGTERM with `patience` in seconds, then SIGKILL."""
        for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 10.0)):
            pid = self.pid(name)
            if pid is None or (number == signal.SIGTERM and not patience):
                continue
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            deadline = time.monotonic() + seconds
            while self.alive(name) and time.monotonic() < deadline:
                time.sleep(0.05)
        (self.folder / f"{name}.pid").unlink(missing_ok=True)

    def wait(self, what: str, ready: Callable[[], bool], seconds: float, log: str = "") -> None:
        """Until `ready()`; `log` names the program to show when it does not come."""
        deadline = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > deadline:
                said = self._log(log).read_text(errors="replace")[-2000:] if log and self._log(log).exists() else ""
                raise NotReady(f"{what}: not within {seconds:.0f} s. {said}")
            time.sleep(0.2)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


def _begun(pid: int) -> int:
    """When the process began, in clock ticks since the system did; raises when there is none or it has ended."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if words[0] == "Z":
        raise ProcessLookupError(pid)
    return int(words[19])
