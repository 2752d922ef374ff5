"""The operator against a real API server: a Replicator's life. Nodes are stood in for, everything else is real."""

import json
import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.kube import KubeApi, now
from support.operator_namespace import CRDS, OperatorNamespace, install_crds, operator, operator_namespace
from support.operator_process import IMAGE, DriverDouble, OperatorProcess
from support.resources import SOURCE, replicator, template
from support.versions import turns
from support.waiting import until
from tailrace.contract.driver import DropAnswer, DropReport, LastWords
from tailrace.contract.status import CaptureStatus, Fault, SnapshotStatus, TableStatus
from tailrace.driver.asking.namespace import namespace_ends
from tailrace_operator.resources import identity, names


@pytest.fixture(scope="module", autouse=True)
def crds(kube_api: KubeApi) -> None:
    install_crds(kube_api)


def test_a_replicator_comes_up_follows_its_driver_suspends_and_goes(kube_api: KubeApi, tmp_path: Path) -> None:
    with operator_namespace(kube_api, "life", tmp_path) as life, operator(life) as process:
        life.apply(replicator())
        driver = life.driver("shop", "127.0.10.1")
        try:
            life.until_reason("repl/shop", "Streaming")
            _shows_what_the_driver_says(life, driver)
            _shows_every_step_of_a_snapshot(life, driver)
            _shows_executors_that_do_not_run(life, process)
            _shows_a_table_that_is_stopped(life, driver)
            _tells_the_driver_a_new_spec(life, driver)
            _is_made_of_what_it_should_be(life)
            _suspends_and_resumes(life)
        finally:
            driver.close()
        assert process.get("/healthz") == (200, "ok")
        assert process.metric("tailrace_operator_leader") == 1
        assert 'tailrace_replicator_condition{name="shop",namespace="life"' in process.get("/metrics")[1]
        assert process.stop() == 0
        assert not [line for line in process.lines() if line["level"] == "error"], process.log


def _shows_what_the_driver_says(life: OperatorNamespace, driver: DriverDouble) -> None:
    driver.change(capture=CaptureStatus(alive=True, lag_seconds=400.0, lag_bytes=7, retained_bytes=1 << 20))
    until(lambda: (life.condition("repl/shop", "Lagging") or {}).get("status") == "True", "the lag shows")
    shown = life.kubectl("get", "repl", "shop")
    assert "Running" in shown and "2/2" in shown and "7m" in shown
    assert life.get("repl/shop")["status"]["capture"]["lagBytes"] == 7


def _shows_every_step_of_a_snapshot(life: OperatorNamespace, driver: DriverDouble) -> None:
    """Each is written when it comes, though nothing else has changed: in half a minute it would have been three."""
    for percent in (10, 11, 12, 13):
        read = SnapshotStatus(id="s", reason="added", state="Running", rows_done=percent, rows_estimated=100)
        driver.snapshots["s"] = read
        until(partial(_shown, life, "snapshotSummary", f"{percent}%"), f"{percent} %")
    del driver.snapshots["s"]
    until(partial(_shown, life, "snapshotSummary", None), "it has ended")
    columns = life.kubectl("get", "repl", "shop", "-o", "wide").splitlines()[0].split()
    assert "MESSAGE" in columns


def _shown(life: OperatorNamespace, field: str, value: str | None) -> bool:
    return bool(life.get("repl/shop")["status"].get(field) == value)


def _shows_executors_that_do_not_run(life: OperatorNamespace, process: OperatorProcess) -> None:
    words = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
    life.node.make_executor("shop", words)
    pending = until(lambda: _reason(life, "ExecutorsReady", "PodPending"), "no node takes the executor")
    assert "0 of 1 executors run" in pending["message"] and "didn't match" in pending["message"]
    executors = life.get("repl/shop")["status"]["executors"]
    assert (executors["desired"], executors["running"], executors["pending"]) == (1, 0, 1)
    row = life.kubectl("get", "repl", "shop", "--no-headers").split()
    assert row[:3] == ["shop", "Running", "True"] and row[5] == "0/1", row
    assert events(life)["PodPending"] == pending["message"]
    assert (
        'tailrace_replicator_executors{name="shop",namespace="life",state="pending"} 1.0' in process.get("/metrics")[1]
    )
    life.node.run_executor("shop")
    life.kubectl("wait", "repl/shop", "--for=condition=ExecutorsReady", "--timeout=30s")
    assert life.get("repl/shop")["status"]["executorsSummary"] == "1/1"


