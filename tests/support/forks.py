"""Programs as forks of a process that has imported all of theirs: a start costs milliseconds, not CPU seconds, and each
is a process of its own that SIGKILL ends.

`python -m support.forks MODULE ...` imports the modules, reads one JSON request per line and answers with one line; it
forks, and therefore has no thread. Without its parent it ends, and its children with it.
"""

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any


class Forks:
    """The parent's end. `module`: whose functions are the programs; `more`: modules that these import."""

    def __init__(self, module: str, *more: str) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.forks", module, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def fork(self, function: str, log: Path, *arguments: Any) -> int:
        """The pid of a process that ends with what the function returns; it writes to the end of `log`."""
        return int(self._ask({"function": function, "log": str(log), "arguments": arguments}))

    def ended(self, pid: int, wait: bool = False) -> int | None:
        """Its exit code (negative: the signal); None: it runs."""
        answer = self._ask({"ended": pid, "wait": wait})
        return None if answer is None else int(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@dataclass
class Forked:
    """A fork, with what tests use of `subprocess.Popen`."""

    forks: Forks
    pid: int
    returncode: int | None = None
    """Exit code, or the signal negative; None: nobody has seen it end."""

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.forks.ended(self.pid)
        return self.returncode

    def wait(self, timeout: float = 60) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout)
            time.sleep(0.02)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def serve(module: ModuleType) -> None:
    living: set[int] = set()
    gc.freeze()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "function" in request:
            pid = os.fork()
            if pid == 0:
                _become(module, request)
            living.add(pid)
            answer: object = pid
        else:
            answer = _ended(request["ended"], request["wait"])
            if answer is not None:
                living.discard(request["ended"])
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()
    for pid in living:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _ended(pid: int, wait: bool) -> int | None:
    found, status = os.waitpid(pid, 0 if wait else os.WNOHANG)
    return None if found == 0 else os.waitstatus_to_exitcode(status)


def _become(module: ModuleType, request: dict[str, Any]) -> None:
    """Never returns."""
    code = 1
    try:
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        code = module.__dict__[request["function"]](*request["arguments"])
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    modules = [importlib.import_module(name) for name in sys.argv[1:]]
    serve(modules[0])
