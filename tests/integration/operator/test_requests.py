"""SnapshotRequests against a real API server; the driver's HTTP side is the data plane's real server."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kube import KubeApi
from support.operator_namespace import OperatorNamespace, install_crds, operator, operator_namespace
from support.operator_process import DriverDouble
from support.resources import replicator, request
from support.waiting import until
from tailrace.contract.driver import LastWords
from tailrace.contract.manifest import parse
from tailrace.contract.status import ApplyStatus, Fault, RewindStatus, SnapshotStatus


@pytest.fixture(scope="module", autouse=True)
def crds(kube_api: KubeApi) -> None:
    install_crds(kube_api)


@pytest.fixture
def asking(
    kube_api: KubeApi, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[OperatorNamespace, DriverDouble]]:
    """A Replicator that streams; the operator is the test's."""
    with operator_namespace(kube_api, "ask-" + request.node.name[5:25].replace("_", "-").strip("-"), tmp_path) as place:
        with operator(place):
            place.apply(replicator())
            driver = place.driver("shop", "127.0.11.1")
            place.until_reason("repl/shop", "Streaming")
        yield place, driver
        driver.close()


def uid(place: OperatorNamespace, name: str) -> str:
    return str(place.get(f"snapreq/{name}")["metadata"]["uid"])


def state(place: OperatorNamespace, name: str) -> str | None:
    found = place.get(f"snapreq/{name}")
    return None if found is None else str(found.get("status", {}).get("state"))


def test_several_requests_pause_resume_complete_and_survive_the_operator(
    asking: tuple[OperatorNamespace, DriverDouble],
) -> None:
    place, driver = asking
    with operator(place) as process:
        place.apply(request("one"), request("two"), request("three", suspend=True))
        until(lambda: len(driver.snapshots) == 3, "the driver has them")
        one, three = uid(place, "one"), uid(place, "three")
        until(lambda: state(place, "three") == "Paused", "three pauses")
        process.kill()
        driver.let(one, state="Completed", rows_done=100, tables_done=1)
        process.start()
        until(lambda: state(place, "one") == "Completed", "one completes")
        place.kubectl("wait", "snapreq/one", "--for=condition=Complete", "--timeout=10s")
        assert place.get("snapreq/one")["status"]["progress"] == "100%"
        place.kubectl("patch", "snapreq", "three", "--type=merge", "-p", '{"spec":{"suspend":false}}')
        until(lambda: driver.snapshots[three].state == "Running", "three resumes")
        driver.let(three, rows_done=30, rows_per_second=10.0, seconds_left=7.0)
        until(lambda: place.get("snapreq/three")["status"].get("progress") == "30%", "its progress shows", 60)
        assert len(driver.snapshots) == 3, "nothing was asked twice under another id"
    assert driver.bodies[one].name == "one"


def test_deleting_a_running_request_cancels_it(asking: tuple[OperatorNamespace, DriverDouble]) -> None:
    place, driver = asking
    with operator(place):
        place.apply(request("again"))
        until(lambda: state(place, "again") == "Running", "it runs")
        ident = uid(place, "again")
        place.kubectl("delete", "snapreq", "again", "--timeout=30s")
        assert driver.snapshots[ident].state == "Stopped"


