"""An upgrade that changes the default image restarts a few drivers at a time, against a real API server."""

from functools import partial
from pathlib import Path

import pytest

from support.kube import KubeApi
from support.operator_namespace import OperatorNamespace, install_crds, operator, operator_namespace
from support.operator_process import DriverDouble, OperatorProcess
from support.resources import replicator
from support.waiting import until

NAMES = [f"shop{n:02}" for n in range(12)]
NEWER = "registry.example/tailrace-spark:2"
LIMIT = 3


@pytest.fixture(scope="module", autouse=True)
def crds(kube_api: KubeApi) -> None:
    install_crds(kube_api)


def test_an_upgrade_restarts_a_few_drivers_at_a_time(kube_api: KubeApi, tmp_path: Path) -> None:
    with (
        operator_namespace(kube_api, "rollout", tmp_path) as place,
        operator(place, "--rollout-limit", str(LIMIT)) as process,
    ):
        place.apply(*(replicator(name) for name in NAMES))
        doubles = {name: place.driver(name, address(name)) for name in NAMES}
        try:
            until(lambda: ready(place) == set(NAMES), "all stream", 120)
            _upgrades(place, process)
            _lets_a_user_restart_his_own(place)
            _is_as_bounded_after_a_restart_of_the_operator(place, process)
            _goes_on_past_one_that_fails(place, doubles)
            _reaches_all(place)
        finally:
            for double in doubles.values():
                double.close()
        assert not [line for line in process.lines() if line["level"] == "error"], process.log


def _upgrades(place: OperatorNamespace, process: OperatorProcess) -> None:
    assert process.stop() == 0
    process.image = NEWER
    process.start()
    until(lambda: len(waiting(place)) == len(NAMES) - LIMIT, "the others wait")
    until(lambda: len(newer(place)) == LIMIT, "the first are restarted")
    assert ready(place) == set(NAMES) - newer(place), "who waits, streams"


def _lets_a_user_restart_his_own(place: OperatorNamespace) -> None:
    """The StatefulSet of one that waits changes at once, and takes no turn."""
    mine = sorted(waiting(place))[0]
    place.kubectl("patch", "repl", mine, "--type=merge", "-p", '{"spec":{"restartNonce":1}}')
    until(lambda: mine in newer(place), "his own")
    assert len(newer(place)) == LIMIT + 1
    replace_pod(place, mine)
    until(lambda: mine in ready(place), "it streams")


def _is_as_bounded_after_a_restart_of_the_operator(place: OperatorNamespace, process: OperatorProcess) -> None:
    before = newer(place)
    process.kill()
    process.start()
    until(lambda: process.metric("tailrace_operator_reconciles_total") >= 2 * len(NAMES), "it has looked at all")
    assert newer(place) == before


def _goes_on_past_one_that_fails(place: OperatorNamespace, doubles: dict[str, DriverDouble]) -> None:
    before = newer(place)
    bad = sorted(before - ready(place))[0]
    doubles[bad].close()
    replace_pod(place, bad)
    place.node.end_pod(bad, 1, "", restarts=0)
    place.until_reason(f"repl/{bad}", "DriverCrashLoop")
    until(lambda: len(newer(place)) == len(before) + 1, "the next has its turn")
    doubles[bad] = DriverDouble(bad, address(bad), place.node.token(bad))
    place.node.run_pod(bad, address(bad), restarts=1)


def _reaches_all(place: OperatorNamespace) -> None:
    done = {name for name in NAMES if of_new_image(place, name)}
    while done != set(NAMES):
        rolling = until(lambda: newer(place) - done, "somebody's turn")
        assert len(rolling) <= LIMIT
        name = sorted(rolling)[0]
        replace_pod(place, name)
        until(partial(_streams, place, name), "it streams")
        done.add(name)
    until(lambda: ready(place) == set(NAMES) and not waiting(place), "all stream")


def _streams(place: OperatorNamespace, name: str) -> bool:
    return name in ready(place)


def address(name: str) -> str:
    return f"127.0.11.{10 + NAMES.index(name)}"


def replace_pod(place: OperatorNamespace, name: str) -> None:
    """As the StatefulSet's controller and a kubelet do."""
    place.node.delete_pod(name)
    place.node.make_pod(name)
    place.node.run_pod(name, address(name))


def newer(place: OperatorNamespace) -> set[str]:
    """Those whose StatefulSet has the new image."""
    found = place.objects.objects(place.namespace, "statefulsets")
    return {
        s["metadata"]["name"].removesuffix("-driver")
        for s in found
        if s["spec"]["template"]["spec"]["containers"][0]["image"] == NEWER
    }


def of_new_image(place: OperatorNamespace, name: str) -> bool:
    return bool(place.get(f"pod/{name}-driver-0")["spec"]["containers"][0]["image"] == NEWER)


def ready(place: OperatorNamespace) -> set[str]:
    return _with(place, "Ready")


def waiting(place: OperatorNamespace) -> set[str]:
    return _with(place, "RolloutPending")


def _with(place: OperatorNamespace, kind: str) -> set[str]:
    found = place.objects.objects(place.namespace, "replicators")
    return {
        r["metadata"]["name"]
        for r in found
        for c in r.get("status", {}).get("conditions", ())
        if (c["type"], c["status"]) == (kind, "True")
    }
