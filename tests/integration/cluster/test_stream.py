"""A Replicator on a whole Kubernetes: a driver and an executor that stays, load, faults, a rotated Secret, suspension.

After each, the target holds every row of the source. The tests of this file share one Replicator and run in any order.
"""

import base64
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from cluster import images, workload
from cluster.deploy import OPERATOR_NAMESPACE, Cluster
from support import foreign_client
from support.audit import requests_of
from support.cluster_shop import Shop, open_shop
from support.console import Console
from support.kubectl_plugin import Plugin
from support.seam_names import checked

pytestmark = pytest.mark.timeout(1800)
FIRST, SECOND, THIRD = (pytest.mark.turn(part, 3) for part in range(3))
"""Parts of what need not be proven by each run: its processes in pods cost minutes of CPU."""
MANIFEST = "/etc/tailrace/replicator/replicator.yaml"


@pytest.fixture(scope="module")
def shop(cluster: Cluster) -> Iterator[Shop]:
    with open_shop(cluster, "stream") as opened:
        opened.apply(executors={**workload.replicator("stream")["spec"]["executors"], "min": 1})
        opened.wait_ready()
        opened.wait_condition("replicator", "shop", "InitialSnapshotCompleted", 300)
        yield opened


def driver_uid(shop: Shop) -> str:
    found = shop.pod("shop-driver-0")
    return str(found["metadata"]["uid"]) if found else ""


def test_a_driver_and_an_executor_pod_replicate_while_the_source_is_written_to(shop: Shop) -> None:
    shop.wait_ready()
    shop.wait("an executor", 60, lambda: bool(shop.executors()))
    executor = shop.pod(shop.executors()[0])
    assert executor is not None and executor["spec"]["serviceAccountName"] == "shop-driver"
    shop.assert_equal()
    # Processes come and go meanwhile.
    maps = shop.kubectl("exec", "shop-driver-0", "--", "sh", "-c", "cat /proc/[0-9]*/maps 2>/dev/null; true")
    assert "/opt/tailrace/cache/classes-" in maps, "the image's archive of classes does not fit its JVM"
    before = shop.writers.transactions
    shop.wait("writers go on", 30, lambda: shop.writers.transactions > before + 20)
    shop.assert_equal()
    # Counts are written every half minute.
    shop.wait("the tables' states", 90, lambda: shop.status().get("tables", {}).get("replicating") == 2)
    assert shop.status()["state"] == "Running"
    assert shop.status()["tables"]["total"] == 2
    said = {c["type"]: c["message"] for c in shop.status()["conditions"]}
    assert "2 of 2 tables can be copied" in said["Assessed"], "by the driver that was the first"
    assert "stream" in shop.cluster.kubectl("get", "repl", "--all-namespaces")
    told = shop.kubectl("exec", "shop-driver-0", "--", "tailrace", "status", "-f", MANIFEST, "--json")
    assert json.loads(told)["state"] == "Running"


@FIRST
def test_a_table_is_left_out_and_taken_in_again_by_the_same_container(shop: Shop) -> None:
    """Within seconds: kubelets take a minute to show a pod what has changed in a ConfigMap."""
    shop.wait_ready()
    before, included = _containers(shop), shop.resource("replicator", "shop")["spec"]["tables"]["include"]
    began = time.monotonic()
    shop.patch("replicator", "shop", json.dumps({"tables": {"include": included, "exclude": ["public.entries"]}}))
    shop.wait("one table", 60, lambda: _tables(shop) == 1)
    assert time.monotonic() - began < 60
    shop.patch("replicator", "shop", json.dumps({"tables": {"include": included, "exclude": None}}))
    shop.wait("both tables", 60, lambda: _tables(shop) == 2)
    shop.wait_ready()
    assert _containers(shop) == before
    shop.assert_equal()


def _tables(shop: Shop) -> int | None:
    """As the driver's own status has them."""
    told = shop.kubectl("exec", "shop-driver-0", "--", "tailrace", "status", "-f", MANIFEST, "--json")
    return int(json.loads(told)["tablesTotal"])


