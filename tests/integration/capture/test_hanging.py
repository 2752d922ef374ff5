"""A source that hangs: its machine still acknowledges every packet, its processes do not run."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from support.capture import CaptureRun, started
from support.postgres import PostgresServer
from support.waiting import until


@contextmanager
def frozen(server: PostgresServer) -> Iterator[None]:
    postmaster = psutil.Process(int((server.data_dir / "postmaster.pid").read_text().split()[0]))
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


def test_while_the_source_hangs_the_lag_grows_and_the_state_says_why(capture: CaptureRun) -> None:
    server = started(capture, "CREATE TABLE t (id int PRIMARY KEY)")
    capture.catch_up()
    with capture.client() as client:
        with frozen(server):
            until(lambda: client.state().waiting_for, "the silence is told", 60)
            silent = client.state()
        assert str(silent.waiting_for).startswith("the source, silent for")
        assert (silent.lag_seconds or 0) > 9
        server.execute("INSERT INTO t VALUES (1)")
        capture.catch_up()
        until(lambda: client.state().waiting_for is None, "the source is heard again")
