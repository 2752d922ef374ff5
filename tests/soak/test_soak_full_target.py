"""A whole driver whose target has a full disk: it names the target, waits, and continues by itself when there is room;
while it replicates, and in the middle of a first copy.

`tests/integration/targets/test_full_target.py` has the driver in the test's process, and MariaDB.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from support.database_copies import SHOP
from support.full_disks import full, mounted, on_small_disk
from support.moves import place_of
from support.mysql import MYSQL, MysqlServer
from support.postgres import PostgresServer
from support.proof.process import Deployment, status
from support.waiting import until
from tailrace.errors import MAKE_ROOM

LARGE = (
    "INSERT INTO shop.item (id, code, big) SELECT n, 'large', (SELECT string_agg(md5(n * m || ''), '')"
    " FROM generate_series(1, 60) m) FROM generate_series(2000, 4999) n;"
    " INSERT INTO shop.visit VALUES (8, 'large')"
)
"""One transaction: 6 MB of one table, and a row of another."""
TABLES = ("shop.item", "shop.visit")


@contextmanager
def target_on_small_disk(major: int) -> Iterator[PostgresServer]:
    with ExitStack() as stack:
        server = PostgresServer(major)
        stack.enter_context(on_small_disk(server.data_dir, "100m"))
        stack.enter_context(server)
        server.execute("CREATE DATABASE copy")
        yield server


@pytest.mark.timeout(900)
def test_a_driver_waits_for_room_in_its_target_and_continues(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute(SHOP)
    with target_on_small_disk(postgres.major) as copy:
        spec = {
            "tables": {"include": ["shop.*"]},
            "apply": {"freshness": "300ms"},
            "target": {**place_of(copy), "database": "copy"},
        }
        deployment = Deployment(tmp_path, place_of(postgres), spec=spec)

        def rows(server: PostgresServer, database: str = "copy") -> list[Any]:
            return [server.execute(f"SELECT t::text FROM {table} t ORDER BY 1", dbname=database) for table in TABLES]

        def counts() -> tuple[int, ...]:
            """As of one moment, and without a file for sorting."""
            each = ", ".join(f"(SELECT count(*) FROM {table})" for table in TABLES)
            return copy.execute(f"SELECT {each}", dbname="copy")[0]

        def equal() -> bool:
            tables = (status(deployment) or {"tables": []})["tables"]
            assert run.poll() is None, run.tail()
            return {table["state"] for table in tables} == {"REPLICATING"} and rows(copy) == rows(postgres, "postgres")

        def faults() -> set[tuple[str, str, str]]:
            found = [table["fault"] for table in (status(deployment) or {"tables": []})["tables"]]
            return {(fault["name"], fault["fix"], fault["where"]) for fault in found if fault is not None}

        try:
            run = deployment.start()
            until(equal, "everything is replicated", 180, pause=0.5)
            before = counts()
            with full([copy.data_dir]):
                postgres.execute(LARGE)
                until(faults, "it is named", 180, pause=0.5)
                assert faults() == {("StorageFull", MAKE_ROOM, "target")}
                asked = ["status", "-f", str(deployment.manifest), "--run-dir", str(deployment.state)]
                shown = deployment.command(*asked).stdout
                assert "StorageFull" in shown and "target" in shown, shown
                after = tuple(now - then for now, then in zip(counts(), before, strict=True))
                assert after in ((0, 0), (3000, 1)), "all of a transaction, or nothing"
            until(equal, "there is room again", 180, pause=0.5)
            members = copy.execute("SELECT count(*) FROM _tailrace.tables WHERE member", dbname="copy")
            assert members == [(len(TABLES),)]
        finally:
            deployment.close()


ROWS = 400_000
FIRST = f"""
CREATE SCHEMA shop; CREATE TABLE shop.item (id int PRIMARY KEY, code text);
INSERT INTO shop.item SELECT n, md5(n::text) || md5((-n)::text) FROM generate_series(1, {ROWS}) n;
"""
LOADED = "SELECT count(*) FROM _tailrace.chunks WHERE row_count > 0"
SUMS = "SELECT count(*), count(DISTINCT id), sum(id), max(code) FROM shop.item"
RELEASED = "SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn >= %s::pg_lsn"


class SmallTarget:
    """A database whose rows are on small disks."""

    def __init__(self, stack: ExitStack, product: str, major: int) -> None:
        self.server: PostgresServer | MysqlServer
        if product == "postgresql":
            self.server = PostgresServer(major, {"max_wal_size": "64MB"})
            stack.enter_context(on_small_disk(self.server.data_dir, "500m"))
            stack.enter_context(self.server)
            self.server.execute("CREATE DATABASE copy")
            self.disks, self.spec = [self.server.data_dir], {**place_of(self.server), "database": "copy"}
            return
        # A server that finds no room for its own logs may leave sessions waiting: only the tables are on them.
        self.server = stack.enter_context(MysqlServer(product))
        self.disks, self.spec = [self.server.data_dir / name for name in ("shop", "_tailrace")], place_of(self.server)
        for disk in self.disks:
            self.server.execute(f"CREATE DATABASE {disk.name}")
            stack.enter_context(mounted(disk, self.server.data_dir, "300m"))

    def asked(self, statement: str) -> list[Any]:
        """Nothing where the table is not there yet, or has no room for the answer."""
        try:
            if isinstance(self.server, PostgresServer):
                return self.server.execute(statement, dbname="copy")
            return self.server.execute(statement)
        except (psycopg.Error, pymysql.MySQLError):
            return []

    def number(self, statement: str) -> int:
        found = self.asked(statement)
        return int(found[0][0]) if found else 0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("product", ["postgresql", MYSQL])
def test_a_disk_that_fills_up_in_the_middle_of_a_first_copy_loses_no_row(
    postgres: PostgresServer, tmp_path: Path, product: str
) -> None:
    postgres.execute(FIRST)
    with ExitStack() as stack:
        copy = SmallTarget(stack, product, postgres.major)
        spec = {
            "tables": {"include": ["shop.*"]},
            "snapshot": {"chunkRows": 10_000, "parallelism": 2},
            "apply": {"freshness": "300ms"},
            "target": copy.spec,
        }
        deployment = Deployment(tmp_path, place_of(postgres), spec=spec)

        def equal() -> bool:
            rows = [list(map(str, row)) for found in (postgres.execute(SUMS), copy.asked(SUMS)) for row in found]
            return len(rows) == 2 and rows[0] == rows[1]

        def faults() -> set[str]:
            document = status(deployment) or {"tables": []}
            return {table["fault"]["name"] for table in document["tables"] if table["fault"] is not None}

        try:
            run = deployment.start()
            run.until(lambda: copy.number(LOADED) > 2, 180, "chunks are loaded", pause=0.01)
            with full(copy.disks):
                run.until(lambda: "StorageFull" in run.tail(200_000), 180, "it is named")
                assert copy.number(LOADED) < ROWS / 10_000, "not all was loaded by then"
                postgres.execute("UPDATE shop.item SET code = 'changed' WHERE id % 100 = 0")
                postgres.execute("DELETE FROM shop.item WHERE id % 100 = 1")
                ((end,),) = postgres.execute("SELECT pg_current_wal_lsn()::text")
                run.until(lambda: postgres.execute(RELEASED, [end]), 90, "the source need not keep its log")
            run.until(equal, 300, "there is room again", pause=1.0)
            run.until(lambda: not faults(), 60, "no fault is left")
            assert run.stop() == 0, run.tail()
            assert equal()
        finally:
            deployment.close()
