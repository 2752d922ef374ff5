"""Tables that are dropped in the source, with `onTableDrop: Drop`: their copies go, and no others do, wherever the
driver is killed."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake.exceptions import TableNotFoundError

from demo.compare import READERS
from support import mysql_shop
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.postgres import PostgresServer
from support.process import Program
from support.proof.process import Deployment, status
from support.versions import turns

SEAMS = ("dropped.before-begun", "dropped.before-deletion", "dropped.after-deletion")
CASES = (
    ("postgresql", "delta", SEAMS[1:2]),
    (MYSQL, "iceberg", SEAMS[2:]),
    ("postgresql", "iceberg", SEAMS),
    (MARIADB_NEWEST, "delta", SEAMS),
)
STAYS = {"onTableDrop": "Keep", "match": "shop.archived"}
TABLES = ("gone", "archived", "renamed", "again", "twice", "other", "gone0")


@dataclass
class Source:
    spec: dict[str, object]
    run: Callable[..., object]


@contextmanager
def source_of(product: str) -> Iterator[Source]:
    if product == "postgresql":
        with PostgresServer(18) as server:
            yield Source(server.source(), server.execute)
    else:
        with MysqlServer(product) as mysql:
            yield Source(mysql_shop.spec(mysql), mysql.execute)


def create(name: str, rows: int = 3) -> list[str]:
    values = ", ".join(f"({n}, 'of {name}')" for n in range(rows))
    return [f"CREATE TABLE shop.{name} (id int PRIMARY KEY, v varchar(40))", f"INSERT INTO shop.{name} VALUES {values}"]


def rows_of(deployment: Deployment, name: str) -> int | None:
    """None: there is no such table. Whatever else is wrong with it is an error."""
    folder = deployment.lake / "shop" / name
    try:
        return int(READERS[deployment.format](folder).num_rows)
    except (FileNotFoundError, TableNotFoundError):
        return None


def level(deployment: Deployment) -> bool:
    document = status(deployment)
    return document is not None and {table["state"] for table in document["tables"]} == {"REPLICATING"}


def replaced(deployment: Deployment, name: str, before: int, after: int) -> bool:
    """Readers see the one or the other table, and no time without either."""
    rows = rows_of(deployment, name)
    assert rows in (before, after)
    return rows == after


def dropped(deployment: Deployment, run: Program, name: str) -> None:
    run.until(lambda: not (deployment.lake / "shop" / name).exists(), 200, f"the copy of {name} is gone")


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("product", "format", "seams"), turns(*CASES))
def test_only_the_copies_of_dropped_tables_go(
    tmp_path: Path, product: str, format: str, seams: tuple[str, ...]
) -> None:
    with source_of(product) as source:
        source.run("CREATE SCHEMA shop")
        for name in TABLES:
            for statement in create(name):
                source.run(statement)
        spec: dict[str, object] = {"tables": {"include": ["shop.*"], "exclude": ["shop.*_not"]}, "options": [STAYS]}
        spec |= {"onTableDrop": "Drop"}
        deployment = Deployment(tmp_path / "proof", source.spec, format, spec)
        try:
            for seam in seams:
                run = deployment.start(seams=f"{seam}=kill")
                if seam == seams[0]:
                    run.until(lambda: level(deployment), 400, "all tables are there")
                    source.run("DROP TABLE shop.gone0")
                # Every further one meets what the one before it has left.
                assert run.wait(300) != 0, f"{seam} was never reached\n{run.tail()}"
                if seam == seams[0]:  # while nobody looks
                    source.run("DROP TABLE shop.twice")
                    for statement in create("twice", 5):
                        source.run(statement)
            run = deployment.start()
            dropped(deployment, run, "gone0")
            changes(source, product)
            dropped(deployment, run, "gone")
            run.until(lambda: rows_of(deployment, "new_name") == 3, 200, "the renamed table is there")
            run.until(lambda: replaced(deployment, "again", 3, 4), 200, "the table that was made again is there")
            run.until(lambda: replaced(deployment, "twice", 3, 5), 200, "the other one is there")
            for statement in create("gone", 7):
                source.run(statement)
            run.until(lambda: rows_of(deployment, "gone") == 7, 200, "a table that comes later begins anew")
            time.sleep(2)
            assert {name: rows_of(deployment, name) for name in ("archived", "renamed", "hidden", "other")} == {
                "archived": 3, "renamed": 3, "hidden": None, "other": 3
            }  # fmt: skip
            assert run.stop() == 0, run.tail()
            told = "".join(r.tail(200_000) for r in deployment.started)
            assert "shop.gone was dropped in the source: its copy was deleted (onTableDrop: Drop)" in told
        finally:
            deployment.close()


def changes(source: Source, product: str) -> None:
    rename = "ALTER TABLE shop.renamed RENAME TO "
    source.run(rename + ("new_name" if product == "postgresql" else "shop.new_name"))
    source.run("DROP TABLE shop.gone")
    source.run("DROP TABLE shop.archived")
    again = ["DROP TABLE shop.again", *create("again", 4)]
    if product == "postgresql":
        source.run("BEGIN; " + "; ".join(again) + "; COMMIT")
        source.run("BEGIN; DROP TABLE shop.other; ROLLBACK")
        source.run("ALTER TABLE shop.other RENAME TO other_not")
    else:
        for statement in again:
            source.run(statement)
        source.run("ALTER TABLE shop.other RENAME TO shop.other_not")
