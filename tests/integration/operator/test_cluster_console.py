"""The console in a cluster, over a real API server with its access rules: who sees what, who may do what, and the page
in a real browser. It runs with the rights that the chart gives it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import expect

from make_manifests import rendered
from support.browser import Look, browser
from support.console import Console, served_to
from support.helm import of_kind
from support.kube import KubeApi
from support.operator_namespace import install_crds
from support.resources import replicator, request
from support.scripted_runs import Copy, filled
from support.served import Served
from tailrace.cli.console.cluster_api import ClusterApi
from tailrace.cli.console.cluster_fleet import ClusterFleet

Json = dict[str, Any]
SPACE, OTHER, HOME = "console-shop", "console-sales", "console-home"
SHOP = f"/api/v1/replicators/{SPACE}%3Ashop"
AT = "2026-11-29T10:00:00Z"
STATUS: Json = {
    "state": "Running",
    "message": "all tables replicate",
    "capture": {"lagSeconds": 0.5, "position": "0/16B3748", "retainedBytes": 3 << 30, "rowsPerSecond": 7.0},
    "apply": {"lagSeconds": 4.0, "record": 12, "rowsPerSecond": 5.0},
    "tables": {"total": 9, "replicating": 8, "failing": 1, "worst": [
        {"name": "public.orders", "state": "FAILING",
         "fault": {"name": "ValueUnsupported", "message": "price holds 12 digits", "fix": "Set as: {price: text}."}},
    ]},
    "conditions": [{"type": "Ready", "status": "True", "reason": "Streaming", "message": "", "lastTransitionTime": AT},
                   {"type": "Lagging", "status": "True", "reason": "Behind", "message": "400 s behind",
                    "lastTransitionTime": AT}],
}  # fmt: skip


def at(namespace: str, document: Json) -> Json:
    document["metadata"]["namespace"] = namespace
    return document


def bound(namespace: str, account: str, role: str) -> Json:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": account, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": HOME}],
    }


@pytest.fixture(scope="module")
def tokens(resting_kube_api: KubeApi, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two Replicators in two namespaces, and three users: one who may read the first, one who may change it, one who
    may nothing. Rights as the chart gives them: to the console, and to `view` and `edit`."""
    api = resting_kube_api
    api.go_on()
    install_crds(api)
    for space in (SPACE, OTHER, HOME):
        api.kubectl("create", "namespace", space)
    chart = rendered("--set", "console.enabled=true,crds.enabled=false", release="console", namespace=HOME)
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    api.apply(*(d for kind in kinds for d in of_kind(chart, kind)))
    users = ("reader", "editor", "nobody")
    api.apply(*(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": HOME}} for name in users
    ))  # fmt: skip
    # Without a controller-manager nothing aggregates the chart's roles into `view` and `edit`: they are bound as such,
    # with what those have of events.
    prefix = "console-tailrace-operator"
    watching = {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "list"]}
    api.apply({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "console-events"}, "rules": [watching],
    })  # fmt: skip
    api.apply(bound(SPACE, "reader", f"{prefix}-view"), bound(SPACE, "editor", f"{prefix}-edit"))
    api.apply({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "console-exec"},
        "rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]}],
    })  # fmt: skip
    roles = (("editor", f"{prefix}-view"), ("reader", "console-events"), ("editor", "console-events"))
    for account, role in (*roles, ("editor", "console-exec")):
        more = bound(SPACE, account, role)
        more["metadata"]["name"] = f"{account}-{role}"
        api.apply(more)
    api.apply(at(SPACE, replicator("shop")), at(OTHER, replicator("sales")), at(SPACE, request("again")))
    patch = ("patch", "replicator", "shop", "--subresource=status", "--type=merge", "-p")
    api.kubectl("-n", SPACE, *patch, json.dumps({"status": STATUS}))
    about = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "Replicator", "name": "shop", "namespace": SPACE}
    api.apply({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "shop.1", "namespace": SPACE},
        "involvedObject": about, "type": "Warning", "reason": "TablesFailing", "message": "1 table fails", "count": 3,
        "firstTimestamp": AT, "lastTimestamp": AT,
    })  # fmt: skip
    made = (*users, f"{prefix}-console")
    return {name.removeprefix(f"{prefix}-"): api.kubectl("-n", HOME, "create", "token", name).strip() for name in made}


