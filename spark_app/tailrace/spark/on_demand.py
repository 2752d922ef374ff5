"""The JVM and the session of a run, started when something needs them (docs/decisions/0077).

The JVM alone comes up in half the time, and Iceberg's tables need no more. Made by the driver, `tailrace rewind` and
`tailrace drop`.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from tailrace.contract.resources import ReplicatorSpec
from tailrace.errors import Retry
from tailrace.spark import class_archive, session
from tailrace.spark.session import STOP_SECONDS, Launched
from tailrace.targets.api import DriverJvm, Target

log = logging.getLogger(__name__)

T = TypeVar("T")

OVER = "Spark is no longer started: the run ends"


def on_demand(spec: Callable[[], ReplicatorSpec], target: Target, run_dir: Path, log_file: Path) -> "OnDemand":
    """`spec`: asked at the start of each."""
    return OnDemand(
        lambda: session.launch(spec(), target, run_dir, log_file, class_archive.java_options()),
        lambda launched: session.start_in(launched, spec(), target),
    )


class OnDemand:
    """Each is started when it is first asked for, on a thread of its own: what happens meanwhile may end the run."""

    def __init__(self, launch: Callable[[], Launched], start: Callable[[Launched], SparkSession]) -> None:
        self._launch, self._start = launch, start
        self._lock = threading.Lock()
        self._launched: Future[Launched] = Future()
        self._session: Future[SparkSession] = Future()
        self._threads: dict[str, threading.Thread] = {}
        self._over = False

    def begin(self) -> None:
        """Start both, unless that has been done."""
        self.launch()
        self._run("spark-start", self._session, self._ready)

    def _ready(self) -> SparkSession:
        session = self._start(self._launched.result())
        log.info("Spark has started")
        return session

    def launch(self) -> None:
        """Start the JVM, unless that has been done."""
        if self._run("jvm-start", self._launched, self._launch):
            log.info("Spark is starting; this usually takes 5 to 20 s")

    def _run(self, name: str, result: Future[T], act: Callable[[], T]) -> bool:
        def run() -> None:
            with suppress(InvalidStateError):  # nobody waits for it, see `let_go`
                try:
                    made = act()
                except BaseException as error:  # handed to who waits
                    result.set_exception(error)
                else:
                    result.set_result(made)

        with self._lock:
            if self._over and name not in self._threads:
                raise Retry(OVER)
            if name in self._threads:
                return False
            thread = self._threads[name] = threading.Thread(target=run, name=name, daemon=True)
            thread.start()
            return True

    def session(self) -> SparkSession:
        """The session, which is waited for. Raises what its start raised. A commit under way at the run's end may
        ask."""
        if not self._session.done():
            self.begin()
        return self._session.result()

    def jvm(self) -> DriverJvm:
        """The JVM, as `session`."""
        if not self._launched.done():
            self.launch()
        return self._launched.result().jvm

    def started(self, seconds: float = 0.0) -> SparkSession | None:
        """The session; None: not within that time. Raises what its start raised, or that of the JVM."""
        if self._launched.done():
            self._launched.result()
        return self._session.result() if wait([self._session], seconds).done else None

    def check(self, log_file: Path) -> None:
        """Name the death of a JVM that has come up."""
        if self._launched.done():
            session.check(self._launched.result(), log_file)

    def let_go(self, keep: int | None) -> None:
        """Start none from now on, and have nobody wait for one that is still on its way up. A JVM that has come up
        stays until `abandon`, whatever its session's start does: commits may be under way in it. `keep`: see there."""
        with self._lock:
            self._over = True
        if not _is_up(self._launched):
            self.abandon(keep)
        with suppress(InvalidStateError):  # the session is there
            self._session.set_exception(Retry(OVER))

    def abandon(self, keep: int | None) -> None:
        """Start none from now on, and kill the JVM of one that is still on its way up. `keep`: the child process that
        is not Spark's."""
        with self._lock:
            self._over, threads = True, list(self._threads.values())
        until = time.monotonic() + STOP_SECONDS
        for thread in threads:
            while thread.is_alive() and time.monotonic() < until:
                for child in set(_children()) - {keep}:
                    with suppress(ProcessLookupError):
                        os.killpg(child, signal.SIGKILL)  # a session of its own, see `session.launch`
                thread.join(0.2)

    def stop(self) -> None:
        """End what has come up."""
        if _is_up(self._session):
            session.stop(self._session.result())
        elif _is_up(self._launched):
            session.end(self._launched.result().process)


def _is_up(start: Future[T]) -> bool:
    return start.done() and start.exception() is None


def _children() -> Iterator[int]:
    """Processes that this one has started and that have not been waited for."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                yield int(path.parent.name)
