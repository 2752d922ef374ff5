"""The loops beside the driver's main loop, each on a thread of its own: what they ask may be slow to answer."""

import logging
import threading
from collections.abc import Callable

from tailrace.driver.process.shutdown import ShutdownRequest
from tailrace.errors import Retry

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""The pause after an error that passes."""


class SideLoops:
    def __init__(self, ending: ShutdownRequest) -> None:
        self._ending = ending
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None

    def start(self, name: str, step: Callable[[], object], pause: Callable[[], float] = lambda: 0.0) -> None:
        """Runs `step` until the driver ends; `pause`: the seconds after each, by default none."""

        def run() -> None:
            while not self._ending.is_set():
                try:
                    step()
                    self._ending.wait(pause())
                except Retry as error:
                    log.warning("%s: %s", name, error)
                    self._ending.wait(RETRY_SECONDS)
                except BaseException as error:  # the main loop raises it
                    self._failure = error
                    return

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def check(self) -> None:
        """Raises the error that has ended one of them."""
        if self._failure is not None:
            raise self._failure

    def join(self, seconds: float) -> None:
        """Waits up to so many seconds for each: the driver ends."""
        for thread in self._threads:
            thread.join(seconds)
