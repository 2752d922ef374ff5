"""A shop in a namespace of the tests' cluster: PostgreSQL in a pod, writers that can be held, a Replicator, and the
row by row comparison through an independent reader of the tables on the node's disk."""

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psycopg

import servers
from cluster import images, workload
from cluster.deploy import OPERATOR_NAMESPACE, Cluster, condition
from cluster.workload import Document
from demo.compare import compare
from support.kube_objects import KubeObjects
from support.waiting import until

DDL = """
CREATE TABLE accounts (id bigint PRIMARY KEY, owner text NOT NULL, balance numeric(12,2) NOT NULL, note text);
CREATE TABLE entries (account bigint, line int, amount numeric(12,2), booked timestamptz, PRIMARY KEY (account, line));
INSERT INTO accounts SELECT i, 'owner ' || i, i, repeat(md5(i::text), 20) FROM generate_series(1, 5000) i;
INSERT INTO entries SELECT i / 5, i % 5, i / 100.0, timestamptz '2024-01-01 00:00+00' + i * interval '1 minute'
    FROM generate_series(1, 20000) i;
ANALYZE;
"""
TABLES = ("public.accounts", "public.entries")
EXECUTORS = "app.kubernetes.io/component=executor"
BESIDE_OTHERS = 3
"""Waits last so much longer at most than on a machine that does nothing else: other tests run meanwhile."""


