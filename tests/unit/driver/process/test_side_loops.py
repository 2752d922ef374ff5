"""The loops beside the main loop: an error that passes is tried again, any other one ends the driver."""

import threading

import pytest

from tailrace.driver.process import side_loops
from tailrace.driver.process.shutdown import ShutdownRequest
from tailrace.driver.process.side_loops import SideLoops
from tailrace.errors import CorruptLog, Retry


def test_a_step_is_repeated_after_an_error_that_passes_until_the_driver_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_loops, "RETRY_SECONDS", 0.01)
    ending, steps, repeated = ShutdownRequest(), [], threading.Event()

    def step() -> None:
        steps.append(1)
        if len(steps) == 1:
            raise Retry("not now")
        repeated.set()

    loops = SideLoops(ending)
    loops.start("loop", step, lambda: 60.0)
    assert repeated.wait(10)
    ending.set()
    loops.join(10)
    loops.check()
    assert len(steps) == 2


def test_any_other_error_ends_the_loop_and_is_raised_to_the_main_loop() -> None:
    def step() -> None:
        raise CorruptLog("bad record")

    loops = SideLoops(ShutdownRequest())
    loops.check()
    loops.start("loop", step)
    loops.join(10)
    with pytest.raises(CorruptLog, match="bad record"):
        loops.check()
