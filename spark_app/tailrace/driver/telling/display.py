"""The output of `tailrace run` and `tailrace status`: a live table on a terminal, one line every few seconds elsewhere,
JSON lines with `--json`, events of the log where that is JSON. Renders status documents; knows nothing else."""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tailrace.contract.status import Fault, SnapshotStatus, Status, TableStatus
from tailrace.driver.telling.status import total
from tailrace.errors import error_line
from tailrace.logs import visible

log = logging.getLogger(__name__)

LINE_SECONDS = 5.0
"""Between two lines without a terminal."""
SAME_LINE_SECONDS = 60.0
"""Until a line that is equal to the one before is repeated: logs are stored, and read by people."""
MAX_TABLES = 20
"""Rows of the live view; failing and busy tables come first."""
MAX_SNAPSHOTS = 5
"""A first start has one for each table."""
MAX_FAULTS = 5
PIPED_COLUMNS = 1000
"""Width of a status that no terminal shows: what reads it searches for names and whole sentences."""
SHARE = 0.01
"""The share of a core's time that the display may cost, with however many tables."""
COLUMNS = ("table", "state", "behind", "rows/s", "inserts", "updates", "deletes", "snapshot rows", "holes", "fault")
SPARED = ("snapshot rows", "holes", "fault", "deletes", "updates", "inserts", "rows/s", "behind")
"""Left out of a narrow view, in this order; what is wrong stands in full below."""
SNAPSHOT_COLUMNS = ("snapshot", "bar", "share", "rows", "speed", "left", "reading")
SNAPSHOT_SPARED = ("reading", "rows", "bar", "left", "speed")
STYLES = {"REPLICATING": "green", "SNAPSHOTTING": "cyan", "FAILING": "red", "STOPPED": "red", "WAITING": "yellow"}


class Display(Protocol):
    pause: float
    """Seconds between two statuses, at least."""

    def show(self, status: Status, last: bool = False) -> None:
        """`last`: nothing comes after it."""

    def close(self) -> None: ...


class LiveDisplay:
    """A terminal: redrawn in place, the log scrolls above it."""

    pause = 0.0

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def show(self, status: Status, last: bool = False) -> None:
        self._live.update(render(status), refresh=True)

    def close(self) -> None:
        self._live.stop()


