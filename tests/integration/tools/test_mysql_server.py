"""The embedded MySQL that other tests trust."""

import socket

import pytest

from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer, ServerFailed
from support.versions import turns


@pytest.mark.parametrize("name", turns(MYSQL, MARIADB_NEWEST))
def test_a_server_that_does_not_start_says_why(name: str) -> None:
    server = MysqlServer(name)
    with socket.create_server((server.host, 0)) as holder:
        server.port = holder.getsockname()[1]
        with pytest.raises(ServerFailed, match="port"):
            server.start()