def _containers(shop: Shop) -> list[str]:
    """Ids of the driver's container and the executors' pods."""
    driver = shop.pod("shop-driver-0")
    assert driver is not None
    return [driver["status"]["containerStatuses"][0]["containerID"], *shop.executors()]


def test_every_line_that_driver_and_executors_log_is_json(shop: Shop) -> None:
    for pod in ("shop-driver-0", *shop.executors()):
        lines = shop.kubectl("logs", pod).splitlines()
        odd = [line for line in lines if not line.startswith("{") or not json.loads(line).get("message")]
        assert lines or pod != "shop-driver-0", f"{pod} logs something"
        assert not odd, f"{pod}: {odd[:5]}"
        assert not [line for line in lines if "Unable to use shared archive" in line], "the image's own does not fit"


@FIRST
def test_a_snapshot_request_is_paused_goes_on_and_completes(shop: Shop) -> None:
    shop.wait_ready()
    request = workload.snapshot_request("stream", "again", ["public.entries"], chunkRows=200, parallelism=1)
    shop.cluster.apply(request)
    shop.wait("chunks read", 120, lambda: _snapshot(shop, "again").get("chunksDone", 0) >= 1)
    shop.patch("snapshotrequest", "again", '{"suspend": true}')
    shop.wait("Paused", 120, lambda: _snapshot(shop, "again").get("state") == "Paused")
    shop.patch("snapshotrequest", "again", '{"suspend": false}')
    shop.wait_condition("snapshotrequest", "again", "Complete", 400)
    shop.assert_equal()


@FIRST
def test_a_snapshot_request_that_is_deleted_is_cancelled(shop: Shop) -> None:
    shop.wait_ready()
    request = workload.snapshot_request("stream", "never", ["public.entries"], chunkRows=50, parallelism=1)
    shop.cluster.apply(request)
    shop.wait("Running", 120, lambda: _snapshot(shop, "never").get("state") == "Running")
    shop.kubectl("delete", "snapshotrequest", "never", "--timeout=60s")
    shop.wait("no snapshot", 60, lambda: not (shop.status().get("snapshot") or {}).get("running"))
    shop.assert_equal()


def _snapshot(shop: Shop, name: str) -> dict[str, Any]:
    found: dict[str, Any] = shop.resource("snapshotrequest", name).get("status") or {}
    return found


@THIRD
def test_a_snapshot_goes_on_after_the_driver_and_the_operator_are_killed_and_the_driver_is_evicted(shop: Shop) -> None:
    """The killed driver comes back in its pod, with new executors; the evicted one in another pod."""
    shop.wait_ready()
    uid, old = driver_uid(shop), set(shop.executors())
    restarts = shop.status()["driver"]["restarts"]
    request = workload.snapshot_request("stream", "tried", ["public.entries"], chunkRows=100, parallelism=1)
    shop.cluster.apply(request)

    shop.wait("chunks read", 120, lambda: _snapshot(shop, "tried").get("chunksDone", 0) >= 3)
    shop.kill("stream", "shop-driver-0")
    shop.wait("restart seen", 120, lambda: shop.status()["driver"]["restarts"] > restarts)
    shop.wait_ready()
    assert driver_uid(shop) == uid
    shop.wait("old executors reaped", 120, lambda: not old & set(_all_executors(shop)))
    read = _more_chunks(shop, 3)

    shop.kill(OPERATOR_NAMESPACE, min(_operators(shop)))
    read = _more_chunks(shop, read)

    # What a drained node does to its pods; on a cluster of one node there is no other for what follows.
    nodes = [str(node["metadata"]["name"]) for node in shop.cluster.objects("default", "nodes")]
    only = "--pod-selector=tailrace.dev/replicator=shop"
    try:
        shop.cluster.kubectl("drain", *nodes, only, "--force", "--delete-emptydir-data")
    finally:
        shop.cluster.kubectl("uncordon", *nodes)
    shop.wait("another driver", 180, lambda: driver_uid(shop) not in ("", uid))
    _more_chunks(shop, read)
    shop.wait_condition("snapshotrequest", "tried", "Complete", 600)
    shop.assert_equal()
    shop.wait_ready()