@pytest.fixture
def account(kube_api: KubeApi, tokens: dict[str, str], tmp_path: Path) -> Path:
    """What a pod finds of its ServiceAccount."""
    (tmp_path / "token").write_text(tokens["console"])
    shutil.copy(kube_api.plane.pki / "ca.crt", tmp_path / "ca.crt")
    return tmp_path


@pytest.fixture
def shown(kube_api: KubeApi, account: Path, tokens: dict[str, str]) -> Iterator[Console]:
    """Its drivers are nowhere."""
    api = ClusterApi(kube_api.plane.server, account, driver_url=lambda space, name: "http://127.0.0.1:9")
    with served_to(ClusterFleet(api, allow_actions=True), tokens["reader"]) as made:
        yield made


def ask(shown: Console, token: str, path: str, body: object = None) -> tuple[int, Json]:
    code, _, answer = shown.send("GET" if body is None else "POST", path, body, token=token)
    return code, json.loads(answer)


def test_a_caller_sees_what_the_token_may_list(shown: Console, tokens: dict[str, str]) -> None:
    fleet = shown.get("/api/v1/fleet")
    assert [r["name"] for r in fleet["replicators"]] == [f"{SPACE}:shop"] and fleet["realm"] == "kubernetes"
    (one,) = fleet["replicators"]
    assert (one["state"], one["lagSeconds"], one["tablesTotal"], one["tablesFailing"]) == ("Running", 4.0, 9, 1)
    assert (one["trouble"], one["retainedBytes"], one["snapshotsRunning"]) == (40, 3 << 30, 1)
    for token, name, words in (
        (None, "Unauthorized", "the token is missing or wrong"),
        ("wrong", "Unauthorized", "the API server does not accept the token"),
        (tokens["nobody"], "Forbidden", f"system:serviceaccount:{HOME}:nobody may list Replicators in none"),
    ):
        code, headers, body = shown.send("GET", "/api/v1/fleet", token=token)
        problem = json.loads(body)
        assert (problem["name"], words in problem["message"]) == (name, True), problem
        assert (code == 401) == ('realm="kubernetes"' in headers.get("www-authenticate", ""))
    code, problem = ask(shown, tokens["reader"], f"/api/v1/replicators/{OTHER}%3Asales")
    assert (code, problem["message"]) == (404, f"there is no Replicator '{OTHER}:sales' (found: {SPACE}:shop)")


def test_without_a_driver_the_resources_are_shown(shown: Console, tokens: dict[str, str]) -> None:
    one = shown.get(SHOP)
    assert (one["live"], one["source"], one["target"]) == (False, "postgresql db/shop", "delta s3://lake/shop")
    assert one["conditions"][0] == "Lagging True (Behind): 400 s behind"
    assert (one["status"]["capture"]["position"], one["status"]["tables"]) == ("0/16B3748", [])
    (snapshot,) = one["status"]["snapshots"]
    assert (snapshot["name"], snapshot["state"]) == ("again", "Pending")
    (table,) = shown.get(f"{SHOP}/tables")["tables"]
    assert (table["name"], table["fault"]["fix"]) == ("public.orders", "Set as: {price: text}.")
    (event,) = shown.get(f"{SHOP}/events")["events"]
    assert (event["about"], event["reason"], event["count"]) == ("Replicator shop", "TablesFailing", 3)
    assert shown.refused(f"{SHOP}/history")[:2] == (409, "NotRunning")
    assert shown.refused(f"{SHOP}/cuts")[:2] == (409, "NotRunning")
    code, name, message = shown.refused(f"{SHOP}/assessment")
    assert (code, name) == (403, "Forbidden") and message.endswith(f"may not create pods/exec in namespace {SPACE}")
    code, problem = ask(shown, tokens["editor"], f"{SHOP}/assessment")
    assert (code, problem["message"]) == (404, 'pods "shop-driver-0" not found'), "the API server's words"


