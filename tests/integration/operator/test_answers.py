"""One driver answers too much, another not at all: neither holds up the lease or a third one's Replicator."""

import socket
from pathlib import Path

import pytest

from support.kube import KubeApi
from support.operator_namespace import OperatorNamespace, install_crds, operator, operator_namespace
from support.resources import replicator
from support.waiting import until
from tailrace.contract.status import CaptureStatus


@pytest.fixture(scope="module", autouse=True)
def crds(kube_api: KubeApi) -> None:
    install_crds(kube_api)


def test_a_driver_that_answers_too_much_is_named_and_holds_up_nobody(kube_api: KubeApi, tmp_path: Path) -> None:
    with operator_namespace(kube_api, "answers", tmp_path) as place, operator(place) as process:
        for name in ("loud", "mute", "shop"):
            place.apply(replicator(name))
        loud, shop = place.driver("loud", "127.0.10.61"), place.driver("shop", "127.0.10.62")
        mute = place.driver("mute", "127.0.10.63")
        try:
            for name in ("loud", "mute", "shop"):
                place.until_reason(f"repl/{name}", "Streaming")
            mute.close()
            with socket.create_server(("127.0.10.63", 8090)):
                loud.change(message="x" * (9 << 20))
                ready = place.until_reason("repl/loud", "DriverUnreachable")
                assert "loud-driver-0" in ready["message"] and "AnswerTooLarge" in ready["message"]
                place.until_reason("repl/mute", "DriverUnreachable")
                renewed = renewal(place)
                shop.change(capture=CaptureStatus(alive=True, lag_seconds=400.0))
                until(lambda: (place.condition("repl/shop", "Lagging") or {}).get("status") == "True", "the third one")
                until(lambda: renewal(place) > renewed, "the lease is renewed", 30)
            loud.change(message="")
            place.until_reason("repl/loud", "Streaming")
        finally:
            loud.close()
            shop.close()
        assert not [line for line in process.lines() if line["level"] == "error"], process.log


def renewal(place: OperatorNamespace) -> str:
    return str(place.get("lease/tailrace-operator")["spec"]["renewTime"])
