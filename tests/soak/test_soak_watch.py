"""One watch of thousands of Replicators and SnapshotRequests: requests and CPU at idle, memory, the time to the first
action, and the time after a restart until every object has been looked at.

The API server's audit log counts the requests, kopf's too: the operator has a user of its own. All figures go to the
output; docs/decisions/0110 quotes them. TAILRACE_SOAK_OBJECTS gives the numbers of objects, one after the other,
TAILRACE_SOAK_TREE the checkout whose operator is measured (`test_soak_operator.py` measures Replicators that run).
"""

import asyncio
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import override

from support.kube import KubeApi
from support.operator_namespace import OperatorNamespace, install_crds, operator_namespace
from support.operator_process import ROOT, OperatorProcess
from support.resources import SOURCE, replicator, request
from support.waiting import until
from tailrace_operator.handlers.watching import PLURALS, list_all
from tailrace_operator.kube import Kube, Where

Json = dict[str, Any]
COUNTS = tuple(map(int, os.environ.get("TAILRACE_SOAK_OBJECTS", "0,50,5000").split(",")))
TREE = Path(os.environ.get("TAILRACE_SOAK_TREE", str(ROOT)))
IDLE_SECONDS = float(os.environ.get("TAILRACE_SOAK_IDLE", "130"))
"""The default is more than a round of the canary, which lists everything every two minutes."""
PROBES = 7
LACKING: Json = {**SOURCE, "credentials": {"secretName": "never"}}
"""It is deleted without a clean-up, which nothing here could run."""
USER = "system:serviceaccount:default:measured"


class AuditedApi(KubeApi):
    """Writes a line for each request."""

    @property
    def audit_log(self) -> Path:
        return self.plane.folder / "requests.log"

    @override
    def _launch(self, name: str, command: list[str]) -> None:
        if name == "api-server":
            policy = self.plane.folder / "requests.json"
            rule = {"level": "Metadata", "omitStages": ["RequestReceived"]}
            policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [rule]}))
            command = [
                *command,
                *("--audit-policy-file", str(policy), "--audit-log-path", str(self.audit_log)),
                *("--audit-log-maxsize", "2000"),
            ]
        super()._launch(name, command)

    def account(self, folder: Path) -> Path:
        """The kubeconfig of the operator's own user."""
        self.kubectl("create", "serviceaccount", "measured")
        self.kubectl("create", "clusterrolebinding", "measured", "--clusterrole=cluster-admin", f"--user={USER}")
        config = yaml.safe_load(self.kubeconfig.read_text())
        token = self.kubectl("create", "token", "measured", "--duration=24h").strip()
        config["users"][0]["user"] = {"token": token}
        path = folder / "measured.conf"
        path.write_text(yaml.safe_dump(config))
        return path

    def requests(self, since: float, user: str | None = USER) -> list[Json]:
        """Since then; a watch once, when it begins."""
        found = []
        for line in self.audit_log.read_text().splitlines():
            if user is not None and user not in line:
                continue
            try:
                event = json.loads(line)
            except ValueError:
                continue  # being written
            begun = (event["verb"] == "watch") == (event["stage"] == "ResponseStarted")
            if begun and user in (None, event["user"]["username"]) and at(event) >= since:
                found.append(event)
        return found


def at(event: Json, moment: str = "requestReceivedTimestamp") -> float:
    return datetime.fromisoformat(event[moment]).timestamp()


def kinds(events: Iterable[Json]) -> dict[str, int]:
    found = Counter(f"{e['verb']} {e.get('objectRef', {}).get('resource', e['requestURI'])}" for e in events)
    return dict(found.most_common())


def documents(numbers: Iterable[int], namespace: str) -> list[Json]:
    """A SnapshotRequest after four Replicators, which are paused by their annotation: the operator looks at them and
    makes no children. With children the API server alone takes a quarter of an hour and more for thousands."""
    made = []
    for n in numbers:
        if n % 5 == 4:
            made.append(placed(request(f"again{n}", replicator=f"shop{n - 1}"), namespace))
        else:
            document = placed(replicator(f"shop{n}"), namespace)
            document["metadata"]["annotations"] = {"tailrace.dev/pause-reconciliation": "true"}
            made.append(document)
    return made


def placed(document: Json, namespace: str) -> Json:
    return {**document, "metadata": {**document["metadata"], "namespace": namespace}}


def create(api: KubeApi, found: list[Json]) -> float:
    """Seconds that it took."""

    async def run() -> None:
        kube = await Kube.connect(str(api.kubeconfig))
        try:
            places = [(Where(d["kind"], d["metadata"]["namespace"]), d) for d in found]
            await asyncio.gather(*(kube.call("POST", where, body=document) for where, document in places))
        finally:
            await kube.close()

    begun = time.time()
    asyncio.run(run())
    return time.time() - begun


def observed(api: KubeApi, namespace: str) -> int:
    """Objects whose status is about their newest generation. In pages: kubectl takes minutes for thousands."""

    async def run() -> int:
        kube = await Kube.connect(str(api.kubeconfig))
        try:
            found = [document for kind in PLURALS for document in await list_all(kube, kind, namespace)]
        finally:
            await kube.close()
        return sum(d["status"]["observedGeneration"] == d["metadata"]["generation"] for d in found)

    return asyncio.run(run())


