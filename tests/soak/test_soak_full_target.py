"""A whole driver whose target has a full disk: it names the target, waits, and continues by itself when there is room;
whoever adds up two tables of it in one snapshot finds no sum that the source has never had.

`tests/integration/targets/test_full_target.py` has the driver in the test's process.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.database_copies import SHOP
from support.full_disks import full, on_small_disk
from support.moves import place_of
from support.mysql import MARIADB_NEWEST, MYSQL
from support.postgres import PostgresServer
from support.proof.harness import ROWS
from support.proof.money import TOTAL, transfers
from support.proof.process import Deployment, status
from support.proof.sums import Reader, copies_on_small_disks
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


LARGE_TRANSFER = (
    "INSERT INTO proof.single (id, big) SELECT n, (SELECT string_agg(md5(n * m || ''), '')"
    " FROM generate_series(1, 60) m) FROM generate_series(100000, 105999) n;"
    " UPDATE proof.giro SET balance = balance - 7 WHERE id = 1;"
    " UPDATE proof.savings SET balance = balance + 7 WHERE id = 1"
)
"""One transaction: 12 MB of one table, and money that moves between two others."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("product", ["postgresql", MYSQL, MARIADB_NEWEST])
def test_readers_see_whole_transactions_while_the_disk_is_full(
    postgres: PostgresServer, tmp_path: Path, product: str
) -> None:
    with ExitStack() as stack:
        copies, disks = stack.enter_context(copies_on_small_disks(product, postgres))
        deployment = copies.begin(tmp_path, seed=12, rows=ROWS)
        stack.callback(deployment.close)

        def faults() -> set[tuple[str, str, str]]:
            found = [table["fault"] for table in (status(deployment) or {"tables": []})["tables"]]
            return {(fault["name"], fault["fix"], fault["where"]) for fault in found if fault is not None}

        with Reader(copies) as reader:
            with copies.writing(seed=12, count=1), transfers(postgres):
                run = deployment.start()
                run.until(lambda: reader.sums, 240, "both tables are level")
                with full(disks):
                    postgres.execute(LARGE_TRANSFER)
                    run.until(faults, 240, "it is named")
                    named = faults()
                    if copies.server.running:
                        assert named == {("StorageFull", MAKE_ROOM, "target")}
                        asked = ["status", "-f", str(deployment.manifest), "--run-dir", str(deployment.state)]
                        shown = deployment.command(*asked).stdout
                        assert "StorageFull" in shown and MAKE_ROOM in shown, shown
                if not copies.server.running:  # PostgreSQL and MariaDB may end by themselves on a full disk
                    print(f"{product} has ended by itself: {named}")
                    copies.server.kill()
                    copies.server.start()
                run.until(reader.sees_news(), 240, "both tables are level again")
            run.until(lambda: not copies.differences(), 240, "source = target", pause=1)
            assert run.stop() == 0, run.tail()
        assert reader.sums and set(reader.sums) == {TOTAL}
        assert not copies.differences()
        copies.assert_nothing_acknowledged_early()
