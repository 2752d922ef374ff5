"""The embedded PostgreSQL that other tests trust: it starts, crashes, comes back and goes away."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import servers
from support.postgres import PostgresServer, ServerFailed


@pytest.mark.parametrize("major", sorted(servers.POSTGRES_VERSIONS))
def test_committed_rows_survive_a_kill_of_every_server_process(major: int) -> None:
    with PostgresServer(major) as server:
        assert server.execute("SHOW wal_level") == [("logical",)]
        assert server.execute("SHOW dynamic_shared_memory_type") == [("mmap",)], (
            "nothing of a killed one stays in memory"
        )
        server.execute("CREATE TABLE t (id int PRIMARY KEY)")
        server.execute("INSERT INTO t SELECT generate_series(1, 1000)")
        port = server.port
        server.kill()
        assert not server.running
        server.start()
        assert server.port == port
        assert server.execute("SELECT count(*) FROM t") == [(1000,)]


def test_a_server_leaves_no_shared_memory_behind() -> None:
    """Half a megabyte and a segment each: after 4,096 no server starts any more."""
    with PostgresServer(18) as server:
        keys = (server.data_dir / "postmaster.pid").read_text().splitlines()[6].split()
        assert keys[1] in segments()
    assert keys[1] not in segments()


def segments() -> set[str]:
    """Ids of the system's segments of shared memory."""
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


@pytest.mark.postgres(18, wal_sender_timeout="7s")
def test_settings_come_from_the_marker_and_from_a_restart(postgres: PostgresServer) -> None:
    assert postgres.execute("SHOW wal_sender_timeout") == [("7s",)]
    postgres.restart(settings={"max_replication_slots": 3})
    assert postgres.execute("SHOW max_replication_slots") == [("3",)]
    assert postgres.execute("SHOW server_version_num")[0][0].startswith("18")


def test_access_rules_are_taken_over_by_a_running_server(postgres: PostgresServer) -> None:
    postgres.execute("CREATE ROLE reader LOGIN PASSWORD 'right'")
    postgres.set_hba(
        ["host all postgres 127.0.0.1/32 trust", "host all reader 127.0.0.1/32 scram-sha-256"],
    )
    with postgres.connect(user="reader", password="right") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(ServerFailed, match="nonsense"), PostgresServer(14, {"shared_buffers": "nonsense"}):
        pass


def test_the_server_dies_with_the_process_that_started_it() -> None:
    program = (
        "import time\nfrom support.postgres import PostgresServer\n"
        "server = PostgresServer(18)\nserver.start()\nprint(server.pid, server.data_dir, flush=True)\ntime.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=_environment())
    assert child.stdout is not None
    pid, data_dir = child.stdout.readline().split()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    deadline = time.monotonic() + 60
    while (Path("/proc", pid).exists() or Path(data_dir).exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path("/proc", pid).exists()
    assert not Path(data_dir).exists()


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
