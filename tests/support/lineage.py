"""A receiver of lineage events, and the schemas that OpenLineage publishes for them."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource
from typing_extensions import override

Json = dict[str, Any]
SCHEMAS = Path(__file__).parents[1] / "fixtures" / "openlineage"
RUN_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"


class Receiver:
    """An HTTP server that takes events as a catalog of data does."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self.statuses: list[int] = []
        """The answers to the next requests; 201 to all others."""
        self.released = threading.Event()
        """Not set: every answer waits."""
        self.released.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.released.wait(60)
                status = receiver.statuses.pop(0) if receiver.statuses else 201
                if status == 201:
                    receiver.events.append(json.loads(body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            @override
            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def of(self, job: str) -> list[Json]:
        return [event for event in self.events if event["job"]["name"] == job]

    def kinds(self, job: str) -> list[str]:
        """Its events, without those RUNNING that follow another."""
        kinds: list[str] = []
        for event in self.of(job):
            if event["eventType"] != "RUNNING" or kinds[-1:] != ["RUNNING"]:
                kinds.append(event["eventType"])
        return kinds


@contextmanager
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    try:
        yield made
    finally:
        made.close()


def configuration(folder: Path, url: str, **transport: object) -> Path:
    """The client's configuration file, for events by HTTP."""
    path = folder / "openlineage.yml"
    path.write_text(json.dumps({"transport": {"type": "http", "url": url, **transport}}))  # JSON is YAML
    return path


@cache
def _registry() -> Registry[Any]:
    documents = [json.loads(path.read_text()) for path in SCHEMAS.rglob("*.json")]
    return Registry().with_resources([(each["$id"], Resource.from_contents(each)) for each in documents])


def _check(document: Json, schema: str) -> None:
    """The schema is one of the fixtures, or this fails."""
    validator = Draft202012Validator({"$ref": schema}, registry=_registry(), format_checker=FormatChecker())
    validator.validate(document)


def check(event: Json) -> None:
    """The event and each of its facets, each by the schema that it names itself."""
    assert event["schemaURL"] == RUN_EVENT
    _check(event, RUN_EVENT)
    datasets = [*event.get("inputs", ()), *event.get("outputs", ())]
    holders = [event["run"], event["job"], *datasets]
    for facets in [*(one.get("facets", {}) for one in holders), *(one.get("outputFacets", {}) for one in datasets)]:
        for facet in facets.values():
            _check(facet, facet["_schemaURL"])


def check_all(events: Sequence[Json]) -> None:
    """Each by itself; and of each run one START at first, and one end at most, at last."""
    runs: dict[str, list[str]] = {}
    for event in events:
        check(event)
        runs.setdefault(event["run"]["runId"], []).append(event["eventType"])
    for kinds in runs.values():
        assert kinds.count("START") == 1 and kinds[0] == "START", kinds
        ends = [kind for kind in kinds if kind in ("COMPLETE", "FAIL", "ABORT")]
        assert ends in ([], kinds[-1:]), kinds
