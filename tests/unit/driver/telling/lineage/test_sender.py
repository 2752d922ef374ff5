"""A receiver that is down, slow or refuses, and what becomes of events meanwhile."""

import logging
import threading
from collections.abc import Iterator

import pytest
import requests

from support.waiting import until
from tailrace.driver.telling.lineage.sender import Sender


class Door:
    """A receiver that can be shut."""

    def __init__(self) -> None:
        self.came: list[object] = []
        self.errors: list[Exception] = []
        self.open = threading.Event()
        self.open.set()

    def take(self, event: object) -> None:
        self.open.wait(60)
        if self.errors:
            raise self.errors[0] if len(self.errors) == 1 else self.errors.pop(0)
        self.came.append(event)


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door()
    yield made
    made.open.set()


def sender(door: Door, capacity: int = 100) -> Sender:
    made = Sender(door.take, capacity, longest_pause=0.05)
    made.start()
    return made


def refusal(status: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(f"{status}", response=response)


def test_events_arrive_in_order_and_the_end_waits_for_them(door: Door) -> None:
    made = sender(door)
    for number in range(20):
        made.put(number)
    made.close(30)
    assert door.came == list(range(20))
    assert (made.status.sent, made.status.dropped, made.status.waiting, made.status.fault) == (20, 0, 0, None)


def test_nobody_waits_for_a_receiver_that_does_not_answer_and_what_is_too_much_is_dropped(door: Door) -> None:
    door.open.clear()
    made = sender(door, capacity=5)
    for number in range(50):
        made.put(number)
    assert made.status.dropped == 45 and made.status.waiting == 5
    door.open.set()
    until(lambda: made.status.waiting == 0, "the rest", 10)
    made.close(30)
    assert door.came[-5:] == [45, 46, 47, 48, 49]


def test_a_newer_running_takes_the_place_of_one_that_waits_and_is_dropped_before_others(door: Door) -> None:
    door.open.clear()
    made = sender(door, capacity=4)
    made.put("first")  # it is under way
    made.put("start a")
    for number in range(100):
        made.put(f"running a {number}", "a")
    made.put("end a")
    assert (made.status.waiting, made.status.dropped) == (4, 0)
    made.put("start b")
    assert made.status.dropped == 1
    door.open.set()
    made.close(30)
    assert door.came == ["first", "start a", "end a", "start b"]


def test_what_cannot_be_delivered_is_tried_again_and_told_once(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    door.errors = [requests.ConnectionError("http://name:secret@host: refused")]
    made = sender(door)
    with caplog.at_level(logging.INFO):
        made.put("one")
        until(lambda: made.status.fault, "the fault", 10)
        assert "refused" in str(made.status.fault) and "secret" not in str(made.status.fault)
        door.errors = [refusal(503), refusal(429), refusal(401), OSError("full")]
        until(lambda: len(door.errors) == 1, "further attempts", 10)
        door.errors = []
        until(lambda: made.status.sent == 1, "the event", 10)
    made.close(30)
    assert door.came == ["one"] and made.status.fault is None and made.status.dropped == 0
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    assert len(told) == 2 and "cannot be delivered" in told[0] and "again" in told[1]


def test_an_event_that_is_refused_is_dropped_and_the_next_one_sent(door: Door) -> None:
    door.errors = [refusal(422), requests.ConnectionError("x")]
    made = sender(door)
    made.put("wrong")
    until(lambda: made.status.dropped == 1, "the refusal", 10)
    door.errors = []
    made.put("right")
    made.close(30)
    assert door.came == ["right"]


def test_the_end_does_not_wait_for_a_receiver_that_is_down_or_silent(door: Door) -> None:
    door.open.clear()
    silent = sender(door)
    silent.put("one")
    silent.close(0.1)
    assert silent.status.dropped == 1 and silent.status.waiting == 0
    other = Door()
    other.errors = [requests.ConnectionError("x")]
    down = sender(other)
    down.put("one")
    down.put("two")
    down.close(30)
    assert down.status.dropped == 2 and other.came == []


def test_a_sender_that_was_never_started_ends(door: Door) -> None:
    made = Sender(door.take)
    made.close(1)
    assert made.status.sent == 0
