"""The end of the driver: requested by a signal, by one of its threads or because its work is done.

The main loop waits here between two steps. A signal's handler may have interrupted the very wait that holds the event's
lock, so it only leaves a note; `is_set` and `wait` pass it on.
"""

import logging
import signal
import threading
import time
from collections.abc import Sequence
from types import FrameType

from tailrace.contract.status import TableStatus
from tailrace.errors import error_line

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""SIGHUP: the terminal was closed."""


class ShutdownRequest:
    def __init__(self) -> None:
        self._event = threading.Event()
        self._signal: int | None = None
        self._logged = False
        self.forced = False
        """Asked a second time: nothing is waited for."""

    def listen(self) -> None:
        """Install the handlers; what was ignored at the start (`nohup`) stays ignored."""
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.on_signal)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None:
            self.forced = True
            raise KeyboardInterrupt
        self._signal = number

    @property
    def signalled(self) -> bool:
        return self._signal is not None

    def force(self) -> None:
        """Nothing is waited for: there is something more urgent to do."""
        self.forced = True

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        if self._signal is not None and not self._logged:
            self._logged = True
            log.info("%s: shutting down", signal.Signals(self._signal).name)
            self._event.set()
        return self._event.is_set()

    def log_summary(self, failing: Sequence[TableStatus]) -> None:
        """The last lines of a run that no error ended: what it leaves behind that requires manual action."""
        for table in failing:
            what = "is stopped" if table.state == "STOPPED" else "fails"
            fault = table.fault
            why = f": {error_line(fault.name, fault.message, fault.fix)}" if fault else ""
            log.error("table %s %s%s", table.name, what, why, extra={"table": table.name})
        if failing:
            names = ", ".join(t.name for t in failing)
            log.error("shut down with %d table%s stopped or failing: %s", len(failing), "s"[: len(failing) - 1], names)
        else:
            log.info("shut down cleanly")

    def pause(self, seconds: float) -> None:
        """Up to so long, or until a signal; also after `set`."""
        until = time.monotonic() + seconds
        while not self.signalled and time.monotonic() < until:
            time.sleep(min(0.1, seconds))

    def wait(self, seconds: float) -> bool:
        """Up to so long; True: it is to end."""
        if not self.is_set():
            self._event.wait(seconds)
        return self.is_set()
