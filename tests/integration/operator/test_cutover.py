"""A Replicator whose driver has cut over, against a real API server: what people see, and what starts it again.

`tests/soak/test_soak_cluster_cutover.py` has a real driver in it, and real databases.
"""

import json
from pathlib import Path

import pytest

from support.kube import KubeApi
from support.operator_namespace import OperatorNamespace, install_crds, operator, operator_namespace
from support.resources import SOURCE, Json, replicator
from support.waiting import until
from tailrace.contract.driver import LastWords
from tailrace.contract.status import CutoverStatus, Fault

DONE = Fault(name="CutOver", message="the cutover is done: programs may write to copy", fix="Delete this Replicator.")


@pytest.fixture(scope="module", autouse=True)
def crds(kube_api: KubeApi) -> None:
    install_crds(kube_api)


def moved(**labels: str) -> Json:
    document = replicator(target=SOURCE, cutover={})
    document["metadata"]["labels"] = labels
    return document


def test_a_cutover_ends_in_success_and_a_controller_that_applies_it_again_changes_nothing(
    kube_api: KubeApi, tmp_path: Path
) -> None:
    with operator_namespace(kube_api, "cutover", tmp_path) as place, operator(place) as process:
        place.apply(moved())
        driver = place.driver("shop", "127.0.10.31")
        place.until_reason("repl/shop", "Streaming")
        driver.change(cutover=CutoverStatus(message="waiting: the source is not read-only"))
        until(lambda: "not read-only" in (status(place).get("cutover") or ""), "what it waits for")
        driver.close()
        place.node.end_pod("shop", 10, LastWords(fault=DONE).to_message())
        assert "programs may write to copy" in place.until_reason("repl/shop", "CutOver")["message"]
        until(lambda: replicas(place) == 0, "no driver is wanted")
        place.node.delete_pod("shop")
        shows_it(place)
        place.apply(moved(by="another-turn"))
        place.kubectl("annotate", "repl", "shop", "reconcile.fluxcd.io/requestedAt=now")
        until(lambda: status(place).get("lastHandledReconcileAt") == "now", "Flux was heard")
        process.kill()
        process.start()
        place.secret("shop-db", "rotated")
        place.kubectl("annotate", "repl", "shop", "--overwrite", "reconcile.fluxcd.io/requestedAt=again")
        until(lambda: status(place).get("lastHandledReconcileAt") == "again", "the next operator has looked")
        assert replicas(place) == 0
        shows_it(place)
        place.apply(replicator(target=SOURCE))
        until(lambda: status(place)["observedGeneration"] == 2, "the manifest without `cutover` was taken")
        assert replicas(place) == 0
        shows_it(place)


def shows_it(place: OperatorNamespace) -> None:
    found = status(place)
    assert (found["state"], found.get("lastError")) == ("Succeeded", None)
    assert found["cutover"] == found["message"] and "programs may write to copy" in found["cutover"]
    assert place.condition("repl/shop", "Stalled") is None
    assert place.kubectl("get", "repl", "shop", "--no-headers").split()[:3] == ["shop", "Succeeded", "True"]
    place.kubectl("wait", "repl/shop", "--for=condition=Ready", "--timeout=5s")
    told = json.loads(place.kubectl("get", "events", "-o", "json"))["items"]
    reasons = {event["reason"]: event["type"] for event in told}
    assert reasons["CutOver"] == "Normal" and "DriverEnded" not in reasons


def status(place: OperatorNamespace) -> Json:
    return dict((place.get("repl/shop") or {}).get("status") or {})


def replicas(place: OperatorNamespace) -> int:
    return int(place.get("statefulset/shop-driver")["spec"]["replicas"])
