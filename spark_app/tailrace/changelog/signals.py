"""The effect of signals' and notifications' events on the log's state. Called by the fold only.

A signal is open until it is answered; the newest answered ones are kept for the status. A stop of copies is kept until
it is over.
"""

from collections.abc import Mapping

from tailrace.changelog.folding import Folding, Handler
from tailrace.changelog.logged import KEPT_SIGNALS, RESUMED, CopyStop, LoggedSignal
from tailrace.changelog.records.notices import CopiesResumed, CopiesStopped, Notified
from tailrace.changelog.records.signals import SignalAnswered, SignalReceived


def _received(work: Folding, event: SignalReceived) -> None:
    work.in_record(event.seq, "a signal")
    if event.seq <= next(reversed(work.signals), -1):  # one transaction may have a hundred thousand
        work.corrupt(f"a signal at sequence {event.seq}, not above the one before it")
    work.signals[event.seq] = LoggedSignal(signal=event, received_at=work.record.written_at)


def _answered(work: Folding, event: SignalAnswered) -> None:
    """Once: a second answer to the same signal, with all that is in its record, is refused."""
    signal = work.signals.get(event.seq)
    if signal is None or signal.answer is not None:
        work.corrupt(f"an answer to the signal at sequence {event.seq}, which is not open")
    work.signals[event.seq] = signal.model_copy(update={"answer": event, "answered_at": work.record.written_at})
    answered = [seq for seq, known in work.signals.items() if known.answer is not None]
    for seq in answered[:-KEPT_SIGNALS]:
        del work.signals[seq]


def _copies_stopped(work: Folding, event: CopiesStopped) -> None:
    known = work.copy_stops.get(event.id)
    if event.later != (known is not None):
        work.corrupt(f"stop {event.id} of copies is {'not known' if known is None else 'known already'}")
    tables = event.tables if known is None else {**known.tables, **event.tables}
    work.copy_stops[event.id] = CopyStop(tables=tables, error=event.error, where=event.where, away=event.away)


def _copies_resumed(work: Folding, event: CopiesResumed) -> None:
    if work.copy_stops.pop(event.id, None) is None:
        work.corrupt(f"stop {event.id} of copies has ended, and is not known")
    for key, stop in work.copy_stops.items():
        again = dict.fromkeys(stop.tables.keys() & set(event.tables), RESUMED)
        if again:
            work.copy_stops[key] = stop.model_copy(update={"tables": {**stop.tables, **again}})


def _notified(work: Folding, event: Notified) -> None:
    if event.record > work.record.number:
        work.corrupt(f"notifications were sent through record {event.record}, which is still to come")
    work.notified = max(event.record, work.notified or event.record)


SIGNAL_HANDLERS: Mapping[type, Handler] = {
    SignalReceived: _received,
    SignalAnswered: _answered,
    CopiesStopped: _copies_stopped,
    CopiesResumed: _copies_resumed,
    Notified: _notified,
}
