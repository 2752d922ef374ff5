"""The console over the status server of a copy that runs in the test's process."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest
from typing_extensions import override

from support.console import TOKEN, Console, Shown, console
from support.scripted_database import Change
from support.scripted_runs import Copy, filled
from support.served import Served
from tailrace.cli.client import DriverClient, DriverRefused
from tailrace.cli.console import assessed
from tailrace.cli.console.local import LocalReplicator
from tailrace.contract.console import ActionAnswer, ConsoleFleet, ConsoleReplicator, TablePage
from tailrace.contract.history import TableView
from tailrace.contract.status import TableStatus
from tailrace.errors import Retry

SHOP = "/api/v1/replicators/shop"


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(filled("orders", "customers", rows=40), tmp_path)


@pytest.fixture
def served(copy: Copy) -> Iterator[Served]:
    served = Served(copy)
    with served.running():
        yield served


def local(served: Served) -> LocalReplicator:
    return LocalReplicator(served.copy.replicator, served.copy.manifest, served.run_dir)


@pytest.fixture
def shown(served: Served) -> Iterator[Console]:
    with console([local(served), Shown("away")], allow_actions=True) as made:
        yield made


def chunks(view: TableView) -> dict[str, int]:
    """State -> number, of the newest snapshot."""
    counts: dict[str, int] = {}
    for run in view.snapshots[-1].chunks:
        counts[run.state] = counts.get(run.state, 0) + run.chunks
    return counts


def test_fleet_replicator_and_tables_are_those_of_the_driver(served: Served, shown: Console, copy: Copy) -> None:
    copy.level()
    copy.driver.control.ask_capture()
    copy.driver.control.keep_history()
    fleet = ConsoleFleet.model_validate(shown.get("/api/v1/fleet"))
    assert [(r.name, r.state) for r in fleet.replicators] == [("away", "NotRunning"), ("shop", "Running")]
    away, shop = fleet.replicators
    assert away.problem is not None and away.problem.fix == "Start `tailrace run`, or add its --run-dir."
    assert shop.tables_total == 2 and shop.trouble == 0 and len(shop.lag_history) == 1

    one = ConsoleReplicator.model_validate(shown.get(SHOP))
    assert one.status is not None and one.status.tables == () and one.status.capture.record > 0
    assert "All tables replicate." in one.conditions
    assert one.storage == copy.replicator.spec.storage.location

    page = TablePage.model_validate(shown.get(f"{SHOP}/tables?search=CUST&state=REPLICATING,WAITING&limit=1"))
    assert (page.total, page.matching, page.tables[0].name) == (2, 1, "main.customers")
    assert page.tables[0].counters.snapshot_rows == 40
    assert shown.get(f"{SHOP}/history")["at"] != []
    assert shown.refused("/api/v1/replicators/away/tables")[:2] == (409, "NotRunning")


def test_the_map_of_chunks_follows_a_snapshot_to_its_end(served: Served, shown: Console, copy: Copy) -> None:
    """Chunks of seven rows."""
    path = f"{SHOP}/tables/{quote('main.orders', safe='')}"

    def view() -> TableView:
        return TableView.model_validate(shown.get(path))

    def read_in_part(_: object) -> bool:
        snapshots = view().snapshots
        return bool(snapshots) and 0 < snapshots[-1].rows_done < 40

    copy.until(read_in_part, work=True)
    under_way = view()
    assert [c.name for c in under_way.columns if c.key is not None] == ["id"]
    assert sum(chunks(under_way).values()) > 0 and under_way.snapshots[-1].state == "Running"
    copy.level()
    done = view()
    assert chunks(done) == {"applied": 6} or chunks(done) == {"applied": 7}
    assert (done.snapshots[-1].more, done.snapshots[-1].rows_done, done.snapshots[-1].state) == (0, 40, "Completed")
    assert done.status.state == "REPLICATING" and done.schema_version == 1


def test_the_counters_of_a_table_are_kept_by_the_minute(served: Served, shown: Console, copy: Copy) -> None:
    copy.level()
    now = [copy.driver.control.status().updated_at]
    copy.driver.control._clock = lambda: now[0]
    copy.driver.control.keep_history()
    for n, rows in enumerate((3, 0, 2)):
        copy.database.commit(*(Change("I", 1, 1000 + 10 * n + row, "new") for row in range(rows)))
        copy.level()
        now[0] += 60
        copy.driver.control.keep_history()
    history = TableView.model_validate(shown.get(f"{SHOP}/tables/main.orders")).history
    assert history is not None and history.inserts == (3, 0, 2) and sum(history.snapshot_rows) == 0


def act(shown: Console, **body: object) -> ActionAnswer:
    code, _, answer = shown.send("POST", f"{SHOP}/actions", body)
    assert code == 200, answer
    return ActionAnswer.model_validate_json(answer)


def test_actions_show_their_command_and_carry_it_out(served: Served, shown: Console, copy: Copy) -> None:
    copy.level()
    given = f"-f {copy.manifest} --run-dir {served.run_dir}"
    planned = act(shown, verb="snapshot", tables=["main.orders"], preview=True)
    assert planned.command == f"tailrace snapshot {given} --tables main.orders" and not planned.done
    assert planned.manifest is not None and "kind: SnapshotRequest" in planned.manifest
    before = len(copy.state.snapshots)
    assert act(shown, verb="snapshot", tables=["main.orders"]).done
    assert len(copy.state.snapshots) == before + 1
    newest = list(copy.state.snapshots)[-1]

    assert act(shown, verb="pause", snapshot=newest).message == f"{newest}: pause done"
    assert copy.state.snapshots[newest].suspended
    act(shown, verb="resume", snapshot=newest)
    assert act(shown, verb="stop", snapshot=newest).command == f"tailrace stop {given} {newest}"
    copy.until(lambda state: state.snapshots[newest].ended)
    refused = shown.refused(f"{SHOP}/actions", {"verb": "pause", "snapshot": newest})
    assert refused == (409, "WrongSnapshot", f"snapshot {newest} has ended: Stopped")
    copy.database.commit(Change("I", 1, 900, "new"))
    copy.level()
    assert copy.rows(1) == copy.database.rows(1)

    assert act(shown, verb="verify", tables=["main.*"]).done
    copy.level()
    verified = TablePage.model_validate(shown.get(f"{SHOP}/tables")).tables
    assert [t.verified.compared.differences if t.verified else None for t in verified] == [0, 0]


def test_bad_input_is_answered_in_the_words_of_the_command_line(served: Served, shown: Console) -> None:
    code, name, message = shown.refused(f"{SHOP}/actions", {"verb": "verify", "tables": ["orders"]})
    assert (code, name) == (422, "InvalidManifest") and "write schema.table" in message
    code, name, message = shown.refused(f"{SHOP}/actions", {"verb": "explode"})
    assert (code, name) == (422, "InvalidManifest") and "verb is 'explode'" in message
    assert shown.refused(f"{SHOP}/tables/main.none")[0] == 404
    assert shown.refused("/api/v1/replicators/gone") == (
        404, "NotFound", "there is no Replicator 'gone' (found: away, shop)",
    )  # fmt: skip
    assert shown.refused("/api/v1/none") == (404, "NotFound", "no such path: /api/v1/none")
    assert shown.refused(f"{SHOP}/tables?limit=-1")[:2] == (422, "InvalidManifest")
    code, name, message = shown.refused(f"{SHOP}/tables?offset={'9' * 5000}")
    assert (code, name) == (422, "InvalidManifest") and message == f"offset is '{'9' * 50}' …"


def test_nobody_gets_in_without_the_token_and_no_other_page_can_act(served: Served, copy: Copy) -> None:
    with console([local(served)]) as shown:
        for path in ("/api/v1/fleet", f"{SHOP}/tables", "/api/v1/none"):
            for token in (None, "wrong"):
                code, headers, body = shown.send("GET", path, token=token)
                assert (code, json.loads(body)["name"]) == (401, "Unauthorized")
                assert "access-control-allow-origin" not in headers
        # A form of another page has no such header, and what it can send is not JSON.
        wanted = {"verb": "snapshot", "tables": ["main.orders"]}
        assert shown.send("POST", f"{SHOP}/actions", wanted, Content_Type="text/plain")[0] == 415
        assert shown.refused(f"{SHOP}/actions", wanted) == (403, "ReadOnly", "the console only shows")
        code, headers, page = shown.send("GET", "/", token=None)
        assert code == 200 and b"main.js" in page
        assert "default-src 'none'; script-src 'self'" in headers["content-security-policy"]
        assert b"http" not in page.replace(b"http-equiv", b"")
        assert shown.send("GET", "/../app.py", token=None)[0] == 404
        assert shown.send("GET", "/api/openapi.json", token=None)[0] == 200


def test_a_table_with_a_slash_in_its_name_is_found() -> None:
    status = TableStatus(name="main.a/b", state="REPLICATING")
    view = TableView(status=status, schema_version=1, columns=())
    with console([Shown("shop", views={"main.a/b": view})]) as shown:
        assert shown.get(f"{SHOP}/tables/{quote('main.a/b', safe='')}")["status"]["name"] == "main.a/b"


def test_a_driver_of_another_version_does_not_hide_the_fleet() -> None:
    class Newer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"unknown": 1}')

        @override
        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Newer) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        driver = DriverClient(f"http://127.0.0.1:{server.server_address[1]}", Path("/none"))
        for ask in (driver.status, driver.history, lambda: driver.table("main.a")):
            with pytest.raises(DriverRefused, match="is not a driver of this version"):
                ask()
        server.shutdown()


def test_another_look_at_a_source_waits_a_moment_and_is_then_refused(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assessed, "WAIT_SECONDS", 0.01)
    with assessed._ONE, pytest.raises(Retry, match="another look"):
        assessed.assess(copy.replicator)


HANGS = """
import sys, time
from pathlib import Path
from support.console import Shown
from tailrace.cli.console import serve

class Hanging(Shown):
    def assessment(self, caller):
        print("asked", flush=True)
        time.sleep(120)

sys.exit(serve.run([Hanging("shop")], "127.0.0.1:0", Path(sys.argv[1]), actions=False))
"""


def test_a_signal_ends_the_console_while_a_source_does_not_answer(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", HANGS, str(token)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline()
            asking = Console(int(address.rstrip("/\n").rpartition(":")[2]))
            threading.Thread(target=_ask, args=(asking,), daemon=True).start()
            assert process.stdout.readline() == "asked\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


def _ask(shown: Console) -> None:
    with suppress(OSError, http.client.HTTPException):
        shown.send("GET", f"{SHOP}/assessment")
