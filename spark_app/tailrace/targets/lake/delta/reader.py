"""Reads versions of one Delta table, and says what others have done to it. For `DeltaTable`."""

from collections.abc import Callable
from typing import Any

from pyroaring import BitMap64
from pyspark.sql import SparkSession

from tailrace.errors import RESYNC, Retry, TargetChanged
from tailrace.storage.store import NotFound
from tailrace.targets.lake.delta import foreign as delta_foreign
from tailrace.targets.lake.delta import state as delta_state
from tailrace.targets.lake.delta.commit import Action, LiveFile, uri_of
from tailrace.targets.lake.delta.direct_log import DirectLog, LogGap
from tailrace.targets.lake.delta.known import LogVersion, domain_of
from tailrace.targets.lake.delta.log import DeltaLog
from tailrace.targets.lake.delta.protocol import is_direct
from tailrace.targets.lake.delta.replay import State, replay
from tailrace.targets.lake.delta.state import DOMAIN, StoredDomain
from tailrace.targets.lake.delta.stats import file_stats
from tailrace.targets.lake.files.access import FileAccess, footer_of, read_range
from tailrace.targets.lake.files.vectors import DeltaVector, read_delta


class DeltaReader:
    """Remembers no version: only Delta's own object, of a table that is left to Delta."""

    def __init__(self, spark: Callable[[], SparkSession], access: FileAccess, location: str) -> None:
        self._spark, self._access, self._location = spark, access, location
        self.log = DirectLog(access, location)
        self._delta: DeltaLog | None = None
        """Opened for a table that is left to Delta."""

    @property
    def delta(self) -> DeltaLog:
        """Delta's log of the table; starts the session."""
        return self._delta or DeltaLog(self._spark(), self._location)

    def newest(self) -> tuple[LogVersion, State] | None:
        """None: there is no table."""
        read = self.log.read()
        if read is None:
            return None
        state = read.state
        if state is None or not is_direct(state.protocol, state.metadata):
            return self.newest_of_delta()
        self._delta = None
        return LogVersion(read.version, state.protocol, state.metadata, state.domains, read.digest), state

    def newest_of_delta(self) -> tuple[LogVersion, State] | None:
        self._delta = self.delta
        found = self._delta.update()
        if found is None:
            return None
        state = replay(self._access, self._location, found.log_files()) or State(
            protocol=found.protocol(),
            metadata=found.metadata(),
            domains=found.domains(),
            files=list(found.files()),
            removed=list(found.removed()),
        )
        return LogVersion(found.version, state.protocol, state.metadata, state.domains, delta=found), state

    def check_foreign(self, name: str, first: int, last: int) -> None:
        """Raises what others' commits after our last one call for."""
        if first > last:
            return
        try:
            for version, actions in self.log.changes(first, last):
                if not delta_foreign.is_ours(actions) and (fault := delta_foreign.assess(name, version, actions)):
                    raise fault
        except LogGap as error:
            raise TargetChanged(
                name,
                f"versions {first} to {last} are others', and {error.message}",
                f"Nothing proves that the rows are unchanged: {RESYNC}.",
            ) from error

    def check_there(self, base: LogVersion) -> None:
        """A commit continues from memory, even if the table was deleted, restored from an older copy or re-created."""
        if not self.log.has(base.version, base.digest):
            what = f"version {base.version} of {self._location} is missing or another one"
            raise Retry(f"{what}: the table was deleted or restored", "The table is read again.")

    def stored(self, name: str, state: State) -> StoredDomain | None:
        text = state.domains.get(DOMAIN)
        return None if text is None else self.decoded(name, text)

    def decoded(self, name: str, text: str) -> StoredDomain:
        """The applied state with its list of holes."""

        def holes(path: str) -> bytes:
            try:
                return self._access.get(f"{self._location}/{path}")
            except NotFound as error:
                what = f"{self._location}/{path} is gone, which lists rows that are still unknown"
                fix = f"Restore it, or {RESYNC}."
                raise TargetChanged(name, what, fix) from error

        return delta_state.decode(text, holes, self._location)

    def stored_by(self, version: int) -> StoredDomain | None:
        """The state in a commit of Tailrace; None: it is another program's. Raises `LogGap` or `NotFound` if it is
        gone."""
        ((_, actions),) = self.log.changes(version, version)
        if not delta_foreign.is_ours(actions):
            return None
        return delta_state.decode(
            domain_of(actions), lambda path: self._access.get(f"{self._location}/{path}"), self._location
        )

    def live_files(self, state: State) -> dict[str, LiveFile]:
        live = {}
        for add in state.files:
            uri = uri_of(add["path"], self._location)
            if not add.get("stats") or "numRecords" not in add["stats"]:
                # A vector needs the file's row count next to it.
                add["stats"] = file_stats(footer_of(self._access, uri), [], tight=True)
            live[uri] = LiveFile(add, self._dead(add))
        return live

    def _dead(self, add: Action) -> BitMap64:
        vector: dict[str, Any] | None = add.get("deletionVector")
        if not vector:
            return BitMap64()
        return read_delta(DeltaVector.from_json(vector), self._location, lambda *at: read_range(self._access, *at))