def quiet(api: AuditedApi, seconds: float = 8.0) -> bool:
    """The operator has asked for nothing but its lease for so long. By the audit log: a scrape of its metrics takes a
    second of its CPU time with thousands of Replicators, and one that gets no answer says nothing."""
    time.sleep(2)
    calls = [e for e in api.requests(time.time() - seconds) if e.get("objectRef", {}).get("resource") != "leases"]
    return not calls


def set_up(api: AuditedApi, namespace: str, count: int) -> None:
    until(lambda: quiet(api) and observed(api, namespace) == count, "everything is set up", 3000)


def idle(process: OperatorProcess, api: AuditedApi) -> Json:
    assert process.process is not None
    watched = process.process.family()[0]
    begun, cpu = time.time(), watched.cpu_times()
    time.sleep(IDLE_SECONDS)
    seconds, after = time.time() - begun, watched.cpu_times()
    calls = [e for e in api.requests(begun) if e.get("objectRef", {}).get("resource") != "leases"]
    return {
        "idle_seconds": round(seconds, 1),
        "idle_requests": len(calls),
        "idle_kinds": kinds(calls),
        "idle_cpu_cores": round((after.user + after.system - cpu.user - cpu.system) / seconds, 4),
        "memory_mib": round(watched.memory_info().rss / 2**20, 1),
    }


def first_actions(api: AuditedApi, place: OperatorNamespace, prefix: str) -> Json:
    """Seconds from the API server's answer to the creation to the operator's first write about the object."""
    begun, names = time.time(), [f"{prefix}{n}" for n in range(PROBES)]
    for name in names:
        create(api, [placed(replicator(name, source=LACKING), place.namespace)])
        place.until_reason(f"repl/{name}", "SecretNotFound", 120)
    events = api.requests(begun, user=None)
    late = sorted(first(events, name) for name in names)
    place.kubectl("delete", "repl", *names, "--wait=false")
    for name in names:
        until(lambda name=name: place.get(f"repl/{name}") is None, "it is deleted", 300)  # type: ignore[misc]  # a default argument
    return {"first_action_median": round(statistics.median(late), 3), "first_action_most": round(late[-1], 3)}


def first(events: list[Json], name: str) -> float:
    made = next(e for e in events if e["verb"] == "create" and e["objectRef"].get("name") == name)
    own = (e for e in events if e["user"]["username"] == USER and e["verb"] in ("patch", "create", "update"))
    action = min(at(e) for e in own if e["objectRef"].get("name") == name)
    return action - at(made, "stageTimestamp")


def rounds(process: OperatorProcess) -> float:
    return process.metric("tailrace_operator_reconciles_total")


@pytest.mark.timeout(5400)
def test_thousands_of_objects_cost_what_is_documented(tmp_path: Path) -> None:
    figures: dict[str, Json] = {}
    with AuditedApi(tmp_path / "api") as api:
        install_crds(api, TREE / "crds")
        with operator_namespace(api, "load", tmp_path) as place:
            process = OperatorProcess(api.account(tmp_path), tmp_path, place.namespace)
            process.tree = TREE
            done = 0
            with process:
                until(lambda: process.get("/metrics")[0] == 200, "the operator", 120)
                for count in COUNTS:
                    figures[f"{count} objects"] = found = {}
                    begun = time.time()
                    found["created_seconds"] = round(create(api, documents(range(done, count), "load")), 1)
                    set_up(api, place.namespace, count)
                    found["whole_seconds"] = round(time.time() - begun, 1)
                    found["setup_requests"] = len(api.requests(begun))
                    done = count
                    found |= idle(process, api)
                    found |= first_actions(api, place, f"probe{count}-")
                    print(json.dumps(figures), flush=True)
                figures["restart"] = restart(process, api, place)
                print(json.dumps(figures["restart"]), flush=True)
                begun = time.time()
                assert process.stop(60) == 0
                figures["restart"]["end_seconds"] = round(time.time() - begun, 2)
                errors = [line for line in process.lines() if line["level"] == "error"]
                print(json.dumps(figures, indent=1), flush=True)
                assert errors == []
                assert figures[f"{max(COUNTS)} objects"]["idle_requests"] < 60, "pages of two lists, and watches"
                assert figures[f"{max(COUNTS)} objects"]["memory_mib"] < 512, "the chart's limit"


def restart(process: OperatorProcess, api: AuditedApi, place: OperatorNamespace) -> Json:
    until(lambda: quiet(api), "all is quiet", 600)
    process.kill()
    begun = time.time()
    process.start()
    until(lambda: rounds(process) >= max(COUNTS), "every object is looked at", 1800)
    found: Json = {"every_object_seconds": round(time.time() - begun, 1)}
    until(lambda: quiet(api), "all is quiet", 1800)
    calls = api.requests(begun)
    found |= {"quiet_seconds": round(time.time() - begun, 1), "requests": len(calls), "kinds": kinds(calls)}
    assert process.process is not None
    cpu = process.process.family()[0].cpu_times()
    return found | {"cpu_seconds": round(cpu.user + cpu.system, 1), "rounds": rounds(process)}