def _more_chunks(shop: Shop, read: int) -> int:
    """Chunks done when more than `read` are; the snapshot is not over by then."""

    def running() -> bool:
        """It has a driver, and what is told is not from before."""
        seen = _snapshot(shop, "tried")
        assert seen["state"] in ("Running", "Pending"), seen
        return seen["state"] == "Running" and bool(seen.get("chunksDone", 0) > read)

    shop.wait(f"more than {read} chunks", 180, running)
    return int(_snapshot(shop, "tried")["chunksDone"])


def _all_executors(shop: Shop) -> list[str]:
    pods = shop.cluster.objects("stream", "pods", "-l", "app.kubernetes.io/component=executor")
    return [str(pod["metadata"]["name"]) for pod in pods]


def test_a_stranger_in_the_cluster_is_refused_by_driver_and_executors_while_data_flows(shop: Shop) -> None:
    shop.wait_ready()
    shop.wait("an executor", 60, lambda: bool(shop.executors()))
    before = shop.writers.transactions
    names = ("shop-driver-0", shop.executors()[0])
    doors = {name: {port for host, port in _listening(shop, name) if host != LOOPBACK} for name in names}
    assert doors["shop-driver-0"] == {7078, 7079, 8090}
    assert len(doors[names[1]]) == 1, "blocks; an executor takes no requests but its driver's"
    doors["shop-driver-0"].remove(8090)  # not Spark's: HTTP, with a token
    for name, ports in doors.items():
        pod = shop.pod(name)
        assert pod is not None
        for port in ports:
            # PostgreSQL's pod is nobody's executor.
            command = ("exec", "-i", "deployment/shop-db", "--", "python3", "-", pod["status"]["podIP"], str(port))
            answer = shop.cluster.kubectl("-n", shop.space, *command, stdin=Path(foreign_client.__file__).read_text())
            assert foreign_client.is_refused(answer.encode()), (name, port, answer)
    assert shop.executors()[0] == names[1] and shop.writers.transactions > before
    shop.assert_equal()


LOOPBACK = "127.0.0.1"


def _listening(shop: Shop, pod: str) -> set[tuple[str, int]]:
    """Addresses and ports; of IPv6, those of IPv4 in it."""
    found = set()
    for line in shop.kubectl("exec", pod, "--", "cat", "/proc/net/tcp", "/proc/net/tcp6").splitlines():
        fields = line.split()
        if fields[3] == "0A":
            host, _, port = fields[1].partition(":")
            found.add((str(IPv4Address(bytes.fromhex(host[-8:])[::-1])), int(port, 16)))
    return found


def test_what_driver_and_executors_prove_themselves_with_is_in_files_only(shop: Shop) -> None:
    shop.wait_ready()
    shop.wait("an executor", 60, lambda: bool(shop.executors()))
    encoded = shop.resource("secret", "shop-spark")["data"]["secret"]
    pods = ("shop-driver-0", *shop.executors())
    look = "cat /proc/[0-9]*/cmdline $(find /var/lib/tailrace -name '*.log') 2>/dev/null; true"
    told = [
        shop.kubectl("get", "pods,statefulsets,configmaps,events,replicators", "-o", "yaml"),
        *(shop.kubectl("logs", pod) for pod in pods),
        *(shop.kubectl("exec", pod, "--", "sh", "-c", look) for pod in pods),
    ]
    assert "spark.authenticate.secret.file" in told[-1], "the executor's command line"
    for secret in (encoded, base64.b64decode(encoded).decode()):
        assert not [text for text in told if secret in text]
    assert "_SPARK_AUTH_SECRET" not in told[0], "Spark's own way: in the pods"


