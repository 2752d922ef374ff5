"""The signals that were inserted into the source's signal table: the last one for the status, and an event for each.
Pure."""

from collections.abc import Iterable

from tailrace.contract.status import SignalReport, Status
from tailrace_operator.decide.model import EmitEvent
from tailrace_operator.status.conditions import bounded, sentence, short
from tailrace_operator.status.models import SignalSummary
from tailrace_operator.status.numbers import count


def last(status: Status) -> SignalSummary | None:
    """None: no signal was answered."""
    answered = _answered(status)
    if not answered:
        return None
    found = answered[-1]
    return SignalSummary(
        sequence=count(found.sequence),
        id=short(found.id or ""),
        type=short(found.type or ""),
        ignored=found.state == "Ignored",
        message=bounded(found.message),
    )


def events(before: SignalSummary | None, now: SignalSummary | None, status: Status | None) -> Iterable[EmitEvent]:
    """One for each answer since the last round; the driver reports the newest ones only."""
    known, last_one = (0 if summary is None else summary.sequence for summary in (before, now))
    for found in _answered(status) if status is not None else ():
        if not known < found.sequence <= last_one:
            continue
        what = f"signal {short(found.id or '')!r} ({short(found.type or '')}, sequence {found.sequence})"
        if found.state == "Ignored":
            yield EmitEvent("Warning", "SignalIgnored", sentence(bounded(f"{what} is ignored: {found.message}")))
        elif found.message:
            yield EmitEvent("Warning", "SignalAccepted", sentence(bounded(f"{what}: {found.message}")))
        else:
            yield EmitEvent("Normal", "SignalAccepted", sentence(f"{what} is carried out."))


def _answered(status: Status) -> list[SignalReport]:
    return [one for one in status.signals if one.state != "Open"]