def _shows_a_table_that_is_stopped(life: OperatorNamespace, driver: DriverDouble) -> None:
    fault = Fault(name="NoKey", message="public.b has no primary key", fix="Add one.", where="source")
    well = TableStatus(name="public.a", state="REPLICATING", read=True)
    stopped = TableStatus(name="public.b", state="STOPPED", fault=fault)
    driver.change(state="Failing", tables=(well, stopped), tables_failing=1, tables_replicating=1)
    degraded = life.until_reason("repl/shop", "Degraded")
    assert degraded["status"] == "True" and "public.b" in degraded["message"]
    assert life.kubectl("get", "repl", "shop", "--no-headers").split()[1] == "Degraded"
    life.kubectl("wait", "repl/shop", "--for=condition=TablesHealthy=False", "--timeout=10s")
    life.kubectl("patch", "repl", "shop", "--type=merge", "-p", '{"spec":{"onTableFailure":"NotReady"}}')
    generation = life.get("statefulset/shop-driver")["metadata"]["generation"]
    assert life.until_reason("repl/shop", "TablesFailing")["status"] == "False"
    assert life.get("statefulset/shop-driver")["metadata"]["generation"] == generation, "the driver runs on"
    driver.change(tables=(stopped,), tables_replicating=0, tables_total=1)
    assert life.until_reason("repl/shop", "TablesStopped")["status"] == "False"
    assert life.condition("repl/shop", "Stalled")["reason"] == "TablesStopped"
    until(lambda: "lag" not in life.get("repl/shop")["status"], "nobody knows the lag")
    driver.change(state="Running", tables=(well,), tables_failing=0, tables_replicating=1)
    life.until_reason("repl/shop", "Streaming")
    life.kubectl("wait", "repl/shop", "--for=condition=InitialSnapshotCompleted", "--timeout=30s")


def _reason(life: OperatorNamespace, kind: str, reason: str) -> Any:
    found = life.condition("repl/shop", kind)
    return found if found is not None and found["reason"] == reason else None


def _tells_the_driver_a_new_spec(life: OperatorNamespace, driver: DriverDouble) -> None:
    generation = life.get("repl/shop")["metadata"]["generation"]
    driver.change(generation=generation)
    before = life.get("statefulset/shop-driver")["metadata"]["generation"]
    life.kubectl("patch", "repl", "shop", "--type=merge", "-p", '{"spec":{"snapshot":{"parallelism":7}}}')
    until(lambda: driver.specs, "the driver to be told")
    life.until_reason("repl/shop", "Streaming")
    assert (driver.specs[0].generation, driver.specs[0].spec.snapshot.parallelism) == (generation + 1, 7)
    assert life.get("statefulset/shop-driver")["metadata"]["generation"] == before
    manifest = json.loads(life.get("configmap/shop-driver")["data"]["replicator.yaml"])
    assert manifest["metadata"]["generation"] == generation + 1


def _is_made_of_what_it_should_be(life: OperatorNamespace) -> None:
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


def _suspends_and_resumes(life: OperatorNamespace) -> None:
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

    with operator_namespace(kube_api, "rolls", tmp_path) as rolls, operator(rolls) as process:
        rolls.apply(replicator())
        until(lambda: rolls.node.stateful_set("shop"), "the StatefulSet")
        first, generation = template(), rolls.get("statefulset/shop-driver")["metadata"]["generation"]
        assert process.stop() == 0
        process.start()
        until(lambda: process.metric("tailrace_operator_reconciles_total") >= 1, "it has looked")
        assert rolls.get("statefulset/shop-driver")["metadata"]["generation"] == generation
        rolls.secret("shop-db", "second")
        second = until(lambda: template() if template() != first else None, "the Secret rolls it")
        rolls.kubectl("patch", "repl", "shop", "--type=merge", "-p", '{"spec":{"restartNonce":1}}')
        until(lambda: template() not in (first, second), "the nonce rolls it")


