"""Carries out signals in Debezium's form that are written into a file, one JSON object a line.

A thread of the driver turns `SignalFile.step`. The file is renamed to `<file>.taken-<token>`, which gives each of its
lines an identity: a snapshot's id is made of token, line and table. A line is blanked once it is carried out, and the
taken file is removed behind its last line. Dying before a line is blanked repeats it: its snapshots are known by their
ids, so they are not made twice.
"""

import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tailrace.changelog.state import LogState, SnapshotState, TableLog
from tailrace.contract.driver import SnapshotBody
from tailrace.contract.resources import SnapshotRequestSpec
from tailrace.driver.asking import signals
from tailrace.driver.asking.control import DriverControl
from tailrace.driver.asking.server import Conflict, Unknown
from tailrace.driver.asking.signals import Signal, SignalIgnored
from tailrace.errors import InvalidManifest, Retry
from tailrace.errors.backoff import Backoff

log = logging.getLogger(__name__)

LONGEST_PAUSE = 5.0
"""Between two tries to carry out a signal while the driver starts or capture is away."""
PREFIX = "signal-"
"""The beginning of the ids of snapshots that signals asked for."""
NAMED = 20
"""Tables that one warning names."""
SUCCESS = {"completed": ("COMPLETED", "SUCCEEDED"), "failed": ("ABORTED", "SQL_EXCEPTION")}
"""Debezium's words, by the outcome of a snapshot; without one, it was stopped."""