@SECOND
def test_a_killed_executor_and_a_deleted_secret_are_replaced_with_every_right_of_the_drivers_role(shop: Shop) -> None:
    """As the Secret is missing after an upgrade from an operator that made none. The driver shuts down, and another one
    starts: it has used each of its rights then, and was refused nothing."""
    node = shop.cluster.node
    assert node is not None
    shop.wait_ready()
    shop.wait("an executor", 60, lambda: bool(shop.executors()))
    victim = shop.executors()[0]
    shop.kill("stream", victim)
    shop.wait("another executor", 120, lambda: bool(set(shop.executors()) - {victim}))
    shop.assert_equal()

    uid, old = driver_uid(shop), shop.resource("secret", "shop-spark")["data"]
    shop.kubectl("delete", "secret", "shop-spark")
    shop.wait("another driver", 180, lambda: driver_uid(shop) not in ("", uid))
    shop.wait_ready()
    uid = driver_uid(shop)
    assert shop.resource("secret", "shop-spark")["data"] != old
    shop.wait("its executor", 120, lambda: bool(shop.executors()))
    shop.assert_equal()
    pod = shop.pod("shop-driver-0")
    assert pod is not None and pod["metadata"]["uid"] == uid, "replaced once"
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0

    asked = requests_of(node, "stream", "shop-driver")
    role = json.loads(shop.cluster.kubectl("get", "clusterrole", "tailrace-driver", "-o", "json"))
    granted = {(what, verb) for rule in role["rules"] for what in rule["resources"] for verb in rule["verbs"]}
    assert [request for request in sorted(asked) if request.code in (401, 403)] == []
    assert {(request.resource, request.verb) for request in asked} == granted


@FIRST
def test_a_killed_operator_leaves_the_stream_alone(shop: Shop) -> None:
    shop.wait_ready()
    uid = driver_uid(shop)
    shop.kill(OPERATOR_NAMESPACE, min(_operators(shop)))
    shop.assert_equal()
    shop.cluster.rolled_out(OPERATOR_NAMESPACE, "deployment/tailrace-operator")
    shop.wait_ready()
    assert driver_uid(shop) == uid


@SECOND
def test_an_upgraded_operator_leaves_the_stream_alone(shop: Shop) -> None:
    shop.wait_ready()
    uid, restarts, old = driver_uid(shop), shop.status()["driver"]["restarts"], _operators(shop)
    shop.cluster.install("podAnnotations.upgraded=once")
    shop.wait("another operator", 120, lambda: bool(_operators(shop)) and not old & _operators(shop))
    assert "Succeeded" in shop.cluster.helm("test", "tailrace", "--namespace", OPERATOR_NAMESPACE)
    shop.assert_equal()
    shop.wait_ready()
    assert (driver_uid(shop), shop.status()["driver"]["restarts"]) == (uid, restarts)


@SECOND
def test_the_console_in_its_pod_shows_and_does_what_the_callers_token_allows(shop: Shop) -> None:
    """Rights are those of the cluster's role `edit`; details, cuts and doctor come from the driver."""
    shop.wait_ready()
    shop.cluster.install("console.enabled=true", "console.allowActions=true")
    try:
        shop.kubectl("create", "serviceaccount", "console-user")
        shop.kubectl(
            "create", "rolebinding", "console-user", "--clusterrole=edit", "--serviceaccount=stream:console-user"
        )
        token = shop.kubectl("create", "token", "console-user").strip()
        with shop.cluster.port(OPERATOR_NAMESPACE, "tailrace-operator-console", 8650) as port:
            _look_at_it(Console(port, token))
    finally:
        shop.cluster.install()
    shop.wait_ready()


def _look_at_it(console: Console) -> None:
    path = "/api/v1/replicators/stream%3Ashop"

    def act(verb: str) -> tuple[int, dict[str, Any]]:
        code, _, answer = console.send("POST", f"{path}/actions", {"verb": verb, "cut": "noon"})
        return code, json.loads(answer)

    assert console.send("GET", "/api/v1/fleet", token="wrong")[0] == 401
    (entry,) = console.get("/api/v1/fleet")["replicators"]
    assert (entry["name"], entry["state"], entry["tablesTotal"]) == ("stream:shop", "Running", 2)
    one = console.get(path)
    assert one["live"] and one["refused"] == [], one
    assert [t["name"] for t in console.get(f"{path}/tables")["tables"]] == ["public.accounts", "public.entries"]
    assert console.get(f"{path}/tables/public.accounts")["columns"][0]["name"] == "id"

    code, made = act("cut")
    assert code == 200 and made["done"] and "noon" in made["message"], made
    assert [cut["name"] for cut in console.get(f"{path}/cuts")["cuts"]] == ["noon"]
    code, again = act("cut")
    assert (code, again["message"]) == (409, "Conflict: there is a cut 'noon'"), "the command's own words"
    assert act("dropCut")[1]["message"] == "noon: dropped"
    assert console.get(f"{path}/cuts")["cuts"] == []

    report = console.get(f"{path}/assessment")
    assert report["ready"] and [t["table"] for t in report["tables"]] == ["public.accounts", "public.entries"]


