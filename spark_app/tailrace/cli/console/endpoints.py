"""The paths of the console's API, each with its documents: the server and the OpenAPI document are made from them."""

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from tailrace.contract.console import (
    ActionAnswer,
    ActionBody,
    ConsoleAssessment,
    ConsoleFleet,
    ConsoleReplicator,
    EventList,
    SetupBody,
    SetupReport,
    TablePage,
)
from tailrace.contract.driver import CutList
from tailrace.contract.history import LastHour, TableView

API = "/api/v1"
OPENAPI = "/api/openapi.json"
MOST_TABLES = 500
"""Tables in one answer."""


@dataclass(frozen=True)
class QueryField:
    name: str
    kind: Literal["string", "integer"]
    text: str
    most: int | None = None


@dataclass(frozen=True)
class Endpoint:
    """One path and method. `act` is the name of the method of `ConsoleApp` that answers."""

    act: str
    path: str
    text: str
    answer: type[BaseModel]
    method: Literal["GET", "POST"] = "GET"
    body: type[BaseModel] | None = None
    queries: tuple[QueryField, ...] = ()
    command: bool = False
    """The answer may take as long as a command does."""


ONE = f"{API}/replicators/{{replicator}}"
ENDPOINTS = (
    Endpoint("fleet", f"{API}/fleet", "All Replicators, those with problems first.", ConsoleFleet),
    Endpoint("replicator", ONE, "One Replicator: its status without the tables.", ConsoleReplicator),
    Endpoint("history", f"{ONE}/history", "The numbers of the last hour.", LastHour),
    Endpoint(
        "tables",
        f"{ONE}/tables",
        "Its tables, those with problems first.",
        TablePage,
        queries=(
            QueryField("search", "string", "Only tables whose name has this text, upper and lower case alike."),
            QueryField("state", "string", "Only tables in one of these states, separated by commas."),
            QueryField("offset", "integer", "The first table of the answer, from 0."),
            QueryField("limit", "integer", f"The number of tables, at most {MOST_TABLES} (default: 100).", MOST_TABLES),
        ),
    ),
    Endpoint("table", f"{ONE}/tables/{{table}}", "One table: its columns and the chunks of its snapshots.", TableView),
    Endpoint("cuts", f"{ONE}/cuts", "The cuts that are kept, the oldest first.", CutList),
    Endpoint("events", f"{ONE}/events", "The events of Kubernetes about it, the newest first.", EventList),
    Endpoint(
        "assessment",
        f"{ONE}/assessment",
        "The report of `tailrace doctor` on the manifest as its file is now.",
        ConsoleAssessment,
        command=True,
    ),
    Endpoint(
        "trial",
        f"{API}/setup",
        "The report of `tailrace doctor` on a source that no manifest names yet, and a manifest for it. Nothing is"
        " stored.",
        SetupReport,
        "POST",
        SetupBody,
        command=True,
    ),
    Endpoint(
        "act",
        f"{ONE}/actions",
        "Carries out an action, or answers with the command and the manifest that do the same. 403: the console was"
        " started without --allow-actions, or the token's user has no right to it; a preview is answered all the"
        " same.",
        ActionAnswer,
        "POST",
        ActionBody,
    ),
)
