"""Deleting a Replicator on a whole Kubernetes: what goes, what stays, and that nothing of it is forgotten."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster import workload
from cluster.deploy import Cluster, condition
from cluster.workload import Document
from support.cluster_shop import OBJECTS, Shop, object_store, open_shop

pytestmark = [pytest.mark.timeout(1800), pytest.mark.turn(0, 3)]
"""Its processes in pods cost minutes of CPU: the files of this folder take turns."""
SOURCE = {
    "type": "postgresql",
    "host": "shop-db",
    "database": "postgres",
    "username": "postgres",
    "credentials": {"secretName": "shop-db"},
}
OTHER = "delete-namesake"
SLOTS = "SELECT slot_name FROM pg_replication_slots"
KINDS = "pods,configmaps,secrets,services,statefulsets,jobs,serviceaccounts,rolebindings"


@pytest.fixture(scope="module")
def shop(cluster: Cluster) -> Iterator[Shop]:
    with open_shop(cluster, "delete") as opened:
        yield opened


def test_a_replicator_deleted_with_its_secret_leaves_its_data_and_nothing_else(shop: Shop) -> None:
    """As `kubectl delete -f` and pruning do. Its copy, of the same locations, goes before without touching anything."""
    shop.cluster.apply(workload.secret("own-db", shop.space, password=shop.password))
    source = {**SOURCE, "credentials": {"secretName": "own-db"}}
    shop.apply("retain", deletionPolicy="Retain", source=source)
    bring(shop, "retain")
    places = {"target": {"type": "delta", "location": "file:///data/lake/retain"}}
    places["storage"] = {"location": "file:///data/log/retain"}
    shop.apply("copy", deletionPolicy="Delete", source=source, **places)
    shop.wait_condition("replicator", "copy", "Stalled", 300)
    assert "belongs to Replicator" in str(shop.status("copy")["message"])
    delete(shop, "replicator/copy")
    shop.assert_equal("retain")
    delete(shop, "secret/own-db", "replicator/retain")
    nothing_in_the_source(shop)
    assert files(shop, "lake/retain")
    assert files(shop, "log/retain")


def test_a_replicator_on_object_storage_deleted_with_delete_leaves_nothing(shop: Shop) -> None:
    """Driver and executor read the store's keys from mounted files. Its namesake in another namespace goes before,
    with that namespace: no Job can run there, so its driver drops its own slot, and only that, when it is ended."""
    place = object_store(shop)
    target = {"type": "delta", **place("lake/delete")}
    shop.apply("delete", deletionPolicy="Delete", target=target, storage=place("log/delete"))
    bring(shop, "delete", OBJECTS)
    namesake(shop, "delete", place)
    with shop.connect() as connection:
        assert len(connection.execute(SLOTS).fetchall()) == 2
        shop.cluster.kubectl("delete", "namespace", OTHER, "--timeout=170s")
        assert len(connection.execute(SLOTS).fetchall()) == 1
        assert len(connection.execute("SELECT 1 FROM pg_publication").fetchall()) == 1
    shop.assert_equal("delete", root=OBJECTS)
    delete(shop, "replicator/delete")
    nothing_in_the_source(shop)
    # Files: an object store has no folders, and of a local one the empty ones stay.
    assert files(shop, f"{OBJECTS}lake/delete") == []
    assert files(shop, f"{OBJECTS}log/delete") == []


def namesake(shop: Shop, name: str, place: Callable[[str], Document]) -> None:
    """Of the same name and database, in a namespace of its own, with locations of its own."""
    keys = {"accessKeyId": "shop-access", "secretAccessKey": "shop-secret-0123456789"}
    there = {"endpoint": f"http://shop-s3.{shop.space}:7070"}
    pod = {"cores": 1, "memory": "1Gi", "cpuRequest": "100m"}
    spec = {
        "source": {**SOURCE, "host": f"shop-db.{shop.space}"},
        "target": {"type": "delta", **place("lake/namesake"), **there},
        "storage": {**place("log/namesake"), **there},
        "driver": pod,
        "executors": pod,
    }
    shop.cluster.apply(workload.namespace(OTHER))
    shop.cluster.apply(
        workload.secret("shop-db", OTHER, password=shop.password),
        workload.secret("shop-s3", OTHER, **keys),
        workload.replicator(OTHER, name, **spec),
    )

    def ready() -> bool:
        return condition(shop.cluster.get(OTHER, "replicator", name), "Ready") == "True"

    shop.wait("the namesake to be ready", 300, ready)


def bring(shop: Shop, name: str, root: str = "") -> None:
    shop.wait_ready(name)
    shop.wait_condition("replicator", name, "InitialSnapshotCompleted", 300)
    shop.assert_equal(name, root=root)
    assert files(shop, f"{root}log/{name}")


def delete(shop: Shop, *what: str) -> None:
    shop.kubectl("delete", *what, "--timeout=170s")
    name = what[-1].rpartition("/")[2]
    shop.wait("no object left", 120, lambda: leftovers(shop, name) == [])


def nothing_in_the_source(shop: Shop) -> None:
    with shop.connect() as connection:
        assert connection.execute(SLOTS).fetchall() == []
        assert connection.execute("SELECT pubname FROM pg_publication").fetchall() == []


def files(shop: Shop, folder: str) -> list[Path]:
    return [path for path in shop.volume(folder).rglob("*") if path.is_file()]


def leftovers(shop: Shop, name: str) -> list[str]:
    """Everything in the namespace that is named after the Replicator."""
    listed = shop.kubectl("get", KINDS, "-o", "name").split()
    return [one for one in listed if one.rpartition("/")[2].startswith(f"{name}-")]
