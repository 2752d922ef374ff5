"""The chunk rule on real servers: a commit that is in the log, hanging, and not yet visible to the chunk is replayed
after it. A window between two positions of the log would take the rows of the chunk for newer."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mysql_packages import RELEASES
from support import mysql_shop
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_log import by_chunk, config_of
from support.mysql_stalls import hanging_commits, make_commits_hang
from support.pipeline import Pipeline
from support.resources import replicator as document_of
from support.versions import turns
from support.waiting import until
from tailrace.changelog.records.terms import Position
from tailrace.databases.mysql.connect import connect
from tailrace.errors import Locked
from tailrace.sources.mysql.log_end import visible_transactions
from tailrace.sources.mysql.position import OWN


@pytest.fixture(params=turns(*(name for name in RELEASES if name != "mysql-8.0")))  # that one came without plugins
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param) as running:
        make_commits_hang(running)
        mysql_shop.create(running)
        yield running


def test_a_commit_that_hangs_while_a_chunk_is_read_wins_over_the_chunk(server: MysqlServer, tmp_path: Path) -> None:
    rows = ", ".join(f"({i}, 'old', 0)" for i in range(1, 41))
    server.execute(f"INSERT INTO shop.plain VALUES {rows}")
    document = document_of(
        source=mysql_shop.spec(server),
        tables={"include": ["shop.*"]},
        target={"type": "delta", "location": (tmp_path / "lake").as_uri()},
        storage={"location": (tmp_path / "log").as_uri()},
        snapshot={"chunkRows": 7, "parallelism": 2},
    )
    copy = Pipeline(document, mysql_shop.source(server), tmp_path)
    with copy.running():
        copy.until(lambda state: len(state.tables) == len(mysql_shop.TABLES))
        with hanging_commits(server):
            before = log_end(copy)
            statements = [
                "UPDATE shop.plain SET v = 'new' WHERE id % 4 = 0",
                "DELETE FROM shop.plain WHERE id % 4 = 1",
                "INSERT INTO shop.plain VALUES (99, 'new', 1)",
                "UPDATE shop.plain SET id = id + 100 WHERE id % 4 = 2",
            ]
            writers = [threading.Thread(target=server.execute, args=[s]) for s in statements]
            for writer in writers:
                writer.start()
            copy.until(lambda _: log_end(copy) > before)
            assert server.execute("SELECT COUNT(*) FROM shop.plain WHERE v = 'new'") == [(0,)], "it is not visible"
            plain = next(t for t in copy.state.tables.values() if t.schema.table_name == "plain")
            copy.until(lambda state: len(state.tables[plain.table_id].chunks) >= 6, work=True)
            assert all(writer.is_alive() for writer in writers)
        for writer in writers:
            writer.join()
        copy.settle(log_end(copy))
        assert not mysql_shop.differences(server, lambda name: copy.lake.table("shop", name).rows())
        assert copy.lake.table("shop", "plain").rows().num_rows == 31


@pytest.mark.parametrize("name", turns(MYSQL, MARIADB_NEWEST))
def test_a_row_that_is_executed_and_not_yet_visible_is_waited_for(name: str) -> None:
    """Of an engine without transactions: it shows inserted rows at the end of their statement, without a lock."""
    with MysqlServer(name) as server, closing(connect(config_of(server))) as connection:
        make_commits_hang(server, "AFTER_COMMIT")
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY) ENGINE = MyISAM")
        server.execute("INSERT INTO d.t VALUES (1)")
        before = visible_transactions(connection, OWN)
        with hanging_commits(server):
            writer = threading.Thread(target=server.execute, args=["INSERT INTO d.t VALUES (2)"])
            writer.start()
            until(lambda: visible_transactions(connection, OWN) != before, "the server has executed it")
            assert server.execute("SELECT id FROM d.t") == [(1,)], "it is not visible"
            with pytest.raises(Locked):
                by_chunk(server, "d.t")
        writer.join()
        assert by_chunk(server, "d.t") == [{"id": 1}, {"id": 2}]


def log_end(copy: Pipeline) -> Position:
    with copy.source.session() as session:
        return session.log_end()