def test_a_reader_is_refused_by_name_and_changes_nothing(
    shown: Console, kube_api: KubeApi, tokens: dict[str, str]
) -> None:
    refused = {r["verb"]: r["why"] for r in shown.get(SHOP)["refused"]}
    user = f"system:serviceaccount:{HOME}:reader"
    assert refused["verify"] == f"{user} may not create snapshotrequests.tailrace.dev in namespace {SPACE}"
    assert refused["shutDown"] == f"{user} may not patch replicators.tailrace.dev in namespace {SPACE}"
    before = kube_api.kubectl("-n", SPACE, "get", "repl,snapreq", "-o", "name")
    for body in (
        {"verb": "verify", "tables": ["public.*"]},
        {"verb": "pause", "snapshot": "again"},
        {"verb": "stop", "snapshot": "again"},
        {"verb": "suspend"},
        {"verb": "shutDown"},
        {"verb": "cut"},
        {"verb": "dropCut", "cut": "noon"},
    ):
        code, preview = ask(shown, tokens["reader"], f"{SHOP}/actions", body | {"preview": True})
        assert code == 200 and preview["refused"].startswith(user) and "-n" in preview["command"]
        code, problem = ask(shown, tokens["reader"], f"{SHOP}/actions", body)
        assert (code, problem["name"]) == (403, "Forbidden") and problem["message"].startswith(user)
    assert kube_api.kubectl("-n", SPACE, "get", "repl,snapreq", "-o", "name") == before
    assert kube_api.kubectl("-n", SPACE, "get", "repl", "shop", "-o", "jsonpath={.spec.suspend}") in ("", "false")


def test_an_editors_actions_are_resources_made_with_its_own_token(
    shown: Console, kube_api: KubeApi, tokens: dict[str, str]
) -> None:
    def act(**body: object) -> Json:
        code, answer = ask(shown, tokens["editor"], f"{SHOP}/actions", body)
        assert code == 200 and answer["done"], answer
        return answer

    def field(what: str, path: str) -> str:
        return kube_api.kubectl("-n", SPACE, "get", *what.split(), "-o", f"jsonpath={{{path}}}")

    code, one = ask(shown, tokens["editor"], SHOP)
    assert one["refused"] == []
    made = act(verb="repair", tables=["public.a", "public.b"])
    assert made["command"] == f"kubectl tailrace snapshot -n {SPACE} shop --repair --tables public.a public.b"
    name = yaml.safe_load(made["manifest"])["metadata"]["name"]
    assert field(f"snapreq {name}", ".spec") and field(f"snapreq {name}", ".spec.mode") == "Repair"
    created = json.loads(kube_api.kubectl("-n", SPACE, "get", "snapreq", name, "-o", "json", "--show-managed-fields"))
    assert {entry["manager"] for entry in created["metadata"]["managedFields"]} == {"tailrace-console"}
    assert "editor" not in json.dumps(created["metadata"]) and tokens["editor"] not in json.dumps(created)

    act(verb="pause", snapshot=name)  # what the console has changed, it lists at once
    act(verb="pause", snapshot="again")
    assert field("snapreq again", ".spec.suspend") == "true"
    assert yaml.safe_load(act(verb="resume", snapshot="again")["manifest"])["spec"] == {"suspend": False}
    assert field("snapreq again", ".spec.suspend") == "false"
    act(verb="suspend")
    act(verb="shutDown")
    assert (field("repl shop", ".spec.suspend"), field("repl shop", ".spec.apply.suspend")) == ("true", "true")
    act(verb="unsuspend")
    assert act(verb="startUp")["command"] == f"kubectl tailrace resume -n {SPACE} replicator shop"
    assert (field("repl shop", ".spec.suspend"), field("repl shop", ".spec.apply.suspend")) == ("false", "false")
    code, problem = ask(shown, tokens["editor"], f"{SHOP}/actions", {"verb": "pause", "snapshot": "initial-1"})
    assert (code, problem["name"]) == (409, "WrongSnapshot")
    code, problem = ask(shown, tokens["editor"], f"{SHOP}/actions", {"verb": "verify", "tables": ["orders"]})
    assert (code, problem["name"]) == (422, "InvalidManifest") and "write schema.table" in problem["message"]
    code, planned = ask(shown, tokens["editor"], f"{SHOP}/actions", {"verb": "cut", "cut": "noon", "preview": True})
    driver = f"-n {SPACE} shop-driver-0 -c tailrace -- tailrace"
    assert code == 200 and planned["command"].startswith(f"kubectl exec {driver} cut -f"), planned
    code, problem = ask(shown, tokens["editor"], f"{SHOP}/actions", {"verb": "cut"})
    assert (code, problem["message"]) == (404, 'pods "shop-driver-0" not found')
    code, problem = ask(shown, tokens["editor"], f"{SHOP}/actions", {"verb": "dropCut"})
    assert (code, problem["name"]) == (422, "InvalidManifest")


