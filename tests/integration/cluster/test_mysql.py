"""A Replicator of MySQL on a whole Kubernetes, from its creation to its deletion, with sessions that write: the tables
are equal row by row after the initial snapshot, and after one during which the driver was killed."""

from collections.abc import Iterator

import pytest
from deltalake.exceptions import TableNotFoundError

from cluster import workload
from cluster.deploy import Cluster
from demo.compare import read_delta
from support import mysql_shop
from support.cluster_mysql import SERVICE, USER, PodServer, open_mysql_shop
from support.cluster_shop import Shop

pytestmark = [pytest.mark.timeout(1800), pytest.mark.turn(0, 3)]
"""Its processes in pods cost minutes of CPU: the files of this folder take turns."""
SPACE = "mysql"
KINDS = "pods,configmaps,secrets,services,statefulsets,jobs,serviceaccounts,rolebindings"


@pytest.fixture(scope="module")
def opened(cluster: Cluster) -> Iterator[tuple[Shop, PodServer]]:
    with open_mysql_shop(cluster, SPACE, "shop-password") as made:
        yield made


def test_a_replicator_of_mysql_lives_and_dies_on_kubernetes(opened: tuple[Shop, PodServer]) -> None:
    shop, server = opened
    source = {"type": "mysql", "host": SERVICE, "username": USER, "credentials": {"secretName": SERVICE}}
    with mysql_shop.writers(server):
        shop.apply(source=source, tables={"include": ["shop.*"]}, deletionPolicy="Delete", snapshot={"chunkRows": 100})
        shop.wait_ready()
        shop.wait_condition("replicator", "shop", "InitialSnapshotCompleted", 300)
    level(shop, server)
    with mysql_shop.writers(server):
        request = workload.snapshot_request(SPACE, "again", ["shop.*"], chunkRows=10, parallelism=1)
        shop.cluster.apply(request)
        shop.wait("chunks read", 120, lambda: _snapshot(shop).get("chunksDone", 0) >= 2)
        shop.kill(SPACE, "shop-driver-0")
        shop.wait("restart seen", 120, lambda: shop.status()["driver"]["restarts"] > 0)
        shop.wait_condition("snapshotrequest", "again", "Complete", 400)
    level(shop, server)
    shop.wait_ready()
    shop.kubectl("delete", "replicator", "shop", "--timeout=170s")
    shop.wait("no object left", 120, lambda: leftovers(shop) == [])
    assert [path for folder in ("lake", "log") for path in shop.volume(folder).rglob("*") if path.is_file()] == []
    sessions = f"SELECT 1 FROM information_schema.processlist WHERE user = '{USER}'"
    shop.wait("no session of ours", 60, lambda: not server.execute(sessions))


def _snapshot(shop: Shop) -> dict[str, int]:
    found: dict[str, int] = shop.resource("snapshotrequest", "again").get("status") or {}
    return found


def level(shop: Shop, server: PodServer) -> None:
    def equal() -> bool:
        try:
            return not mysql_shop.differences(server, lambda name: read_delta(shop.volume(f"lake/shop/shop/{name}")))
        except (FileNotFoundError, TableNotFoundError):
            return False

    shop.wait("source = target", 240, equal)


def leftovers(shop: Shop) -> list[str]:
    """Everything in the namespace that is named after the Replicator; the server's own things are `shop-db`."""
    listed = [one.rpartition("/")[2] for one in shop.kubectl("get", KINDS, "-o", "name").split()]
    return [name for name in listed if name.startswith("shop-") and not name.startswith(SERVICE)]
