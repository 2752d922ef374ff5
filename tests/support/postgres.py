"""The embedded PostgreSQL for tests: the class of the demo, under the name that tests import; and a standby of one."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.demo.postgres_server import DEFAULTS, LOCAL_TRUST, PostgresServer, ServerFailed, Setting, StopMode

__all__ = ["DEFAULTS", "LOCAL_TRUST", "PostgresServer", "ServerFailed", "Setting", "StopMode", "standby_of"]


@contextmanager
def standby_of(primary: PostgresServer) -> Iterator[PostgresServer]:
    """A hot standby that streams from `primary`, which is down for the moment of the copy."""
    primary.stop()
    source = {"primary_conninfo": f"host={primary.host} port={primary.port} user=postgres"}
    standby = PostgresServer(primary.major, {**primary.settings, **source})
    shutil.rmtree(standby.data_dir)
    subprocess.run(["cp", "-a", primary.data_dir, standby.data_dir], check=True)
    (standby.data_dir / "standby.signal").touch()
    primary.start()
    with standby:
        yield standby
