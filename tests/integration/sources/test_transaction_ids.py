"""The helper that moves a server's transaction counter works on every supported version."""

import pytest

import servers
from support.postgres import PostgresServer
from support.transaction_ids import move_transaction_counter

WRAP = 2**32


@pytest.mark.parametrize("major", sorted(servers.POSTGRES_VERSIONS))
def test_a_server_goes_through_a_wraparound_of_transaction_ids(major: int) -> None:
    with PostgresServer(major) as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY)")
        server.execute("INSERT INTO t SELECT generate_series(1, 10)")
        move_transaction_counter(server, epoch=3, xid=WRAP - 20)
        seen = []
        for number in range(11, 60):
            server.execute(f"INSERT INTO t VALUES ({number})")
            seen.append(int(server.execute("SELECT pg_current_xact_id()::text")[0][0]))
        assert seen == sorted(seen)
        assert seen[0] // WRAP == 3
        assert seen[-1] // WRAP == 4
        assert server.execute("SELECT count(*) FROM t") == [(59,)]
        server.restart()
        assert server.execute("SELECT count(*) FROM t") == [(59,)]
