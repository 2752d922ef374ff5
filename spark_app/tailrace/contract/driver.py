"""The driver's HTTP interface: paths, the token's header, bodies and answers. Server: `tailrace.driver.asking.server`.

    GET    /status                     Status, no token
    GET    /history                    LastHour: the numbers of the last hour, no token
    GET    /tables/{name}              TableView, no token; 404: no table is captured under this name
    GET    /snapshots/{id}/report      VerificationReport; 404 unknown, or no verification
    GET    /metrics                    Prometheus text, no token
    GET    /healthz                    200 while the driver's loops run, else 503 with the reason
    PUT    /snapshots/{id}             SnapshotBody; 200 once the journal holds the plan; idempotent by id; 409 when
                                       the id holds another body, or the request was stopped meanwhile; 422 when no
                                       table matches; 503: ask again, the source has not yet answered what its keys are
    DELETE /snapshots/{id}             stop it; 200, also when it has already ended or its keys are still being looked
                                       up, and it is then not planned; 404 unknown
    PUT    /snapshots/{id}/suspend     SuspendBody; 200; 404 unknown
    GET    /cuts                       CutList, no token
    PUT    /cuts/{name}                CutBody; 200 with its CutReport once the journal holds it; 409 when there is one
                                       of the name; 422 when a cut cannot have it
    DELETE /cuts/{name}                its versions are no longer kept; 200; 404 unknown
    PUT    /spec                       SpecBody; 200 with a SpecAnswer once the driver works by it; idempotent; 422
                                       names fields that change only with a restart; 503: ask again, it is still
                                       starting, or chunks are being read
    POST   /drop                       DropBody; the driver ends its work and drops what it made in the source, on
                                       request its data, or releases the change log and drops nothing. 200 with a
                                       DropAnswer at once; ask again until `done`. The driver then waits to be ended

Paths with `no token` need none, nor does /healthz; all others need `Authorization: Bearer <token>`; 401 without. Errors
are `Problem` documents.
"""

import json
from typing import Literal

from pydantic import ValidationError

from tailrace.contract.base import Model
from tailrace.contract.defaults import for_reading
from tailrace.contract.resources import DeletionPolicy, ReplicatorSpec, SnapshotRequestSpec
from tailrace.contract.status import ComparedRows, Fault, Many, SnapshotState

STATUS = "/status"
HISTORY = "/history"
TABLES = "/tables"
METRICS = "/metrics"
HEALTH = "/healthz"
SNAPSHOTS = "/snapshots"
CUTS = "/cuts"
SPEC = "/spec"
DROP = "/drop"
MAX_MESSAGE = 4000
"""Bytes: Kubernetes cuts a termination message at 4096."""
MAX_LINES = 40
MAX_TEXT = 1500
"""Characters, once written as JSON, of a fault's message and of its fix in `LastWords`."""


class SnapshotBody(Model):
    name: str
    """The SnapshotRequest's name."""
    spec: SnapshotRequestSpec

    def to_json(self) -> str:
        """A driver of an older version does not know all fields."""
        return json.dumps(for_reading(self))


class SuspendBody(Model):
    suspend: bool


class SnapshotAnswer(Model):
    id: str
    record: int
    """The journal's record that holds the plan."""
    tables: Many[str]


class DifferingRow(Model):
    kind: Literal["missing", "extra", "different"]
    """`missing`: the target lacks it; `extra`: the source does not have it, or the target has it more than once."""
    key: str
    """The row's key, or a short hash of it (`spec.showValues`)."""
    columns: Many[str] = ()
    """The columns that differ."""


class TableReport(Model):
    name: str
    finished: bool
    compared: ComparedRows
    differences: Many[DifferingRow] = ()
    """The first ones, at most a thousand."""
    fault: Fault | None = None


class VerificationReport(Model):
    id: str
    state: SnapshotState
    sample: float | None = None
    """The share of each table that was compared; None: all of it, or the keys that were asked for."""
    tables: Many[TableReport]
    repairs: int = 0
    """Snapshots that read again what differed."""
    repairs_left: int = 0
    """The number of them that have not ended."""

    @property
    def over(self) -> bool:
        return self.state in ("Completed", "Failed", "Stopped") and not self.repairs_left


class NextNumber(Model):
    """The number that a sequence of the target gives next, or a table's AUTO_INCREMENT."""

    name: str
    next: int


class CutoverReport(Model):
    """The outcome of `tailrace cutover`, which the target keeps."""

    at: float
    position: str
    """The source's position up to which the target holds everything."""
    record: int
    source: str
    target: str
    tables: Many[str]
    counters: Many[NextNumber] = ()


class CutBody(Model):
    """A cut to make, by the name in the path."""


