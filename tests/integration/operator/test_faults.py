"""The operator among faults, against a real API server: refusals, cuts, a frozen server, kills at write-ahead steps."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from support.api_proxy import ApiProxy
from support.kube import KubeApi
from support.operator_namespace import OperatorNamespace, install_crds, operator, operator_namespace
from support.operator_process import OperatorProcess
from support.resources import SOURCE, replicator, request
from support.versions import turns
from support.waiting import until

SHORT_LEASE = {
    "act.lease.DURATION": 15,
    "act.lease.RENEW_EVERY": 2.5,
    "act.lease.ANSWER_SECONDS": 4.0,
    "act.lease.GIVE_UP_AFTER": 13.0,
}
"""Half of each."""
NORMAL: Mapping[str, float] = MappingProxyType({})
STEPS = (
    "operator.before-status",
    "operator.after-status",
    "operator.after-set-finalizers",
    "operator.after-make-secret",
    "operator.after-apply-child",
    "operator.after-apply-child=kill@3",
)


@pytest.fixture(scope="module", autouse=True)
def crds(kube_api: KubeApi) -> None:
    install_crds(kube_api)


@pytest.fixture
def proxy(kube_api: KubeApi, tmp_path: Path) -> Iterator[ApiProxy]:
    with ApiProxy(kube_api, tmp_path) as made:
        yield made


REFUSED_FOR = {"observe.memory.REFUSAL_SECONDS": 5.0, "decide.replicator.BUSY_SECONDS": 2.0}
"""Instead of a minute, and of half of one."""


def through(place: OperatorNamespace, proxy: ApiProxy, timers: Mapping[str, float] = NORMAL) -> OperatorProcess:
    made = OperatorProcess(proxy.kubeconfig, place.folder, place.namespace)
    made.timers = dict(timers)
    return made


@pytest.mark.parametrize(
    ("code", "after"), turns((409, False), (422, False), (429, False), (500, True), (0, False), (0, True))
)
def test_writes_that_fail_or_whose_answer_is_lost_are_done_again(
    kube_api: KubeApi, tmp_path: Path, proxy: ApiProxy, code: int, after: bool
) -> None:
    name = f"fault-{code}-{str(after).lower()}"
    with operator_namespace(kube_api, name, tmp_path) as place, through(place, proxy) as process:
        faults = [
            proxy.fault("PATCH", "/replicators/shop/status", code, 2, after),
            # A 422 for one of these two is a verdict: it is told, and sent again after a minute.
            proxy.fault("PATCH", "/statefulsets/", 500 if code in (409, 422) else code, 2, after),
            proxy.fault("POST", "/secrets", 500 if code == 422 else code, 1, after),
            proxy.fault("POST", "/events", code, 1, after),
        ]
        place.apply(replicator())
        driver = place.driver("shop", "127.0.12.1")
        try:
            place.until_reason("repl/shop", "Streaming", 90)
        finally:
            driver.close()
        assert all(fault.hits for fault in faults[:3])
        assert process.get("/healthz")[0] == 200


def test_what_the_api_server_refuses_is_told_and_tried_again(
    kube_api: KubeApi, tmp_path: Path, proxy: ApiProxy
) -> None:
    with operator_namespace(kube_api, "refused", tmp_path) as place, through(place, proxy, REFUSED_FOR):
        fault = proxy.fault("PATCH", "/statefulsets/", 422)
        place.apply(replicator())
        ready = place.until_reason("repl/shop", "ObjectRefused")
        assert "made to fail with 422" in ready["message"] and fault.hits == 1
        until(lambda: place.get("statefulset/shop-driver"), "it is tried again", 90)


def test_a_status_that_may_not_be_written_holds_up_no_other_and_comes_by_itself(
    kube_api: KubeApi, tmp_path: Path, proxy: ApiProxy
) -> None:
    with operator_namespace(kube_api, "closed", tmp_path) as place, through(place, proxy) as process:
        fault = proxy.fault("PATCH", "/replicators/closed/status", 403, 1_000)
        place.apply(lacking("closed"), lacking("open"))
        place.until_reason("repl/open", "SecretNotFound")
        until(lambda: fault.hits >= 3, "it is tried again")
        assert "conditions" not in place.get("repl/closed")["status"] and process.get("/healthz") == (200, "ok")
        told = [line for line in process.lines() if "made to fail with 403" in line["message"]]
        assert len(told) == 1 and "closed" in told[0]["object"], told
        fault.times = 0
        place.until_reason("repl/closed", "SecretNotFound", 90)


def test_cut_watches_go_on_and_nothing_that_happened_meanwhile_is_missed(
    kube_api: KubeApi, tmp_path: Path, proxy: ApiProxy
) -> None:
    with operator_namespace(kube_api, "cuts", tmp_path) as place, through(place, proxy) as process:
        place.apply(replicator("before"))
        until(lambda: place.get("statefulset/before-driver"), "the first")
        lost = proxy.fault("GET", "watch=", 0, 40)
        proxy.cut_everything()
        place.apply(replicator("meanwhile"))
        place.kubectl("delete", "service/before-driver")
        until(lambda: lost.hits >= 10, "the watches are cut again and again")
        lost.times = 0
        until(lambda: place.get("statefulset/meanwhile-driver"), "the one made meanwhile", 60)
        until(lambda: place.get("service/before-driver"), "the child deleted meanwhile", 60)
        assert process.get("/healthz")[0] == 200


def test_expired_watches_list_again(kube_api: KubeApi, tmp_path: Path, proxy: ApiProxy) -> None:
    with operator_namespace(kube_api, "expired", tmp_path) as place, through(place, proxy):
        place.apply(replicator("before"))
        until(lambda: place.get("statefulset/before-driver"), "the first")
        fault = proxy.fault("GET", "watch=", 410, 30)
        proxy.cut_everything()
        place.kubectl("delete", "service/before-driver")
        until(lambda: fault.hits >= 5, "watches expire")
        fault.times = 0
        until(lambda: place.get("service/before-driver"), "it lists again and sees", 60)


def taken_up(place: OperatorNamespace, name: str) -> bool:
    return bool(place.get(f"repl/{name}")["metadata"].get("finalizers"))


def lacking(name: str) -> dict[str, Any]:
    """A Replicator that waits for its Secret: it is deleted without a clean-up."""
    return replicator(name, source={**SOURCE, "credentials": {"secretName": "never"}})


def test_resources_are_watched_again_when_their_definitions_went_and_came_back(tmp_path: Path) -> None:
    with KubeApi(tmp_path / "own") as kube:
        install_crds(kube)
        with operator_namespace(kube, "back", tmp_path) as place, operator(place) as process:
            place.apply(lacking("before"))
            place.until_reason("repl/before", "SecretNotFound")
            place.kubectl("delete", "repl", "before", "--timeout=30s")
            # Without the one definition the other's objects are looked after, by a new process, too.
            kube.kubectl("delete", "crd", "snapshotrequests.tailrace.dev", "--timeout=30s")
            process.kill()
            process.start()
            place.apply(lacking("between"))
            place.until_reason("repl/between", "SecretNotFound")
            place.kubectl("delete", "repl", "between", "--timeout=30s")
            kube.kubectl("delete", "crd", "--all", "--timeout=30s")
            time.sleep(5)  # long enough for a watch to fail, and for the pauses to grow
            install_crds(kube)
            place.apply(lacking("after"), request("again", replicator="later"))
            until(lambda: taken_up(place, "after"), "the Replicator")
            until(lambda: place.condition("snapreq/again", "Ready"), "the SnapshotRequest")
            place.kubectl("delete", "repl", "after", "--timeout=30s")
            assert process.get("/healthz") == (200, "ok")
            assert not [line for line in process.lines() if line["level"] == "error"], "it comes back: no tracebacks"


def test_resources_are_watched_again_when_a_right_was_missing_for_a_while(
    kube_api: KubeApi, tmp_path: Path, proxy: ApiProxy
) -> None:
    with operator_namespace(kube_api, "rightless", tmp_path) as place, through(place, proxy) as process:
        place.apply(lacking("before"))
        place.until_reason("repl/before", "SecretNotFound")
        faults = [proxy.fault("GET", f"/{kind}?", 403, 10_000) for kind in ("replicators", "snapshotrequests")]
        proxy.cut_everything()
        until(lambda: all(fault.hits >= 4 for fault in faults), "the lists are refused")
        for fault in faults:
            fault.times = 0
        place.apply(lacking("after"), request("again", replicator="later"))
        until(lambda: taken_up(place, "after"), "the Replicator")
        until(lambda: place.condition("snapreq/again", "Ready"), "the SnapshotRequest")
        assert process.get("/healthz") == (200, "ok")


def test_a_frozen_api_server_is_waited_for_as_long_as_the_lease_lasts(kube_api: KubeApi, tmp_path: Path) -> None:
    with operator_namespace(kube_api, "frozen", tmp_path) as place, operator(place, timers=SHORT_LEASE) as process:
        place.apply(replicator())
        until(lambda: place.get("statefulset/shop-driver"), "it works")
        kube_api.freeze()
        time.sleep(4)
        health = process.get("/healthz")
        kube_api.thaw()
        assert health == (200, "ok"), "the API server's trouble is not the operator's"
        place.apply(replicator("later"))
        until(lambda: place.get("statefulset/later-driver"), "it goes on")
        kube_api.freeze()
        try:
            assert process.process is not None
            assert process.process.wait(60) == 1, "without its lease it ends before another may begin"
        finally:
            kube_api.thaw()
        assert "LeaseLost" in process.log
        process.start()
        place.apply(replicator("last"))
        until(lambda: place.get("statefulset/last-driver"), "the kubelet's next one goes on")


def test_the_second_operator_takes_over_when_the_first_dies(kube_api: KubeApi, tmp_path: Path) -> None:
    with operator_namespace(kube_api, "two", tmp_path) as place, operator(place, timers=SHORT_LEASE) as first:
        until(lambda: first.metric("tailrace_operator_leader") == 1, "the first leads")
        folder = tmp_path / "second"
        folder.mkdir()
        second = OperatorProcess(kube_api.kubeconfig, folder, place.namespace)
        second.identity, second.timers = "second", SHORT_LEASE
        with second:
            until(lambda: second.get("/readyz")[0] == 200, "the second is ready to take over")
            place.apply(replicator())
            until(lambda: place.get("statefulset/shop-driver"), "the first works")
            assert second.metric("tailrace_operator_leader") == 0
            first.kill()
            until(lambda: second.metric("tailrace_operator_leader") == 1, "the second leads", 75)
            place.apply(replicator("later"))
            until(lambda: place.get("statefulset/later-driver"), "the second works")


def test_sigkill_at_each_write_ahead_step_leaves_nothing_behind_and_nothing_double(
    kube_api: KubeApi, tmp_path: Path
) -> None:
    with operator_namespace(kube_api, "killed", tmp_path) as place:
        process = operator(place)
        for number, step in enumerate(STEPS):
            name = f"shop{number}"
            place.apply(replicator(name))
            process.start(seams=step if "=" in step else f"{step}=kill")
            assert process.process is not None
            code = process.process.wait(60)
            assert code == -9, f"{step}: {code}: {process.log[-2000:]}"
        with operator(place) as process:
            for number in range(len(STEPS)):
                until(lambda n=number: place.get(f"statefulset/shop{n}-driver"), f"shop{number}")  # type: ignore[misc]  # a default binds the loop's value
            children = json.loads(place.kubectl("get", "secret,configmap,service,sa,rolebinding,sts", "-o", "json"))
            ours = [c for c in children["items"] if c["metadata"]["name"].endswith("-driver")]
            assert len(ours) == 6 * len(STEPS)
            statuses = json.loads(place.kubectl("get", "repl", "-o", "json"))["items"]
            hashes = {r["metadata"]["name"]: r["status"]["appliedTemplateHash"] for r in statuses}
            for child in (c for c in ours if c["kind"] == "StatefulSet"):
                owner = child["metadata"]["ownerReferences"][0]["name"]
                assert child["metadata"]["annotations"]["tailrace.dev/template-hash"] == hashes[owner]


ENDINGS = (
    "operator.before-status",
    "operator.after-status",
    "operator.after-delete",
    "operator.after-apply-child",
    "operator.after-apply-child=kill@3",
    "operator.after-set-finalizers",
)


def test_sigkill_at_each_step_of_a_deletion_holds_nothing_up(kube_api: KubeApi, tmp_path: Path) -> None:
    names = [f"shop{number}" for number in range(len(ENDINGS))]
    limit = ("--cleanup-timeout", "8")
    with operator_namespace(kube_api, "killed-deleting", tmp_path) as place:
        with operator(place):
            place.apply(*(replicator(name) for name in names))
            for name in names:
                until(lambda n=name: place.get(f"statefulset/{n}-driver"), name)  # type: ignore[misc]  # a default binds the loop's value
        process = operator(place, *limit)
        for name, step in zip(names, ENDINGS, strict=True):
            place.kubectl("delete", "repl", name, "--wait=false")
            process.start(seams=step if "=" in step else f"{step}=kill")
            assert process.process is not None
            code = process.process.wait(90)
            assert code == -9, f"{step}: {code}: {process.log[-2000:]}"
        with operator(place, *limit):
            until(lambda: not place.objects.objects(place.namespace, "repl"), "all are released", 90)
        events = json.loads(place.kubectl("get", "events", "-o", "json"))["items"]
        assert {e["involvedObject"]["name"] for e in events if e["reason"] == "NothingKnown"} == set(names)