def test_an_invalid_spec_leaves_the_last_valid_one_running(kube_api: KubeApi, tmp_path: Path) -> None:
    """As with CRDs that are older than the operator: their schema lets through what the models refuse."""
    name = "replicators.tailrace.dev"
    with operator_namespace(kube_api, "invalid", tmp_path) as invalid, operator(invalid) as process:
        invalid.apply(replicator())
        until(lambda: invalid.node.stateful_set("shop"), "the StatefulSet")
        before = invalid.get("statefulset/shop-driver")["metadata"]
        path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/retry/properties/time/pattern"
        kube_api.kubectl("patch", "crd", name, "--type=json", "-p", json.dumps([{"op": "remove", "path": path}]))
        soon = json.dumps({"spec": {"retry": {"time": "soon"}}})
        try:
            until(
                lambda: "patched" in invalid.kubectl("patch", "repl", "shop", "--type=merge", "-p", soon, check=False),
                "wrong",
            )
            stalled = until(lambda: invalid.condition("repl/shop", "Stalled"), "it is refused")
            assert stalled["reason"] == "InvalidSpec" and "retry.time" in stalled["message"]
            status = invalid.get("repl/shop")["status"]
            assert (status["observedGeneration"], status["appliedGeneration"]) == (2, 1)
            process.kill()
            process.start()
            invalid.kubectl("delete", "statefulset/shop-driver")
            made = until(lambda: invalid.get("statefulset/shop-driver"), "the last valid one is set up again")
            assert made["metadata"]["annotations"] == before["annotations"]
        finally:
            install_crds(kube_api)


def misses(place: OperatorNamespace, secret: str) -> bool:
    ready = place.until_reason("repl/shop", "SecretNotFound")
    return f"'{secret}'" in ready["message"]


def test_a_missing_secret_is_named_and_its_coming_starts_the_driver(kube_api: KubeApi, tmp_path: Path) -> None:
    """The target's as well; once it is mounted, another password in it restarts the driver."""
    target = {**SOURCE, "host": "copy", "credentials": {"secretName": "copy-db"}}
    with operator_namespace(kube_api, "missing", tmp_path) as missing, operator(missing):
        missing.apply(replicator(source={**SOURCE, "credentials": {"secretName": "later"}}, target=target))
        for secret in ("copy-db", "later"):
            until(partial(misses, missing, secret), "it is named")
            assert missing.get("statefulset/shop-driver") is None
            missing.secret(secret, "x")
        template = until(lambda: missing.node.stateful_set("shop"), "the StatefulSet").spec.template
        mounts = {mount.mount_path for mount in template.spec.containers[0].volume_mounts}
        assert "/etc/tailrace/secrets/copy-db" in mounts
        missing.secret("copy-db", "rotated")
        until(lambda: missing.node.stateful_set("shop").spec.template != template, "the driver restarts")


def test_a_driver_that_a_person_must_cure_is_stopped_with_its_last_words(kube_api: KubeApi, tmp_path: Path) -> None:
    with operator_namespace(kube_api, "stalled", tmp_path) as stalled, operator(stalled):
        stalled.apply(replicator())
        driver = stalled.driver("shop", "127.0.10.2")
        stalled.until_reason("repl/shop", "Streaming")
        driver.close()
        fault = Fault(name="PositionLost", message="slot tailrace_shop is gone", fix="Take a new snapshot.")
        words = LastWords(fault=fault).to_message()
        stalled.node.end_pod("shop", 12, words)
        ready = stalled.until_reason("repl/shop", "PositionLost")
        assert "Take a new snapshot." in ready["message"]
        until(lambda: stalled.get("statefulset/shop-driver")["spec"]["replicas"] == 0, "it is stopped")
        status = stalled.get("repl/shop")["status"]
        assert (status["driver"]["lastExitCode"], status["state"]) == (12, "Stopped")
        stalled.kubectl("annotate", "repl", "shop", "reconcile.fluxcd.io/requestedAt=now")
        until(lambda: stalled.get("statefulset/shop-driver")["spec"]["replicas"] == 1, "Flux asks, it is tried again")
        assert stalled.get("repl/shop")["status"]["lastHandledReconcileAt"] == "now"
        events = stalled.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").split()
        assert {"PositionLost", "DriverEnded"} <= set(events)


def fails(place: OperatorNamespace, driver: DriverDouble, code: int, name: str) -> None:
    """Its container ends with this error; the driver is stopped, and its pod goes."""
    driver.close()
    words = LastWords(fault=Fault(name=name, message="no", fix="Ask.", where="source")).to_message()
    place.node.end_pod("shop", code, words)
    until(lambda: replicas(place) == 0, "it is stopped")
    place.node.delete_pod("shop")


def replicas(place: OperatorNamespace) -> int:
    return int(place.get("statefulset/shop-driver")["spec"]["replicas"])


