"""What the fold makes of the rows of a signal table: each is answered once, and the newest answers are kept."""

from random import Random

import pytest

from support.journals import Journal
from tailrace.changelog.logged import KEPT_SIGNALS
from tailrace.changelog.records import Event
from tailrace.changelog.records.signals import SignalAnswered, SignalReceived
from tailrace.changelog.records.terms import Seq
from tailrace.changelog.state import LogState, fold
from tailrace.errors import CorruptLog


class Log:
    def __init__(self) -> None:
        self.journal = Journal(Random(1))
        self.state = fold(LogState(), self.journal.origin())

    def has(self, *events: Event, changes: int = 0) -> LogState:
        """A record with them; the state goes through its stored form."""
        state = fold(self.state, self.journal.plain(rows=changes, events=events))
        self.state = LogState.model_validate_json(state.model_dump_json())
        assert self.state == state
        return self.state


def test_a_signal_is_open_until_it_is_answered_once() -> None:
    log = Log()
    seq = Seq(log.state.last_seq + 1)
    log.has(SignalReceived(seq=seq, id="a", type="log", data=None), changes=1)
    assert log.state.signals[seq].answer is None
    answer = SignalAnswered(seq=seq, outcome="done")
    assert log.has(answer).signals[seq].answer == answer
    with pytest.raises(CorruptLog, match="not open"):
        fold(log.state, log.journal.plain(events=(answer,)))


def test_a_signal_lies_among_the_changes_of_its_record() -> None:
    log = Log()
    with pytest.raises(CorruptLog, match="a signal at sequence"):
        log.has(SignalReceived(seq=Seq(log.state.last_seq + 2)), changes=1)


def test_the_newest_answers_are_kept_and_all_open_signals() -> None:
    log = Log()
    first = Seq(log.state.last_seq + 1)
    log.has(SignalReceived(seq=first, id="open"), changes=1)
    for _ in range(KEPT_SIGNALS + 3):
        seq = Seq(log.state.last_seq + 1)
        log.has(SignalReceived(seq=seq, id="b"), changes=1)
        log.has(SignalAnswered(seq=seq, outcome="ignored", message="why"))
    assert len(log.state.signals) == KEPT_SIGNALS + 1
    assert log.state.signals[first].answer is None
