"""Keeps capture running: a child process without a JVM that outlives restarts of the driver's JVM.

The driver calls `start` once, `check` in every step of its main loop, and `stop` at the end. An end of capture that
must not be repeated (its exit code says so) is raised as the same named error; any other end is answered with a restart
after a growing pause. A capture that already answers on the socket (the driver alone was restarted) is adopted.
"""

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tailrace.capture import last_fault
from tailrace.capture.last_fault import write_in_place
from tailrace.changelog.records.terms import Position
from tailrace.contract.status import Fault
from tailrace.driver.process.run_dir import writing
from tailrace.errors import (
    AuthenticationFailed,
    Fenced,
    InvalidManifest,
    PositionLost,
    SourceRefused,
    Stop,
    StorageFull,
    TailraceError,
)
from tailrace.errors.backoff import ROTATION_SECONDS

log = logging.getLogger(__name__)

STOPPING: Mapping[int, type[Stop]] = {
    2: InvalidManifest,
    10: SourceRefused,
    11: AuthenticationFailed,
    12: PositionLost,
    13: Fenced,
}
"""Exit codes after which a restart would only fail in the same way."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
CALM = 60.0
"""Seconds of running after which the pause starts small again."""
STEADY = 10.0
"""Seconds of work after which the cause of the former end counts as repaired, even if the source has written nothing:
as often as an idle source's log is recorded."""


