"""The driver's HTTP interface: paths, the token's header, bodies and answers. Server: `tailrace.run.server`.

    GET    /status                     Status, no token
    GET    /metrics                    Prometheus text, no token
    GET    /healthz                    200 while the driver's loops turn, else 503 with the reason
    PUT    /snapshots/{id}             SnapshotBody; 200 once the journal holds the plan; idempotent by id; 409 when
                                       the id holds another body; 422 when no table matches
    DELETE /snapshots/{id}             stop it; 200, also when it has already ended; 404 unknown
    PUT    /snapshots/{id}/suspend     SuspendBody; 200; 404 unknown

The last three need `Authorization: Bearer <token>`; 401 without. Errors are `Problem` documents.
"""

from tailrace.contract.base import Model
from tailrace.contract.resources import SnapshotRequestSpec

STATUS = "/status"
METRICS = "/metrics"
HEALTH = "/healthz"
SNAPSHOTS = "/snapshots"


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


class Problem(Model):
    name: str
    message: str
    fix: str = ""