class Shop:
    """`connect()`, `wait_ready()`, `assert_equal()`, pods and their processes."""

    def __init__(self, cluster: Cluster, space: str, port: int, password: str) -> None:
        self.cluster = cluster
        self.space = space
        self.port = port
        self.password = password
        self.writers = Writers(self.connect)
        self.objects = KubeObjects(cluster.kubeconfig)

    def connect(self) -> psycopg.Connection:
        place = f"host=127.0.0.1 port={self.port} dbname=postgres user=postgres"
        return psycopg.connect(place, password=self.password, autocommit=True)

    def volume(self, path: str) -> Path:
        """A path of the volume, as this process sees it."""
        assert self.cluster.node is not None
        return workload.volume_folder(self.cluster.node, self.space) / path

    def apply(self, name: str = "shop", **more: Any) -> None:
        self.cluster.apply(workload.replicator(self.space, name, **more))

    def patch(self, kind: str, name: str, spec: str) -> None:
        self.kubectl("patch", kind, name, "--type=merge", "-p", f'{{"spec": {spec}}}')

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl("-n", self.space, *arguments)

    def resource(self, kind: str, name: str) -> Document:
        found = self.objects.get(self.space, kind, name)
        assert found is not None, f"{kind} {name} is gone"
        return found

    def status(self, name: str = "shop") -> dict[str, Any]:
        found: dict[str, Any] = self.resource("replicator", name).get("status") or {}
        return found

    def wait_condition(self, kind: str, name: str, type: str, seconds: float, status: str = "True") -> None:
        def reached() -> bool:
            found = self.objects.get(self.space, kind, name)
            seen = ((found or {}).get("status") or {}).get("observedGeneration")
            return seen == (found or {}).get("metadata", {}).get("generation") and condition(found, type) == status

        self.wait(f"{type}={status} of {kind} {name}", seconds, reached)

    def wait(self, what: str, seconds: float, check: Callable[[], bool]) -> None:
        """With everything that a person would look at when it does not come."""
        until(check, lambda: f"{what}\n{self.describe()}", seconds * BESIDE_OTHERS, pause=1)

    def wait_ready(self, name: str = "shop", seconds: float = 300) -> None:
        self.wait_condition("replicator", name, "Ready", seconds)

    def describe(self) -> str:
        """What a person would look at when a test fails."""
        parts = [
            self.cluster.kubectl("-n", self.space, "get", "pods,replicators,snapshotrequests", "-o", "wide"),
            self.cluster.kubectl("-n", self.space, "get", "replicators", "-o", "jsonpath={.items[*].status}"),
            self.cluster.kubectl("-n", self.space, "get", "events", "--sort-by=.lastTimestamp")[-3000:],
            self.cluster.kubectl("-n", self.space, "logs", "shop-driver-0", "--tail=30", check=False),
            self.operator_log()[-4000:],
        ]
        return "\n\n".join(parts)

    def operator_log(self) -> str:
        return self.cluster.kubectl("-n", OPERATOR_NAMESPACE, "logs", "deployment/tailrace-operator", check=False)

    def pod(self, name: str) -> Document | None:
        return self.objects.get(self.space, "pod", name)

    def executors(self, replicator: str = "shop") -> list[str]:
        """Names of the executor pods that run."""
        selector = f"{EXECUTORS},tailrace.dev/replicator={replicator}"
        pods = self.objects.objects(self.space, "pods", selector)
        return [str(pod["metadata"]["name"]) for pod in pods if pod["status"].get("phase") == "Running"]

    def kill(self, space: str, pod: str) -> None:
        """SIGKILL to the first process of the pod's only container, as the node's kernel would."""
        os.kill(
            until(lambda: self._first_process(space, pod), f"a running container of {pod}", 120, pause=1),
            signal.SIGKILL,
        )

    def _first_process(self, space: str, pod: str) -> int | None:
        """None while the container that the pod's status names has ended and the kubelet has not told the next."""
        found = self.cluster.get(space, "pod", pod)
        assert found is not None and self.cluster.node is not None
        container = str(found["status"]["containerStatuses"][0].get("containerID", "")).rpartition("/")[2]
        tasks = [line.split() for line in self.cluster.node.ctr("tasks", "ls").stdout.splitlines()]
        return next((int(task[1]) for task in tasks if task[0] == container and task[2] == "RUNNING"), None)

    def assert_equal(self, name: str = "shop", seconds: float = 240, root: str = "") -> None:
        """Hold the writers until the target has every row of the source as it is, and nothing else. `root` is the
        folder of the volume below which the tables lie."""
        lake = self.volume(f"{root}lake/{name}")
        found: list[str] = []
        compared: set[Path] | None = None

        def equal() -> bool:
            nonlocal compared
            before, compared = compared, set(lake.rglob("_delta_log/*.json"))
            if compared == before:  # no commit since, and the writers are held: as different as it was
                return False
            try:
                with self.connect() as connection:
                    found[:] = compare(connection, TABLES, lake, "delta")
            except FileNotFoundError as error:
                found[:] = [str(error)]
            return not found

        with self.writers.held():
            until(
                equal,
                lambda: "\n".join(["source = target", *found, self.describe()]),
                seconds * BESIDE_OTHERS,
                pause=2,
            )


BUCKET = "bucket"
OBJECTS = f"objects/{BUCKET}/"
"""The S3 server's bucket as a folder of the volume."""


