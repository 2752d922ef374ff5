"""A thousand idle Replicators and SnapshotRequests: what the operator costs, and how soon it is up to date again.

The figures go to `operator-load.json` in the test's folder and to the output; docs/performance.md quotes them.
"""

import json
import os
import time
from pathlib import Path

import pytest

from support.kube import KubeApi
from support.operator_namespace import OperatorNamespace, install_crds, operator, operator_namespace
from support.operator_process import OperatorProcess
from support.resources import replicator, request
from support.waiting import until

COUNT = int(os.environ.get("TAILRACE_SOAK_OBJECTS", "1000"))
IDLE_SECONDS = 120
NO_PODS_SECONDS = 330
"""By then the status of every Replicator says that its pods do not come: one more write for each."""


@pytest.fixture(scope="module", autouse=True)
def crds(kube_api: KubeApi) -> None:
    install_crds(kube_api)


def settled(process: OperatorProcess) -> bool:
    """Nothing is due, and nothing has been written for a few seconds."""
    before = process.metric("tailrace_operator_api_requests_total")
    time.sleep(5)
    quiet = process.metric("tailrace_operator_api_requests_total") - before < 10
    return quiet and process.metric("tailrace_operator_queue_length") == 0


def observed(place: OperatorNamespace) -> int:
    """Objects whose status is about their newest generation."""
    documents = json.loads(place.kubectl("get", "repl,snapreq", "-o", "json"))["items"]
    return sum(d["status"]["observedGeneration"] == d["metadata"]["generation"] for d in documents)


@pytest.mark.timeout(3600)
def test_a_thousand_idle_objects_cost_little_and_are_up_to_date_soon_after_a_restart(
    kube_api: KubeApi, tmp_path: Path
) -> None:
    with operator_namespace(kube_api, "load", tmp_path) as place, operator(place) as process:
        for first in range(0, COUNT, 100):
            numbers = range(first, first + 100)
            place.apply(*(replicator(f"shop{n}") for n in numbers))
            place.apply(*(request(f"again{n}", replicator=f"shop{n}") for n in numbers))
        begun = time.monotonic()
        until(lambda: settled(process), "everything is set up", 1800)
        figures = {"objects": 2 * COUNT, "first_seconds": time.monotonic() - begun}
        assert observed(place) == 2 * COUNT
        time.sleep(max(0.0, begun + NO_PODS_SECONDS - time.monotonic()))
        figures |= idle(process)
        process.kill()
        begun = time.monotonic()
        process.start()
        until(lambda: process.metric("tailrace_operator_reconciles_total") >= 2 * COUNT, "all are looked at", 900)
        figures["restart_seconds"] = time.monotonic() - begun
        figures["restart_requests"] = process.metric("tailrace_operator_api_requests_total")
        place.kubectl("patch", "repl", "shop7", "--type=merge", "-p", '{"spec":{"restartNonce":1}}')
        begun = time.monotonic()
        until(lambda: place.get("repl/shop7")["status"]["observedGeneration"] == 2, "a change among a thousand", 60)
        figures["change_seconds"] = time.monotonic() - begun
        errors = [line for line in process.lines() if line["level"] == "error"]
        (tmp_path / "operator-load.json").write_text(json.dumps(figures, indent=1))
        print(json.dumps(figures, indent=1))
        assert errors == []
        assert figures["idle_requests_per_second"] < 20
        assert figures["memory_mib"] < 600


def idle(process: OperatorProcess) -> dict[str, float]:
    assert process.process is not None
    watched = process.process.family()[0]
    calls, cpu, begun = process.metric("tailrace_operator_api_requests_total"), watched.cpu_times(), time.monotonic()
    writes = process.metric("tailrace_operator_status_writes_total")
    time.sleep(IDLE_SECONDS)
    seconds, after = time.monotonic() - begun, watched.cpu_times()
    return {
        "idle_requests_per_second": (process.metric("tailrace_operator_api_requests_total") - calls) / seconds,
        "idle_status_writes": process.metric("tailrace_operator_status_writes_total") - writes,
        "idle_cpu_cores": (after.user + after.system - cpu.user - cpu.system) / seconds,
        "memory_mib": watched.memory_info().rss / 2**20,
    }
