"""A pipeline of the test's process that answers `tailrace`'s commands as a driver does: from a run directory."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from support.pipeline import Pipeline
from support.proof.process import ENVIRONMENT, forked
from support.seam_names import checked
from tailrace.driver.asking.server import StatusServer
from tailrace.driver.process.run_dir import RunFolder

PAUSE, PATIENCE = 0.05, 90.0
"""Seconds between two rounds of the driver while a command runs, and seconds that it may take."""


class Served:
    """One Replicator; its commands are processes, and it works while they run."""

    def __init__(self, copy: Pipeline) -> None:
        self.copy, self.run_dir = copy, copy.folder / "run"

    @contextmanager
    def running(self) -> Iterator[None]:
        folder = RunFolder(self.run_dir)
        folder.take()
        try:
            with self.copy.running():
                control = self.copy.driver.control
                control.watch = self.copy.driver.client
                server = StatusServer(control, "127.0.0.1", 0, folder.make_token())
                server.start()
                folder.announce(server.url, None)
                try:
                    while control.ask_capture() is None:  # the first command may come before the first turn
                        time.sleep(PAUSE)
                    yield
                finally:
                    server.close()
        finally:
            folder.retract()
            folder.release()

    def command(self, *arguments: str, seams: str = "", works: bool = True) -> tuple[int, str]:
        """Exit code and what it says. `works`: the driver does meanwhile."""
        output = self.copy.folder / f"{arguments[0]}.log"
        output.write_text("")
        here = ["-f", str(self.copy.manifest), "--run-dir", str(self.run_dir)]
        environment = ENVIRONMENT | {"TAILRACE_SEAMS": checked(seams)}
        run = forked([arguments[0], *here, *arguments[1:]], environment, output)
        if works:
            self.works_until(lambda: run.poll() is not None)
        return run.wait(120), output.read_text()

    def works_until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            self._turn()
            time.sleep(PAUSE)
            assert time.monotonic() < end, "it takes too long"

    def _turn(self) -> None:
        """As the driver's loop does."""
        self.copy.turn()
        self.copy.driver.control.ask_capture()