def object_store(shop: Shop) -> Callable[[str], Document]:
    """An S3 server in a pod. The function returned gives the part of a spec that leads to a path there."""
    bucket = shop.volume(OBJECTS)
    bucket.mkdir(parents=True)
    for folder in (bucket, bucket.parent):
        os.chown(folder, workload.USER, workload.USER)
    keys = {"accessKeyId": "shop-access", "secretAccessKey": "shop-secret-0123456789"}
    names = {"ROOT_ACCESS_KEY": "accessKeyId", "ROOT_SECRET_KEY": "secretAccessKey"}
    folders = {"/programs": servers.versitygw().parent, "/objects": bucket.parent}
    pod = {
        "securityContext": {"runAsUser": workload.USER, "runAsGroup": workload.USER},
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "s3",
                "image": images.NAMES["spark"],
                "command": ["/programs/versitygw", "--port", ":7070", "--region", "us-east-1", "posix", "/objects"],
                "env": [
                    {"name": name, "valueFrom": {"secretKeyRef": {"name": "shop-s3", "key": key}}}
                    for name, key in names.items()
                ],
                "readinessProbe": {"tcpSocket": {"port": 7070}, "periodSeconds": 1},
                "volumeMounts": [{"name": path[1:], "mountPath": path} for path in folders],
            }
        ],
        "volumes": [{"name": path[1:], "hostPath": {"path": str(folder)}} for path, folder in folders.items()],
    }
    labels = {"app": "shop-s3"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    place = workload.metadata("shop-s3", shop.space)
    deployment = {"selector": {"matchLabels": labels}, "template": template}
    service = {"selector": labels, "ports": [{"port": 7070}]}
    shop.cluster.apply(
        workload.secret("shop-s3", shop.space, **keys),
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": place, "spec": deployment},
        {"apiVersion": "v1", "kind": "Service", "metadata": place, "spec": service},
    )
    shop.cluster.rolled_out(shop.space, "deployment/shop-s3")
    return lambda path: {
        "location": f"s3://{BUCKET}/{path}",
        "endpoint": "http://shop-s3:7070",
        "region": "us-east-1",
        "pathStyle": True,
        "credentials": {"secretName": "shop-s3"},
    }


class Writers:
    """A thread that inserts, updates, deletes and moves keys, with a connection that comes back after errors."""

    def __init__(self, connect: Callable[[], psycopg.Connection], pause: float = 0.2) -> None:
        """`pause`: seconds between two transactions, which go on for all of a file's minutes."""
        self._connect = connect
        self._pause = pause
        self._end = threading.Event()
        self._free = threading.Event()
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.transactions = 0

    def start(self) -> None:
        self._free.set()
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._free.set()
        self._thread.join(30)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nothing is written while the block lasts."""
        self._idle.clear()
        self._free.clear()
        try:
            assert self._idle.wait(30), "the writers do not come to rest"
            yield
        finally:
            self._free.set()

    def _run(self) -> None:
        random = Random(7)
        numbers = itertools.count(1_000_000)
        while not self._end.is_set():
            try:
                with self._connect() as connection:
                    while not self._end.is_set():
                        if not self._free.is_set():
                            self._idle.set()
                            self._free.wait()
                        self._one(connection, random, next(numbers))
                        self.transactions += 1
                        time.sleep(self._pause)
            except psycopg.OperationalError:  # a rotated password, a server that starts again
                time.sleep(0.5)

    def _one(self, connection: psycopg.Connection, random: Random, number: int) -> None:
        some = random.randint(1, 5000)
        with connection.transaction():
            match random.randrange(5):
                case 0:
                    connection.execute("INSERT INTO accounts VALUES (%s, 'new', 0, NULL)", (number,))
                    connection.execute("INSERT INTO entries VALUES (%s, 0, 1.5, now())", (number,))
                case 1:
                    connection.execute("UPDATE accounts SET balance = balance + 1 WHERE id = %s", (some,))
                case 2:
                    connection.execute("DELETE FROM entries WHERE account = %s AND line = 3", (some,))
                case 3:
                    connection.execute("UPDATE accounts SET id = %s WHERE id = %s", (-number, some))
                case _:
                    connection.execute("UPDATE entries SET amount = amount * 2 WHERE account = %s", (some % 4000,))


@contextmanager
def open_shop(cluster: Cluster, space: str) -> Iterator[Shop]:
    """The namespace with a filled PostgreSQL and writers at work; the namespace is removed at the end."""
    password = "first-password"
    cluster.forget(space)
    cluster.prepare(space, password)
    with cluster.port(space, "shop-db", 5432) as port:
        shop = Shop(cluster, space, port, password)
        with shop.connect() as connection:
            connection.execute(DDL.encode())
        shop.writers.start()
        try:
            yield shop
        finally:
            shop.writers.stop()
            # While their source lives: a driver whose namespace ends tries to drop its slot for as long as it may.
            shop.cluster.kubectl("-n", space, "delete", "replicators", "--all", "--timeout=170s", check=False)
            shop.objects.close()
    cluster.forget(space)
