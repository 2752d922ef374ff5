"""While a watched namespace cannot be watched nothing in it is decided from what was seen before, and it comes back by
itself: a real API server behind a proxy that refuses what a right was taken for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api_proxy import ApiProxy
from support.kube import KubeApi
from support.operator_namespace import OperatorNamespace, install_crds, operator_namespace
from support.operator_process import OperatorProcess as OP
from pathlib import Path as P
class OperatorProcess(OP):
    def __init__(self,*a):
        super().__init__(*a); self.tree=P("/work/main")

from support.resources import SOURCE, replicator
from support.waiting import until
from tailrace.contract.status import CaptureStatus

METRIC = "tailrace_operator_refused_namespaces"
EVER = 1_000_000
WATCH = "replicators?watch=true"
"""kopf's watch; the operator's own say `watch=1`."""


@pytest.fixture(scope="module", autouse=True)
def crds(kube_api: KubeApi) -> None:
    install_crds(kube_api)


@pytest.fixture
def proxy(kube_api: KubeApi, tmp_path: Path) -> Iterator[ApiProxy]:
    with ApiProxy(kube_api, tmp_path) as made:
        yield made


def version(place: OperatorNamespace) -> str:
    return str(place.get("repl/shop")["metadata"]["resourceVersion"])


def test_nothing_is_decided_from_what_was_seen_before_the_rights_went(
    kube_api: KubeApi, tmp_path: Path, proxy: ApiProxy
) -> None:
    """Reads are refused and writes are not: what is written then, it was decided from."""
    with (
        operator_namespace(kube_api, "stays", tmp_path) as stays,
        operator_namespace(kube_api, "loses", tmp_path) as loses,
        OperatorProcess(proxy.kubeconfig, tmp_path, "stays", "--namespace", "loses") as process,
    ):
        for place in (stays, loses):
            place.apply(replicator())
        drivers = [stays.driver("shop", "127.0.12.31"), loses.driver("shop", "127.0.12.32")]
        try:
            for place in (stays, loses):
                place.until_reason("repl/shop", "Streaming", 90)
            refused = proxy.fault("GET", "/namespaces/loses/", 403, EVER)
            proxy.cut_everything()
            until(lambda: process.metric(METRIC) == 1, "it is told")

            before, looks = version(loses), [driver.looks for driver in drivers]
            for driver in drivers:
                driver.change(capture=CaptureStatus(alive=True, lag_seconds=400.0))
            loses.kubectl("delete", "service/shop-driver")
            stays.kubectl("delete", "service/shop-driver")
            until(lambda: lags(stays) and stays.get("service/shop-driver"), "the other is looked after")
            until(lambda: drivers[0].looks > looks[0] + 3, "its driver is asked")
            assert drivers[1].looks <= looks[1] + 1, "a round that was under way"
            assert version(loses) == before and loses.get("service/shop-driver") is None
            assert process.get("/healthz") == (200, "ok") and process.get("/readyz")[0] == 200

            refused.times = 0
            until(lambda: lags(loses) and loses.get("service/shop-driver"), "it is looked after again")
            assert process.metric(METRIC) == 0
        finally:
            for driver in drivers:
                driver.close()


def gauges(process: OperatorProcess) -> str:
    found = process.get("/metrics")[1].splitlines()
    return "\n".join(line for line in found if line.startswith("tailrace_replicator_"))


def lags(place: OperatorNamespace) -> bool:
    return bool(place.get("repl/shop")["status"].get("capture", {}).get("lagSeconds") == 400)


def test_the_right_to_watch_replicators_alone_is_missed_in_one_namespace_only(
    kube_api: KubeApi, tmp_path: Path, proxy: ApiProxy
) -> None:
    """Lists are allowed, so that nothing but the watch tells."""
    lacking = replicator(source={**SOURCE, "credentials": {"secretName": "never"}})
    refused = proxy.fault("GET", f"/namespaces/blind/{WATCH}", 403, EVER)
    ours = proxy.fault("GET", "/namespaces/blind/replicators?watch=1", 403, EVER)
    with (
        operator_namespace(kube_api, "sees", tmp_path) as stays,
        operator_namespace(kube_api, "blind", tmp_path) as blind,
        OperatorProcess(proxy.kubeconfig, tmp_path, "sees", "--namespace", "blind") as process,
    ):
        until(lambda: process.get("/healthz")[0]==200, "up")
        for place in (stays, blind):
            place.apply(lacking)
        stays.until_reason("repl/shop", "SecretNotFound")
        until(lambda: ours.hits >= 3, "it is tried again and again")
        assert "conditions" not in blind.get("repl/shop")["status"] and process.metric(METRIC) == 1
        refused.times = ours.times = 0
        blind.until_reason("repl/shop", "SecretNotFound")
        assert process.metric(METRIC) == 0
        # kopf was not started again for it: it watches both.
        for place in (stays, blind):
            place.kubectl("delete", "repl/shop", "--timeout=60s")
        assert "kopf has ended" not in process.log
