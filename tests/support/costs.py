"""What each file of tests costs: CPU seconds of its process and of all processes below it, and its wall time.

At the end a run prints each lane's sum beside its budget (`tests/budget.json`, CPU minutes) and the dearest files.
`TAILRACE_RECORD=1` writes the times to `tests/durations.json`, by which files are begun: the longest first. With
`--quick`, as `make check` runs the unit tests, files that were dear when recorded are left out; `make test` runs them
among the integration tests, and `python -m support.costs` prints them.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent.parent
DURATIONS = TESTS / "durations.json"
BUDGET = TESTS / "budget.json"
TICKS = os.sysconf("SC_CLK_TCK")
DEAREST = 20
WAITING = 5
"""Files of a report that waited longest: a wait of a minute costs no CPU, and would be seen nowhere else."""
QUICK = 1.5
"""CPU seconds: a file that takes longer is left out of a quick run."""
LANES = {
    "tests/unit": "unit",
    "tests/integration/sources": "sources",
    "tests/integration/capture": "sources",
    "tests/integration/targets": "targets",
    "tests/integration/spark": "targets",
    "tests/integration/storage": "targets",
    "tests/integration/operator": "operator",
    "tests/integration/cluster": "cluster",
    "tests/integration": "driver",
    "tests/proof": "proof",
}
"""Folder -> lane; the first that a file's path begins with."""
Cost = dict[str, float]
"""`cpu`, `wall`: seconds."""


def lane_of(file: str) -> str | None:
    """The lane of a file (relative to the repository), if it has one: soaks have none."""
    return next((lane for folder, lane in LANES.items() if file.startswith(f"{folder}/")), None)


def recorded() -> dict[str, Cost]:
    """File -> its cost when it was last recorded."""
    costs: dict[str, Cost] = json.loads(DURATIONS.read_text())
    return costs


def left_out(folder: str = "") -> list[str]:
    """The files below a folder whose recorded cost is above `QUICK`."""
    dear = (file for file, cost in recorded().items() if cost["cpu"] > QUICK and file.startswith(folder))
    return [file for file in dear if (TESTS.parent / file).exists()]


class Quick:
    """A pytest plugin that leaves out files before they are imported."""

    def __init__(self) -> None:
        self._dear = {TESTS.parent / file for file in left_out()}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """True: not collected; None: as others decide."""
        return collection_path in self._dear or None

    def pytest_report_header(self) -> str:
        """What such a run does not say."""
        return f"quick: without the files that take more than {QUICK} CPU seconds (`make unit` runs all)"


class Costs:
    """A pytest plugin: in a worker of xdist it measures, in the main process it sums up, alone it does both."""

    def __init__(self, config: pytest.Config) -> None:
        self._worker = getattr(config, "workeroutput", None)
        self._costs: dict[str, Cost] = {}
        self._began = (0.0, 0.0)
        self._cpu: float | None = None
        """At the end of the last file: looking takes milliseconds."""
        self._file: str | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The longest files first, each with its tests in their order; unknown ones before them."""
        known = recorded()
        unknown: Cost = {"wall": float("inf")}
        items.sort(key=lambda item: -known.get(_file_of(item), unknown)["wall"])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        """A file is measured from the beginning of its first test to the end of its last, its fixtures included."""
        file = _file_of(item)
        if self._file != file:
            cpu = cpu_seconds() if self._cpu is None else self._cpu
            self._file, self._began = file, (cpu, time.monotonic())
        result = yield
        if nextitem is None or _file_of(nextitem) != file:
            self._cpu = cpu_seconds()
            self._add(file, {"cpu": self._cpu - self._began[0], "wall": time.monotonic() - self._began[1]})
            self._file = None
        return result

    def pytest_sessionfinish(self) -> None:
        """A worker hands its costs to the main process."""
        if self._worker is not None:
            self._worker["costs"] = self._costs

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker has ended."""
        for file, cost in getattr(node, "workeroutput", {}).get("costs", {}).items():
            self._add(file, cost)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The lanes beside their budgets, and the dearest files."""
        known = {file: cost for file, cost in self._costs.items() if lane_of(file)}
        if not known:
            return
        terminalreporter.section("costs")
        for line in report(known):
            terminalreporter.write_line(line)
        if os.environ.get("TAILRACE_RECORD") == "1":
            record(known)

    def _add(self, file: str, cost: Cost) -> None:
        own = self._costs.setdefault(file, {"cpu": 0.0, "wall": 0.0})
        for name, seconds in cost.items():
            own[name] += seconds


def report(costs: dict[str, Cost]) -> list[str]:
    """The lines that a run ends with."""
    budget: dict[str, float] = json.loads(BUDGET.read_text())
    lines = []
    for lane, minutes in budget.items():
        files = [cost for file, cost in costs.items() if lane_of(file) == lane]
        if files:
            used = sum(cost["cpu"] for cost in files) / 60
            over = "  OVER" if used > minutes else ""
            wall = sum(cost["wall"] for cost in files) / 60
            lines.append(f"{lane:10} {used:6.1f} of {minutes:4.1f} CPU minutes, {wall:6.1f} min of one process{over}")
    dearest = sorted(costs.items(), key=lambda known: -known[1]["cpu"])[:DEAREST]
    waiting = sorted(costs.items(), key=lambda known: known[1]["cpu"] - known[1]["wall"])[:WAITING]
    shown = [*dearest, *(file for file in waiting if file not in dearest)]
    return lines + [f"{cost['cpu']:7.1f} CPU s {cost['wall']:7.1f} s  {file}" for file, cost in shown]


def record(costs: dict[str, Cost]) -> None:
    """Keep these costs for the next runs; files that are gone are forgotten."""
    kept = {file: cost for file, cost in recorded().items() if (TESTS.parent / file).exists()}
    rounded = {file: {name: round(seconds, 1) for name, seconds in cost.items()} for file, cost in costs.items()}
    DURATIONS.write_text(json.dumps(kept | rounded, indent=1, sort_keys=True) + "\n")


def cpu_seconds() -> float:
    """CPU time of this process and of all below it, those that have ended and were waited for included."""
    below: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):  # noqa: PTH208 (`Path` takes longer)
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:  # it has ended in between
            continue
        below.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(map(int, fields[11:15]))
    waiting, ticks = [os.getpid()], 0
    while waiting:
        pid = waiting.pop()
        ticks += used.get(pid, 0)
        waiting += below.get(pid, [])
    return ticks / TICKS


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


if __name__ == "__main__":
    print("\n".join(left_out("tests/unit/")))
