"""The answers to signals as events of the Replicator: one for each, once."""

from tailrace.contract.status import SignalReport, Status
from tailrace_operator.decide import signals


def status(*found: SignalReport) -> Status:
    return Status(name="shop", state="Running", started_at=1.0, updated_at=2.0, signals=found)


def report(sequence: int, state: str = "Done", message: str = "") -> SignalReport:
    values = {"sequence": sequence, "id": f"s{sequence}", "type": "log", "received": 1.0}
    return SignalReport.model_validate({**values, "state": state, "message": message})


def test_each_answer_is_one_event() -> None:
    first = status(report(3), report(5, "Ignored", "no table. Fix: Name one."), report(6, "Open"))
    now = signals.last(first)
    assert now is not None and (now.sequence, now.ignored) == (5, True)
    told = [(e.type, e.reason, e.message) for e in signals.events(None, now, first)]
    assert told == [
        ("Normal", "SignalAccepted", "Signal 's3' (log, sequence 3) is carried out."),
        ("Warning", "SignalIgnored", "Signal 's5' (log, sequence 5) is ignored: no table. Fix: Name one."),
    ]
    later = status(report(5, "Ignored"), report(6, "Done", "table t is not read. Fix: Name another."))
    (event,) = signals.events(now, signals.last(later), later)
    assert (event.type, event.reason) == ("Warning", "SignalAccepted") and "Fix: " in event.message


def test_a_driver_that_does_not_answer_tells_nothing_again() -> None:
    found = status(report(3))
    now = signals.last(found)
    assert list(signals.events(now, now, found)) == [] and list(signals.events(now, now, None)) == []
    assert signals.last(status(report(3, "Open"))) is None
