import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from support.resources import replicator
from tailrace.contract.driver import (
    CutList,
    CutReport,
    CutTable,
    DropAnswer,
    SnapshotAnswer,
    SnapshotBody,
    SpecAnswer,
    SpecBody,
    VerificationReport,
)
from tailrace.contract.history import LastHour, TableView
from tailrace.contract.resources import DeletionPolicy
from tailrace.contract.status import Status, TableCounters, TableStatus
from tailrace.driver.asking.server import Conflict, StatusServer, Unknown
from tailrace.errors import InvalidManifest, Retry

CUT = CutReport(
    name="noon", record=7, position="0/2A", commit_time=None, made=1.5, scheduled=False, complete=True, waits=False,
    tables=(CutTable(name="public.orders", version="12"),),
)  # fmt: skip
SPEC = {"replicator": "shop", "tables": ["public.orders"]}


class Fake:
    def __init__(self) -> None:
        self.reason: str | None = None
        self.calls: list[tuple[object, ...]] = []

    def status(self) -> Status:
        table = TableStatus(name="public.orders", state="FAILING", counters=TableCounters(inserts=3), lag_seconds=1.5)
        return Status(name="shop", state="Running", started_at=1, updated_at=2, tables=(table,), tables_total=1)

    def history(self) -> LastHour:
        return LastHour(step_seconds=10, at=(2.0,), capture_lag_seconds=(0.5,), apply_lag_seconds=(None,))

    def table(self, name: str) -> TableView:
        if name != "odd/schema.orders":
            raise Unknown(f"no table {name!r} is captured", "`tailrace status` shows the names.")
        return TableView(status=self.status().tables[0], schema_version=1, columns=())

    def unhealthy(self) -> str | None:
        return self.reason

    def request(self, snapshot_id: str, body: SnapshotBody) -> SnapshotAnswer:
        errors = {"taken": Conflict("other body"), "none": InvalidManifest("no table matches"), "later": Retry("away")}
        if snapshot_id in errors:
            raise errors[snapshot_id]
        self.calls.append((snapshot_id, body.name))
        return SnapshotAnswer(id=snapshot_id, record=5, tables=("public.orders",))

    def report(self, snapshot_id: str) -> VerificationReport:
        if snapshot_id == "unknown":
            raise Unknown("no snapshot has the id unknown")
        return VerificationReport(id=snapshot_id, state="Completed", tables=())

    def cuts(self) -> CutList:
        return CutList(cuts=(CUT,))

    def make_cut(self, name: str) -> CutReport:
        errors = {"taken": Conflict("there is a cut 'taken'"), "A": InvalidManifest("a cut cannot have the name 'A'")}
        if name in errors:
            raise errors[name]
        return CUT.model_copy(update={"name": name})

    def drop_cut(self, name: str) -> None:
        if name == "unknown":
            raise Unknown("there is no cut 'unknown'")
        self.calls.append(("drop cut", name))

    def stop_snapshot(self, snapshot_id: str) -> None:
        if snapshot_id == "unknown":
            raise Unknown("no snapshot has the id unknown")
        self.calls.append(("stop", snapshot_id))

    def suspend_snapshot(self, snapshot_id: str, suspend: bool) -> None:
        self.calls.append(("suspend", snapshot_id, suspend))

    def change_spec(self, body: SpecBody) -> SpecAnswer:
        self.calls.append(("spec", body.generation, body.spec.apply.freshness))
        return SpecAnswer(changed=("apply.freshness",))

    def drop(self, policy: DeletionPolicy) -> DropAnswer:
        self.calls.append(("drop", policy))
        return DropAnswer(done=False, message="under way")


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def server(fake: Fake) -> Iterator[StatusServer]:
    server = StatusServer(fake, "127.0.0.1", 0, "secret")
    server.start()
    yield server
    server.close()


