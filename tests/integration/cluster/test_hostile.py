"""What goes wrong on a whole Kubernetes and comes right again: a lost position, a kill amid a clean-up, a quota."""

import re
from collections.abc import Iterator

import psycopg
import pytest

from cluster import workload
from cluster.deploy import Cluster
from support.cluster_shop import Shop, open_shop

pytestmark = [pytest.mark.timeout(1800), pytest.mark.turn(0, 3)]
"""Its processes in pods cost minutes of CPU: the files of this folder take turns."""
SLOTS = "SELECT slot_name FROM pg_replication_slots"
PUBLICATIONS = "SELECT pubname FROM pg_publication"
WITHOUT_KEY = """
CREATE SCHEMA apart;
CREATE TABLE apart.lines AS SELECT i, repeat(md5(i::text), 20) AS line FROM generate_series(1, 5000) i;
ALTER TABLE apart.lines REPLICA IDENTITY FULL;
ANALYZE apart.lines;
"""
"""A table that always waits for an executor: with a key, the driver may have read it before Spark is there."""
INITIAL = "jsonpath={.status.conditions[?(@.type=='InitialSnapshotCompleted')].status}"


@pytest.fixture(scope="module")
def shop(cluster: Cluster) -> Iterator[Shop]:
    with open_shop(cluster, "hostile") as opened:
        yield opened


def test_an_executor_comes_for_a_snapshot_and_goes_when_it_has_nothing_to_do(shop: Shop) -> None:
    """It had come for the initial one. The writers never rest: small batches need none."""
    bring(shop, "lost")
    shop.wait("no executor", 180, lambda: not shop.executors("lost") and executors_told(shop) == "ExecutorsNotNeeded")
    shop.wait("none to be wanted", 60, lambda: shop.status("lost")["executorsSummary"] == "0/0")
    shop.wait_ready("lost")
    shop.assert_equal("lost")
    assert not shop.executors("lost")
    shop.cluster.apply(workload.snapshot_request("hostile", "again", ["public.entries"], replicator="lost"))
    shop.wait("an executor", 120, lambda: bool(shop.executors("lost")))
    shop.wait_condition("snapshotrequest", "again", "Complete", 240)
    shop.assert_equal("lost")


def executors_told(shop: Shop) -> str:
    """The reason of `ExecutorsReady` while it is True."""
    found = shop.status("lost").get("conditions", ())
    return next((str(c["reason"]) for c in found if (c["type"], c["status"]) == ("ExecutorsReady", "True")), "")


def test_a_lost_position_is_told_as_the_sources_and_a_resync_request_brings_everything_back(shop: Shop) -> None:
    bring(shop, "lost")
    with shop.connect() as connection:
        (slot,) = connection.execute(SLOTS).fetchone() or ("",)
        shop.wait("the slot to be gone", 60, lambda: dropped(connection, slot))
    shop.wait_condition("replicator", "lost", "Stalled", 300)
    status = shop.status("lost")
    assert status["state"] == "Stopped"
    assert status["halt"]["reason"] == "PositionLost", status
    assert (status["lastError"]["name"], status["lastError"]["where"]) == ("PositionLost", "source"), status
    assert status["halt"]["message"].startswith("PositionLost: "), status
    shop.wait("no pod", 120, lambda: shop.pod("lost-driver-0") is None)
    request = workload.snapshot_request("hostile", "all-again", ["*.*"], replicator="lost", resync=True)
    shop.cluster.apply(request)
    shop.wait_condition("snapshotrequest", "all-again", "Complete", 400)
    shop.wait_ready("lost")
    shop.assert_equal("lost")


def dropped(connection: psycopg.Connection, slot: str) -> bool:
    """By somebody who ends its reader first; capture comes back at once, so it may take a few attempts."""
    connection.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid > 0")
    try:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    except (psycopg.errors.ObjectInUse, psycopg.errors.UndefinedObject) as error:
        return isinstance(error, psycopg.errors.UndefinedObject)
    return True


