"""Names on a server that ignores their case: a pattern in another case is told, by doctor's look and by the stream."""

from contextlib import closing
from pathlib import Path

from support.mysql import MARIADB_NEWEST, MysqlServer
from support.mysql_log import LogRun, config_of
from support.resources import replicator
from tailrace.contract.resources import Replicator
from tailrace.databases.mysql.connect import connect
from tailrace.sources.mysql.subscription import MysqlSubscription


def test_a_pattern_in_another_case_than_the_catalogs_is_told_and_matches_nothing(tmp_path: Path) -> None:
    with MysqlServer(MARIADB_NEWEST, lower_case_table_names=1) as server:
        server.script("CREATE DATABASE Shop", "CREATE TABLE Shop.Orders (id int PRIMARY KEY)")
        told = "tables.include: pattern Shop.Orders matches no table because case counts: write shop.orders"
        with LogRun(server, tmp_path, include="Shop.Orders") as run:
            run.catch_up()
            assert (run.journal.state.tables, run.stream.of_other_case) == ({}, [told])
        manifest = Replicator.model_validate(replicator(tables={"include": ["Shop.Orders"]}))
        with closing(connect(config_of(server))) as connection:
            examined = MysqlSubscription(config_of(server), connection, manifest).examine(None, False)
        assert (examined.tables, examined.of_other_case) == ((), (told,))
        with LogRun(server, tmp_path, include="shop.orders") as run:
            run.catch_up()
            assert run.table("shop.orders") and not run.stream.of_other_case