def call(server: StatusServer, method: str, path: str, body: object = None, token: str = "secret") -> tuple[int, bytes]:
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, {"Authorization": f"Bearer {token}"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_status_and_metrics_come_from_the_same_document(server: StatusServer) -> None:
    code, body = call(server, "GET", "/status", token="none")
    assert code == 200
    assert Status.model_validate_json(body).tables[0].name == "public.orders"
    text = call(server, "GET", "/metrics")[1].decode()
    assert 'tailrace_table_changes_total{op="inserts",table="public.orders"} 3.0' in text
    assert 'tailrace_table_failing{table="public.orders"} 1.0' in text
    assert 'tailrace_table_replacing{table="public.orders"} 0.0' in text


def test_history_and_tables_need_no_token(server: StatusServer) -> None:
    code, body = call(server, "GET", "/history", token="none")
    assert (code, LastHour.model_validate_json(body).capture_lag_seconds) == (200, (0.5,))
    code, body = call(server, "GET", "/tables/odd%2Fschema.orders", token="none")
    assert (code, TableView.model_validate_json(body).status.name) == (200, "public.orders")
    code, body = call(server, "GET", "/tables/public.none", token="none")
    assert (code, json.loads(body)["message"]) == (404, "no table 'public.none' is captured")


def test_health_tells_the_reason_when_a_loop_stands_still(server: StatusServer, fake: Fake) -> None:
    assert call(server, "GET", "/healthz")[0] == 200
    fake.reason = "apply has been stuck for 300 s"
    assert call(server, "GET", "/healthz") == (503, b"apply has been stuck for 300 s")


def test_a_snapshot_is_requested_suspended_and_stopped_with_the_token(server: StatusServer, fake: Fake) -> None:
    code, body = call(server, "PUT", "/snapshots/a%20b", {"name": "again", "spec": SPEC})
    assert (code, SnapshotAnswer.model_validate_json(body).record) == (200, 5)
    assert call(server, "PUT", "/snapshots/x/suspend", {"suspend": True})[0] == 200
    assert call(server, "DELETE", "/snapshots/x")[0] == 200
    assert fake.calls == [("a b", "again"), ("suspend", "x", True), ("stop", "x")]


def test_without_the_token_nothing_is_changed(server: StatusServer, fake: Fake) -> None:
    assert call(server, "PUT", "/snapshots/x", {"name": "again", "spec": SPEC}, token="wrong")[0] == 401
    assert call(server, "DELETE", "/snapshots/x", token="")[0] == 401
    assert call(server, "POST", "/drop", {"data": True}, token="wrong")[0] == 401
    assert fake.calls == []


def test_a_spec_is_handed_over_with_its_generation(server: StatusServer, fake: Fake) -> None:
    spec = {**replicator()["spec"], "apply": {"freshness": "2s"}}
    assert call(server, "PUT", "/spec", {"generation": 7, "spec": spec}, token="wrong")[0] == 401
    code, body = call(server, "PUT", "/spec", {"generation": 7, "spec": spec})
    assert (code, SpecAnswer.model_validate_json(body).changed) == (200, ("apply.freshness",))
    assert fake.calls == [("spec", 7, "2s")]
    assert call(server, "PUT", "/spec", {"generation": 7, "spec": {**spec, "aply": {}}})[0] == 422


def test_the_order_to_drop_is_answered_with_how_far_it_is(server: StatusServer, fake: Fake) -> None:
    code, body = call(server, "POST", "/drop", {"data": True})
    assert (code, DropAnswer.model_validate_json(body).done) == (200, False)
    assert call(server, "POST", "/dropp", {"data": True})[0] == 404
    assert call(server, "POST", "/drop", {})[0] == call(server, "POST", "/drop", {"orphan": True})[0] == 200
    assert call(server, "POST", "/drop", {"orphans": True})[0] == 422, "what it does not know it does not do"
    assert fake.calls == [("drop", "Delete"), ("drop", "Retain"), ("drop", "Orphan")]


@pytest.mark.parametrize(("snapshot_id", "code"), [("taken", 409), ("none", 422), ("later", 503)])
def test_errors_have_their_own_codes_and_a_problem_document(server: StatusServer, snapshot_id: str, code: int) -> None:
    answered, body = call(server, "PUT", f"/snapshots/{snapshot_id}", {"name": "n", "spec": SPEC})
    assert answered == code
    assert set(json.loads(body)) == {"name", "message", "fix"}


def test_a_body_that_is_not_the_contract_s_is_refused_by_field(server: StatusServer) -> None:
    code, body = call(server, "PUT", "/snapshots/x", {"name": "n", "spec": {**SPEC, "keyz": 1}})
    assert code == 422
    assert "spec.keyz" in json.loads(body)["message"]
    code, body = call(server, "PUT", "/snapshots/x", b"name: hush")
    assert code == 422 and json.loads(body)["message"].startswith("body: not JSON: expected ")
    assert call(server, "DELETE", "/snapshots/unknown")[0] == 404
    assert call(server, "GET", "/nothing")[0] == 404


def test_cuts_are_listed_without_and_made_and_dropped_with_the_token(server: StatusServer, fake: Fake) -> None:
    assert call(server, "PUT", "/cuts/before_sale", {}, token="wrong")[0] == 401
    assert call(server, "DELETE", "/cuts/noon", token="wrong")[0] == 401
    assert CutList.model_validate_json(call(server, "GET", "/cuts", token="none")[1]).cuts == (CUT,)
    code, body = call(server, "PUT", "/cuts/before_sale", {})
    assert (code, CutReport.model_validate_json(body).name) == (200, "before_sale")
    assert call(server, "PUT", "/cuts/taken", {})[0] == 409
    assert call(server, "PUT", "/cuts/A", {})[0] == 422
    assert call(server, "DELETE", "/cuts/noon")[0] == 200
    assert call(server, "DELETE", "/cuts/unknown")[0] == 404
    assert fake.calls == [("drop cut", "noon")]
