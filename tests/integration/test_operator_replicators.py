"""The operator against a real API server: a Replicator's life. Nodes are stood in for, everything else is real."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.kube import KubeApi
from support.operator_process import IMAGE, DriverDouble, Node, OperatorProcess, until
from support.resources import SOURCE, replicator
from tailrace.contract.status import CaptureStatus

CRDS = Path(__file__).resolve().parents[2] / "crds"


@pytest.fixture(scope="module", autouse=True)
def crds(kube_api: KubeApi) -> None:
    kube_api.kubectl("apply", "--server-side", "-f", str(CRDS))
    kube_api.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")


class Team:
    """A namespace of the test's own, with an operator that watches it."""

    def __init__(self, kube: KubeApi, namespace: str, folder: Path) -> None:
        self.kube, self.namespace, self.folder = kube, namespace, folder
        self.node = Node(kube, namespace)
        kube.kubectl("create", "namespace", namespace)
        self.secret("shop-db", "first")

    def secret(self, name: str, password: str) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "stringData": {"password": password},
        }
        self.apply(document)

    def apply(self, *documents: Any) -> None:
        placed = [{**d, "metadata": {**d["metadata"], "namespace": self.namespace}} for d in documents]
        self.kube.apply(*placed)

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        return self.kube.kubectl("-n", self.namespace, *arguments, check=check)

    def get(self, what: str) -> Any:
        """The object; None: there is none."""
        out = self.kubectl("get", what, "-o", "json", "--ignore-not-found")
        return json.loads(out) if out.strip() else None

    def condition(self, what: str, kind: str) -> Any:
        found = (self.get(what) or {}).get("status", {}).get("conditions", ())
        return next((c for c in found if c["type"] == kind), None)

    def until_reason(self, what: str, reason: str, seconds: float = 60.0) -> Any:
        def look() -> Any:
            ready = self.condition(what, "Ready")
            return ready if ready is not None and ready["reason"] == reason else None

        return until(look, f"{what} is {reason}", seconds)

    def driver(self, name: str, ip: str) -> DriverDouble:
        """Its pod runs and answers."""
        until(lambda: self.node.stateful_set(name), "the StatefulSet")
        double = DriverDouble(name, ip, self.node.token(name))
        self.node.make_pod(name)
        self.node.run_pod(name, ip)
        return double


@contextmanager
def team(kube: KubeApi, name: str, folder: Path) -> Iterator[Team]:
    made = Team(kube, name, folder)
    yield made
    made.node.close()


def operator(place: Team, *flags: str, seams: str = "") -> OperatorProcess:
    return OperatorProcess(place.kube.kubeconfig, place.folder, place.namespace, *flags, seams=seams)


def test_a_replicator_comes_up_follows_its_driver_suspends_and_goes(kube_api: KubeApi, tmp_path: Path) -> None:
    with team(kube_api, "life", tmp_path) as life, operator(life) as process:
        life.apply(replicator())
        driver = life.driver("shop", "127.0.10.1")
        try:
            life.until_reason("repl/shop", "Streaming")
            _shows_what_the_driver_says(life, driver)
            _is_made_of_what_it_should_be(life)
            _suspends_and_resumes(life)
        finally:
            driver.close()
        assert process.get("/healthz") == (200, "ok")
        assert process.metric("tailrace_operator_leader") == 1
        assert 'tailrace_replicator_condition{name="shop",namespace="life"' in process.get("/metrics")[1]
        assert process.stop() == 0
        assert not [line for line in process.lines() if line["level"] == "error"], process.log


def _shows_what_the_driver_says(life: Team, driver: DriverDouble) -> None:
    driver.change(capture=CaptureStatus(alive=True, lag_seconds=400.0, lag_bytes=7, retained_bytes=1 << 20))
    until(lambda: (life.condition("repl/shop", "Lagging") or {}).get("status") == "True", "the lag shows")
    shown = life.kubectl("get", "repl", "shop")
    assert "Running" in shown and "2/2" in shown and "7m" in shown
    assert life.get("repl/shop")["status"]["capture"]["lagBytes"] == 7


