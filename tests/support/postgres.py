"""The embedded PostgreSQL for tests: the class of the demo, under the name that tests import; and copies of one."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from demo.postgres_server import DEFAULTS, LOCAL_TRUST, PostgresServer, ServerFailed, Setting, StopMode

__all__ = ["DEFAULTS", "LOCAL_TRUST", "PostgresServer", "ServerFailed", "Setting", "StopMode", "copy_of", "standby_of"]


@contextmanager
def copy_of(stopped: PostgresServer, *files: str, **settings: Setting) -> Iterator[PostgresServer]:
    """A server with the data of one that is stopped, and these empty files beside them."""
    copy = PostgresServer(stopped.major, {**stopped.settings, **settings})
    shutil.rmtree(copy.data_dir)
    subprocess.run(["cp", "-a", stopped.data_dir, copy.data_dir], check=True)
    for name in files:
        (copy.data_dir / name).touch()
    with copy:
        yield copy


@contextmanager
def standby_of(primary: PostgresServer) -> Iterator[PostgresServer]:
    """A hot standby that streams from `primary`, which is down for the moment of the copy."""
    primary.stop()
    conninfo = f"host={primary.host} port={primary.port} user=postgres"
    with copy_of(primary, "standby.signal", primary_conninfo=conninfo) as standby:
        primary.start()
        yield standby
