"""The output of the demo while it waits, which is that of `tailrace run`, and the figures of the end."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.live import Live

from tailrace.contract.status import Status
from tailrace.driver.telling.display import render

PERIOD = 1.0
"""Seconds between two looks at the status."""


class Demo(Protocol):
    """The demo that is watched."""

    console: Console
    folder: Path

    def status(self) -> Status | None:
        """The running process's status; None while it does not answer yet."""


class Watch:
    """Polls the status until something holds; keeps the lags that it saw."""

    def __init__(self, demo: Demo, process: subprocess.Popen[bytes], deadline: float) -> None:
        self._demo = demo
        self._process = process
        self._deadline = deadline
        self._lags: list[float] = []
        self._started = time.monotonic()
        self._snapshot_rows = 0
        self._snapshot_seconds = 0.0

    def until(self, condition: Callable[[Status], bool], what: str) -> float:
        """Show the status until `condition` holds; the seconds it took. Ends the demo when it can't hold any more."""
        started = time.monotonic()
        with Live(console=self._demo.console, transient=True, refresh_per_second=4) as live:
            while True:
                status = self._look(what)
                if status is not None:
                    live.update(render(status))
                    if condition(status):
                        break
                time.sleep(PERIOD)
        self._demo.console.print(render(status))
        return time.monotonic() - started

    def measure(self, seconds: float) -> None:
        """Watch the lag under load for a while, all snapshots done."""
        end = time.monotonic() + seconds
        with Live(console=self._demo.console, transient=True, refresh_per_second=4) as live:
            while time.monotonic() < end:
                status = self._look("the lag under load")
                if status is not None:
                    live.update(render(status))
                    if status.apply.lag_seconds is not None:
                        self._lags.append(status.apply.lag_seconds)
                time.sleep(PERIOD)

    def _look(self, what: str) -> Status | None:
        if self._process.poll() is not None:
            raise SystemExit(f"tailrace ended with {self._process.returncode}; see {self._demo.folder}/tailrace.log")
        if time.monotonic() > self._deadline:
            raise SystemExit(f"gave up waiting for {what}; see {self._demo.folder}/tailrace.log")
        status = self._demo.status()
        if status is None:
            return None
        rows = sum(t.counters.snapshot_rows for t in status.tables)
        if rows > self._snapshot_rows:
            self._snapshot_rows, self._snapshot_seconds = rows, time.monotonic() - self._started
        return status

    def report(self, caught_up: float) -> None:
        """The figures."""
        lags = sorted(self._lags) or [0.0]
        rate = self._snapshot_rows / max(self._snapshot_seconds, 0.001)
        self._demo.console.print(
            f"[bold]figures[/] lag under load: median {lags[len(lags) // 2]:.1f} s, worst {lags[-1]:.1f} s; "
            f"caught up {caught_up:.1f} s after the load; {self._snapshot_rows:,} snapshot rows in the target "
            f"{self._snapshot_seconds:.0f} s after the start ({rate:,.0f} rows/s, Spark's start included)"
        )