def _operators(shop: Shop) -> set[str]:
    pods = shop.cluster.objects(OPERATOR_NAMESPACE, "pods", "-l", "app.kubernetes.io/name=tailrace-operator")
    return {str(pod["metadata"]["name"]) for pod in pods}


@THIRD
def test_the_plain_manifests_take_the_charts_place(shop: Shop) -> None:
    shop.wait_ready()
    uid = driver_uid(shop)
    text = (images.ROOT / "manifests" / "install.yaml").read_text()
    text = re.sub(r": tailrace-(operator|spark):", r": localhost/tailrace-\1:", text)
    shop.cluster.helm("uninstall", "tailrace", "--namespace", OPERATOR_NAMESPACE, "--wait")
    try:
        shop.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
        shop.cluster.rolled_out("tailrace-system", "deployment/tailrace-operator")
        shop.cluster.apply(workload.snapshot_request("stream", "plain", ["public.accounts"]))
        shop.wait_condition("snapshotrequest", "plain", "Complete", 240)
        shop.assert_equal()
        assert driver_uid(shop) == uid
    finally:
        kept = (one for one in text.split("\n---\n") if "kind: CustomResourceDefinition" not in one)
        shop.cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin="\n---\n".join(kept))
        shop.cluster.install()


STEPS = (
    "before-status",
    "after-status",
    "after-set-finalizers",
    "after-make-secret",
    "after-apply-child",
    "after-submit-snapshot",
    "after-cancel",
    "after-drop-source",
)


@FIRST
def test_an_operator_that_is_killed_at_each_of_its_steps_ends_what_it_began(shop: Shop) -> None:
    shop.wait_ready()
    uid = driver_uid(shop)
    with seams(shop, STEPS):
        shop.apply("killed")
        shop.wait_ready("killed")
        shop.wait_condition("replicator", "killed", "InitialSnapshotCompleted", 300)
        request = workload.snapshot_request("stream", "taken", ["public.entries"], replicator="killed", chunkRows=100)
        shop.cluster.apply(request)
        shop.wait("Running", 120, lambda: _snapshot(shop, "taken").get("state") == "Running")
        shop.kubectl("delete", "snapshotrequest", "taken", "--timeout=120s")
        shop.assert_equal("killed")
        shop.kubectl("delete", "replicator", "killed", "--timeout=170s")
        shop.wait("every step was met", 60, lambda: _operator_restarts(shop) == len(STEPS))
    with shop.connect() as connection:
        assert len(connection.execute("SELECT slot_name FROM pg_replication_slots").fetchall()) == 1
    assert driver_uid(shop) == uid


@contextmanager
def seams(shop: Shop, steps: tuple[str, ...]) -> Iterator[None]:
    """The operator dies at each step once. A container's first process cannot kill itself, so it is not the first."""
    plan = checked(",".join(f"operator.{step}=kill" for step in steps))
    settings = {"TAILRACE_SEAMS": plan, "TAILRACE_SEAMS_ONCE": "/tmp"}
    container = {"name": "operator", "env": [{"name": name, "value": value} for name, value in settings.items()]}
    patch = {"spec": {"template": {"spec": {"shareProcessNamespace": True, "containers": [container]}}}}
    old = _operators(shop)
    deployment = ("-n", OPERATOR_NAMESPACE, "patch", "deployment", "tailrace-operator", "-p", json.dumps(patch))
    shop.cluster.kubectl(*deployment)
    shop.wait("the armed operator", 120, lambda: bool(_operators(shop)) and not old & _operators(shop))
    try:
        yield
    finally:
        shop.cluster.kubectl("-n", OPERATOR_NAMESPACE, "delete", "deployment", "tailrace-operator")
        shop.cluster.install()