class CaptureProcess:
    """The supervised child. `answers()` returns whether a process listens on the socket."""

    def __init__(
        self,
        command: Sequence[str],
        run_dir: Path,
        answers: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        *,
        output: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`output`: file for what the child prints; None: where the driver prints."""
        self._output = output
        self._command = list(command)
        self._run_dir = run_dir
        self._answers = answers
        self._clock = clock
        self._now = now
        self._child: subprocess.Popen[bytes] | None = None
        self._adopted: int | None = None
        self._started = 0.0
        self._pause = FIRST_PAUSE
        self._due: float | None = None
        self._working: float | None = None
        """Since when this one is known to work."""
        self._reached = Position(-1)
        """The position that the last working capture reached."""
        self._refused: float | None = None
        """Since when the source has refused a password that it had accepted."""
        self.fault: Fault | None = None
        """The reason why it ended, until a later one `works`."""

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else self._adopted

    def start(self) -> None:
        pid = self._recorded_pid()
        if pid is not None and self._is_ours(pid) and self._answers():
            self._adopted = pid
            log.info("capture is already running, adopted (pid %d)", pid)
        else:
            if pid is not None and self._is_ours(pid):
                end(pid, 5.0, self._run_dir)  # it holds the source's log and does not answer
            self._spawn()

    def check(self) -> None:
        """Look after the child; raises the named error when it ended for good."""
        if self._due is not None:
            if self._clock() >= self._due:
                self._start_again()
            return
        code = self._exit_code()
        if code is None:
            return
        self._child = self._adopted = self._working = None
        if code in STOPPING and not self._may_rotate(code):
            raise self._error(code)
        if self._clock() - self._started > CALM:
            self._pause = FIRST_PAUSE
        self.fault = self._ended_by(code)
        log.warning("%s; restarting it in %.1f s", self.fault.message, self._pause)
        self._due = self._clock() + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _may_rotate(self, code: int) -> bool:
        """True if the password's file, which every start reads, may soon hold the one that the source wants."""
        if STOPPING[code] is not AuthenticationFailed or self._reached < 0:
            return False
        if self._refused is None:
            self._refused = self._clock()
        return self._clock() - self._refused < ROTATION_SECONDS

    def _start_again(self) -> None:
        self._due = None
        try:
            self._spawn()
        except (OSError, TailraceError) as error:  # no room, memory, process ids, open files: each may come back
            log.warning("capture could not be started: %s; trying again in %.1f s", error, self._pause)
            self._due = self._clock() + self._pause

    def works(self, position: Position) -> None:
        """It reads the log again, and the journal holds everything up to `position`. The cause of the former end counts
        as repaired once this one has got further, or after a while: until then it may fail in the same way."""
        now = self._clock()
        self._working = now if self._working is None else self._working
        steady = now - self._working >= max(STEADY, self._pause)
        if self.fault is None or position > self._reached or steady:
            self._reached, self.fault, self._refused = position, None, None

    def start_again(self) -> None:
        """After `stop`: it reads its manifest at its start. What keeps it from starting is tried again by `check`."""
        self._adopted = self._working = None
        self._pause = FIRST_PAUSE
        self._start_again()

    def stop(self, grace: float = 20.0) -> None:
        """Ends capture cleanly: it first makes its last record durable."""
        child, self._child = self._child, None
        self._due = None
        if child is not None:
            child.terminate()
            try:
                child.wait(grace)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        elif self._adopted is not None:
            end(self._adopted, grace, self._run_dir)
        self._pid_file.unlink(missing_ok=True)

    @property
    def _pid_file(self) -> Path:
        return self._run_dir / "capture.pid"

    @property
    def fault_file(self) -> Path:
        """The file in which capture leaves the error that ended it: a `Fault` as JSON."""
        return last_fault.of(self._run_dir)

    def _spawn(self) -> None:
        # Files first: they must not fail when there is a child already. They keep their room until the end.
        with writing(self._run_dir):
            write_in_place(self._pid_file, b"")
        last_fault.reserve(self.fault_file)
        # A session of its own: Ctrl-C is for the driver, which ends capture in order.
        with contextlib.ExitStack() as stack:
            with writing(self._run_dir):
                sink = stack.enter_context(self._output.open("ab")) if self._output is not None else None
            child = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
            )
        try:
            write_in_place(self._pid_file, str(child.pid).encode())
        except OSError:  # a driver that is killed could not find it again
            child.kill()
            child.wait()
            raise
        self._child, self._started = child, self._clock()
        log.info("capture started (pid %d)", child.pid)

    def _exit_code(self) -> int | None:
        if self._child is not None:
            return self._child.poll()
        if self._adopted is not None and not self._is_ours(self._adopted):
            return 1  # not our child: its code cannot be had; a new one will say it again
        return None

    def _is_ours(self, pid: int) -> bool:
        return is_capture(pid, self._run_dir)

    def _recorded_pid(self) -> int | None:
        try:
            return int(self._pid_file.read_text())
        except (OSError, ValueError):
            return None

    def _error(self, code: int) -> Stop:
        left = self._left()
        if left is None:
            return STOPPING[code](f"capture ended with code {code}.", "Its last lines in the log say why.")
        return _named(STOPPING[code], left)

    def _ended_by(self, code: int) -> Fault:
        left = self._left()
        because = f": {left.name}: {left.message}" if left is not None else ""
        full = left is not None and left.name == StorageFull.__name__
        fix = (left.fix if left is not None else "") or "It is started again; if this stays, see its lines in the log."
        before = self.fault
        return Fault(
            name=StorageFull.__name__ if full else "CaptureEnded",
            message=f"capture ended with code {code}{because}",
            fix=fix,
            where=(left.where if left is not None else None) or "capture",
            since=before.since if before is not None else self._now(),
            count=before.count + 1 if before is not None else 1,
        )

    def _left(self) -> Fault | None:
        """The error that the child left; None: it left none."""
        return last_fault.read(self.fault_file)


def _named(kind: type[Stop], left: Fault) -> Stop:
    """The error under the name that capture gave it, should that be a relative of the code's own class."""
    found = next((k for k in Stop.__subclasses__() if k.__name__ == left.name and k.exit_code == kind.exit_code), kind)
    error = found(left.message, left.fix)
    error.where = left.where
    return error


def is_capture(pid: int, run_dir: Path) -> bool:
    """The living capture process of this run directory: ids are used again, also by another Replicator's."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    arguments = line.split(b"\0")
    return b"tailrace.capture.process" in arguments and os.fsencode(run_dir) in arguments and state != "Z"


def end(pid: int, grace: float, run_dir: Path) -> None:
    """SIGTERM, and SIGKILL after `grace` seconds."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        until = time.monotonic() + patience
        while time.monotonic() < until:
            if not is_capture(pid, run_dir):
                return
            time.sleep(0.05)