class LineDisplay:
    """One line per few seconds, soon when the state's word changes, and at the end; seldom if nothing changes."""

    pause = 1.0

    def __init__(self, write: Callable[[str], None], json: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._json = json
        self._clock = clock
        self._due = 0.0
        self._state = self._text = ""
        self._written = 0.0

    def show(self, status: Status, last: bool = False) -> None:
        now = self._clock()
        if now < self._due and status.state == self._state and not last:
            return
        self._due, self._state = now + LINE_SECONDS, status.state
        text = status.model_dump_json(by_alias=True) if self._json else line(status)
        if text == self._text and now < self._written + SAME_LINE_SECONDS and not last:
            return
        self._text, self._written = text, now
        self._write(text)

    def close(self) -> None:
        pass


class Paced:
    """Shows `status()` whenever asked, but not so often that it costs more than `SHARE`: the status of two thousand
    tables takes some 50 ms to assemble. Only CPU counts: a machine that stalls must not silence the view."""

    def __init__(
        self,
        view: Display,
        status: Callable[[], Status],
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._view = view
        self._status = status
        self._clock = clock
        self._cpu = cpu
        self._due = float("-inf")

    def show(self, last: bool = False) -> None:
        now, spent = self._clock(), self._cpu()
        if now < self._due and not last:
            return
        self._view.show(self._status(), last=last)
        self._due = now + max(self._view.pause, (self._cpu() - spent) / SHARE)

    def close(self) -> None:
        self._view.close()


def on_terminal(json: bool) -> bool:
    return not json and sys.stdout.isatty()


def console() -> Console:
    """A console for one status: as wide as the terminal, or as COLUMNS says; else nothing is cut."""
    free = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=PIPED_COLUMNS if free else None)


def choose(json: bool, log_format: str) -> Display:
    """`json`: whole status documents. Where the log is JSON, a line of the status is one of its events."""
    if on_terminal(json):
        return LiveDisplay(Console())
    if log_format == "json" and not json:
        return LineDisplay(lambda text: log.info("%s", text), json)
    return LineDisplay(lambda text: print(text, flush=True), json)


def line(status: Status) -> str:
    """`shop Running, 2/3 tables replicating, lag 0.4 s, …`"""
    count = total(status)
    parts = [
        f"{status.name} {status.state}",
        f"{status.tables_replicating}/{status.tables_total} tables replicating",
        f"lag {seconds(status.apply.lag_seconds)}",
        *_freshness(status),
        f"{status.apply.rows_per_second:,.0f} rows/s",
        f"{count.inserts:,} inserts",
        f"{count.updates:,} updates",
        f"{count.deletes:,} deletes",
    ]
    under_way = running(status)
    parts += [_one_snapshot(s) for s in under_way[:MAX_SNAPSHOTS]]
    if len(under_way) > MAX_SNAPSHOTS:
        parts.append(f"and {len(under_way) - MAX_SNAPSHOTS} more")
    parts += [f"snapshot {_name(s)} failed" for s in failed(status)[-1:]]
    return visible(", ".join(parts) + (f" | {status.message}" if status.message else ""))


def _freshness(status: Status) -> list[str]:
    """The objective, if there is one, or what nearly all changes keep."""
    found, asked = status.freshness, status.objective
    if asked is not None and asked.met_percent is not None:
        left = f", {100 * (asked.remaining or 0):.0f}% of the late ones left"
        return [f"{asked.met_percent:g}% within {asked.within_seconds:g} s ({asked.percent:g}% asked{left})"]
    return [] if found is None or found.p95 is None else [f"95% within {seconds(found.p95)}"]


def _one_snapshot(snapshot: SnapshotStatus) -> str:
    state = "paused, " if snapshot.state == "Paused" else ""
    if snapshot.rewind is not None:
        return f"rewind {_name(snapshot)} to cut {snapshot.rewind.cut}"
    return f"snapshot {_name(snapshot)} {percent(snapshot)} ({state}{snapshot.rows_done:,} rows)"


def running(status: Status) -> list[SnapshotStatus]:
    return [s for s in status.snapshots if s.state in ("Pending", "Running", "Paused")]


def failed(status: Status) -> list[SnapshotStatus]:
    """Their user must be informed, until a later one has read the same tables: they stand in the order in which they
    ended. Of Tailrace's own a table that is gone needs no other."""
    known = {table.name for table in status.tables}
    read = set[str]()
    found: list[SnapshotStatus] = []
    for snapshot in reversed(status.snapshots):
        tables = {table.name for table in snapshot.tables}
        if snapshot.rewind is not None:
            continue  # it reads no rows
        if snapshot.state == "Completed" and snapshot.reason != "repair" and not snapshot.verify:
            read |= tables
        wanting = tables if snapshot.name is not None else tables & known
        if snapshot.state == "Failed" and not (tables and wanting <= read):
            found.append(snapshot)
    return found[::-1]


def percent(snapshot: SnapshotStatus) -> str:
    return f"{100 * _share(snapshot):.0f}%"


def _share(snapshot: SnapshotStatus) -> float:
    return min(snapshot.rows_done / snapshot.rows_estimated, 1.0) if snapshot.rows_estimated else 0.0


def seconds(value: float | None) -> str:
    if value is None:
        return "?"
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def _name(snapshot: SnapshotStatus) -> str:
    return snapshot.name or (snapshot.tables[0].name if len(snapshot.tables) == 1 else snapshot.id)


def _named(snapshot: SnapshotStatus, among: Sequence[SnapshotStatus]) -> str:
    """The name of a snapshot; of two with one name, `pause`, `resume` and `stop` take the id."""
    name = _name(snapshot)
    alone = sum(_name(s) == name for s in among) == 1
    return name if alone else f"{name} ({snapshot.id})"


def render(status: Status) -> RenderableType:
    """The whole view of one status."""
    parts: list[RenderableType] = [_head(status)]
    if running(status):
        parts.append(_snapshots(status))
    if status.tables:
        parts.append(_tables(status))
    for part in (_nulled, _converging, _differing, _cuts, _cutover, _signals, _followers, _faults):
        parts += part(status)
    return Group(*parts)


def _nulled(status: Status) -> list[RenderableType]:
    """Nothing is wrong with these tables, but their targets differ from the source."""
    found = [table for table in status.tables if table.nulled]
    lines: list[RenderableType] = []
    for table in found[:MAX_FAULTS]:
        columns = ", ".join(f"{one.column} {one.values:,}" for one in table.nulled)
        said = visible(f"values became NULL that their type cannot hold: {columns}")
        lines.append(Text.assemble((f"{visible(table.name)} ", "bold"), (said, "yellow")))
    more = len(found) - MAX_FAULTS
    return [*lines, f"… and {more} more tables with such values"] if more > 0 else lines


def _converging(status: Status) -> list[RenderableType]:
    found = [(t.name, t.converging_since) for t in status.tables if t.converging_since is not None]
    lines: list[RenderableType] = []
    for name, since in found[:MAX_FAULTS]:
        age = seconds(max(status.updated_at - since, 0.0))
        said = f"converging for {age}: rows that foreign keys have changed are read again"
        lines.append(Text.assemble((f"{visible(name)} ", "bold"), (said, "yellow")))
    more = len(found) - MAX_FAULTS
    return [*lines, f"… and {more} more tables that converge"] if more > 0 else lines


def _differing(status: Status) -> list[RenderableType]:
    found = [(table.name, table.verified.compared) for table in status.tables if table.verified is not None]
    wrong = [(name, rows) for name, rows in found if rows.differences]
    lines: list[RenderableType] = []
    for name, rows in wrong[:MAX_FAULTS]:
        said = f"differs from its source: {rows.missing} rows missing, {rows.extra} extra, {rows.different} different"
        lines.append(Text.assemble((f"{visible(name)} ", "bold"), (said, "red"), " (tailrace verify --repair)"))
    more = len(wrong) - MAX_FAULTS
    return [*lines, f"… and {more} more tables that differ"] if more > 0 else lines


def _cuts(status: Status) -> list[RenderableType]:
    cuts = status.cuts
    if cuts is None:
        return []
    age, state = seconds(max(status.updated_at - cuts.made, 0.0)), "complete" if cuts.complete else "not complete"
    return [f"{cuts.kept} cuts, the last ({cuts.last}, {state}) {age} ago"]


def _cutover(status: Status) -> list[RenderableType]:
    """The obstacle of the last attempt, or what the present one does."""
    if status.cutover is None:
        return []
    fault = status.cutover.fault
    said = status.cutover.message or "not begun" if fault is None else error_line(fault.name, fault.message, fault.fix)
    return [Text.assemble(("cutover ", "bold"), (visible(said), "" if fault is None else "yellow"))]


def _signals(status: Status) -> list[RenderableType]:
    """The last one, and the last that was ignored, in full."""
    if not status.signals:
        return []
    last = status.signals[-1]
    age = seconds(max(status.updated_at - last.received, 0.0))
    lines: list[RenderableType] = [f"last signal {visible(last.id or '')} ({last.state.lower()}) {age} ago"]
    wrong = [one for one in status.signals if one.message]
    for one in wrong[-1:]:
        lines.append(Text.assemble((f"signal {visible(one.id or '')} ", "bold"), (visible(one.message), "yellow")))
    return lines


def _followers(status: Status) -> list[RenderableType]:
    said = [one.said for one in status.followers if one.said is not None]
    return [Text(visible(text), "yellow") for text in said[:MAX_FAULTS]]


def _faults(status: Status) -> list[RenderableType]:
    """The faults and their fixes, in full."""
    found = [(status.name, status.fault), *((table.name, table.fault) for table in status.tables)]
    found += [(f"snapshot {_name(snapshot)} failed", snapshot.fault) for snapshot in failed(status)]
    failing = [(name, fault) for name, fault in found if fault is not None]
    lines: list[RenderableType] = [_fault(name, fault) for name, fault in failing[:MAX_FAULTS]]
    return [*lines, f"… and {len(failing) - MAX_FAULTS} more faults"] if len(failing) > MAX_FAULTS else lines


def _fault(name: str, fault: Fault) -> Text:
    place = f"({fault.where}) " if fault.where is not None else ""
    fix = visible(f". Fix: {fault.fix}") if fault.fix else ""
    said = visible(f"{fault.name}: {fault.message.rstrip('.')}")
    return Text.assemble((f"{visible(name)} ", "bold"), place, (said, "red"), fix)


def _head(status: Status) -> Text:
    capture, apply = status.capture, status.apply
    text = Text.assemble(
        (status.name, "bold"), "  ",
        (status.state, "red" if status.state == "Failing" else "green"),
        f"   captured to {capture.position or '?'} (behind {seconds(capture.lag_seconds)})",
        f"   applied behind {seconds(apply.lag_seconds)}   {apply.rows_per_second:,.0f} rows/s",
    )  # fmt: skip
    if status.message:
        text.append(f"\n{visible(status.message)}", "yellow")
    return text


@dataclass(frozen=True)
class Fitted:
    """A table that leaves out whole columns where they do not fit: half a number says something else."""

    titles: tuple[str, ...]
    left: tuple[str, ...]
    """Columns of words; the others are numbers."""
    spared: tuple[str, ...]
    rows: Sequence[Sequence[RenderableType]]
    header: bool = True
    more: int = 0
    """Rows that are not shown."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        tables = (self._table(frozenset(self.spared[:count])) for count in range(len(self.spared) + 1))
        unlimited = options.update(max_width=sys.maxsize)
        for table in tables:
            if console.measure(table, options=unlimited).maximum <= options.max_width:
                break
        yield table
        if self.more:
            yield f"… and {self.more} more"

    def _table(self, without: frozenset[str]) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim", show_header=self.header)
        kept = [place for place, title in enumerate(self.titles) if title not in without]
        for title in (self.titles[place] for place in kept):
            # The first, with the names, is the one that gives way where even the fewest columns are too wide.
            justify: JustifyMethod = "left" if title in self.left else "right"
            table.add_column(title, justify=justify, no_wrap=title != self.titles[0])
        for name, *others in ([row[place] for place in kept] for row in self.rows):
            cells = (Text(visible(c)) if isinstance(c, str) else c for c in others)  # a name is no markup
            table.add_row(Name(visible(name)) if isinstance(name, str) else name, *cells)
        return table


@dataclass(frozen=True)
class Name:
    """One line, cut in the middle where it is too long: names of tables often differ only at their end."""

    text: str

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, cell_len(self.text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield Text(_cut(self.text, options.max_width), no_wrap=True)


def _cut(text: str, width: int) -> str:
    """To so many cells of the terminal; some characters take two."""
    if cell_len(text) <= width:
        return text
    tail = len(text)
    while tail > 0 and cell_len(text[tail - 1 :]) <= width // 2:
        tail -= 1
    head = 0
    while cell_len(text[: head + 1]) + 1 + cell_len(text[tail:]) <= width:
        head += 1
    return f"{text[:head]}…{text[tail:]}"


def _snapshots(status: Status) -> Fitted:
    under_way = running(status)
    rows = [_snapshot_cells(snapshot, under_way) for snapshot in under_way[:MAX_SNAPSHOTS]]
    more = len(under_way) - len(rows)
    return Fitted(SNAPSHOT_COLUMNS, SNAPSHOT_COLUMNS, SNAPSHOT_SPARED, rows, header=False, more=more)


def _snapshot_cells(snapshot: SnapshotStatus, among: Sequence[SnapshotStatus]) -> list[RenderableType]:
    chunks = [r for t in snapshot.tables for r in t.running]
    return [
        f"snapshot {_named(snapshot, among)}",
        ProgressBar(total=1.0, completed=_share(snapshot), width=24),
        percent(snapshot),
        f"{snapshot.rows_done:,} of about {snapshot.rows_estimated:,} rows",
        f"{snapshot.rows_per_second:,.0f}/s" if snapshot.state == "Running" else snapshot.state,
        "" if snapshot.seconds_left is None else f"{seconds(snapshot.seconds_left)} left",
        f"reading {chunks[0]}" + (f" and {len(chunks) - 1} more" if len(chunks) > 1 else "") if chunks else "",
    ]


def _tables(status: Status) -> Fitted:
    shown = sorted(status.tables, key=_urgency)[:MAX_TABLES]
    rows = [_cells(row) for row in sorted(shown, key=lambda t: t.name)]
    return Fitted(COLUMNS, ("table", "state", "fault"), SPARED, rows, more=len(status.tables) - len(shown))


def _urgency(table: TableStatus) -> tuple[bool, bool, float]:
    return (table.fault is None, table.state == "REPLICATING", -(table.lag_seconds or 0.0))


def _cells(table: TableStatus) -> list[RenderableType]:
    count = table.counters
    numbers = (count.inserts, count.updates, count.deletes, count.snapshot_rows)
    return [
        table.name,
        Text("REPLACING" if table.replacing and table.state == "SNAPSHOTTING" else table.state, STYLES[table.state]),
        seconds(table.lag_seconds),
        f"{table.rows_per_second:,.0f}",
        *(f"{n:,}" for n in numbers),
        str(table.holes or ""),
        Text(table.fault.name if table.fault else "", "red"),
    ]
