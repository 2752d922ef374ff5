"""What Argo CD is told of the resources: its scripts, run for real, on the documents of tests/fixtures/argocd."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import make_argocd
from support.lua import run
from support.observed import LIMITS, SPEC, ended, observed, reported, running
from tailrace.contract.resources import SnapshotRequest
from tailrace.contract.status import ApplyStatus
from tailrace_operator.decide.replicator import decide
from tailrace_operator.observe.model import ObservedDriver, ObservedReplicator
from tailrace_operator.status.load import dump

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures" / "argocd").glob("*.yaml"))
Json = dict[str, Any]


def script(kind: str, name: str) -> str:
    """As Argo CD finds it in its ConfigMap."""
    data = yaml.safe_load(make_argocd.CONFIG.read_text(encoding="utf-8"))["data"]
    if name == "health":
        return str(data[f"resource.customizations.health.tailrace.dev_{kind}"])
    actions = yaml.safe_load(data[f"resource.customizations.actions.tailrace.dev_{kind}"])
    if name == "discovery":
        return str(actions["discovery.lua"])
    return str({one["name"]: one["action.lua"] for one in actions["definitions"]}[name])


def fixture(name: str) -> Json:
    path = next(path for path in FIXTURES if path.stem == name)
    document: Json = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


def act(name: str, action: str) -> Any:
    document = fixture(name)["object"]
    return run(script(document["kind"], action), document)


def test_the_configmap_is_what_the_scripts_say() -> None:
    assert make_argocd.CONFIG.read_text(encoding="utf-8") == make_argocd.text(), "run `make crds`"


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_health_is_what_the_conditions_say(path: Path) -> None:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    found = run(script(case["object"]["kind"], "health"), case["object"])
    assert found == {"status": case["health"], "message": case["message"]}


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_only_actions_that_make_sense_are_offered(path: Path) -> None:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    offered = run(script(case["object"]["kind"], "discovery"), case["object"])
    assert sorted(name for name, about in offered.items() if not about["disabled"]) == case["actions"]


@pytest.mark.parametrize("kind", make_argocd.KINDS)
def test_every_action_that_is_offered_is_defined(kind: str) -> None:
    offered = run(script(kind, "discovery"), {"spec": {}, "metadata": {}})
    data = yaml.safe_load(make_argocd.actions(kind))
    assert sorted(offered) == sorted(one["name"] for one in data["definitions"])


@pytest.mark.parametrize(
    ("name", "action", "change"),
    [
        ("replicator-streaming", "suspend", {"suspend": True}),
        ("replicator-suspended", "resume", {"suspend": False}),
        ("replicator-streaming", "restart", {"restartNonce": 7}),
        ("replicator-stalled", "restart", {"restartNonce": 1}),
        ("request-running", "suspend", {"suspend": True}),
        ("request-paused", "resume", {"suspend": False}),
    ],
)
def test_an_action_changes_its_field_and_nothing_else(name: str, action: str, change: Json) -> None:
    before = fixture(name)["object"]
    assert act(name, action) == before | {"spec": before["spec"] | change}


def test_the_snapshot_action_makes_a_request_of_all_tables_that_goes_with_its_replicator() -> None:
    (step,) = act("replicator-streaming", "snapshot")
    assert step["operation"] == "create"
    made = step["resource"]
    assert re.fullmatch(r"shop-\d{14}", made["metadata"]["name"])
    assert made["metadata"]["namespace"] == "data"
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner["uid"] == fixture("replicator-streaming")["object"]["metadata"]["uid"]
    request = SnapshotRequest.model_validate(made)
    assert (request.spec.replicator, request.spec.tables) == ("shop", ("public.*", "sales.orders"))


def kstatus(document: Json) -> str:
    """What Flux and `kpt` compute, by the rules of cli-utils for custom resources."""
    if document["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = document.get("status", {})
    if status.get("observedGeneration", 0) != document["metadata"]["generation"]:
        return "InProgress"
    by_type = {c["type"]: c["status"] for c in status.get("conditions", [])}
    if by_type.get("Reconciling") == "True":
        return "InProgress"
    if by_type.get("Stalled") == "True":
        return "Failed"
    return "Current" if by_type.get("Ready", "True") == "True" else "InProgress"


SAME = {"Terminating": {"Progressing"}, "InProgress": {"Progressing"}, "Failed": {"Degraded"},
        "Current": {"Healthy", "Suspended"}}  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(
    generation=st.integers(1, 2),
    observed=st.integers(1, 2),
    deleted=st.booleans(),
    ready=st.sampled_from([("True", None), ("False", None), ("False", "Stalled"), ("False", "Reconciling"),
                           ("Unknown", "Reconciling"), ("True", "Suspended")]),
)  # fmt: skip
def test_argo_cd_and_flux_see_the_same(
    generation: int, observed: int, deleted: bool, ready: tuple[str, str | None]
) -> None:
    conditions = [{"type": "Ready", "status": ready[0], "message": "m"}]
    conditions += [{"type": ready[1], "status": "True", "message": "m"}] if ready[1] else []
    document: Json = {"metadata": {"generation": generation, **({"deletionTimestamp": "now"} if deleted else {})}}
    document["status"] = {"observedGeneration": observed, "conditions": conditions}
    for kind in make_argocd.KINDS:
        assert run(script(kind, "health"), document)["status"] in SAME[kstatus(document)]


def ran_into(code: int) -> ObservedReplicator:
    """The driver's container has ended with this code."""
    base = running()
    gone = replace(base.pods[0], ready=False, running_since=None, ended=ended(code))
    return replace(base, pods=(gone,), driver=ObservedDriver(None))


DECIDED = {
    "just made": (observed(), "Progressing"),
    "streams": (running(), "Healthy"),
    "lags behind": (running(reported(apply=ApplyStatus(lag_seconds=9999.0))), "Healthy"),
    "tables fail": (running(reported(state="Failing", tables_failing=1)), "Progressing"),
    "suspended": (observed(spec=SPEC | {"suspend": True}), "Suspended"),
    "invalid": (observed(spec=SPEC | {"retry": {"time": "soon"}}), "Degraded"),
    "lacks a Secret": (observed(data_hashes={}), "Progressing"),
    "crashed": (ran_into(1), "Progressing"),
    "lost its position": (ran_into(12), "Degraded"),
}


@pytest.mark.parametrize("name", DECIDED)
def test_health_is_right_for_what_the_operator_itself_writes(name: str) -> None:
    observed, health = DECIDED[name]
    status = dump(decide(observed, LIMITS).status)
    document = {"metadata": {"name": "shop", "generation": observed.meta.generation}, "spec": {}, "status": status}
    assert run(script("Replicator", "health"), document)["status"] == health
