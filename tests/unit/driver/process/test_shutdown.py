import signal
import threading
import time

import pytest

from tailrace.driver.process.shutdown import ShutdownRequest


def test_a_signal_ends_the_wait_in_order_and_a_second_one_at_once() -> None:
    shutdown = ShutdownRequest()
    assert not shutdown.wait(0.01)
    shutdown.on_signal(signal.SIGTERM, None)
    begun = time.monotonic()
    assert shutdown.wait(30)
    assert time.monotonic() - begun < 5
    assert not shutdown.forced
    with pytest.raises(KeyboardInterrupt):
        shutdown.on_signal(signal.SIGTERM, None)
    assert shutdown.forced


def test_the_first_signal_after_the_work_is_done_interrupts_nothing() -> None:
    shutdown = ShutdownRequest()
    shutdown.set()
    shutdown.on_signal(signal.SIGINT, None)
    assert shutdown.is_set()
    assert not shutdown.forced


def test_a_handler_that_interrupts_the_wait_itself_does_not_wait_for_its_lock() -> None:
    shutdown = ShutdownRequest()
    handler = threading.Thread(target=shutdown.on_signal, args=(signal.SIGTERM, None), daemon=True)
    with shutdown._event._cond:  # type: ignore[attr-defined]  # as the main thread may hold it at the moment of the signal
        handler.start()
        handler.join(5)
        assert not handler.is_alive()


def test_a_closed_terminal_ends_the_run_unless_it_was_started_to_survive_that() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        shutdown = ShutdownRequest()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        shutdown.listen()
        signal.raise_signal(signal.SIGHUP)
        assert shutdown.is_set()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        ShutdownRequest().listen()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
