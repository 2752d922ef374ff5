"""Deleting a Replicator on a whole Kubernetes: what goes, what stays, and that nothing of it is forgotten."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.deploy import Cluster
from support.cluster_shop import OBJECTS, Shop, object_store, open_shop

pytestmark = pytest.mark.timeout(1800)
KINDS = "pods,configmaps,secrets,services,statefulsets,jobs,serviceaccounts,rolebindings"


@pytest.fixture(scope="module")
def shop(cluster: Cluster) -> Iterator[Shop]:
    with open_shop(cluster, "delete") as opened:
        yield opened


def test_a_replicator_deleted_with_retain_leaves_its_data_and_nothing_else(shop: Shop) -> None:
    shop.apply("retain", deletionPolicy="Retain")
    bring_and_delete(shop, "retain")
    assert files(shop, "lake/retain")
    assert files(shop, "log/retain")


def test_a_replicator_on_object_storage_deleted_with_delete_leaves_nothing(shop: Shop) -> None:
    """Driver and executor read the store's keys from mounted files, and so does the job that cleans up."""
    place = object_store(shop)
    target = {"type": "delta", **place("lake/delete")}
    shop.apply("delete", deletionPolicy="Delete", target=target, storage=place("log/delete"))
    bring_and_delete(shop, "delete", OBJECTS)
    # Files: an object store has no folders, and of a local one the empty ones stay.
    assert files(shop, f"{OBJECTS}lake") == []
    assert files(shop, f"{OBJECTS}log") == []


def bring_and_delete(shop: Shop, name: str, root: str = "") -> None:
    shop.wait_ready(name)
    shop.wait_condition("replicator", name, "InitialSnapshotCompleted", 300)
    shop.assert_equal(name, root=root)
    assert files(shop, f"{root}log/{name}")
    shop.kubectl("delete", "replicator", name, "--timeout=170s")
    shop.wait("no object left", 120, lambda: leftovers(shop, name) == [])
    with shop.connect() as connection:
        assert connection.execute("SELECT slot_name FROM pg_replication_slots").fetchall() == []
        assert connection.execute("SELECT pubname FROM pg_publication").fetchall() == []


def files(shop: Shop, folder: str) -> list[Path]:
    return [path for path in shop.volume(folder).rglob("*") if path.is_file()]


def leftovers(shop: Shop, name: str) -> list[str]:
    """Everything in the namespace that is named after the Replicator."""
    listed = shop.kubectl("get", KINDS, "-o", "name").split()
    return [one for one in listed if one.rpartition("/")[2].startswith(f"{name}-")]
