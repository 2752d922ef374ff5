"""The measurements of every stage: elapsed time, CPU seconds of the processes concerned, rows; and their output."""

import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import psutil


def family(pid: int) -> list[psutil.Process]:
    """A process and all below it; none when it has ended."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


Times = dict[psutil.Process, tuple[float, float]]
"""Own CPU seconds of each living process, and those of children that it has waited for."""


def cpu_times(pid: int, without: int | None = None) -> Times:
    """User and system time of a process and of what lives below it; without another family."""
    found: Times = {}
    strangers = set(family(without)) if without is not None else set()
    for process in family(pid):
        if process in strangers:
            continue
        try:
            spent = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found[process] = spent.user + spent.system, spent.children_user + spent.children_system
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, what lives below it, and what has ended below it."""
    return sum(own + ended for own, ended in cpu_times(pid).values())


def spent_between(before: Times, after: Times) -> float:
    """CPU seconds from one look to the next. A process that ended in between counts with what its parent was told of
    it, less what it had used before; one that nobody waited for (Spark's idle Python workers) counts as nothing."""
    nothing = (0.0, 0.0)
    own = sum(now[0] - before.get(process, nothing)[0] for process, now in after.items())
    ended = sum(now[1] - before.get(process, nothing)[1] for process, now in after.items())
    known = sum(own + children for process, (own, children) in before.items() if process not in after)
    return own + max(0.0, ended - known)


@dataclass(frozen=True)
class Result:
    """One line of the table."""

    stage: str
    """Lines of one stage are compared with each other."""
    what: str
    role: str
    """`tailrace`, `ceiling` or `incumbent`."""
    rows: int
    wall: float
    cpu: float
    """CPU seconds of the readers and writers, without the source's server."""
    source_cpu: float | None = None
    """CPU seconds of the source's server."""
    note: str = ""

    @property
    def per_cpu(self) -> float:
        return self.rows / self.cpu if self.cpu else 0.0


class Watch:
    """Measures a `with` block: CPU of the processes `pids` and, apart, of the source's server."""

    def __init__(self, pids: Sequence[int], source: int | None = None) -> None:
        self._pids, self._source = pids, source
        self.wall = self.cpu = 0.0
        self.source_cpu: float | None = None

    def _now(self) -> tuple[float, Times, Times]:
        source = cpu_times(self._source) if self._source is not None else {}
        mine: Times = {}
        for pid in self._pids:
            mine |= cpu_times(pid, self._source)
        return time.perf_counter(), mine, source

    def __enter__(self) -> "Watch":
        self._before = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        begun, mine, source = self._before
        ended, mine_after, source_after = self._now()
        self.wall, self.cpu = ended - begun, spent_between(mine, mine_after)
        self.source_cpu = spent_between(source, source_after) if self._source is not None else None

    def result(self, stage: str, what: str, role: str, rows: int, note: str = "") -> Result:
        return Result(stage, what, role, rows, self.wall, self.cpu, self.source_cpu, note)


HEADER = ("stage", "what", "rows", "wall s", "CPU s", "source CPU s", "rows/s", "rows/CPU s", "CPU ratio", "note")


def table(results: Sequence[Result]) -> str:
    """Markdown. The ratio is CPU per row against Tailrace's first line of the stage: 4 means four times as much."""
    lines = [HEADER, ("---", "---", *["---:"] * (len(HEADER) - 3), "---"), *(_cells(r, results) for r in results)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines)


def _cells(result: Result, results: Sequence[Result]) -> tuple[str, ...]:
    ours = next((r for r in results if r.stage == result.stage and r.role == "tailrace"), result)
    ratio = (result.cpu / result.rows) / (ours.cpu / ours.rows) if result.rows and ours.cpu else 0.0
    label = result.what if result.role == "tailrace" else f"{result.role}: {result.what}"
    source = f"{result.source_cpu:.1f}" if result.source_cpu is not None else ""
    return (
        result.stage, label, f"{result.rows:,}", f"{result.wall:.2f}", f"{result.cpu:.2f}", source,
        f"{result.rows / result.wall:,.0f}", f"{result.per_cpu:,.0f}", f"{ratio:.2f}", result.note,
    )  # fmt: skip


def machine() -> str:
    """One line: what the figures were measured on."""
    memory = psutil.virtual_memory().total >> 30
    load = psutil.getloadavg()[0]
    packages = " ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "numpy", "psycopg"))
    here = f"{psutil.cpu_count()} cores, {memory} GiB, Linux {platform.release()}, Python {platform.python_version()}"
    return f"{here}, {packages}, load {load:.1f}"


def save(path: Path, results: Sequence[Result]) -> None:
    """The figures for programs."""
    path.write_text(json.dumps({"machine": machine(), "results": [asdict(r) for r in results]}, indent=1))


def until(condition: Callable[[], bool], what: str, timeout: float = 600, pause: float = 0.05) -> None:
    """Poll; `TimeoutError` names what did not happen."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {timeout} s: {what}")
        time.sleep(pause)
