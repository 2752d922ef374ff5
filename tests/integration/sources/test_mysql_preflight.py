"""What a start would refuse is found before it, with the statement that puts it right: executed here."""

from collections.abc import Iterator
from contextlib import closing

import pymysql
import pytest

from mysql_packages import RELEASES
from support.mysql import MARIADB_NEWEST, MysqlServer
from support.versions import turns
from tailrace.contract.resources import TablesSpec
from tailrace.databases.mysql.connect import MyConfig, connect
from tailrace.errors import SourceRefused
from tailrace.sources.findings import Finding, refuse
from tailrace.sources.mysql import preflight
from tailrace.sources.mysql.catalog import discover
from tailrace.sources.mysql.facts import observe
from tailrace.sources.mysql.log_end import log_end, prepared
from tailrace.sources.mysql.position import OWN


@pytest.fixture(scope="module", params=turns(*RELEASES))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param) as running:
        running.script(
            "CREATE DATABASE d",
            "CREATE TABLE d.parent (id int PRIMARY KEY)",
            "CREATE TABLE d.child (id int PRIMARY KEY, p int,"
            " FOREIGN KEY (p) REFERENCES d.parent (id) ON DELETE CASCADE)",
            "CREATE TABLE d.grandchild (id int PRIMARY KEY, p int, q int, FOREIGN KEY (p) REFERENCES d.child (id)"
            " ON UPDATE SET NULL, FOREIGN KEY (q) REFERENCES d.grandchild (id) ON DELETE SET NULL)",
            "CREATE TABLE d.friend (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES d.parent (id))",
            "CREATE TABLE d.keyless (id int)",
            "CREATE TABLE d.old (id int PRIMARY KEY) ENGINE = MyISAM",
            "CREATE TABLE d.gone (id int PRIMARY KEY) ENGINE = MEMORY",
        )
        yield running


def findings(server: MysqlServer, user: str = "root", *patterns: str) -> list[Finding]:
    config = MyConfig(server.host, server.port, None, user, "test")
    with closing(connect(config)) as connection:
        tables = discover(connection, TablesSpec(include=patterns or ("d.*",)))
        return list(preflight.check(observe(connection, tables)))


def failed(found: list[Finding]) -> dict[tuple[str, str | None], Finding]:
    """What is against this server."""
    return {(f.name, f.table): f for f in found if f.level != "ok"}


def test_a_server_that_is_fit_has_only_its_tables_against_it(server: MysqlServer) -> None:
    found = failed(findings(server))
    cascades = (
        set() if server.name == "mysql-9" else {("cascade", "d.child"), ("cascade", "d.grandchild")}
    )  # it logs them
    assert found.keys() == {("NoKey", "d.keyless"), ("engine", "d.old"), ("ReadRefused", "d.gone")} | cascades
    assert not failed(findings(server, "root", "d.parent"))


def test_a_server_without_prepared_statements_is_refused(server: MysqlServer) -> None:
    server.execute("SET GLOBAL max_prepared_stmt_count = 0")
    try:
        assert ("max_prepared_stmt_count", None) in failed(findings(server, "root", "d.parent"))
    finally:
        server.execute("SET GLOBAL max_prepared_stmt_count = 16382")


def test_rights_that_are_missing_are_granted_by_the_statements_of_the_fixes(server: MysqlServer) -> None:
    server.script("DROP USER IF EXISTS reader", "CREATE USER reader", "GRANT INSERT ON d.* TO reader")
    found = failed(findings(server, "reader", "d.parent"))
    assert {("rights", None), ("select", "d.parent")} <= found.keys()
    for finding in found.values():
        server.execute(finding.fix.removeprefix("Run `").removesuffix("`."))
    assert not failed(findings(server, "reader", "d.parent"))