def test_a_refused_driver_is_tried_again_slowly_and_a_fenced_one_only_for_its_nonce(
    kube_api: KubeApi, tmp_path: Path
) -> None:
    with operator_namespace(kube_api, "halts", tmp_path) as halts, operator(halts):
        halts.apply(replicator(retry={"halted": "3s"}))
        fails(halts, halts.driver("shop", "127.0.10.14"), 11, "AuthenticationFailed")
        assert "Retried as soon as" in halts.until_reason("repl/shop", "AuthenticationFailed")["message"]
        until(lambda: replicas(halts) == 1, "it is tried again")
        assert halts.condition("repl/shop", "Stalled")["reason"] == "AuthenticationFailed", "until it works"
        driver = halts.driver("shop", "127.0.10.15")
        halts.until_reason("repl/shop", "Streaming")
        fails(halts, driver, 13, "Fenced")
        halts.until_reason("repl/shop", "Fenced")
        halts.secret("shop-db", "rotated")
        halts.kubectl("annotate", "repl", "shop", "reconcile.fluxcd.io/requestedAt=now")
        until(lambda: halts.get("repl/shop")["status"].get("lastHandledReconcileAt") == "now", "it has looked")
        assert replicas(halts) == 0
        halts.kubectl("patch", "repl", "shop", "--type=merge", "-p", '{"spec":{"restartNonce":1}}')
        until(lambda: replicas(halts) == 1, "its owner says so")


def test_a_paused_replicator_is_left_alone_until_it_is_resumed(kube_api: KubeApi, tmp_path: Path) -> None:
    pause = "tailrace.dev/pause-reconciliation"
    with operator_namespace(kube_api, "paused", tmp_path) as paused, operator(paused):
        paused.apply(replicator())
        driver = paused.driver("shop", "127.0.10.16")
        try:
            paused.until_reason("repl/shop", "Streaming")
            paused.kubectl("annotate", "repl", "shop", f"{pause}=true")
            until(lambda: paused.condition("repl/shop", "ReconciliationPaused"), "it is told")
            paused.kubectl("delete", "service/shop-driver")
            paused.kubectl("patch", "repl", "shop", "--type=merge", "-p", '{"spec":{"suspend":true}}')
            paused.until_reason("repl/shop", "ReconciliationPaused")
            assert replicas(paused) == 1 and paused.get("service/shop-driver") is None
            paused.kubectl("annotate", "repl", "shop", f"{pause}-")
            until(lambda: replicas(paused) == 0 and paused.get("service/shop-driver"), "all of it is done now")
        finally:
            driver.close()


def test_a_crash_loop_is_told_in_one_voice_with_warnings_that_count_up(kube_api: KubeApi, tmp_path: Path) -> None:
    words = LastWords(fault=Fault(name="Retry", message="shop-db refuses connections", where="source")).to_message()
    terminated = {"exitCode": 1, "reason": "Error", "message": words, "finishedAt": "2026-01-01T00:00:00Z"}
    with operator_namespace(kube_api, "crashes", tmp_path) as crashes, operator(crashes):
        crashes.apply(replicator())
        until(lambda: crashes.node.stateful_set("shop"), "the StatefulSet")
        crashes.node.make_pod("shop")
        told = []
        for ends in range(4):
            crashes.node.end_pod("shop", 1, words, restarts=ends)
            told.append(crashes.until_reason("repl/shop", "DriverCrashLoop"))
            until(partial(_restarts, crashes, ends), "the end is counted")
            crashes.node.run_pod("shop", "127.0.10.9", restarts=ends + 1, ended=terminated)
            time.sleep(1)
            told.append(crashes.condition("repl/shop", "Ready"))
        assert len({(c["reason"], c["message"], c["lastTransitionTime"]) for c in told}) == 1, told
        found = json.loads(crashes.kubectl("get", "events", "-o", "json"))["items"]
        ours = [e for e in found if e["involvedObject"]["kind"] == "Replicator"]
        counts = {(e["type"], e["reason"]): e["count"] for e in ours if e["reason"].startswith("Driver")}
        assert counts == {("Warning", "DriverEnded"): 4, ("Warning", "DriverCrashLoop"): 1}, counts


def _restarts(place: OperatorNamespace, more_than: int) -> bool:
    return int(place.get("repl/shop")["status"]["driver"].get("restarts", 0)) > more_than