def _is_made_of_what_it_should_be(life: Team) -> None:
    made = life.get("statefulset/shop-driver")
    pod = made["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["image"] == IMAGE
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    mounts = {m["mountPath"] for m in container["volumeMounts"]}
    assert {"/etc/tailrace/secrets/shop-db", "/etc/tailrace/replicator", "/etc/tailrace/token"} <= mounts
    manifest = json.loads(life.get("configmap/shop-driver")["data"]["replicator.yaml"])
    assert manifest["spec"]["source"]["host"] == "db"
    assert "first" not in json.dumps([made, manifest]), "a password is nowhere but in its Secret"
    owner = made["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("Replicator", "shop")


def _suspends_and_resumes(life: Team) -> None:
    life.kubectl("patch", "repl", "shop", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    until(lambda: life.get("statefulset/shop-driver")["spec"]["replicas"] == 0, "replicas 0")
    life.until_reason("repl/shop", "Suspending")
    life.node.delete_pod("shop")
    ready = life.until_reason("repl/shop", "Suspended")
    assert ready["status"] == "True"
    life.kubectl("wait", "repl/shop", "--for=condition=Suspended", "--timeout=10s")
    life.kubectl("patch", "repl", "shop", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    until(lambda: life.get("statefulset/shop-driver")["spec"]["replicas"] == 1, "replicas 1")


def test_a_rotated_secret_and_a_new_spec_roll_the_driver_and_an_operators_restart_does_not(
    kube_api: KubeApi, tmp_path: Path
) -> None:
    def template() -> str:
        return str(rolls.get("statefulset/shop-driver")["metadata"]["annotations"]["tailrace.dev/template-hash"])

    with team(kube_api, "rolls", tmp_path) as rolls, operator(rolls) as process:
        rolls.apply(replicator())
        until(lambda: rolls.node.stateful_set("shop"), "the StatefulSet")
        first, generation = template(), rolls.get("statefulset/shop-driver")["metadata"]["generation"]
        assert process.stop() == 0
        process.start()
        until(lambda: process.metric("tailrace_operator_reconciles_total") >= 2, "it has looked")
        assert rolls.get("statefulset/shop-driver")["metadata"]["generation"] == generation
        rolls.secret("shop-db", "second")
        second = until(lambda: template() if template() != first else None, "the Secret rolls it")
        rolls.kubectl("patch", "repl", "shop", "--type=merge", "-p", '{"spec":{"restartNonce":1}}')
        until(lambda: template() not in (first, second), "the nonce rolls it")


def test_an_invalid_spec_leaves_the_last_valid_one_running(kube_api: KubeApi, tmp_path: Path) -> None:
    """What the CRD's schema cannot tell, the operator can: here by an object from before a rule existed."""
    with team(kube_api, "invalid", tmp_path) as invalid, operator(invalid):
        invalid.apply(replicator())
        until(lambda: invalid.node.stateful_set("shop"), "the StatefulSet")
        before = invalid.get("statefulset/shop-driver")["metadata"]["generation"]
        invalid.apply(replicator("a" * 50))
        stalled = until(lambda: invalid.condition(f"repl/{'a' * 50}", "Stalled"), "it is refused")
        assert stalled["reason"] == "InvalidSpec"
        invalid.kubectl("wait", f"repl/{'a' * 50}", "--for=condition=Stalled", "--timeout=10s")
        assert invalid.get("statefulset/shop-driver")["metadata"]["generation"] == before


def test_a_missing_secret_is_named_and_its_coming_starts_the_driver(kube_api: KubeApi, tmp_path: Path) -> None:
    with team(kube_api, "missing", tmp_path) as missing, operator(missing):
        missing.apply(replicator(source={**SOURCE, "credentials": {"secretName": "later"}}))
        ready = missing.until_reason("repl/shop", "SecretNotFound")
        assert "'later'" in ready["message"]
        assert missing.get("statefulset/shop-driver") is None
        missing.secret("later", "x")
        until(lambda: missing.node.stateful_set("shop"), "the StatefulSet")


def test_a_driver_that_a_person_must_cure_is_stopped_with_its_last_words(kube_api: KubeApi, tmp_path: Path) -> None:
    with team(kube_api, "stalled", tmp_path) as stalled, operator(stalled):
        stalled.apply(replicator())
        driver = stalled.driver("shop", "127.0.10.2")
        stalled.until_reason("repl/shop", "Streaming")
        driver.close()
        words = "tailrace: PositionLost: slot tailrace_shop is gone. Fix: Take a new snapshot.\n"
        stalled.node.end_pod("shop", 12, words)
        ready = stalled.until_reason("repl/shop", "PositionLost", 30)
        assert "Take a new snapshot." in ready["message"]
        until(lambda: stalled.get("statefulset/shop-driver")["spec"]["replicas"] == 0, "it is stopped")
        status = stalled.get("repl/shop")["status"]
        assert (status["driver"]["lastExitCode"], status["state"]) == (12, "Stopped")
        stalled.kubectl("annotate", "repl", "shop", "reconcile.fluxcd.io/requestedAt=now")
        until(lambda: stalled.get("statefulset/shop-driver")["spec"]["replicas"] == 1, "Flux asks, it is tried again")
        assert stalled.get("repl/shop")["status"]["lastHandledReconcileAt"] == "now"
        events = stalled.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").split()
        assert {"PositionLost", "DriverEnded"} <= set(events)


def test_a_dead_and_a_silent_driver_show_within_half_a_minute(kube_api: KubeApi, tmp_path: Path) -> None:
    with team(kube_api, "dead", tmp_path) as dead, operator(dead):
        dead.apply(replicator())
        driver = dead.driver("shop", "127.0.10.3")
        dead.until_reason("repl/shop", "Streaming")
        driver.close()
        dead.until_reason("repl/shop", "DriverUnreachable", 30)
        dead.node.end_pod("shop", 137, restarts=0)
        dead.until_reason("repl/shop", "DriverCrashLoop", 10)


def test_children_that_are_deleted_or_changed_come_back_as_they_were(kube_api: KubeApi, tmp_path: Path) -> None:
    with team(kube_api, "drift", tmp_path) as drift, operator(drift):
        drift.apply(replicator())
        until(lambda: drift.node.stateful_set("shop"), "the StatefulSet")
        drift.kubectl("delete", "service/shop-driver", "rolebinding/shop-driver", "configmap/shop-driver")
        for child in ("service", "rolebinding", "configmap"):
            until(lambda kind=child: drift.get(f"{kind}/shop-driver"), child)  # type: ignore[misc]
        drift.kubectl("scale", "statefulset/shop-driver", "--replicas=2")
        until(lambda: drift.get("statefulset/shop-driver")["spec"]["replicas"] == 1, "one again")


def test_a_deleted_replicator_lets_go_after_its_job_and_names_what_stays(kube_api: KubeApi, tmp_path: Path) -> None:
    with team(kube_api, "gone", tmp_path) as gone, operator(gone, "--cleanup-timeout", "8"):
        gone.apply(replicator(), replicator("kept"))
        until(lambda: gone.node.stateful_set("shop") and gone.node.stateful_set("kept"), "both StatefulSets")
        gone.kubectl("delete", "repl", "shop", "kept", "--wait=false")
        job = until(lambda: gone.get("job/shop-drop"), "the clean-up's Job")
        assert job["spec"]["template"]["spec"]["containers"][0]["args"][:2] == ["tailrace", "drop"]
        done = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        criteria = {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        status = {
            "conditions": [criteria, done],
            "succeeded": 1,
            "startTime": "2026-01-01T00:00:00Z",
            "completionTime": "2026-01-01T00:00:00Z",
            "uncountedTerminatedPods": {},
        }
        gone.kubectl(
            "patch", "job/shop-drop", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})
        )
        until(lambda: gone.get("repl/shop") is None, "released after its Job")
        until(lambda: gone.get("repl/kept") is None, "released after its time")
        events = json.loads(gone.kubectl("get", "events", "-o", "json"))["items"]
        left = next(e for e in events if e["reason"] == "LeftBehind")
        assert "slot tailrace_kept" in left["message"]
        assert any(e["reason"] == "CleanedUp" for e in events)
