"""`tailrace resync` with Spark on real target tables: a stopped table, and then a lost stream; broken, repaired, equal.

The commands are those of docs/operations.md. One Replicator goes through both, as one does.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from deltalake.exceptions import TableNotFoundError

from demo.compare import READERS, compare
from support.postgres import PostgresServer
from support.process import Program
from support.proof.process import Deployment, status
from support.versions import turns
from support.waiting import until

POSITION_LOST = 12
TABLES = ("value", "other")
"""One that meets a value which its target cannot hold, and one that is only lost with the stream."""


@dataclass
class Shop:
    """A source with the tables, and its Replicator."""

    server: PostgresServer
    deployment: Deployment

    def sql(self, text: str) -> None:
        for table in TABLES:
            self.server.execute(text.format(t=f"s.{table}"))

    def target(self, table: str) -> Path:
        return self.deployment.lake / "s" / table

    def faults(self) -> dict[str, str]:
        """Name by table."""
        document = status(self.deployment)
        tables = [] if document is None else document["tables"]
        return {t["name"].removeprefix("s."): t["fault"]["name"] for t in tables if t["fault"] is not None}

    def equal(self) -> bool:
        with self.server.connect() as connection:
            try:
                names = [f"s.{table}" for table in TABLES]
                return not compare(connection, names, self.deployment.lake, self.deployment.format)
            except (FileNotFoundError, TableNotFoundError, psycopg.DataError):  # not yet there, or still a date
                return False

    def verb(self, *arguments: str) -> None:
        """A command of the document, again while capture restarts."""
        until(lambda: self._taken(*arguments), f"{arguments} to be taken")

    def _taken(self, verb: str, *rest: str) -> bool:
        here = ("-f", str(self.deployment.manifest), "--run-dir", str(self.deployment.state))
        done = self.deployment.command(verb, *here, *rest)
        assert done.returncode == 0 or "CaptureGone" in done.stderr, done.stdout + done.stderr
        return done.returncode == 0

    def settled(self, run: Program) -> None:
        """After one more change of each table."""
        self.sql("UPDATE {t} SET v = v || '.' WHERE id < 5")
        run.until(lambda: self.equal() and not self.faults(), 200, "source = target")


@pytest.fixture(params=turns("delta", "iceberg"))
def shop(request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path) -> Iterator[Shop]:
    strict = {"match": "s.value", "onUnsupported": "Fail"}
    spec: dict[str, object] = {"tables": {"include": ["s.*"]}, "retention": {"time": "1s"}, "options": [strict]}
    made = Shop(postgres, Deployment(tmp_path / "shop", postgres.source(), request.param, spec))
    postgres.execute("CREATE SCHEMA s")
    made.sql("CREATE TABLE {t} (id int PRIMARY KEY, v text, d date)")
    made.sql("INSERT INTO {t} SELECT g, 'before', '2020-01-01' FROM generate_series(1, 300) g")
    yield made
    made.deployment.close()


@dataclass
class Reader:
    """Reads a target table all the time, as others would."""

    seen: list[frozenset[str]] = field(default_factory=list)


@contextmanager
def reading(shop: Shop, table: str) -> Iterator[Reader]:
    """The distinct values of each read, the last one after the block."""
    found, over = Reader(), threading.Event()

    def read() -> None:
        last = False
        while not last:
            last = over.wait(0.1)  # and once more: between the last commit and the end there may be no other read
            rows = READERS[shop.deployment.format](shop.target(table))
            found.seen.append(frozenset(value.rstrip(".") for value in rows.column("v").to_pylist()))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


@pytest.mark.timeout(600)
@pytest.mark.turn(0, 2)  # nearly a minute of CPU
def test_a_stopped_table_and_then_a_lost_stream_are_brought_back(shop: Shop) -> None:
    run = shop.deployment.start()
    shop.settled(run)
    shop.server.execute("INSERT INTO s.value VALUES (900, 'before', 'infinity')")
    run.until(lambda: shop.faults() == {"value": "ValueUnsupported"}, 200, "the table has stopped")
    shop.deployment.spec["options"] = [{"match": "s.value", "asText": ["d"]}]
    shop.deployment.write_manifest()
    shop.verb("reload")
    shop.verb("resync", "--tables", "s.value")
    shop.settled(run)
    assert run.stop() == 0, run.tail()
    start_over(shop)


def start_over(shop: Shop) -> None:
    """The slot is dropped under a stopped driver."""
    for (name,) in shop.server.execute("SELECT slot_name::text FROM pg_replication_slots"):
        shop.server.drop_slot(name)
    shop.sql("UPDATE {t} SET v = 'after'")
    shop.sql("DELETE FROM {t} WHERE id % 3 = 0")
    refused = shop.deployment.start()
    assert refused.wait(120) == POSITION_LOST and "PositionLost" in refused.tail(), refused.tail()
    shop.verb("resync", "--all")
    with reading(shop, "value") as reader:
        run = shop.deployment.start()
        shop.settled(run)
    assert run.stop() == 0, run.tail()
    assert reader.seen[0] == {"before"} and reader.seen[-1] == {"after"}, reader.seen
    # Between the two the table is empty, then it fills (docs/decisions/0063).
    assert all(len(values) <= 1 for values in reader.seen), "the old or the new table, never a mixture"