def test_a_dead_and_a_silent_driver_show_within_a_minute(kube_api: KubeApi, tmp_path: Path) -> None:
    with operator_namespace(kube_api, "dead", tmp_path) as dead, operator(dead):
        dead.apply(replicator())
        driver = dead.driver("shop", "127.0.10.3")
        dead.until_reason("repl/shop", "Streaming")
        driver.close()
        dead.until_reason("repl/shop", "DriverUnreachable")
        dead.node.end_pod("shop", 137, restarts=0)
        dead.until_reason("repl/shop", "DriverCrashLoop")


def test_children_that_are_deleted_or_changed_come_back_as_they_were(kube_api: KubeApi, tmp_path: Path) -> None:
    with operator_namespace(kube_api, "drift", tmp_path) as drift, operator(drift):
        drift.apply(replicator())
        until(lambda: drift.node.stateful_set("shop"), "the StatefulSet")
        drift.kubectl("delete", "service/shop-driver", "rolebinding/shop-driver", "configmap/shop-driver")
        for child in ("service", "rolebinding", "configmap"):
            until(lambda kind=child: drift.get(f"{kind}/shop-driver"), child)  # type: ignore[misc]  # a default binds the loop's value
        drift.kubectl("scale", "statefulset/shop-driver", "--replicas=2")
        until(lambda: drift.get("statefulset/shop-driver")["spec"]["replicas"] == 1, "one again")
        assert "StatefulSet shop-driver was changed by another client" in events(drift)["ChangedByOthers"]


def test_a_replicator_has_network_policies_while_the_operator_is_told_to_give_them(
    kube_api: KubeApi, tmp_path: Path
) -> None:
    both = ("networkpolicy/shop-driver", "networkpolicy/shop-executors")
    peers = json.dumps([{"namespaceSelector": {"matchLabels": {"team": "ops"}}}])
    with (
        operator_namespace(kube_api, "shielded", tmp_path) as shielded,
        operator(shielded, "--driver-peers", peers) as process,
    ):
        shielded.apply(replicator())
        made = [until(lambda what=what: shielded.get(what), what) for what in both]  # type: ignore[misc]  # as above
        assert [len(policy["spec"]["ingress"]) for policy in made] == [2, 1]
        assert made[0]["spec"]["ingress"][1]["from"] == json.loads(peers)
        for policy in made:
            (owner,) = policy["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"], owner["controller"]) == ("Replicator", "shop", True)
        shielded.kubectl("patch", both[0], "--type=merge", "-p", '{"spec":{"ingress":[{}]}}')
        until(lambda: shielded.get(both[0])["spec"] == made[0]["spec"], "what somebody opened is closed")
        shielded.kubectl("delete", *both)
        for what, before in zip(both, made, strict=True):
            again = until(lambda what=what: shielded.get(what), f"{what} again")  # type: ignore[misc]  # as above
            assert again["spec"] == before["spec"]
        assert process.stop() == 0
        with operator(shielded):
            until(lambda: not any(shielded.get(what) for what in both), "they go when it is told no more")
        with operator(shielded, "--driver-peers", "[]"):
            policy = until(lambda: shielded.get(both[0]), "they come back")
            assert "from" not in policy["spec"]["ingress"][1], "anyone may ask over HTTP"


def report(place: OperatorNamespace, name: str, *dropped: str) -> DropReport:
    """As the data plane says of a whole drop."""
    owner = f"{place.namespace}/{name}@{place.get(f'repl/{name}')['metadata']['uid']}"
    return DropReport(owner=owner, complete=True, dropped=dropped)


def events(place: OperatorNamespace, namespace: str | None = None) -> dict[str, str]:
    """Reason and message."""
    found = place.kube.kubectl("-n", namespace or place.namespace, "get", "events", "-o", "json")
    return {e["reason"]: e["message"] for e in json.loads(found)["items"]}


def test_a_deleted_replicator_lets_go_after_its_job_and_names_what_stays(kube_api: KubeApi, tmp_path: Path) -> None:
    with operator_namespace(kube_api, "gone", tmp_path) as gone, operator(gone, "--cleanup-timeout", "8"):
        gone.apply(replicator(), replicator("kept"))
        until(lambda: gone.node.stateful_set("shop") and gone.node.stateful_set("kept"), "both StatefulSets")
        driver = gone.driver("kept", "127.0.10.5")
        driver.change(made=("replication slot tailrace_kept_1234abcd",))
        until(lambda: gone.get("repl/kept")["status"].get("made"), "what its driver made is known")
        driver.close()
        gone.node.delete_pod("kept")
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
        said = events(gone)
        assert "replication slot tailrace_kept_1234abcd. Drop them by hand" in said["LeftBehind"]
        assert "CleanedUp" in said


