"""One Replicator for real, without a cluster: a real API server with its controllers, the operator as a process, its
driver as a process (`local_kubelet`), a real PostgreSQL, and tables that are compared row by row."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltalake.exceptions import TableNotFoundError

from demo.compare import compare
from support.kube import KubeApi
from support.local_kubelet import LocalKubelet
from support.operator_namespace import OperatorNamespace, install_crds, operator, operator_namespace
from support.operator_process import ROOT, OperatorProcess
from support.postgres import PostgresServer
from support.resources import Json, on_claim
from support.waiting import until
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.state import LogState
from tailrace.contract.resources import StorageSpec
from tailrace.storage.store import Storage

TABLES = ("public.accounts", "public.entries")
NAME, REPL = "shop", "repl/shop"
SECONDS = 400.0
"""A driver's start on a busy machine."""


class Shop:
    """The source, and the folder with the target and the change log: what every cluster shares."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self._rows = 1000
        folder.mkdir()
        server.execute("CREATE TABLE accounts (id bigint PRIMARY KEY, balance numeric(12,2) NOT NULL, note text)")
        server.execute(
            "CREATE TABLE entries (account bigint, line int, amount numeric(12,2), PRIMARY KEY (account, line))"
        )
        server.execute("INSERT INTO accounts SELECT i, i, repeat(md5(i::text), 3) FROM generate_series(1, 1000) i")
        server.execute("INSERT INTO entries SELECT i / 5, i % 5, i / 100.0 FROM generate_series(1, 4000) i")

    def write(self) -> None:
        """Inserts, updates, deletes and moved keys in both tables."""
        self._rows += 100
        first = self._rows
        self.server.execute(f"INSERT INTO accounts SELECT i, 0, NULL FROM generate_series({first}, {first + 99}) i")
        self.server.execute(f"UPDATE accounts SET balance = balance + 1 WHERE id % 7 = {first // 100 % 7}")
        self.server.execute(f"DELETE FROM entries WHERE account % 11 = {first // 100 % 11}")
        self.server.execute(f"UPDATE accounts SET id = -id WHERE id % 100 = {first // 100 % 100} AND id > 0")
        self.server.execute(f"INSERT INTO entries SELECT i, 9, 1 FROM generate_series({first}, {first + 99}) i")

    def manifest(self, **spec: object) -> Json:
        """The same in every cluster, but for what is given."""
        lost = [{"key": f"node.kubernetes.io/{why}", "operator": "Exists"} for why in ("not-ready", "unreachable")]
        pod = on_claim(str(self.folder), "data")
        pod["spec"]["tolerations"] = lost
        plain: Json = {
            "source": {**self.server.source(), "credentials": {"secretName": "shop-db"}},
            "tables": {"include": ["public.*"]},
            "target": {"type": "delta", "location": (self.folder / "lake").as_uri()},
            "storage": {"location": (self.folder / "log").as_uri()},
            "driver": {"memory": "1Gi", "cores": 2, "podTemplate": pod},
            "executors": {"max": 0},
        }
        return {
            "apiVersion": "tailrace.dev/v1alpha1", "kind": "Replicator", "metadata": {"name": NAME},
            "spec": plain | spec,
        }  # fmt: skip

    @property
    def storage(self) -> Storage:
        return Storage.open(StorageSpec(location=(self.folder / "log").as_uri()))

    def log(self) -> LogState:
        return JournalReader.open(self.storage).state

    def snapshots(self) -> list[str]:
        """Ids of all that the change log knows."""
        return sorted(self.log().snapshots)

    def slots(self) -> list[str]:
        return [str(row[0]) for row in self.server.execute("SELECT slot_name FROM pg_replication_slots ORDER BY 1")]

    def publications(self) -> list[str]:
        return [str(row[0]) for row in self.server.execute("SELECT pubname FROM pg_publication ORDER BY 1")]

    def commits(self) -> set[Path]:
        """What the tables' histories hold: a table that has no new commit has no other rows."""
        return set((self.folder / "lake").rglob("_delta_log/*.json"))

    def differences(self) -> list[str]:
        with self.server.connect() as connection:
            try:
                return compare(connection, TABLES, self.folder / "lake", "delta")
            except (FileNotFoundError, TableNotFoundError) as error:
                return [str(error)]


