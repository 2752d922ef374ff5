"""Deleting a Replicator on a whole Kubernetes: what goes, what stays, and that nothing of it is forgotten."""

from collections.abc import Iterator

import pytest

from cluster.deploy import Cluster
from support.cluster_shop import Shop, open_shop

pytestmark = pytest.mark.timeout(1800)
KINDS = "pods,configmaps,secrets,services,statefulsets,jobs,serviceaccounts,rolebindings"


@pytest.fixture(scope="module")
def shop(cluster: Cluster) -> Iterator[Shop]:
    with open_shop(cluster, "delete") as opened:
        yield opened


@pytest.mark.parametrize(("policy", "stays"), [("Retain", True), ("Delete", False)])
def test_a_deleted_replicator_leaves_no_slot_no_pod_and_the_data_as_its_policy_says(
    shop: Shop, policy: str, stays: bool
) -> None:
    name = policy.lower()
    shop.apply(name, deletionPolicy=policy)
    shop.wait_ready(name)
    shop.wait_condition("replicator", name, "InitialSnapshotCompleted", 300)
    shop.assert_equal(name)
    shop.kubectl("delete", "replicator", name, "--timeout=170s")
    shop.wait("no object left", 120, lambda: leftovers(shop, name) == [])
    with shop.connect() as connection:
        assert connection.execute("SELECT slot_name FROM pg_replication_slots").fetchall() == []
        assert connection.execute("SELECT pubname FROM pg_publication").fetchall() == []
    # Files: an object store has no folders, and of a local one the empty ones stay.
    tables = [path for path in shop.volume(f"lake/{name}").rglob("*") if path.is_file()]
    journal = [path for path in shop.volume(f"log/{name}").rglob("*") if path.is_file()]
    assert (bool(tables), bool(journal)) == (stays, stays), [*tables, *journal][:10]


def leftovers(shop: Shop, name: str) -> list[str]:
    """Everything in the namespace that is named after the Replicator."""
    listed = shop.kubectl("get", KINDS, "-o", "name").split()
    return [one for one in listed if one.rpartition("/")[2].startswith(f"{name}-")]
