"""What ends the wait of a large batch for an executor."""

import threading

import pytest

from tailrace.targets.demand import PATIENCE, WITHOUT, Demand


class Clock:
    """Goes on by `step` at each look, or by hand."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 100.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_a_batch_for_which_no_executor_comes_is_cancelled_and_others_do_not_wait_for_a_while() -> None:
    clock, cancelled = Clock(PATIENCE / 2), threading.Event()
    demand = Demand(clock=clock, look=0.001)
    with demand.patiently(lambda: False, cancelled.set) as attempt:
        assert cancelled.wait(60)
    assert attempt.given_up
    clock.step = 0.0
    was_missing = demand.missing
    clock.now += WITHOUT
    assert (was_missing, demand.missing) == (True, False), "the next one waits again"


def test_a_batch_that_an_executor_works_for_is_not_cancelled_however_long_it_takes() -> None:
    looks = threading.Semaphore(0)
    demand = Demand(clock=Clock(PATIENCE), look=0.001)

    def runs() -> bool:
        looks.release()
        return True

    with demand.patiently(runs, lambda: pytest.fail("cancelled")) as attempt:
        assert all(looks.acquire(timeout=60) for _ in range(5))
    assert not attempt.given_up and not demand.missing


def test_executors_that_go_amid_a_batch_are_waited_for_as_long_as_at_its_start() -> None:
    there, cancelled = iter([True, True]), threading.Event()
    demand = Demand(clock=Clock(PATIENCE), look=0.001)
    with demand.patiently(lambda: next(there, False), cancelled.set) as attempt:
        assert cancelled.wait(60)
    assert attempt.given_up


def test_a_job_that_had_not_begun_when_it_was_given_up_is_cancelled_once_it_has() -> None:
    begun, cancelled = threading.Event(), threading.Event()
    demand = Demand(clock=Clock(PATIENCE), look=0.001)

    def cancel() -> None:
        if begun.is_set():
            cancelled.set()
        begun.set()

    with demand.patiently(lambda: False, cancel) as attempt:
        assert cancelled.wait(60)
    assert attempt.given_up


def test_one_that_came_ends_doing_without() -> None:
    clock, cancelled = Clock(PATIENCE), threading.Event()
    demand = Demand(clock=clock, look=0.001)
    with demand.patiently(lambda: False, cancelled.set):
        assert cancelled.wait(60)
    clock.step = 0.0
    was_missing = demand.missing
    demand.came()
    assert (was_missing, demand.missing) == (True, False)
