"""Carries out the signals that people insert into a table of the source (`source.signalTable`).

Capture records each row at its place in the log (`SignalReceived`); a thread of the driver turns `TableSignals.step`.
What a signal asks for is in one record with the answer to it, so it is carried out once, whichever process dies.
"""

import logging
import time
from collections.abc import Callable, Sequence

from tailrace.changelog.records import Event
from tailrace.changelog.records.signals import SignalAnswered, SignalReceived
from tailrace.changelog.records.terms import Seq
from tailrace.changelog.state import LoggedSignal, LogState
from tailrace.driver.asking import signals
from tailrace.driver.asking.control import DriverControl
from tailrace.driver.asking.signal_acts import Act, SignalNotices, act_of
from tailrace.driver.asking.signals import SignalIgnored
from tailrace.errors import Retry
from tailrace.errors.backoff import Backoff

log = logging.getLogger(__name__)
LONGEST_PAUSE = 5.0
"""Between two tries to carry out a signal while capture is away."""
LONGEST_ANSWER = 4_000
"""Characters: it goes into the journal and into the status."""


class TableSignals:
    def __init__(self, dialect: str, notices: SignalNotices, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`dialect`: sqlglot's name of the source's SQL."""
        self._dialect = dialect
        self._notices = notices
        self._monotonic = monotonic
        self._backoff = Backoff(LONGEST_PAUSE)
        self._fault = ""

    def step(self, control: DriverControl) -> None:
        """Carries out what is open, in the order of the log."""
        state = control.journal.state if control.journal is not None else LogState()
        if not state.tables:
            return  # capture has not looked at the source yet: no name can match
        self._notices.look(state)
        if self._backoff.is_waiting(self._monotonic()):
            return
        try:
            for logged in open_signals(state):
                self._carry_out(logged.signal, control)
        except Retry as error:
            if str(error) != self._fault:
                log.warning("signals of the source's table wait: %s", error)
            self._fault = str(error)
            self._backoff.failed(self._monotonic())
            return
        self._fault = ""
        self._backoff.reset()

    def _carry_out(self, received: SignalReceived, control: DriverControl) -> None:
        made, ignored = list[Act](), list[str]()

        def act(state: LogState) -> Sequence[Event]:
            logged = state.signals.get(received.seq)
            if logged is None or logged.answer is not None:
                made.clear()
                return ()  # answered by a predecessor that has just ended
            try:
                made.append(self._act(received, control, state))
            except SignalIgnored as error:
                ignored[:] = [str(error)]
                return (_answer(received.seq, "ignored", ignored),)
            return (*made[-1].events, _answer(received.seq, made[-1].outcome, made[-1].warnings))

        control.carry_out(act)
        if ignored:
            log.warning("signal %r of the source's table is ignored: %s", received.id or f"at {received.seq}", *ignored)
        elif made:
            self._notices.done(made[-1])

    def _act(self, received: SignalReceived, control: DriverControl, state: LogState) -> Act:
        if received.fault is not None:
            what, _, fix = received.fault.partition(". Fix: ")
            raise SignalIgnored(what, fix)
        signal = signals.signal(received.id, received.type, received.data, "the row")
        return act_of(signal, str(received.seq), control, state, self._dialect)


def open_signals(state: LogState) -> list[LoggedSignal]:
    return [logged for logged in state.signals.values() if logged.answer is None]


def _answer(seq: Seq, outcome: str, messages: Sequence[str]) -> SignalAnswered:
    text = "; ".join(messages).encode("utf-8", "backslashreplace").decode()  # JSON may have halves of characters
    return SignalAnswered.model_validate({"seq": seq, "outcome": outcome, "message": text[:LONGEST_ANSWER]})