@pytest.mark.parametrize("server", turns(*(n for n in RELEASES if n.startswith("mysql"))), indirect=True)
def test_a_right_that_is_taken_away_later_is_told_where_it_is_missed(server: MysqlServer) -> None:
    server.script("CREATE USER deprived", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO deprived")
    with (
        closing(connect(MyConfig(server.host, server.port, None, "deprived", "test"))) as connection,
        pytest.raises(SourceRefused, match=r"XA_RECOVER_ADMIN.*Grant the missing rights"),
    ):
        prepared(connection)


def test_who_may_only_read_is_told_which_right_shows_the_logs_end(server: MysqlServer) -> None:
    """A follower needs no other right on the log."""
    server.script("DROP USER IF EXISTS reader", "CREATE USER reader", "GRANT SELECT ON d.* TO reader")
    with closing(connect(MyConfig(server.host, server.port, None, "reader", "test"))) as connection:
        with pytest.raises(SourceRefused, match=r"lacks (REPLICATION CLIENT|BINLOG MONITOR), without which") as refused:
            log_end(connection, OWN)
        server.execute(refused.value.fix.removeprefix("Run `").removesuffix("`."))
    with closing(connect(MyConfig(server.host, server.port, None, "reader", "test"))) as connection:
        assert log_end(connection, OWN) > 0


def test_the_right_to_lock_is_asked_for_where_reading_takes_it(server: MysqlServer) -> None:
    server.script("DROP USER IF EXISTS reader", "CREATE USER reader", "GRANT SELECT ON d.* TO reader")
    assert ("lock", "d.parent") not in failed(findings(server, "reader"))
    needed = failed(findings(server, "reader"))["lock", "d.old"]
    assert needed.level == "fail"
    server.execute(needed.fix.removeprefix("Run `").removesuffix("`."))
    assert ("lock", "d.old") not in failed(findings(server, "reader"))


def test_whoever_may_only_read_is_told_of_cascades_too(server: MysqlServer) -> None:
    server.script("DROP USER IF EXISTS reader", "CREATE USER reader", "GRANT SELECT ON d.* TO reader")
    told = [f for f in findings(server, "reader") if f.name == "cascade"]
    where = [] if server.name == "mysql-9" else ["d.child", "d.grandchild", "d.grandchild"]
    assert sorted(str(f.table) for f in told) == where


def test_what_foreign_keys_change_is_said_to_be_read_again_and_nothing_more(server: MysqlServer) -> None:
    """Not the whole child: its rows are found by their keys, where they can be."""
    told = [f for f in findings(server, "root") if f.name == "cascade" and f.table == "d.child"]
    assert len(told) == (0 if server.name == "mysql-9" else 1)
    for finding in told:
        assert finding.message.endswith("not in the log: rows of d.child that they change are read again")


def test_a_foreign_key_that_would_set_defaults_changes_nothing_below_the_log(server: MysqlServer) -> None:
    server.script("DROP DATABASE IF EXISTS sd", "CREATE DATABASE sd", "CREATE TABLE sd.p (id int PRIMARY KEY)")
    if server.name == "mysql-8.0":  # such an old one refuses the table
        with pytest.raises(pymysql.IntegrityError, match="Cannot add foreign key"):
            server.execute(
                "CREATE TABLE sd.c (id int PRIMARY KEY, FOREIGN KEY (id) REFERENCES sd.p (id) ON DELETE SET DEFAULT)"
            )
        return
    for number, action in enumerate(("DELETE", "UPDATE")):
        server.execute(
            f"CREATE TABLE sd.c{number} (id int PRIMARY KEY, p int DEFAULT 0, FOREIGN KEY (p) REFERENCES sd.p (id)"
            f" ON {action} SET DEFAULT)"
        )
    server.script("INSERT INTO sd.p VALUES (0), (1), (2)", "INSERT INTO sd.c0 VALUES (1, 1)")
    server.execute("INSERT INTO sd.c1 VALUES (1, 2)")
    for statement in ("DELETE FROM sd.p WHERE id = 1", "UPDATE sd.p SET id = 9 WHERE id = 2"):
        with pytest.raises(pymysql.IntegrityError):
            server.execute(statement)
    assert not [f for f in findings(server, "root", "sd.*") if f.name == "cascade"]


def test_a_right_on_some_columns_only_is_told(server: MysqlServer) -> None:
    """The catalog shows the others to nobody without a right on them."""
    server.script("DROP USER IF EXISTS reader", "CREATE USER reader", "GRANT SELECT (id) ON d.child TO reader")
    finding = failed(findings(server, "reader", "d.child"))["select", "d.child"]
    assert finding.level == "warn" and "on some columns of d.child only" in finding.message
    server.execute(finding.fix.removeprefix("Run `").removesuffix("`."))
    assert ("select", "d.child") not in failed(findings(server, "reader", "d.child"))


def test_who_may_not_see_foreign_keys_is_told_so(server: MysqlServer) -> None:
    server.script("DROP USER IF EXISTS reader", "CREATE USER reader", "GRANT SELECT (id) ON d.child TO reader")
    found = failed(findings(server, "reader", "d.child"))
    if server.name == "mysql-9":  # it logs what they do
        assert ("cascade", "d.child") not in found
        return
    finding = found["cascade", "d.child"]
    assert finding.level == "warn" and "may not see the foreign keys of d.child" in finding.message
    server.execute(finding.fix.removeprefix("Run `").removesuffix("`."))
    assert "d.parent reach d.child" in failed(findings(server, "reader", "d.child"))["cascade", "d.child"].message


def test_a_cascade_between_tables_whose_names_have_ends_of_lines_is_told(server: MysqlServer) -> None:
    server.script(
        "DROP DATABASE IF EXISTS odd",
        "CREATE DATABASE odd",
        "CREATE TABLE odd.`pa\nrent` (id int PRIMARY KEY)",
        "CREATE TABLE odd.child (id int PRIMARY KEY COMMENT 'a\\nb', CONSTRAINT `f\nk`"
        " FOREIGN KEY (id) REFERENCES `pa\nrent` (id) ON DELETE CASCADE)",
    )
    told = [f.message for f in findings(server, "root", "odd.*") if f.name == "cascade"]
    where = [] if server.name == "mysql-9" else ["odd.pa\nrent reach odd.child"]
    assert [w for w in where if w in told[0]] == where and len(told) == len(where)


@pytest.mark.parametrize("name", turns(MARIADB_NEWEST, "mariadb-10.11"))
def test_a_mariadb_that_may_be_a_replica_which_does_not_log_what_it_applies_is_refused(name: str) -> None:
    """It sends its own changes only. Who may not see whether it is a replica is told so."""
    with MysqlServer(name) as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY)", "CREATE USER reader")
        server.execute("GRANT REPLICATION SLAVE, BINLOG MONITOR, SELECT ON *.* TO reader")
        unseen = failed(findings(server, "reader"))["log_bin", None]
        assert unseen.level == "fail" and "may not see" in unseen.message
        server.execute(unseen.fix.split("`")[1])
        assert not failed(findings(server, "reader"))
        server.execute("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'none'")
        with pytest.raises(SourceRefused, match="a replica that does not log what it applies"):
            refuse(findings(server, "reader"))
        server.restart(log_slave_updates="ON", skip_slave_start="ON")
        assert not failed(findings(server, "reader"))
        server.execute("REVOKE SLAVE MONITOR ON *.* FROM reader")
        assert failed(findings(server, "reader"))["filters", None].level == "warn"


