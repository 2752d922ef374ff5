"""Writes versions of one Delta table: the state in each, the commit, checkpoints. For `DeltaTable`."""

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from tailrace.batch.applied import AppliedState
from tailrace.errors import OutcomeUnknown, Retry, TailraceError, privacy
from tailrace.targets.lake.delta import checkpoint
from tailrace.targets.lake.delta import state as delta_state
from tailrace.targets.lake.delta.commit import Action
from tailrace.targets.lake.delta.known import KnownVersion, LogVersion, domain
from tailrace.targets.lake.delta.protocol import settled
from tailrace.targets.lake.delta.reader import DeltaReader
from tailrace.targets.lake.delta.state import DOMAIN, StoredDomain
from tailrace.targets.lake.files.access import FileAccess

log = logging.getLogger(__name__)


class DeltaWriter:
    def __init__(
        self,
        reader: DeltaReader,
        access: FileAccess,
        location: str,
        clock: Callable[[], float],
        new_id: Callable[[], uuid.UUID],
    ) -> None:
        self._reader, self._access, self._location = reader, access, location
        self._clock, self._new_id = clock, new_id

    @property
    def now_ms(self) -> int:
        return int(self._clock() * 1000)

    def create_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Write the files that a version will name."""
        for name, data in files:
            self.save(name, data)

    def save(self, path: str, data: bytes) -> None:
        self._access.create(f"{self._location}/{path}", data)

    def domain(self, stored: StoredDomain) -> Action:
        """The action that carries the state; many holes are written beside it."""
        return domain(delta_state.encode(stored, self.save)[0])

    def state_actions(self, applied: AppliedState, at: KnownVersion, nonce: str) -> tuple[StoredDomain, list[Action]]:
        """The actions by which the version after `at` tells its state."""
        stored = StoredDomain(applied, at.snapshot.version + 1, nonce, at.stored.holes_file)
        text, holes_file = delta_state.encode(stored, self.save)
        # For people and other tools; we ourselves go by the domain.
        transaction = {
            "appId": f"tailrace-{applied.log_id}",
            "version": applied.applied_record,
            "lastUpdated": self.now_ms,
        }
        return replace(stored, holes_file=holes_file), [domain(text), {"txn": transaction}]

    def send(
        self, base: LogVersion, actions: Sequence[Action], metadata: Action | None, stored: StoredDomain
    ) -> LogVersion | None:
        """Commit on top of `base`. Returns the version as it is now; None: it has to be read."""
        if base.delta is None:
            return self.write(base, actions, metadata, stored.applied)
        self._leave_to_delta(base, actions, metadata, stored.nonce)
        return None

    def write(
        self, base: LogVersion, actions: Sequence[Action], metadata: Action | None, applied: AppliedState
    ) -> LogVersion:
        """Commit by creating the version's file."""
        protocol, version = base.protocol, base.version + 1
        first = [self._commit_info(version, applied)]
        if metadata is not None:
            protocol, metadata = settled(base.protocol, metadata)
            first += [{"protocol": protocol}] if version == 0 or protocol != base.protocol else []
            first += [{"metaData": metadata}]
        digest = self._reader.log.commit(version, [*first, *actions])
        return LogVersion(version, protocol, metadata or base.metadata, base.domains, digest)

    def _commit_info(self, version: int, applied: AppliedState) -> Action:
        """The line for the table's history, and for other writers, who look whether the commit concerns theirs."""
        operation = {"outputMode": "Update", "queryId": f"tailrace-{applied.log_id}"}
        return {
            "commitInfo": {
                "timestamp": self.now_ms,
                "operation": "STREAMING UPDATE",
                "operationParameters": {**operation, "epochId": str(applied.applied_record)},
                **({"readVersion": version - 1} if version else {}),
                "isolationLevel": "Serializable",
                "isBlindAppend": False,
                "operationMetrics": {},
                "engineInfo": "Tailrace",
                "txnId": str(self._new_id()),
            }
        }

    def _leave_to_delta(self, base: LogVersion, actions: Sequence[Action], metadata: Action | None, nonce: str) -> None:
        """After an unknown outcome the newest version tells: no other writer changes our state."""
        try:
            self._reader.delta.commit(base.delta, actions, metadata)
        except OutcomeUnknown as unknown:
            try:
                found = self._reader.newest_of_delta()
            except Retry as error:
                raise unknown from error
            if found is None or nonce not in found[1].domains.get(DOMAIN, ""):
                raise Retry(f"{self._location}: the commit did not happen: {unknown.message}") from unknown

    def checkpoint_if_due(self, name: str, at: LogVersion) -> None:
        """The commit before it stands without it, so nothing here fails."""
        if at.delta is not None or not checkpoint.due(at.version, at.metadata):
            return
        try:
            self.write_checkpoint(at.version)
        except (TailraceError, OSError, pa.ArrowException) as error:
            what = privacy.error_text(error)
            log.warning("%s: checkpoint of version %d failed: %s", name, at.version, what)

    def write_checkpoint(self, version: int) -> None:
        read = self._reader.log.read(version)
        if read is None or read.version != version or read.state is None:
            raise Retry(f"{self._location}: the log up to version {version} cannot be read")
        pointer = checkpoint.write(self._access, self._location, version, read.state, self._clock())
        if pointer is not None:
            self._reader.log.point_to(pointer)
