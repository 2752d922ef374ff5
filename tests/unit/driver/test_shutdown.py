import signal
import threading
import time

import pytest

from tailrace.driver.shutdown import Ending


def test_a_signal_ends_the_wait_in_order_and_a_second_one_at_once() -> None:
    ending = Ending()
    assert not ending.wait(0.01)
    ending.on_signal(signal.SIGTERM, None)
    begun = time.monotonic()
    assert ending.wait(30)
    assert time.monotonic() - begun < 5
    assert not ending.hurried
    with pytest.raises(KeyboardInterrupt):
        ending.on_signal(signal.SIGTERM, None)
    assert ending.hurried


def test_the_first_signal_after_the_work_is_done_interrupts_nothing() -> None:
    ending = Ending()
    ending.set()
    ending.on_signal(signal.SIGINT, None)
    assert ending.is_set()
    assert not ending.hurried


def test_a_handler_that_interrupts_the_wait_itself_does_not_wait_for_its_lock() -> None:
    ending = Ending()
    handler = threading.Thread(target=ending.on_signal, args=(signal.SIGTERM, None), daemon=True)
    with ending._event._cond:  # type: ignore[attr-defined]  # as the main thread may hold it at the moment of the signal
        handler.start()
        handler.join(5)
        assert not handler.is_alive()


def test_a_closed_terminal_ends_the_run_unless_it_was_started_to_survive_that() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        ending = Ending()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        ending.listen()
        signal.raise_signal(signal.SIGHUP)
        assert ending.is_set()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        Ending().listen()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
