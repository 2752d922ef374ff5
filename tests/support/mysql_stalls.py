"""Commits that hang: in the log, and not visible yet."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random

import pymysql

from support.mysql import MysqlServer


def make_commits_hang(server: MysqlServer, point: str = "AFTER_SYNC") -> None:
    """From `hanging_commits` on, also after a restart of the server. MySQL 8.0 of the tests came without plugins.
    `point`: AFTER_COMMIT lets them be executed before."""
    who = "source"
    if server.mariadb:
        who = "master"
    else:
        server.execute("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
    for name, value in (("timeout", "100000"), ("wait_point", point)):
        server.execute(f"SET GLOBAL rpl_semi_sync_{who}_{name} = {value}")
        server.variables[f"rpl_semi_sync_{who}_{name}"] = value


@contextmanager
def hanging_commits(server: MysqlServer) -> Iterator[None]:
    """A commit waits, after it is in the log, for a replica that does not exist, until this ends."""
    setting = f"SET GLOBAL rpl_semi_sync_{'master' if server.mariadb else 'source'}_enabled"
    server.execute(f"{setting} = ON")
    try:
        yield
    finally:
        server.execute(f"{setting} = OFF")


@contextmanager
def commits_that_stall(server: MysqlServer, seed: int = 0) -> Iterator[None]:
    """Again and again, for up to half a second; while the server is down, none do."""
    random, stopping, errors = Random(seed), threading.Event(), list[BaseException]()

    def stall() -> None:
        try:
            while not stopping.wait(random.random() * 0.5):
                with suppress(pymysql.err.OperationalError), hanging_commits(server):
                    stopping.wait(random.random() * 0.5)
        except BaseException as error:
            errors.append(error)

    make_commits_hang(server)
    thread = threading.Thread(target=stall)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
    assert not errors
