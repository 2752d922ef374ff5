"""What a failed connection says."""

import socket

import pymysql
import pytest

from tailrace.databases.mysql.connect import MyConfig, Part, _connect_error, connect, database_errors
from tailrace.errors import Retry


@pytest.mark.parametrize("part", ["source", "target"])
def test_a_server_that_is_away_is_told_with_what_to_check(part: Part) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        port = taken.getsockname()[1]
        with pytest.raises(Retry, match=f"cannot connect to 127.0.0.1:{port} as 'tailrace'") as caught:
            connect(MyConfig("127.0.0.1", port, None, "tailrace", "test", part=part))
    what = f"Check {part}.host, {part}.port, and that the server runs and can be reached from here."
    assert caught.value.fix == what and caught.value.away and caught.value.where == part


@pytest.mark.parametrize("number", [1040, 1203, 1226])
def test_a_server_without_a_free_connection_is_not_away(number: int) -> None:
    """Others of ours go on, and nobody waits for them."""
    config = MyConfig("127.0.0.1", 3306, None, "tailrace", "test")
    error = _connect_error(config, pymysql.OperationalError(number, "Too many connections"))
    assert isinstance(error, Retry) and not error.away and "max_connections" in error.fix


@pytest.mark.parametrize("number", [1290, 1836, 2013])
def test_a_target_that_takes_no_writes_is_no_table_s_fault(number: int) -> None:
    with pytest.raises(Retry) as caught, database_errors("h:3306", "target"):
        raise pymysql.OperationalError(number, "running with the --super-read-only option")
    assert caught.value.away and caught.value.where == "target"
