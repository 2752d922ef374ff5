"""What a failed connection says."""

import socket

import pytest

from tailrace.errors import Retry
from tailrace.sources.mysql.connect import MyConfig, connect


def test_a_server_that_is_away_is_told_with_what_to_check() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        port = taken.getsockname()[1]
        with pytest.raises(Retry, match=f"cannot connect to 127.0.0.1:{port} as 'tailrace'") as caught:
            connect(MyConfig("127.0.0.1", port, None, "tailrace", "test"))
    assert caught.value.fix == "Check source.host, source.port, and that the server runs and can be reached from here."