class Cluster:
    """A namespace with its operator and its node."""

    def __init__(self, shop: Shop, place: OperatorNamespace, process: OperatorProcess, kubelet: LocalKubelet) -> None:
        self.shop, self.place, self.process, self.kubelet = shop, place, process, kubelet

    def apply(self, **spec: object) -> str:
        """Returns the object's uid."""
        self.place.apply(self.shop.manifest(**spec))
        return str(self.place.get(REPL)["metadata"]["uid"])

    def patch(self, **spec: object) -> None:
        """And wait until the operator has seen it."""
        self.place.kubectl("patch", "repl", NAME, "--type=merge", "-p", json.dumps({"spec": spec}))
        generation = self.place.get(REPL)["metadata"]["generation"]
        until(lambda: self.status().get("observedGeneration") == generation, f"generation {generation} is seen")

    def status(self) -> Any:
        return (self.place.get(REPL) or {}).get("status") or {}

    def reason(self, reason: str) -> str:
        """The message of Ready once this is its reason."""
        try:
            return str(self.place.until_reason(REPL, reason, SECONDS)["message"])
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.status()}\n{self.kubelet.told()}") from error

    def equal(self) -> None:
        """The operator says that it runs, and the target is the source, row by row."""
        self.reason("Streaming")
        compared: set[Path] | None = None

        def level() -> bool:
            nonlocal compared
            before, compared = compared, self.shop.commits()  # looked up first: a commit meanwhile is compared next
            return compared != before and not self.shop.differences()

        try:
            until(level, "source = target", SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.shop.differences()}\n{self.kubelet.told()}") from error

    def stopped(self) -> None:
        """No driver, and none is meant to be."""
        until(lambda: self.place.get("statefulset/shop-driver")["spec"]["replicas"] == 0, "no driver is wanted")
        until(lambda: self.place.get("pod/shop-driver-0") is None, "no driver is there", SECONDS)

    def gone(self) -> None:
        """Delete it and wait, as `kubectl delete` does."""
        self.place.kubectl("delete", REPL, "--wait=false")
        try:
            until(lambda: self.place.get(REPL) is None, "the Replicator is gone", SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.status()}\n{self.kubelet.told()}") from error
        # Kubernetes collects its children afterwards; a new one of the same name has none of them.
        until(lambda: self.place.get("statefulset/shop-driver") is None, "its StatefulSet is gone", SECONDS)
        until(lambda: self.place.get("pod/shop-driver-0") is None, "its pod is gone", SECONDS)

    def event(self, reason: str) -> str:
        """The newest message of such an event."""

        def look() -> str | None:
            found = self.place.objects.objects(self.place.namespace, "events")
            texts = [(e["lastTimestamp"] or "", e["message"]) for e in found if e["reason"] == reason]
            return max(texts)[1] if texts else None

        return until(look, f"an event {reason}")

    def nothing_unexpected(self) -> None:
        assert not [line for line in self.process.lines() if line["level"] == "error"], self.process.log


@contextmanager
def cluster(shop: Shop, folder: Path, namespace: str, ip: str, tree: Path = ROOT) -> Iterator[Cluster]:
    """An API server of its own: as far from any other as two clusters are. `ip`: of its drivers; `tree`: the checkout
    whose CRDs and operator it begins with."""
    folder.mkdir()
    with KubeApi(folder / "kube", controllers=True) as kube:
        install_crds(kube, tree / "crds")
        with (
            operator_namespace(kube, namespace, folder) as place,
            LocalKubelet(kube, namespace, folder, ip) as kubelet,
            operator(place, tree=tree) as process,
        ):
            yield Cluster(shop, place, process, kubelet)