def test_what_is_edited_during_a_deletion_reaches_its_job(kube_api: KubeApi, tmp_path: Path) -> None:
    with operator_namespace(kube_api, "edited", tmp_path) as place, operator(place) as process:
        place.apply(replicator())
        until(lambda: place.node.stateful_set("shop"), "the StatefulSet")
        place.kubectl("delete", "repl", "shop", "--wait=false")
        first = until(lambda: place.get("job/shop-drop"), "the clean-up's Job")["metadata"]["uid"]
        elsewhere = {"spec": {"storage": {"endpoint": "http://elsewhere:7070"}, "deletionPolicy": "Delete"}}
        place.kubectl("patch", "repl", "shop", "--type=merge", "-p", json.dumps(elsewhere))

        def another() -> Any:
            job = place.get("job/shop-drop")
            return job if job is not None and job["metadata"]["uid"] != first else None

        job = until(another, "another Job")
        assert "--data" in job["spec"]["template"]["spec"]["containers"][0]["args"]
        assert "http://elsewhere:7070" in place.get("configmap/shop-driver")["data"]["replicator.yaml"]
        place.secret("shop-db", "another")
        first = job["metadata"]["uid"]
        until(another, "one for another Secret")
        assert not [line for line in process.lines() if line["level"] == "error"], process.log


def test_a_driver_whose_secret_is_deleted_with_its_replicator_drops_on_request(
    kube_api: KubeApi, tmp_path: Path
) -> None:
    with operator_namespace(kube_api, "together", tmp_path) as place, operator(place) as process:
        place.apply(replicator(deletionPolicy="Delete"))
        driver = place.driver("shop", "127.0.10.6")
        try:
            place.until_reason("repl/shop", "Streaming")
            place.kubectl("delete", "secret/shop-db", "repl/shop", "--wait=false")
            until(lambda: "drop Delete" in driver.asked, "the driver is asked")
            process.kill()  # nothing of the order is lost: it is given again
            process.start()
            until(lambda: driver.asked.count("drop Delete") >= 2, "and again", 60)
            driver.dropped = DropAnswer(done=True, report=report(place, "shop", "replication slot x"))
            until(lambda: place.get("repl/shop") is None, "released at once")
        finally:
            driver.close()
        assert place.get("job/shop-drop") is None, "no Job could have run without the Secret"
        assert "Dropped: replication slot x" in events(place)["CleanedUp"]


@pytest.mark.parametrize(
    ("how", "reason", "message"),
    turns(
        ("dropped", "CleanedUp", "Dropped: replication slot x"),
        ("released", "Released", "until then the source keeps its log for replication slot tailrace_shop_1234abcd"),
        ("killed", "LeftBehind", "left behind at db:5432/shop: replication slot tailrace_shop_1234abcd"),
    ),
)
def test_a_namespace_that_is_deleted_is_not_held_up_and_says_what_stays(
    kube_api: KubeApi, tmp_path: Path, how: str, reason: str, message: str
) -> None:
    """Its driver drops on its own when it is ended; pods go first, so its last words are all that the operator has. No
    event can be written where the Replicator is: how it ended is told in the operator's namespace."""
    name = f"ending-{how}"
    kube_api.kubectl("create", "namespace", f"home-of-{name}")
    with operator_namespace(kube_api, name, tmp_path) as ending, operator(ending) as process:
        process.kill()
        process.home = f"home-of-{name}"
        process.start()
        ending.apply(replicator(deletionPolicy="Orphan" if how == "released" else "Retain"))
        driver = ending.driver("shop", "127.0.10.7")
        driver.change(made=("replication slot tailrace_shop_1234abcd",))
        until(lambda: (ending.get("repl/shop").get("status") or {}).get("made"), "what its driver made is known")
        driver.close()
        dropped = report(ending, "shop", *["replication slot x"] if how == "dropped" else [])
        words = LastWords(drop=dropped.model_copy(update={"released": how == "released"})).to_message()
        ending.node.end_pod("shop", 0, "killed" if how == "killed" else words)
        kube_api.kubectl("delete", "namespace", name, "--wait=false")
        ending.kubectl("delete", "secret/shop-db")  # Kubernetes deletes what is in it in no order
        until(lambda: "SecretNotFound" in process.log, "the operator misses it")
        ending.node.delete_pod("shop")
        ending.kubectl("delete", "statefulset/shop-driver", "--wait=false")
        ending.kubectl("delete", "repl", "shop", "--wait=false")
        until(lambda: ending.get("repl/shop") is None, "it is let go, long before its time is over")
        said = events(ending, process.home)
        assert "SecretNotFound" not in said, "nobody has to create it"
        assert "DriverEnded" not in said
        assert said[reason].startswith(f"Replicator {name}/shop: ") and message in said[reason]
        assert {"CleanedUp", "Released", "LeftBehind"} & said.keys() == {reason}


