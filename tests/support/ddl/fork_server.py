"""A process that forks captures: a start costs milliseconds, and each is a process of its own that SIGKILL ends.

`python -m support.ddl.fork_server` reads one JSON request per line and answers with one line; it forks, and therefore
has no thread. Without its parent it ends, and its children with it. Used by `support.ddl.in_process` and
`support.capture`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

LOOKS = "looks"
"""Of a run folder: the number of looks at the catalog that were begun."""
GATE = "no-looks"
"""While the file is there, capture looks at the catalog only when a chunk needs it: what is written then stands between
two looks."""
PAUSES = "pauses"
"""Of a run folder: the longest random pause, in seconds, between any two steps of a look at the catalog."""
POLL_SECONDS = 0.15
LOOKS_OFTEN = {"poll": POLL_SECONDS, "rarest_poll": POLL_SECONDS}
"""Of `capture.loop.Timing`: nothing waits seconds for a look at the catalog."""
QUICK = {**LOOKS_OFTEN, "record": 0.02, "step": 0.03, "waiting_heartbeat": 0.03}


class ForkServer:
    """The parent's end."""

    def __init__(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.ddl.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def start(self, folder: Path, arguments: list[str], timing: Mapping[str, float] = QUICK, seams: str = "") -> int:
        """The pid of a new capture; it writes to `capture.log` of the folder."""
        return int(self._ask({"start": arguments, "folder": str(folder), "timing": timing, "seams": seams}))

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


def looks(folder: Path) -> int:
    """Looks at the catalog that the capture of this folder has ended."""
    try:
        text = (folder / LOOKS).read_text().split()
    except FileNotFoundError:
        return 0
    return int(text[1]) if len(text) == 2 else 0


@dataclass
class Forked:
    """A capture of the fork_server, with what tests use of `subprocess.Popen`."""

    fork_server: ForkServer
    pid: int
    code: int | None = None
    """Exit code, or the signal negative; None: nobody has seen it end."""

    def poll(self) -> int | None:
        if self.code is None:
            self.code = self.fork_server.ended(self.pid)
        return self.code

    def wait(self, timeout: float = 60) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            assert time.monotonic() < end, f"capture has not ended within {timeout} s"
            time.sleep(0.02)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def serve() -> None:
    living: set[int] = set()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "start" in request:
            pid = os.fork()
            if pid == 0:
                _become_capture(request)
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


def _become_capture(request: dict[str, Any]) -> None:
    """Never returns."""
    code = 1
    try:
        folder = Path(request["folder"])
        log = os.open(folder / "capture.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        code = _capture(folder, request["start"], request["timing"], request["seams"])
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _capture(folder: Path, arguments: list[str], timing: dict[str, Any], seams: str) -> int:
    from tailrace import seams as armed
    from tailrace.capture import loop, process
    from tailrace.sources.postgresql.log import routes
    from tailrace.sources.postgresql.log.catalog_poll import CatalogPoll

    armed._plan.update(armed._parse(seams))
    routes.__dict__["SHORTEST_PAUSE"] = timing.get("poll", routes.SHORTEST_PAUSE)
    slower = loop.Timing

    def quicker(**given: Any) -> loop.Timing:
        return replace(slower(**given), **timing)

    process.__dict__["Timing"] = quicker
    looks = _Looks(folder, CatalogPoll.poll)
    CatalogPoll.poll = looks.poll()  # type: ignore[method-assign]  # looks are made by hand here
    if (folder / PAUSES).exists():
        _pause_between_steps(float((folder / PAUSES).read_text()))
    return process.main(arguments)


def _pause_between_steps(longest: float) -> None:
    """A look is several statements, each a transaction of its own: others may act between any two of them."""
    from tailrace.sources.postgresql import fingerprint, objects
    from tailrace.sources.postgresql.log import catalog_poll

    rnd = Random(os.getpid())

    def slower(function: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*arguments: Any, **options: Any) -> Any:
            time.sleep(rnd.choice((0, rnd.random() * longest)))
            return function(*arguments, **options)

        return slow

    for module, names in (
        (objects, ("emit", "edge", "ensure_publication", "unpublishable")),
        (fingerprint, ("look_at_publication", "_parts")),
        (catalog_poll, ("look", "empty")),
    ):
        for name in names:
            module.__dict__[name] = slower(module.__dict__[name])


class _Looks:
    """Counts looks at the catalog, and holds back those that only time asks for."""

    def __init__(self, folder: Path, look: Callable[..., int]) -> None:
        self._folder = folder
        self._look = look
        self._first = True
        self._count = 0

    def poll(self) -> Callable[..., int]:
        def poll(catalog: Any, *arguments: Any, **options: Any) -> int:
            asked = bool(arguments or options)
            if not self._first and not asked and (self._folder / GATE).exists():
                return 0
            self._first = False
            token = self._look(catalog, *arguments, **options)
            self._count += 1
            (self._folder / LOOKS).write_text(f"{os.getpid()} {self._count}")
            return token

        return poll


if __name__ == "__main__":
    import tailrace.capture.process  # noqa: F401  (what the children share)

    serve()