def test_an_image_without_what_did_not_change_loses_nothing() -> None:
    with MysqlServer(MARIADB_NEWEST, binlog_row_image="FULL_NODUP") as server:
        assert ("binlog_row_image", None) not in failed(findings(server, "root"))


def test_the_rows_that_an_image_can_keep_away_are_named() -> None:
    with MysqlServer(MARIADB_NEWEST, binlog_row_image="MINIMAL") as server:
        said = failed(findings(server, "root"))["binlog_row_image", None].message
        assert "a row that is updated about every second stays missing; a session" in said


@pytest.mark.parametrize(
    ("name", "bad", "good", "level"),
    [
        ("binlog_row_image", "MINIMAL", "FULL", "warn"),
        ("binlog_format", "MIXED", "ROW", "fail"),
        ("binlog_row_metadata", "MINIMAL", "FULL", "fail"),
        ("binlog_expire_logs_seconds", "600", "0", "warn"),
        ("sync_binlog", "100", "1", "warn"),
        ("innodb_flush_log_at_trx_commit", "0", "1", "warn"),
    ],
)
def test_a_setting_that_loses_changes_is_named_with_its_statement(
    server: MysqlServer, name: str, bad: str, good: str, level: str
) -> None:
    server.execute(f"SET GLOBAL {name} = {bad if bad.isdigit() else repr(bad)}")
    try:
        (finding,) = failed(findings(server, "root", "d.parent")).values()
        assert finding.level == level and bad in finding.message
        assert ("reconnect" in finding.fix) == (name in ("binlog_row_image", "binlog_format"))
        server.execute(finding.fix.split("`")[1])
        assert not failed(findings(server, "root", "d.parent"))
    finally:
        server.execute(f"SET GLOBAL {name} = {good if good.isdigit() else repr(good)}")


def test_a_server_without_a_log_is_refused(server: MysqlServer) -> None:
    with MysqlServer(server.name, skip_log_bin="ON") as silent:
        found = findings(silent)
        with pytest.raises(SourceRefused, match="no binary log"):
            refuse(found)


def test_patterns_without_a_table_are_said_so(server: MysqlServer) -> None:
    assert ("tables", None) in failed(findings(server, "root", "nothing.*"))