def test_a_driver_may_ask_whether_its_own_namespace_is_being_deleted(kube_api: KubeApi, tmp_path: Path) -> None:
    """With the role that the chart gives to drivers, bound as the operator binds it."""
    documents = yaml.safe_load_all((CRDS.parent / "manifests" / "install.yaml").read_text())
    role = next(d for d in documents if d["kind"] == "ClusterRole" and d["metadata"]["name"] == "tailrace-driver")
    kube_api.apply(role)
    for name in ("asks", "other"):
        kube_api.kubectl("create", "namespace", name)
    kube_api.kubectl("-n", "asks", "create", "serviceaccount", "shop-driver")
    kube_api.apply({**identity.role_binding("shop", "asks"), "metadata": {"name": "shop-driver", "namespace": "asks"}})
    (tmp_path / "token").write_text(kube_api.kubectl("-n", "asks", "create", "token", "shop-driver"))
    (tmp_path / "ca.crt").write_bytes((kube_api.plane.pki / "ca.crt").read_bytes())
    host, _, port = kube_api.plane.server.removeprefix("https://").rpartition(":")
    place = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "POD_NAMESPACE": "asks"}
    place["TAILRACE_ACCOUNT_FOLDER"] = str(tmp_path)
    assert not namespace_ends(place)
    kube_api.kubectl("delete", "namespace", "asks", "other", "--wait=false")
    assert namespace_ends(place)
    assert not namespace_ends({**place, "POD_NAMESPACE": "other"}), "another one is none of its business"


def none_of(place: OperatorNamespace, what: str) -> None:
    """A quota that the API server enforces; what its controller would count is put there by the test."""
    hard = {what: "0"}
    head = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "tight"}}
    place.apply({**head, "spec": {"hard": hard}})
    counted = json.dumps({"status": {"hard": hard, "used": {what: "0"}}})
    place.kubectl("patch", "resourcequota", "tight", "--subresource=status", "--type=merge", "-p", counted)


def refused_pod(place: OperatorNamespace, kind: str, name: str, pod: str) -> str:
    """As the controllers of the node-less API server would: try to make the pod, and write the event that they write.
    Returns what the API server said."""
    owner = place.get(f"{kind.lower()}/{name}")
    template = {**owner["spec"]["template"], "apiVersion": "v1", "kind": "Pod"}
    template["metadata"] = {**template["metadata"], "name": pod}
    try:
        place.apply(template)
    except AssertionError as error:
        found = re.search(r'pods "\S+" is forbidden: .*', str(error))
        assert found is not None, error
        reason = str(found[0])
    else:
        raise AssertionError("the pod was made")
    lead = {"StatefulSet": f"create Pod {pod} in StatefulSet {name} failed error: ", "Job": "Error creating: "}[kind]
    about = {"namespace": place.namespace, "name": name, "kind": kind, "uid": owner["metadata"]["uid"]}
    place.apply(event(name, about, "FailedCreate", lead + reason, now()))
    return reason


def event(name: str, about: dict[str, str], reason: str, message: str, at: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{time.monotonic_ns():x}"},
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "type": "Warning",
        "lastTimestamp": at,
    }


def test_a_quota_that_refuses_a_secret_is_told(kube_api: KubeApi, tmp_path: Path) -> None:
    with operator_namespace(kube_api, "quota-secrets", tmp_path) as quota, operator(quota):
        none_of(quota, "secrets")
        quota.apply(replicator())
        ready = quota.until_reason("repl/shop", "ObjectRefused")
        assert re.match(r"Secret shop-\w+ cannot be created: ", ready["message"]), ready
        assert "exceeded quota: tight, requested: secrets=1" in ready["message"]
        assert quota.condition("repl/shop", "Stalled")["reason"] == "ObjectRefused"