class CutTable(Model):
    name: str
    version: str | None = None
    """The version of the table that holds the cut: Delta's version, Iceberg's snapshot id. None: the table is not in
    it, or the target keeps no versions."""
    why: str | None = None
    """The reason why the table is not in the cut; None: it is."""
    waits: bool = False
    """It is on its way there."""


class CutReport(Model):
    name: str
    record: int
    """The record of the change log up to which the tables hold everything."""
    position: str
    """Its position in the source's log."""
    commit_time: float | None
    """The newest commit in it, in seconds since 1970; None: there was none yet."""
    made: float
    """The time at which it was made, in seconds since 1970."""
    scheduled: bool
    """True if `spec.cuts` called for it."""
    complete: bool
    """Every table that was captured then is in it. Tables that were added later do not count."""
    waits: bool
    """Some table is on its way there."""
    tables: Many[CutTable]


class CutList(Model):
    cuts: Many[CutReport]
    """The cuts that are kept, the oldest first."""


class SpecBody(Model):
    """The spec to work by from now on."""

    generation: int | None = None
    """The generation of the Replicator; None outside Kubernetes."""
    spec: ReplicatorSpec

    def to_json(self) -> str:
        """A driver of an older version does not know all fields."""
        return json.dumps(for_reading(self))


class SpecAnswer(Model):
    changed: Many[str]
    """Fields of the spec that differ from what the driver worked by, as users write them."""


class DropBody(Model):
    data: bool = False
    """Tables and change log too."""
    orphan: bool = False
    """Nothing at all: only release the change log, for the next Replicator that starts with it. A driver that does not
    know this field refuses the order."""

    @staticmethod
    def of(policy: DeletionPolicy) -> "DropBody":
        return DropBody(data=policy == "Delete", orphan=policy == "Orphan")

    @property
    def policy(self) -> DeletionPolicy:
        if self.orphan:
            return "Orphan"
        return "Delete" if self.data else "Retain"

    def to_json(self) -> str:
        """Without defaults: a driver of an older version does not know all fields."""
        return self.model_dump_json(by_alias=True, exclude_defaults=True)


class DropReport(Model):
    """The result of `tailrace drop` or `release`. It is also part of a pod's `LastWords`, which outlive the pod's
    answers."""

    owner: str
    """The Replicator that was deleted (`tailrace.contract.ownership`)."""
    complete: bool
    """False: it was still at work."""
    dropped: Many[str] = ()
    kept: Many[str] = ()
    """Objects that stay, each with the reason."""
    released: bool = False
    """The change log is released to the next Replicator that starts with it, and so is what it has in the source."""
    more: int = 0
    """Lines that were left out because there are too many."""

    def at_most(self, lines: int) -> "DropReport":
        """The first lines of each kind, at most so many; the others are counted."""
        kept, dropped = self.kept[:lines], self.dropped[:lines]
        more = self.more + len(self.kept) + len(self.dropped) - len(kept) - len(dropped)
        return self.model_copy(update={"kept": kept, "dropped": dropped, "more": more})


class RetainedLog(Model):
    """The amount of log that a source keeps for a Replicator, as `tailrace retained` found it."""

    bytes: int | None
    """None: it keeps none."""
    at: float
    """The time of the question, in seconds since 1970."""


class LastWords(Model):
    """A container's termination message: what ended it, and what it dropped or found before."""

    kind: Literal["last-words"] = "last-words"
    fault: Fault | None = None
    """None: no error ended it."""
    drop: DropReport | None = None
    retained: RetainedLog | None = None

    def to_message(self) -> str:
        """Returns it as JSON, short enough for a termination message: the beginning of a fault's texts, the first lines
        of a report; the others are counted."""
        short = self
        if self.fault is not None:
            texts = {"message": _cut(self.fault.message), "fix": _cut(self.fault.fix)}
            short = self.model_copy(update={"fault": self.fault.model_copy(update=texts)})
        for lines in range(MAX_LINES, -1, -1):
            drop = self.drop.at_most(lines) if self.drop is not None else None
            text = short.model_copy(update={"drop": drop}).model_dump_json()
            if len(text.encode()) <= MAX_MESSAGE:
                break
        return text

    @staticmethod
    def of_message(text: str) -> "LastWords | None":
        """None: the message is about something else (a log's end, an older image)."""
        try:
            return LastWords.model_validate_json(text)
        except ValidationError:
            return None


def _cut(text: str) -> str:
    """Shortens a text by its length in JSON: a character may become six."""
    while len(json.dumps(text)) > MAX_TEXT:
        text = text[: len(text) * 9 // 10] + "…"
    return text


class DropAnswer(Model):
    done: bool
    report: DropReport | None = None
    message: str = ""
    """The current step, or the reason why it has not succeeded yet."""


class Problem(Model):
    name: str
    message: str
    fix: str = ""