def test_a_driver_that_is_killed_amid_its_drop_leaves_nothing_behind(shop: Shop) -> None:
    """The slot is dropped and the publication is not, because somebody holds a lock on it."""
    if shop.cluster.get(shop.space, "replicator", "lost") is None:
        bring(shop, "lost")
    with shop.connect() as holder, shop.connect() as connection:
        (publication,) = connection.execute(PUBLICATIONS).fetchone() or ("",)
        holder.execute("BEGIN")
        holder.execute(f'ALTER PUBLICATION "{publication}" SET (publish_via_partition_root = true)')
        shop.kubectl("delete", "replicator", "lost", "--wait=false")
        shop.wait("the slot to be dropped", 120, lambda: connection.execute(SLOTS).fetchall() == [])
        shop.kill(shop.space, "lost-driver-0")
        shop.wait("the driver to be started again, or ended", 120, lambda: restarted(shop, "lost-driver-0"))
        assert connection.execute(PUBLICATIONS).fetchall() == [(publication,)]
        holder.execute("ROLLBACK")
        shop.wait("it is let go", 300, lambda: shop.objects.get(shop.space, "replicator", "lost") is None)
        assert connection.execute(SLOTS).fetchall() == []
        assert connection.execute(PUBLICATIONS).fetchall() == []
    reasons = shop.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").split()
    assert "CleanedUp" in reasons and "LeftBehind" not in reasons


def restarted(shop: Shop, name: str) -> bool:
    pod = shop.pod(name)
    states = (pod or {}).get("status", {}).get("containerStatuses", ())
    return pod is None or "deletionTimestamp" in pod["metadata"] or any(one["restartCount"] for one in states)


def test_a_quota_that_refuses_the_drivers_pod_is_told(shop: Shop) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": workload.metadata("tight", shop.space)}
    shop.cluster.apply({**quota, "spec": {"hard": {"pods": "0"}}})
    counted = "jsonpath={.status.hard.pods}"
    shop.wait("the quota to count", 60, lambda: shop.kubectl("get", "resourcequota", "tight", "-o", counted) != "")
    executors = workload.replicator(shop.space)["spec"]["executors"]
    pod = executors["podTemplate"]["spec"] | {"nodeSelector": {"disk": "none-has-this"}}
    with shop.connect() as connection:
        connection.execute(WITHOUT_KEY)
    shop.apply("tight", executors={**executors, "podTemplate": {"spec": pod}}, tables={"include": ["apart.*"]})
    told = re.compile(
        r"The driver's pod cannot be created: pods \"tight-driver-0\" is forbidden: exceeded quota: tight"
    )
    shop.wait("it is told", 60, lambda: told.match(str(shop.status("tight").get("message"))) is not None)
    shop.kubectl("delete", "resourcequota", "tight")
    shop.kubectl("delete", "statefulset", "tight-driver")  # its controller would try again after minutes only
    shop.wait_ready("tight")
    executors_that_no_node_takes_are_told(shop, "tight")
    shop.kubectl("delete", "replicator", "tight", "--timeout=170s")


def executors_that_no_node_takes_are_told(shop: Shop, name: str) -> None:
    def told() -> bool:
        return bool(shop.status(name).get("executors", {}).get("reason") == "PodPending")

    shop.wait("no node takes an executor", 90, told)
    status = shop.status(name)
    assert (status["executors"]["running"], status["executorsSummary"]) == (0, "0/1"), status
    assert "node selector" in status["executors"]["message"] or "affinity" in status["executors"]["message"], status
    shop.kubectl("wait", f"replicator/{name}", "--for=condition=ExecutorsReady=False", "--timeout=10s")
    warnings = shop.kubectl("get", "events", "-o", "jsonpath={.items[?(@.type=='Warning')].reason}").split()
    assert "PodPending" in warnings
    assert "False" in shop.kubectl("get", "replicator", name, "-o", INITIAL), "no executor has read a row"


def bring(shop: Shop, name: str) -> None:
    shop.apply(name)
    shop.wait_ready(name)
    shop.wait_condition("replicator", name, "InitialSnapshotCompleted", 300)
    shop.assert_equal(name)