def test_a_request_that_was_deleted_while_the_operator_was_away_is_stopped_later(
    asking: tuple[OperatorNamespace, DriverDouble],
) -> None:
    place, driver = asking
    with operator(place) as process:
        place.apply(request("again"))
        until(lambda: state(place, "again") == "Running", "it runs")
        ident = uid(place, "again")
        process.kill()
        place.kubectl("patch", "snapreq", "again", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        place.kubectl("delete", "snapreq", "again")
        process.start()
        until(lambda: driver.snapshots[ident].state == "Stopped", "the stray is stopped")


def test_a_request_that_matches_nothing_fails_by_name_and_one_without_replicator_waits(
    asking: tuple[OperatorNamespace, DriverDouble],
) -> None:
    place, _ = asking
    with operator(place):
        place.apply(request("wrong", tables=["public.nothing"]), request("early", replicator="later"))
        until(lambda: state(place, "wrong") == "Failed", "it fails")
        status = place.get("snapreq/wrong")["status"]
        assert status["lastError"]["name"] == "InvalidManifest" and "Correct tables." in status["message"]
        place.until_reason("snapreq/early", "ReplicatorNotFound")
        shown = place.kubectl("get", "snapreq")
        assert "Failed" in shown and "Pending" in shown


def test_a_rewind_is_refused_unless_the_target_is_suspended_and_told_to_the_end(
    asking: tuple[OperatorNamespace, DriverDouble],
) -> None:
    place, driver = asking
    wanted = {"mode": "Rewind", "rewind": {"toCut": "noon"}}
    with operator(place):
        place.apply(request("early", **wanted))
        until(lambda: state(place, "early") == "Failed", "it is refused")
        early = place.get("snapreq/early")["status"]
        assert early["lastError"]["name"] == "RewindRefused" and "Set it to true." in early["message"]
        place.kubectl("patch", "repl", "shop", "--type=merge", "-p", '{"spec":{"apply":{"suspend":true}}}')
        place.apply(request("back", **wanted))
        until(lambda: "to suspend its target" in str(place.get("snapreq/back")["status"].get("message")), "it waits")
        ident = uid(place, "back")
        assert f"take {ident}" not in driver.asked, "the driver does not know of it yet"
        driver.change(apply=ApplyStatus(suspended=True))
        until(lambda: ident in driver.snapshots, "the driver has it")
        moment = RewindStatus(cut="noon", record=17)
        driver.let(ident, rewind=moment, fault=Fault(name="Retry", message="the storage is away"), state="Pending")
        until(lambda: "storage is away" in place.get("snapreq/back")["status"]["message"], "what it waits for", 60)
        driver.let(ident, state="Completed", tables_done=2, tables_total=2, fault=None)
        until(lambda: state(place, "back") == "Completed", "it completes", 60)
        place.kubectl("wait", "snapreq/back", "--for=condition=Complete", "--timeout=10s")
        said = place.get("snapreq/back")["status"]["message"]
        assert said.startswith("Rewound: 2 tables are back at cut noon (record 17)"), said
        events = place.objects.objects(place.namespace, "events")
        assert said in [e["message"] for e in events if e["involvedObject"]["name"] == "back"]


def test_a_resync_of_every_table_brings_back_a_replicator_whose_position_is_lost_and_acts_once(
    asking: tuple[OperatorNamespace, DriverDouble],
) -> None:
    place, first = asking
    with operator(place):
        place.apply(request("early", tables=["public.orders"], resync=True))
        until(lambda: state(place, "early") == "Running", "it runs")
        lose_position(place, first)
        # Neither a request that a driver had, nor one for a part of the tables.
        place.apply(request("some", tables=["public.*"], resync=True), request("all", tables=["*.*"], resync=True))
        started_with(place, "all")
    ident = uid(place, "all")
    driver = DriverDouble("shop", "127.0.11.2", place.node.token("shop"))
    driver.snapshots[ident] = SnapshotStatus(id=ident, name="all", reason="request", state="Running", tables_total=2)
    try:
        with operator(place):
            place.node.make_pod("shop")
            place.node.run_pod("shop", "127.0.11.2")
            until(lambda: state(place, "all") == "Running", "what the start began is followed")
            assert f"take {ident}" not in driver.asked
            driver.let(ident, state="Completed", tables_done=2)
            until(lambda: state(place, "all") == "Completed", "it completes")
            until(lambda: "resync.yaml" not in config(place), "it is no longer at hand")
            assert place.get("statefulset/shop-driver")["spec"]["replicas"] == 1
    finally:
        driver.close()
    with operator(place):
        lose_position(place, driver)
        time.sleep(3)
        assert place.get("statefulset/shop-driver")["spec"]["replicas"] == 0, "a later loss needs another request"
        assert "resync.yaml" not in config(place)
        place.apply(request("again", tables=["*.*"], resync=True))
        started_with(place, "again")


def lose_position(place: OperatorNamespace, driver: DriverDouble) -> None:
    driver.close()
    fault = Fault(name="PositionLost", message="the slot is gone", fix="Create a SnapshotRequest.", where="source")
    place.node.end_pod("shop", 12, LastWords(fault=fault).to_message())
    place.until_reason("repl/shop", "PositionLost")
    until(lambda: place.get("statefulset/shop-driver")["spec"]["replicas"] == 0, "it is stopped")
    place.node.delete_pod("shop")


def config(place: OperatorNamespace) -> dict[str, str]:
    return dict(place.get("configmap/shop-driver")["data"])


def started_with(place: OperatorNamespace, name: str) -> None:
    """The driver is started, and its next start finds the request."""
    until(lambda: place.get("statefulset/shop-driver")["spec"]["replicas"] == 1, "it is started")
    (found,) = parse(config(place)["resync.yaml"], "the ConfigMap").requests
    assert (found.metadata.name, found.metadata.uid) == (name, uid(place, name))
    arguments = place.get("statefulset/shop-driver")["spec"]["template"]["spec"]["containers"][0]["args"]
    mounted = arguments[arguments.index("-f") + 1].rpartition("/")[0]
    assert arguments[arguments.index("--resync") + 1] == f"{mounted}/resync.yaml"


@pytest.mark.parametrize("seam", ["operator.after-apply-child"])
def test_sigkill_while_a_request_is_handed_over_hands_over_the_same(
    asking: tuple[OperatorNamespace, DriverDouble], seam: str
) -> None:
    """The status says which before the ConfigMap does, and the ConfigMap before the pod is made."""
    place, driver = asking
    with operator(place):
        lose_position(place, driver)
    place.apply(request("all", tables=["*.*"], resync=True))
    ended_by(place, seam)
    assert place.get("repl/shop")["status"]["resyncUid"] == uid(place, "all")
    with operator(place):
        started_with(place, "all")


def test_sigkill_after_each_verb_asks_the_driver_for_nothing_else(
    asking: tuple[OperatorNamespace, DriverDouble],
) -> None:
    place, driver = asking
    place.apply(request("again"))
    ended_by(place, "operator.after-submit-snapshot")
    ident = uid(place, "again")
    with operator(place):
        until(lambda: state(place, "again") == "Running", "it runs")
    place.kubectl("patch", "snapreq", "again", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    ended_by(place, "operator.after-pause")
    with operator(place):
        until(lambda: state(place, "again") == "Paused", "it pauses")
    place.kubectl("delete", "snapreq", "again", "--wait=false")
    ended_by(place, "operator.after-cancel")
    with operator(place):
        until(lambda: place.get("snapreq/again") is None, "it goes")
    assert {key: found.state for key, found in driver.snapshots.items()} == {ident: "Stopped"}
    generation = place.get("repl/shop")["metadata"]["generation"]
    driver.change(generation=generation)
    place.kubectl("patch", "repl", "shop", "--type=merge", "-p", '{"spec":{"snapshot":{"parallelism":7}}}')
    ended_by(place, "operator.after-change-spec")
    with operator(place):
        until(lambda: place.get("repl/shop")["status"]["observedGeneration"] == generation + 1, "it is in effect")
    assert [body.generation for body in driver.specs] == [generation + 1]


def ended_by(place: OperatorNamespace, seam: str) -> None:
    process = operator(place, seams=f"{seam}=kill")
    process.start()
    assert process.process is not None
    assert process.process.wait(60) == -9, process.log[-2000:]
