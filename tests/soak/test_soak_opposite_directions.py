"""Two whole drivers that copy different tables in opposite directions between two servers, for minutes, while programs
write on both sides: no change comes back.

`integration/targets/test_postgresql_copies.py` has two drivers in the test's process, and a few changes.
"""

import random
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from support.moves import Server, place_of
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.postgres import PostgresServer
from support.process import Program
from support.proof.process import Deployment, status
from support.waiting import until

SECONDS = 150.0
HERE, THERE = "shop", "back"
"""The schemas that programs write to, each on one side."""


class Writer(threading.Thread):
    """A program that counts what it changes."""

    def __init__(self, server: Server, schema: str) -> None:
        super().__init__(daemon=True)
        self.server, self.schema = server, schema
        self.inserts = self.updates = self.deletes = 0
        self.ended = False
        self.start()

    @override
    def run(self) -> None:
        made, key = random.Random(self.schema), 0
        while not self.ended:
            key += 1
            self._run(f"INSERT INTO {self.schema}.item VALUES ({key}, 0)")
            self.inserts += 1
            self._run(f"UPDATE {self.schema}.item SET n = n + {made.randrange(1, 9)} WHERE id = {key}")
            self.updates += 1
            if key % 3 == 0:
                self._run(f"DELETE FROM {self.schema}.item WHERE id = {key - 1}")
                self.deletes += 1
            time.sleep(0.01)

    def _run(self, statement: str) -> None:
        if isinstance(self.server, MysqlServer):
            self.server.execute(statement, autocommit=True)
        else:
            self.server.execute(statement)

    def end(self) -> None:
        self.ended = True
        self.join(60)

    @property
    def written(self) -> dict[str, int]:
        return {"inserts": self.inserts, "updates": self.updates, "deletes": self.deletes}


def server_of(product: str) -> Server:
    if product == "postgresql":
        return PostgresServer(18)
    return MysqlServer(product)


def rows(server: Server, schema: str) -> list[tuple[Any, ...]]:
    return server.execute(f"SELECT id, n FROM {schema}.item ORDER BY id")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("product", ["postgresql", MYSQL, MARIADB_NEWEST])
def test_two_drivers_in_opposite_directions_bring_nothing_back(product: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        left, right = (stack.enter_context(server_of(product)) for _ in range(2))
        ways = ((HERE, left, right), (THERE, right, left))
        deployments, runs = list[Deployment](), list[Program]()
        for schema, source, target in ways:
            source.execute(f"CREATE {'DATABASE' if isinstance(source, MysqlServer) else 'SCHEMA'} {schema}")
            source.execute(f"CREATE TABLE {schema}.item (id int PRIMARY KEY, n int)")
            spec = {"tables": {"include": [f"{schema}.*"]}, "apply": {"freshness": "300ms"}, "target": place_of(target)}
            made = Deployment(tmp_path / schema, place_of(source), spec=spec, name=schema)
            stack.callback(made.close)
            deployments.append(made)
            runs.append(made.start())

        def tables(made: Deployment) -> list[dict[str, Any]]:
            found = status(made)
            return [] if found is None else list(found["tables"])

        for made, run in zip(deployments, runs, strict=True):
            run.until(lambda made=made: [t["state"] for t in tables(made)] == ["REPLICATING"], 120, "it replicates")
        writers = [Writer(source, schema) for schema, source, _ in ways]
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            assert all(run.poll() is None for run in runs), [run.tail() for run in runs]
            time.sleep(0.05)
        for writer in writers:
            writer.end()
        for (schema, source, target), made, writer in zip(ways, deployments, writers, strict=True):
            until(lambda s=schema, a=source, b=target: rows(a, s) == rows(b, s), f"{schema} is equal", 120, pause=0.5)
            (table,) = tables(made)
            assert table["name"] == f"{schema}.item", "the other one's table is not captured"
            counted = {name: table["counters"][name] for name in writer.written}
            assert counted == writer.written, "each change was captured once"
            assert writer.inserts > 1000
        for run in runs:
            assert run.stop() == 0, run.tail()
