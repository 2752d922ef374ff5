"""`spec.cutover` in a cluster: a real API server, the operator, a whole driver as its pod, and two real databases.

`tests/integration/operator/test_cutover.py` has the operator's part, without a driver.
"""

from pathlib import Path

import pytest

from support.moves import force
from support.postgres import PostgresServer
from support.real_replicator import REPL, TABLES, Cluster, Shop, cluster
from support.waiting import until

READ_ONLY = "ALTER DATABASE postgres SET default_transaction_read_only = on"
WRITABLE = "ALTER DATABASE postgres RESET default_transaction_read_only"


class Move:
    """From one database of the server into another."""

    def __init__(self, shop: Shop, here: Cluster) -> None:
        self.shop, self.here, self.server = shop, here, shop.server
        self.server.execute("CREATE DATABASE copy")
        self.spec: dict[str, object] = {
            "target": {**self.server.source(), "database": "copy", "credentials": {"secretName": "shop-db"}},
            "cutover": {"acceptMissing": True},
        }

    def rows(self, database: str) -> list[object]:
        found: list[object] = []
        for table in TABLES:
            found.append(self.server.execute(f"SELECT t::text FROM {table} t ORDER BY 1", dbname=database))
        return found

    def reports(self) -> list[tuple[object, ...]]:
        return self.server.execute("SELECT log_id, report FROM _tailrace.handovers", dbname="copy")

    def waits(self) -> None:
        self.here.reason("Streaming")
        until(lambda: "is not read-only" in str(self.here.status().get("cutover")), "it waits for the source", 400)

    def done(self) -> None:
        message = self.here.reason("CutOver")
        assert "programs may write to" in message or "ended the replication" in message
        found = self.here.status()
        assert (found["state"], found["cutover"], found.get("lastError")) == ("Succeeded", found["message"], None)
        assert self.here.place.condition(REPL, "Stalled") is None
        self.here.stopped()


@pytest.mark.timeout(2400)
def test_a_cutover_in_a_cluster_happens_once_however_often_the_manifest_is_applied(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    shop = Shop(postgres, tmp_path / "shop")
    with cluster(shop, tmp_path / "here", "cutover", "127.0.31.9") as here:
        move = Move(shop, here)
        here.apply(**move.spec)
        move.waits()
        shop.write()
        postgres.execute(READ_ONLY)
        move.done()
        assert here.event("CutOver")
        assert move.rows("postgres") == move.rows("copy")
        (report,) = move.reports()
        postgres.execute("INSERT INTO accounts VALUES (-1, 1, 'of a program')", dbname="copy")
        here.apply(**move.spec)
        move.done()
        here.patch(cutover=None)
        until(lambda: here.status()["appliedGeneration"] == here.status()["observedGeneration"], "it is taken")
        assert here.status()["state"] == "Succeeded" and here.status()["driver"]["restarts"] == 1
        here.patch(restartNonce=2)  # another driver finds that it is done
        until(lambda: here.status()["appliedGeneration"] == here.status()["observedGeneration"], "it is taken")
        until(lambda: here.status()["driver"]["restarts"] >= 2, "the driver has ended again", 400)
        move.done()
        assert move.reports() == [report]
        here.gone()
        assert shop.slots() == []
        assert postgres.execute("SELECT count(*) FROM accounts WHERE id = -1", dbname="copy") == [(1,)]
        force(postgres, WRITABLE)
        here.nothing_unexpected()
