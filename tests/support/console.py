"""The console as a server of the test's process, and Replicators whose documents a test gives."""

import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from support.resources import replicator
from tailrace.cli.client import DriverClient
from tailrace.cli.console import actions, summary
from tailrace.cli.console.app import ConsoleApp, application
from tailrace.cli.console.local import LocalFleet, described
from tailrace.cli.console.serve import listening
from tailrace.cli.console.watched import Described, Fleet, Plan, Watched, entry_of
from tailrace.contract.console import ActionBody, ConsoleAssessment, FleetEntry, RefusedAction, ReportedEvent
from tailrace.contract.driver import CutReport
from tailrace.contract.history import LastHour, TableView
from tailrace.contract.resources import Replicator, ReplicatorSpec
from tailrace.contract.status import Status
from tailrace.driver.process.run_dir import NotRunning

TOKEN = "a token of the test"


@dataclass
class Shown:
    """A Replicator with these documents. Without a status no driver runs."""

    name: str
    state: Status | None = None
    numbers: LastHour = field(default_factory=lambda: LastHour(step_seconds=10))
    views: dict[str, TableView] = field(default_factory=dict)
    kept: tuple[CutReport, ...] = ()
    assessed: ConsoleAssessment | None = None
    options: tuple[str, ...] = ("-f", "replicator.yaml")

    @property
    def spec(self) -> ReplicatorSpec:
        return Replicator.model_validate(replicator(self.name)).spec

    def status(self) -> Status:
        if self.state is None:
            raise NotRunning(f"no driver runs in /run/{self.name}", "Start `tailrace run`, or add its --run-dir.")
        return self.state

    def history(self) -> LastHour:
        return self.numbers

    def table(self, name: str) -> TableView:
        return self.views[name]

    def cuts(self) -> tuple[CutReport, ...]:
        return self.kept

    def assessment(self, caller: str) -> ConsoleAssessment:
        assert self.assessed is not None
        return self.assessed

    def described(self) -> Described:
        return described(self.spec)

    def entry(self) -> FleetEntry:
        return entry_of(self)

    def live(self) -> bool:
        return True

    def conditions(self, status: Status) -> tuple[str, ...]:
        return summary.conditions(status)

    def events(self, caller: str) -> tuple[ReportedEvent, ...]:
        return ()

    def refused(self, caller: str) -> tuple[RefusedAction, ...]:
        return actions.IMPOSSIBLE

    def plan(self, body: ActionBody, caller: str, now: float) -> Plan:
        return actions.plan(self, body, now)

    def driver(self) -> DriverClient:
        return DriverClient("http://127.0.0.1:9", Path("/nothing"))

    def running_spec(self) -> ReplicatorSpec:
        return self.spec


@dataclass
class Console:
    port: int
    token: str = TOKEN

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def send(
        self, method: str, path: str, body: object = None, token: str | None = "", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Code, headers and body. `token`: empty, the right one; None, none."""
        token = self.token if token == "" else token
        sent = {"Content-Type": "application/json"} if body is not None else {}
        sent |= {"Authorization": f"Bearer {token}"} if token is not None else {}
        sent |= {name.replace("_", "-"): text for name, text in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        code, _, body = self.send("GET", path)
        assert code == 200, body
        return json.loads(body)

    def refused(self, path: str, body: object = None) -> tuple[int, str, str]:
        """Code, name and message."""
        code, _, answer = self.send("GET" if body is None else "POST", path, body)
        problem = json.loads(answer)
        return code, problem["name"], problem["message"]


@contextmanager
def console(watched: Sequence[Watched], *, allow_actions: bool = False) -> Iterator[Console]:
    with served_to(LocalFleet(watched, TOKEN, allow_actions=allow_actions)) as made:
        yield made


@contextmanager
def served_to(fleet: Fleet, token: str = TOKEN) -> Iterator[Console]:
    app = ConsoleApp(fleet)
    socket = listening("127.0.0.1:0")
    config = uvicorn.Config(application(app), log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: server.run(sockets=[socket]), name="console", daemon=True)
    thread.start()
    end = time.monotonic() + 60
    while not server.started:
        assert time.monotonic() < end and thread.is_alive()
        time.sleep(0.01)
    try:
        yield Console(socket.getsockname()[1], token)
    finally:
        server.should_exit = True
        thread.join(30)
        app.close()