def _operator_restarts(shop: Shop) -> int:
    pods = shop.cluster.objects(OPERATOR_NAMESPACE, "pods", "-l", "app.kubernetes.io/name=tailrace-operator")
    return sum(one["restartCount"] for pod in pods for one in pod["status"].get("containerStatuses", ()))


@SECOND
def test_the_plugin_reads_the_log_and_asks_the_driver(shop: Shop, tmp_path: Path) -> None:
    shop.wait_ready()
    plugin = Plugin.installed(tmp_path / "bin", shop.cluster.kubeconfig, shop.space)
    tables = plugin("tables", "shop", "--all").splitlines()
    assert len(tables) == 3 and all("REPLICATING" in line for line in tables[1:])
    assert plugin("doctor", "shop").splitlines()[-1] == "ready"
    changed = tmp_path / "changed.yaml"
    changed.write_text(json.dumps(_narrowed(shop)))
    said = plugin("diff", "shop", "-f", str(changed))
    assert "table public.entries: is no longer captured" in said and "no restart needed" in said
    assert len(plugin("logs", "shop", "--tail", "2").splitlines()) == 2
    assert "shop  Running" in plugin("status", "shop")


def _narrowed(shop: Shop) -> dict[str, Any]:
    """The Replicator with one of its two tables."""
    found: dict[str, Any] = json.loads(shop.kubectl("get", "replicator", "shop", "-o", "json"))
    found["spec"]["tables"] = {"include": ["public.accounts"]}
    return found


@SECOND
def test_a_rotated_password_reaches_the_driver(shop: Shop) -> None:
    shop.wait_ready()
    uid = driver_uid(shop)
    with shop.writers.held(), shop.connect() as connection:
        connection.execute("ALTER ROLE postgres PASSWORD 'second-password'")
        shop.password = "second-password"
        shop.cluster.apply(workload.secret("shop-db", "stream", password="second-password"))
    shop.wait("another driver", 180, lambda: driver_uid(shop) not in ("", uid))
    shop.wait_ready()
    shop.assert_equal()


@THIRD
def test_suspend_stops_the_pods_and_resume_catches_up(shop: Shop) -> None:
    shop.wait_ready()
    shop.patch("replicator", "shop", '{"suspend": true}')
    shop.wait("no driver", 180, lambda: shop.pod("shop-driver-0") is None and not shop.executors())
    shop.wait_condition("replicator", "shop", "Suspended", 60)
    shop.wait_ready(seconds=60)
    # What the source keeps meanwhile is asked by a job; its next time may be a quarter of an hour away.
    shop.wait("the job that asks", 60, lambda: "shop-check" in shop.kubectl("get", "cronjobs"))
    shop.kubectl("create", "job", "asked-now", "--from=cronjob/shop-check")
    shop.wait("the answer", 120, lambda: reason(shop, "SourceLogAtRisk") == "RetainedLogLow")
    assert shop.status()["capture"]["retainedBytes"] > 0
    shop.patch("replicator", "shop", '{"suspend": false}')
    shop.wait_condition("replicator", "shop", "Suspended", 60, status="False")
    shop.wait_ready()
    shop.assert_equal()
    shop.wait("no job that asks", 60, lambda: "shop-check" not in shop.kubectl("get", "cronjobs"))


def reason(shop: Shop, condition: str) -> str:
    found: dict[str, str] = {c["type"]: c["reason"] for c in shop.status().get("conditions", ())}
    return found.get(condition, "")


def test_the_operator_saw_nothing_that_it_did_not_expect(shop: Shop) -> None:
    lines = [line for line in shop.operator_log().splitlines() if "Traceback" in line or '"level": "error"' in line]
    assert lines == []
