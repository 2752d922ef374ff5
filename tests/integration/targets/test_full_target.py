"""A target whose disk is full (a small file system in memory, mounted as root): named as what it is, with what to do;
nothing of a transaction is seen, no table leaves the others, and replication continues by itself when there is room.

PostgreSQL's whole data directory is on it; of MySQL and MariaDB the tables are, for these may leave sessions
waiting where their own logs find no room."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pymysql
import pytest

from support.database_copies import SHOP, TABLES, begin, of_mysql, of_postgres, settle
from support.full_disks import full, mounted, on_small_disk
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.versions import turns
from tailrace.errors import MAKE_ROOM

LARGE = (
    "INSERT INTO shop.item (id, code, big) SELECT n, 'large', (SELECT string_agg(md5(n * m || ''), '')"
    " FROM generate_series(1, 60) m) FROM generate_series(2000, 4999) n; INSERT INTO shop.visit VALUES (8, 'large')"
)
"""One transaction: 6 MB of one table, and a row of another."""
NAMED = {("StorageFull", MAKE_ROOM, "target")}
UNFINISHED = "SELECT count(*) FROM _tailrace.chunks WHERE row_count = 0"


class Target:
    """Copies of `shop` in PostgreSQL."""

    at: Mapping[str, Any] = {"dbname": "copy"}

    def __init__(self, stack: ExitStack, source: PostgresServer) -> None:
        self.source, self.server = source, PostgresServer(source.major)
        self.disks = [self.server.data_dir]
        stack.enter_context(on_small_disk(self.server.data_dir, "100m"))
        stack.enter_context(self.server)
        self.server.execute("CREATE DATABASE copy")

    def rows(self, table: str) -> list[str]:
        return sorted(row for (row,) in self.server.execute(f"SELECT t::text FROM shop.{table} t", dbname="copy"))

    def answers(self) -> bool:
        return True

    def revive(self) -> None: ...

    def wanted(self, table: str) -> list[str]:
        return sorted(row for (row,) in self.source.execute(f"SELECT t::text FROM shop.{table} t"))


class MysqlTarget:
    """The same in MySQL or MariaDB, staged rows on another disk."""

    at: Mapping[str, Any] = {}

    def __init__(self, stack: ExitStack, source: PostgresServer, server: MysqlServer) -> None:
        self.source, self.server = source, server
        self.disks = [server.data_dir / name for name in ("shop", "_tailrace")]
        for disk in self.disks:
            server.execute(f"CREATE DATABASE {disk.name}")
            stack.enter_context(mounted(disk, server.data_dir, "40m"))

    def rows(self, table: str) -> list[list[str]]:
        return of_mysql(self.server, f"shop.{table}")

    def answers(self) -> bool:
        """MariaDB may end by itself when it finds no room."""
        if not self.server.mariadb:
            return True
        try:
            self.server.execute("SELECT 1")
        except pymysql.err.OperationalError:
            return False
        return True

    def revive(self) -> None:
        self.server.kill()
        self.server.start()

    def wanted(self, table: str) -> list[list[str]]:
        return of_postgres(self.source, f"shop.{table}")


@pytest.fixture(params=turns("postgresql", MYSQL, MARIADB_NEWEST))
def target(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[Target | MysqlTarget]:
    with ExitStack() as stack:
        if request.param == "postgresql":
            yield Target(stack, postgres)
        else:
            yield MysqlTarget(stack, postgres, stack.enter_context(MysqlServer(request.param)))


def faults(copy: Pipeline) -> set[tuple[str, str, str | None]]:
    tables = (table.fault for table in copy.driver.control.status().tables)
    readings = (run.fault for run in copy.driver.runner.runs.values())
    return {(fault.name, fault.fix, fault.where) for fault in (*tables, *readings) if fault is not None}


@pytest.mark.timeout(300)
def test_a_full_disk_of_the_target_is_named_and_nothing_is_lost(
    target: Target | MysqlTarget, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target.source.execute(SHOP)
    copy = begin(target.source.source(), target.server, tmp_path, chunk_rows=1000)
    with copy.running():
        settle(copy)
        before = [target.rows(table) for table in TABLES]
        with full(target.disks):
            target.source.execute(LARGE)
            copy.until(lambda _: faults(copy), work=True)
            if target.answers():
                assert faults(copy) == NAMED, "a full disk is no table's fault"
                said = [record.getMessage() for record in caplog.records if "StorageFull" in record.getMessage()]
                assert said and all(line.startswith("2 tables: ") for line in said), "one line for all"
                assert [target.rows(table) for table in TABLES] == before, "all of a transaction, or nothing"
        go_on(target, copy)
        with full(target.disks):
            copy.ask("shop.*")
            copy.until(lambda _: faults(copy), work=True)
            if target.answers():
                assert faults(copy) == NAMED
                # Each attempt would take more of the disk; a reading of the other table may be under way.
                copy.until(lambda _: target.server.execute(UNFINISHED, **target.at) == [(0,)], work=True)
        go_on(target, copy)
    for table in TABLES:
        assert target.rows(table) == target.wanted(table)


def go_on(target: Target | MysqlTarget, copy: Pipeline) -> None:
    """There is room again."""
    if not target.answers():
        target.revive()
    copy.until(lambda _: not faults(copy), work=True)
    settle(copy)
