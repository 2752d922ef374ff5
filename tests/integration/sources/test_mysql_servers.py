"""The servers that the tests of MySQL and MariaDB stand on."""

import pytest

from mysql_packages import RELEASES
from support.mysql import MysqlServer


@pytest.mark.parametrize("name", RELEASES)
def test_a_server_starts_from_nothing_writes_rows_to_its_log_and_keeps_data_and_port_over_a_crash(name: str) -> None:
    with MysqlServer(name) as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
        port = server.port
        server.kill()
        server.start()
        assert (server.port, server.execute("SELECT id FROM d.t")) == (port, [(1,)])
        assert server.execute("SELECT @@log_bin, @@binlog_format, @@binlog_row_metadata") == [(1, "ROW", "FULL")]


def test_two_servers_have_identities_of_their_own() -> None:
    with MysqlServer() as one, MysqlServer() as other:
        ask = "SELECT @@server_uuid, @@server_id"
        assert not set(one.execute(ask)[0]) & set(other.execute(ask)[0])


@pytest.mark.parametrize("name", RELEASES)
def test_two_servers_have_temporary_folders_of_their_own(name: str) -> None:
    """A MariaDB that starts deletes the temporary tables in its folder, and another one whose tables these are crashes:
    any query of `information_schema` may have one."""
    with MysqlServer(name) as one, MysqlServer(name) as other:
        assert one.execute("SELECT @@tmpdir") != other.execute("SELECT @@tmpdir")
