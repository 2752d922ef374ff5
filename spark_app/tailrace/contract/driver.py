"""The driver's HTTP interface: paths, the token's header, bodies and answers. Server: `tailrace.driver.server`.

    GET    /status                     Status, no token
    GET    /metrics                    Prometheus text, no token
    GET    /healthz                    200 while the driver's loops turn, else 503 with the reason
    PUT    /snapshots/{id}             SnapshotBody; 200 once the journal holds the plan; idempotent by id; 409 when
                                       the id holds another body; 422 when no table matches
    DELETE /snapshots/{id}             stop it; 200, also when it has already ended; 404 unknown
    PUT    /snapshots/{id}/suspend     SuspendBody; 200; 404 unknown
    POST   /drop                       DropBody; the driver ends its work and drops what it made in the source, on
                                       request its data. 200 with a DropAnswer at once; ask again until `done`. The
                                       driver then waits to be ended

All but GET need `Authorization: Bearer <token>`; 401 without. Errors are `Problem` documents.
"""

from typing import Literal

from pydantic import ValidationError

from tailrace.contract.base import Model
from tailrace.contract.resources import SnapshotRequestSpec

STATUS = "/status"
METRICS = "/metrics"
HEALTH = "/healthz"
SNAPSHOTS = "/snapshots"
DROP = "/drop"
MAX_MESSAGE = 4000
"""Bytes: Kubernetes cuts a termination message at 4096."""
MAX_LINES = 40


class SnapshotBody(Model):
    name: str
    """The SnapshotRequest's name."""
    spec: SnapshotRequestSpec


class SuspendBody(Model):
    suspend: bool


class SnapshotAnswer(Model):
    id: str
    record: int
    """The journal's record that holds the plan."""
    tables: tuple[str, ...]


class DropBody(Model):
    data: bool = False
    """Tables and change log too."""


class DropReport(Model):
    """What `tailrace drop` did. A pod's termination message has it, too: a pod's end outlives its answers."""

    kind: Literal["drop-report"]
    owner: str
    """The Replicator that was dropped (`tailrace.contract.ownership`)."""
    complete: bool
    """False: it was still at work."""
    dropped: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """What stays, and why."""
    more: int = 0
    """Lines that were left out because there are too many."""

    def to_message(self) -> str:
        """As JSON, short enough for a termination message; what does not fit is counted."""
        kept, dropped = self.kept[:MAX_LINES], self.dropped[:MAX_LINES]
        while True:
            more = len(self.kept) + len(self.dropped) - len(kept) - len(dropped)
            text = self.model_copy(update={"kept": kept, "dropped": dropped, "more": more}).model_dump_json()
            if len(text.encode()) <= MAX_MESSAGE or not (kept or dropped):
                return text
            kept, dropped = (kept, dropped[:-1]) if dropped else (kept[:-1], ())

    @staticmethod
    def of_message(text: str) -> "DropReport | None":
        """None: the message is about something else."""
        try:
            return DropReport.model_validate_json(text)
        except ValidationError:
            return None


class DropAnswer(Model):
    done: bool
    report: DropReport | None = None
    message: str = ""
    """What it is at, or why it has not succeeded yet."""


class Problem(Model):
    name: str
    message: str
    fix: str = ""
