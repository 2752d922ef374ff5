"""The statements that are asked of each version of MySQL and MariaDB, by the greeting of a scripted server: of most
there is no server at hand."""

from contextlib import closing
from typing import Any, cast

import pytest

from support.scripted_mysql import ScriptedMysql
from tailrace.databases.mysql.connect import MyConfig, connect, replica_status, server_of
from tailrace.errors import SourceRefused
from tailrace.sources.mysql import preflight
from tailrace.sources.mysql.log_end import log_end
from tailrace.sources.mysql.position import OWN

FORMER, PRESENT = "SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"
"""From 8.4 on MySQL does not know the former."""
END = ["binlog.000007", "4711", "", "", ""]


@pytest.mark.parametrize(
    ("text", "version", "status", "replica", "supported"),
    [
        ("5.7.44-log", (5, 7, 44), FORMER, "SHOW SLAVE STATUS", False),
        ("8.0.15", (8, 0, 15), FORMER, "SHOW SLAVE STATUS", True),
        ("8.0.44-35", (8, 0, 44), FORMER, "SHOW REPLICA STATUS", True),
        ("8.0.mysql_aurora.3.10.1", (8, 0), FORMER, "SHOW SLAVE STATUS", True),
        ("8.4.7", (8, 4, 7), PRESENT, "SHOW REPLICA STATUS", True),
        ("8.4.7-google", (8, 4, 7), PRESENT, "SHOW REPLICA STATUS", True),
        ("9.7.4-2", (9, 7, 4), PRESENT, "SHOW REPLICA STATUS", True),
        ("10.4.34-MariaDB", (10, 4, 34), FORMER, "SHOW ALL SLAVES STATUS", False),
        ("10.6.22-MariaDB-log", (10, 6, 22), FORMER, "SHOW ALL SLAVES STATUS", True),
        ("11.8.9-MariaDB-0+deb13u1 from Debian", (11, 8, 9), FORMER, "SHOW ALL SLAVES STATUS", True),
    ],
)
def test_a_version_is_asked_with_the_statements_that_it_knows(
    text: str, version: tuple[int, ...], status: str, replica: str, supported: bool
) -> None:
    answers = {status: END, "SELECT @@server_uuid": ["u"], "SELECT @@GLOBAL.server_id": ["7"]}
    with ScriptedMysql(text, answers) as scripted:
        with closing(connect(MyConfig("127.0.0.1", scripted.port, None, "tailrace", "test"))) as connection:
            server = server_of(connection)
            assert log_end(connection, OWN) == OWN.of("binlog.000007", 4711)
        assert {FORMER, PRESENT} & {*scripted.asked} == {status}
    assert server.version == version and replica_status(server) == replica
    assert server.product == ("mariadb" if "MariaDB" in text else "mysql")
    facts = cast(Any, type("Facts", (), {"server": server}))
    assert [finding.level for finding in preflight.version(facts)] == ["ok" if supported else "fail"]
    warned = [finding.message for finding in preflight.tested(facts)]
    assert bool(warned) != (text.startswith(("8.0.15", "9.7", "11.8"))) and all("tests, as" in told for told in warned)


def test_a_server_without_a_log_is_told_with_what_the_copies_lack() -> None:
    with (
        ScriptedMysql("8.4.7", {PRESENT: [], "SELECT @@server_uuid": ["u"]}) as scripted,
        closing(connect(MyConfig("127.0.0.1", scripted.port, None, "tailrace", "test"))) as connection,
        pytest.raises(SourceRefused, match=r"no binary log\. Fix: Set log_bin .* in no copy .* --all"),
    ):
        log_end(connection, OWN)
