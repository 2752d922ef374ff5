"""A request to restart the stream, in the same change log: found by `startup`, for after `PositionLost` no process can
run that could be asked.

`tailrace resync --all` leaves it in the storage as a note; the operator hands a SnapshotRequest to the driver that it
starts. `startup` has the source begin again and records `SourceRenewed` with the request's id; the first look at the
catalog then adds every table as a new generation, and plans the one snapshot that reads them. A request whose id the
journal has is done: a note is removed last, and what the operator hands over may stay for as long as it likes.
"""

from pathlib import Path

from pydantic import ValidationError

from tailrace.changelog.paths import RENEWAL
from tailrace.changelog.records.terms import Closed
from tailrace.changelog.state import LogState
from tailrace.contract.manifest import load
from tailrace.contract.resources import SnapshotRequest
from tailrace.contract.snapshot_request import EVERY_TABLE
from tailrace.errors import CorruptLog, InvalidManifest
from tailrace.snapshot.planner import request_id
from tailrace.storage.store import NotFound, Storage


class Renewal(Closed):
    id: str
    request: str
    """Its name."""
    chunk_rows: int | None = None
    parallelism: int | None = None

    @classmethod
    def of(cls, request: SnapshotRequest) -> "Renewal":
        spec = request.spec
        if not spec.starts_all_over:
            raise InvalidManifest(
                f"SnapshotRequest {request.metadata.name!r} cannot start the stream over",
                f"Set resync: true and tables: ['{EVERY_TABLE}'].",
            )
        name, rows = request.metadata.name, spec.chunk_rows
        return cls(id=request_id(request), request=name, chunk_rows=rows, parallelism=spec.parallelism)

    @classmethod
    def handed_over(cls, path: Path | None) -> "Renewal | None":
        """The request in the file; None: there is no file, so there is no request."""
        if path is None or not path.exists():
            return None
        requests = load(path).requests
        if len(requests) != 1:
            raise InvalidManifest(f"{path} holds {len(requests)} SnapshotRequests", "Write exactly one into it.")
        return cls.of(requests[0])

    @staticmethod
    def due(noted: "Renewal | None", handed_over: "Renewal | None", state: LogState) -> "Renewal | None":
        """The one that the next start carries out; None: there is no request, or it is done."""
        return next((r for r in (noted, handed_over) if r is not None and not state.has_done(r.id)), None)

    def write(self, storage: Storage) -> None:
        storage.put(RENEWAL, self.model_dump_json().encode())

    @classmethod
    def read(cls, storage: Storage) -> "Renewal | None":
        """None: there is no request."""
        try:
            return cls.model_validate_json(storage.get(RENEWAL))
        except NotFound:
            return None
        except ValidationError as error:
            raise CorruptLog(f"{storage.uri(RENEWAL)} is not readable", "Remove it, and ask again.") from error

    @staticmethod
    def forget(storage: Storage) -> None:
        storage.delete(RENEWAL)