def test_a_field_of_a_template_that_kubernetes_does_not_know_is_told(kube_api: KubeApi, tmp_path: Path) -> None:
    with operator_namespace(kube_api, "typo", tmp_path) as typo, operator(typo):
        typo.apply(replicator(driver={"podTemplate": template(nodeSelectr={"disk": "ssd"})}))
        ready = typo.until_reason("repl/shop", "ObjectRefused")
        assert ".spec.template.spec.nodeSelectr: field not declared in schema" in ready["message"]


def test_a_quota_that_refuses_the_drivers_pod_is_told_until_there_is_room(kube_api: KubeApi, tmp_path: Path) -> None:
    with operator_namespace(kube_api, "quota", tmp_path) as quota, operator(quota) as process:
        none_of(quota, "pods")
        quota.apply(replicator())
        until(lambda: quota.node.stateful_set("shop"), "the StatefulSet")
        said = refused_pod(quota, "StatefulSet", "shop-driver", "shop-driver-0")
        assert "exceeded quota: tight, requested: pods=1" in said
        ready = quota.until_reason("repl/shop", "PodPending")
        assert f"The driver's pod cannot be created: {said}" in ready["message"]
        assert quota.condition("repl/shop", "Reconciling")["reason"] == "PodPending"
        until(lambda: names.TRIED_AT in quota.node.stateful_set("shop").metadata.annotations, "it is tried again")
        process.kill()
        process.start()
        time.sleep(5)
        assert said in quota.condition("repl/shop", "Ready")["message"], "another operator knows it, too"
        quota.kubectl("delete", "resourcequota", "tight")
        driver = quota.driver("shop", "127.0.10.12")
        quota.until_reason("repl/shop", "Streaming")
        driver.close()
        assert not [line for line in process.lines() if line["level"] == "error"], process.log


def test_an_evicted_driver_is_told_with_the_words_of_its_node(kube_api: KubeApi, tmp_path: Path) -> None:
    """A driver that ends in time leaves a pod that succeeded, and only the kubelet's event says why."""
    with operator_namespace(kube_api, "evicted", tmp_path) as place, operator(place):
        place.apply(replicator())
        driver = place.driver("shop", "127.0.10.14")
        place.until_reason("repl/shop", "Streaming")
        driver.close()
        uid = place.get("pod/shop-driver-0")["metadata"]["uid"]
        at, why = now(), 'Usage of EmptyDir volume "tailrace-tmp" exceeds the limit "1Gi"'
        about = {"namespace": place.namespace, "name": "shop-driver-0", "kind": "Pod", "uid": uid}
        place.apply(event("evicted", about, "Evicted", f"{why}. ", at))
        error = until(lambda: place.get("repl/shop")["status"].get("lastError"), "it is told")
        place.node.end_pod("shop", 0)
        until(lambda: place.get("repl/shop")["status"]["driver"].get("lastExitCode") == 0, "its end is seen")
        place.node.delete_pod("shop")
        assert (error["name"], error["since"], error["fix"]) == ("Evicted", at, "Raise spec.driver.scratch.")
        assert error["message"] == f"pod shop-driver-0 was evicted: {why}"
        waiting = f"Waiting for the driver's pod; the last one: {why}."
        until(lambda: place.condition("repl/shop", "Ready")["message"] == waiting, waiting)
        driver = place.driver("shop", "127.0.10.14")
        place.until_reason("repl/shop", "Streaming")
        driver.close()
        assert why in events(place)["Evicted"]
        failures = place.get("repl/shop")["status"]["failures"]
        assert failures["count"] == 0, "an eviction is no failure of the driver"


def test_a_quota_that_refuses_the_clean_ups_pod_is_told(kube_api: KubeApi, tmp_path: Path) -> None:
    with operator_namespace(kube_api, "tightend", tmp_path) as quota, operator(quota):
        quota.apply(replicator())
        driver = quota.driver("shop", "127.0.10.13")
        quota.until_reason("repl/shop", "Streaming")
        driver.close()
        quota.node.delete_pod("shop")
        none_of(quota, "pods")
        quota.kubectl("delete", "repl", "shop", "--wait=false")
        until(lambda: quota.get("job/shop-drop"), "the clean-up")
        said = refused_pod(quota, "Job", "shop-drop", "shop-drop-x")
        until(lambda: said in quota.condition("repl/shop", "Ready")["message"], "it is told")
