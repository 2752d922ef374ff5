"""What a failed connection says."""

import socket

import pymysql
import pytest

from tailrace.databases.mysql.connect import MyConfig, Part, _connect_error, connect, database_errors
from tailrace.errors import Retry, StorageFull


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


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1021, "Disk full (/tmp/#sql); waiting for someone to free some space"),
        (1026, "Error writing file './binlog' (errno: 28 - No space left on device)"),
        (1030, "Got error 28 from storage engine"),
        (1114, "The table 'item' is full"),
        (3675, "Create table/tablespace 'chunk_1' failed, as disk is full"),
    ],
)
def test_a_full_disk_has_many_numbers(number: int, text: str) -> None:
    with pytest.raises(StorageFull) as caught, database_errors("h:3306", "target"):
        raise pymysql.OperationalError(number, text)
    assert caught.value.away and caught.value.where == "target"