class SignalFile:
    def __init__(
        self,
        path: Path,
        dialect: str,
        monotonic: Callable[[], float] = time.monotonic,
        token: Callable[[], str] = lambda: secrets.token_hex(6),
    ) -> None:
        """`dialect`: sqlglot's name of the source's SQL."""
        self._path = path
        self._dialect = dialect
        self._monotonic = monotonic
        self._token = token
        self._backoff = Backoff(LONGEST_PAUSE)
        self._running: dict[str, str] | None = None
        """Snapshots whose end is not told yet -> their signals. None: not looked for yet."""
        self._fault = ""

    def step(self, control: DriverControl) -> None:
        """Carries out what was taken, or takes the file: what a writer appends meanwhile is read a step later."""
        state = control.journal.state if control.journal is not None else LogState()
        if not state.tables or self._backoff.is_waiting(self._monotonic()):
            return  # capture has not looked at the source yet: no name can match
        self._tell_ends(state)
        try:
            taken = sorted(self._path.parent.glob(f"{_literal(self._path.name)}.taken-*"), key=_age)
            for file in taken:
                self._carry_out(file, control)
            if not taken and self._path.exists():
                self._path.rename(self._path.with_name(f"{self._path.name}.taken-{self._token()}"))
        except (OSError, Retry) as error:
            self._failed(f"signals in {self._path} wait: {error}")
            return
        self._fault = ""
        self._backoff.reset()

    def _failed(self, why: str) -> None:
        if why != self._fault:
            log.warning("%s", why)
        self._fault = why
        self._backoff.failed(self._monotonic())

    def _carry_out(self, file: Path, control: DriverControl) -> None:
        lines = file.read_bytes().split(b"\n")
        token = file.name.rpartition("-")[2]
        for number, line in enumerate(lines):
            if not line.strip():
                continue
            self._line(line, f"{token}-{number + 1}", control)
            # Dying here repeats the line: its snapshots are known by their ids.
            lines[number] = b""
            _replace(file, b"\n".join(lines))
        file.unlink()

    def _line(self, line: bytes, place: str, control: DriverControl) -> None:
        """`place`: token and number of the line."""
        number = place.rpartition("-")[2]
        try:
            signal = signals.parse(line.decode("utf-8"))
        except UnicodeDecodeError:
            log.warning("line %s of %s is ignored: it is not UTF-8. Fix: Write it in UTF-8.", number, self._path)
            return
        except SignalIgnored as error:
            log.warning("line %s of %s is ignored: %s", number, self._path, error)
            return
        try:
            self._signal(signal, place, control)
        except SignalIgnored as error:
            log.warning("signal %r is ignored: %s", signal.id, error)

    def _signal(self, signal: Signal, place: str, control: DriverControl) -> None:
        match signal.type:
            case "execute-snapshot":
                self._execute(signal, place, control)
            case "stop-snapshot":
                self._stop(signal, control)
            case "pause-snapshot" | "resume-snapshot":
                self._suspend(signal, control)
            case "log":
                message = signal.data.get("message")
                if not isinstance(message, str):
                    raise SignalIgnored("it has no message", 'Write {"message": "…"}.')
                position = control.position_text(_state(control).position)
                log.info("signal %r: %s", signal.id, message.replace("{}", position))
            case _ if signal.type in signals.WATERMARKS:
                return
            case _:
                known = ", ".join(signals.TYPES)
                raise SignalIgnored(f"type {signal.type!r} is not supported", f"Use one of {known}.")

    def _execute(self, signal: Signal, place: str, control: DriverControl) -> None:
        asked = signals.execution(signal.data, self._dialect)
        state = _state(control)
        captured = sorted((t for t in state.tables.values() if not t.removed), key=lambda t: t.schema.name)
        unmet = [p.pattern for p in asked.tables if not any(signals.named(t, (p,)) for t in captured)]
        if unmet:
            names = ", ".join(t.schema.name for t in captured[:NAMED])
            log.warning(
                "signal %r: no captured table matches %s (captured: %s). Fix: Correct data-collections; names are"
                " regular expressions.",
                signal.id, ", ".join(unmet), names,
            )  # fmt: skip
        if asked.blocking:
            log.info("signal %r: the snapshot runs beside the stream, which a blocking one would stop", signal.id)
        if asked.surrogate_key:
            log.info("signal %r: surrogate-key is not used, chunks are ranges of the table's key", signal.id)
        for table in captured:
            if signals.named(table, asked.tables):
                self._read(signal, f"{PREFIX}{place}-{table.table_id}", table, asked.where(table), control)

    def _read(
        self, signal: Signal, snapshot_id: str, table: TableLog, where: str | None, control: DriverControl
    ) -> None:
        """A snapshot for each table: a signal may stop one of them."""
        name = table.schema.name
        if re.search(r"[*?]", name):
            log.warning(
                "signal %r: table %s is not read: its name has * or ?. Fix: Use a SnapshotRequest.", signal.id, name
            )
            return
        if snapshot_id in _state(control).snapshots:
            return  # planned before the process died, or before capture went away
        try:
            spec = SnapshotRequestSpec(replicator=control.name, tables=(name,), where=where)
            control.request(snapshot_id, SnapshotBody(name=signal.id, spec=spec))
        except (InvalidManifest, Conflict, ValueError) as error:
            log.warning("signal %r: table %s is not read: %s", signal.id, name, error)
            return
        control.follow()
        self._told(signal.id, "STARTED", [name])
        if self._running is not None:
            self._running[snapshot_id] = signal.id

    def _stop(self, signal: Signal, control: DriverControl) -> None:
        patterns = signals.collections(signal.data)
        state, met = _state(control), False
        for snapshot_id, snapshot in _running(state):
            tables = [state.tables[i] for i in snapshot.plan.tables if i in state.tables]
            concerned = [t for t in tables if not patterns or signals.named(t, patterns)]
            if not concerned:
                continue
            met = True
            if len(concerned) < len(tables):
                log.warning(
                    "signal %r: snapshot %s continues: it reads other tables as well. Fix: Run `tailrace stop`.",
                    signal.id, snapshot_id,
                )  # fmt: skip
                continue
            try:
                control.stop_snapshot(snapshot_id)
            except Unknown:
                continue  # it has ended and was forgotten
        control.follow()
        if not met:
            log.info("signal %r: no snapshot runs that it could stop", signal.id)

    def _suspend(self, signal: Signal, control: DriverControl) -> None:
        pauses = signal.type == "pause-snapshot"
        state = _state(control)
        for snapshot_id, snapshot in _running(state):
            if snapshot.suspended == pauses:
                continue
            try:
                control.suspend_snapshot(snapshot_id, pauses)
            except Unknown:
                continue  # it has ended and was forgotten
            names = [state.tables[i].schema.name for i in snapshot.plan.tables if i in state.tables]
            self._told(signal.id, "PAUSED" if pauses else "RESUMED", names)
        control.follow()

    # ---- answers ----

    def _tell_ends(self, state: LogState) -> None:
        if self._running is None:
            mine = ((i, s) for i, s in state.snapshots.items() if i.startswith(PREFIX) and s.ended is None)
            self._running = {i: s.plan.request or i for i, s in mine}
        for snapshot_id, signal_id in list(self._running.items()):
            snapshot = state.snapshots.get(snapshot_id)
            if snapshot is not None and snapshot.ended is None:
                continue
            del self._running[snapshot_id]
            if snapshot is None or snapshot.ended is None:
                continue
            word, status = SUCCESS.get(snapshot.ended.outcome, ("ABORTED", None))
            names = [state.tables[i].schema.name for i in snapshot.plan.tables if i in state.tables]
            rows = sum(t.rows_done for t in snapshot.tables.values())
            more = {"total_rows_scanned": str(rows)} | ({} if status is None else {"status": status})
            self._told(signal_id, word, names, **more)

    def _told(self, signal_id: str, kind: str, names: list[str], **more: str) -> None:
        """One line in the form of Debezium's notifications."""
        said = {
            "id": signal_id,
            "aggregate_type": "Incremental Snapshot",
            "type": kind,
            "additional_data": {"data_collections": ",".join(names), **more},
            "timestamp": int(time.time() * 1000),
        }
        log.info("notification %s", json.dumps(said))


def _state(control: DriverControl) -> LogState:
    if control.journal is None:
        raise Retry("the driver is still starting", "")
    return control.journal.refresh()


def _running(state: LogState) -> Iterator[tuple[str, SnapshotState]]:
    """Those that somebody asked for; first ones and re-reads are Tailrace's own, verifications read nothing."""
    for snapshot_id, snapshot in list(state.snapshots.items()):
        plan = snapshot.plan
        if snapshot.ended is None and plan.reason == "request" and not plan.verify and not plan.resync:
            yield snapshot_id, snapshot


def _replace(file: Path, content: bytes) -> None:
    new = file.with_name(f".{file.name}.new")
    new.write_bytes(content)
    new.replace(file)


def _literal(name: str) -> str:
    """The name as a pattern of `glob`."""
    return re.sub(r"([*?\[])", r"[\1]", name)


def _age(file: Path) -> tuple[int, str]:
    """Blanking a line changes the time, never the order: one file is finished before another is taken."""
    return file.stat().st_mtime_ns, file.name