def test_a_right_that_is_taken_away_ends_at_the_next_action(
    shown: Console, kube_api: KubeApi, tokens: dict[str, str]
) -> None:
    """What is shown may be half a minute old; before an action the API server is asked again."""
    wanted = {"verb": "suspend"}
    assert ask(shown, tokens["editor"], f"{SHOP}/actions", wanted)[0] == 200
    kube_api.kubectl("-n", SPACE, "delete", "rolebinding", "editor")
    try:
        code, problem = ask(shown, tokens["editor"], f"{SHOP}/actions", wanted)
        assert (code, problem["name"]) == (403, "Forbidden")
    finally:
        kube_api.apply(bound(SPACE, "editor", "console-tailrace-operator-edit"))


def test_a_driver_that_answers_is_shown_live(
    kube_api: KubeApi, account: Path, tokens: dict[str, str], tmp_path: Path
) -> None:
    copy = Copy(filled("orders", rows=40), tmp_path / "copy")
    served = Served(copy)
    with served.running():
        copy.level()
        copy.driver.control.ask_capture()
        copy.driver.control.keep_history()
        driver = json.loads((served.run_dir / "server.json").read_text())["url"]
        api = ClusterApi(kube_api.plane.server, account, driver_url=lambda space, name: driver)
        with served_to(ClusterFleet(api), tokens["reader"]) as shown:
            one = shown.get(SHOP)
            assert one["live"] and one["status"]["tablesReplicating"] == 1
            assert shown.get(f"{SHOP}/tables")["tables"][0]["counters"]["snapshotRows"] == 40
            assert shown.get(f"{SHOP}/history")["at"] != []
            view = shown.get(f"{SHOP}/tables/main.orders")
            assert {run["state"] for run in view["snapshots"][-1]["chunks"]} == {"applied"}
            assert shown.refused(f"{SHOP}/tables/main.none")[0] == 404


def test_the_page_takes_a_token_keeps_it_in_memory_and_marks_what_is_not_allowed(
    shown: Console, tokens: dict[str, str], kube_api: KubeApi
) -> None:
    with browser() as chromium:
        look = Look(chromium, shown.url)
        page = look.page
        page.goto(shown.url)
        expect(page.get_by_text("Enter a token of Kubernetes")).to_be_visible()
        assert look.obstacles() == []
        page.get_by_label("Token").fill(tokens["reader"])
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_text("run `tailrace console` where its source can be reached")).to_be_visible()
        expect(page.get_by_role("link", name="Set up a new Replicator")).to_have_count(0)
        page.get_by_role("link", name=f"{SPACE}:shop").click()
        expect(page.get_by_text("No driver answers the console")).to_be_visible()
        expect(page.get_by_text("Lagging True (Behind): 400 s behind")).to_be_visible()
        expect(page.get_by_role("region", name="1 event")).to_contain_text("1 table fails")
        look.picture("cluster")
        page.get_by_role("button", name="Shut down, not allowed").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("reader may not patch replicators.tailrace.dev")
        expect(dialog).to_contain_text("kind: Replicator")
        expect(dialog.get_by_role("button", name="Carry out")).to_be_disabled()
        assert look.obstacles() == []
        kept = "() => JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
        assert tokens["reader"] not in page.evaluate(kept)
        page.reload()
        expect(page.get_by_text("Enter a token of Kubernetes")).to_be_visible()

        page.get_by_label("Token").fill(tokens["editor"])
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("button", name="Shut down", exact=True).click()
        dialog.get_by_role("button", name="Carry out").click()
        expect(dialog).to_contain_text("Done. Replicator shop is changed")
        shut = kube_api.kubectl("-n", SPACE, "get", "repl", "shop", "-o", "jsonpath={.spec.suspend}")
        assert shut == "true"
        look.close()
        assert all("401" in text or "409" in text for text in look.wrong), look.wrong
