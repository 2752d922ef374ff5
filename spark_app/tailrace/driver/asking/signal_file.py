"""Carries out signals in Debezium's form that are written into a file, one JSON object a line.

A thread of the driver turns `SignalFile.step`. The file is renamed to `<file>.taken-<token>`, which gives each of its
lines an identity: a snapshot's id is made of token, line and table. A line is blanked once it is carried out, and the
taken file is removed behind its last line. Dying before a line is blanked repeats it: its snapshots are known by their
ids, so they are not made twice.
"""

import logging
import re
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tailrace.changelog.records import Event
from tailrace.changelog.state import LogState
from tailrace.driver.asking import signals
from tailrace.driver.asking.control import DriverControl
from tailrace.driver.asking.signal_acts import Act, SignalNotices, act_of
from tailrace.driver.asking.signals import SignalIgnored
from tailrace.errors import Retry
from tailrace.errors.backoff import Backoff

log = logging.getLogger(__name__)

LONGEST_PAUSE = 5.0
"""Between two tries to carry out a signal while the driver starts or capture is away."""


class SignalFile:
    def __init__(
        self,
        path: Path,
        dialect: str,
        notices: SignalNotices,
        monotonic: Callable[[], float] = time.monotonic,
        token: Callable[[], str] = lambda: secrets.token_hex(6),
    ) -> None:
        """`dialect`: sqlglot's name of the source's SQL."""
        self._path = path
        self._dialect = dialect
        self._notices = notices
        self._monotonic = monotonic
        self._token = token
        self._backoff = Backoff(LONGEST_PAUSE)
        self._fault = ""

    def step(self, control: DriverControl) -> None:
        """Carries out what was taken, or takes the file: what a writer appends meanwhile is read a step later."""
        state = control.journal.state if control.journal is not None else LogState()
        if not state.tables or self._backoff.is_waiting(self._monotonic()):
            return  # capture has not looked at the source yet: no name can match
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
        made = list[Act]()

        def act(state: LogState) -> Sequence[Event]:
            made.append(act_of(signal, place, control, state, self._dialect))
            return made[-1].events

        try:
            control.carry_out(act)
        except SignalIgnored as error:
            log.warning("signal %r is ignored: %s", signal.id, error)
            return
        self._notices.done(made[-1])


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
