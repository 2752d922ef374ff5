"""Programs that run beside a test: what one says is in a file, of which a failure shows the end."""

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from support.forks import Forked
from support.waiting import until


def of_other_environment() -> dict[str, str]:
    """For a Python of another environment: its bytecode is beside its modules, and this run's is elsewhere."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}


def tail(log: Path, characters: int) -> str:
    return log.read_text(errors="replace")[-characters:]


@dataclass
class Program:
    """A process and all that it starts."""

    process: subprocess.Popen[bytes] | Forked
    output: Path

    @classmethod
    def start(cls, command: Sequence[str], output: Path, **options: Any) -> Self:
        """Adds to `output`. `options`: of `Popen`."""
        with output.open("ab") as sink:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, **options
            )
        return cls(process, output)

    def tail(self, characters: int = 6000) -> str:
        return tail(self.output, characters)

    def poll(self) -> int | None:
        return self.process.poll()

    def wait(self, timeout: float) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {timeout} s\n{self.tail()}") from None

    def family(self) -> list[psutil.Process]:
        """The process itself, of a driver Python's, and everything below it."""
        try:
            parent = psutil.Process(self.process.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def cpu_seconds(self) -> float:
        """Of the family so far; of what has ended only what its parent was told."""
        return sum(self.cpu_by_process().values())

    def cpu_by_process(self) -> dict[int, float]:
        """CPU seconds of each living process of the family, with those of its children that have ended."""
        spent = {}
        for process in self.family():
            with suppress(psutil.Error):
                spent[process.pid] = sum(process.cpu_times()[:4])
        return spent

    def child(self, part: str) -> psutil.Process:
        """The first process below it whose command line contains `part`."""
        for process in self.family()[1:]:
            with suppress(psutil.NoSuchProcess):
                if part in " ".join(process.cmdline()):
                    return process
        raise AssertionError(f"no process with {part!r} below the driver\n{self.tail()}")

    def freeze(self) -> None:
        """SIGSTOP to all of it, as when its machine is suspended."""
        self._each(psutil.Process.suspend)

    def thaw(self) -> None:
        """Let all of it continue, and what has frozen itself at a seam."""
        self._each(psutil.Process.resume)

    def _each(self, act: Callable[[psutil.Process], None]) -> None:
        for process in self.family():
            with suppress(psutil.NoSuchProcess):
                act(process)

    def frozen(self) -> list[psutil.Process]:
        """The processes of it that stand still."""
        found = []
        for process in self.family():
            with suppress(psutil.NoSuchProcess):
                if process.status() == psutil.STATUS_STOPPED:
                    found.append(process)
        return found

    def kill(self) -> None:
        """SIGKILL to all of it, as by a machine that loses power; waits until all are gone. Nothing if it has ended:
        its number, and with it its group, may be another program's by now."""
        if self.poll() is not None:
            return
        family = self.family()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(20)
        psutil.wait_procs(family, timeout=20)

    def until(self, condition: Callable[[], object], timeout: float, what: str, pause: float = 0.3) -> None:
        """Poll `condition()` while the process runs; fail naming `what`."""

        def met() -> object:
            found = condition()
            assert found or self.poll() is None, f"ended with {self.poll()} before: {what}\n{self.tail()}"
            return found

        until(met, lambda: f"{what}\n{self.tail()}", timeout, pause=pause)

    def stop(self, timeout: float = 60) -> int:
        """SIGTERM, as Kubernetes does; the exit code. (SIGINT is ignored by what a shell starts in the background.)"""
        self.process.terminate()
        return self.wait(timeout)
