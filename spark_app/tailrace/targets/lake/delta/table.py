"""A Delta table as a target: opened, read and committed to by its single writer, Tailrace's apply.

Implements `model.FormatTable`. State that matters is in the table (`delta.state`); this object only remembers the
version it last read or wrote and that version's files, which its own commits carry forward without listing.

Between writing files and the commit, dying leaves files that the next sweep removes. After the commit, dying loses
nothing: the applied state is in it.
"""

import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from tailrace.batch.applied import FIRST, AppliedState, Generation
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.errors import (
    RESYNC,
    ForeignChange,
    OutcomeUnknown,
    Retry,
    RewindRefused,
    TailraceError,
    TargetChanged,
    TargetRefused,
    privacy,
)
from tailrace.seams import seam
from tailrace.storage.store import NotFound
from tailrace.targets.api import Admit, VersionAt
from tailrace.targets.lake.columns import Columns
from tailrace.targets.lake.delta import checkpoint
from tailrace.targets.lake.delta import cleanup as delta_cleanup
from tailrace.targets.lake.delta import foreign as delta_foreign
from tailrace.targets.lake.delta import schema as delta_schema
from tailrace.targets.lake.delta import state as delta_state
from tailrace.targets.lake.delta.cleanup import CurrentTable, DeltaCleaner
from tailrace.targets.lake.delta.commit import Action, LiveFile, Plan, adding, new_add, plan, removing, uri_of
from tailrace.targets.lake.delta.direct_log import DirectLog, LogGap
from tailrace.targets.lake.delta.kept_versions import KeptVersions
from tailrace.targets.lake.delta.log import DeltaLog, DeltaSnapshot, makes_tables_otherwise
from tailrace.targets.lake.delta.protocol import NEW, is_direct, settled
from tailrace.targets.lake.delta.replace import replacing, stats_columns
from tailrace.targets.lake.delta.replay import State, replay
from tailrace.targets.lake.delta.state import DOMAIN, StoredDomain
from tailrace.targets.lake.delta.stats import file_stats
from tailrace.targets.lake.files.access import FileAccess, footer_of, read_range
from tailrace.targets.lake.files.vectors import DeltaVector, read_delta
from tailrace.targets.lake.kept import NO_CHUNKS, SKEW_SECONDS, KeptChunks, names_of
from tailrace.targets.lake.model import OTHER_CUT, OTHERS, DataFile, Naming, Replacement, TableCommit, always, belongs

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Snapshot:
    """One version, as far as a commit on top of it needs it."""

    version: int
    protocol: Action
    metadata: Action
    domains: dict[str, str]
    digest: bytes | None = None
    """The digest of the version's file."""
    delta: DeltaSnapshot | None = None
    """Delta's own object where the table is left to Delta."""


@dataclass(frozen=True)
class _Version:
    """The facts about the version last read or written."""

    snapshot: _Snapshot
    stored: StoredDomain
    live: dict[str, LiveFile]


@dataclass(frozen=True)
class _Former:
    """The facts about a former generation, which is kept until another is complete."""

    generation: int
    last_id: int
    """The highest column id ever used."""
    version: int


class DeltaTable:
    """One target table. Not thread-safe: one writer, one thread at a time."""

    naming = Naming(delta_schema.shown, delta_schema.physical)

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        access: FileAccess,
        location: str,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
        admit: Admit = always,
    ) -> None:
        """`spark` is asked where the table is Delta's (`protocol.is_direct`), and to make one."""
        self.location = location.rstrip("/")
        self._spark = spark
        self._access = access
        self._clock = clock
        self._new_id = new_id
        self._admit = admit
        self._cuts = KeptVersions(access, self.location, clock)
        self._cleaner = DeltaCleaner(access, self.location, self._cuts)
        self._log = DirectLog(access, self.location)
        self._delta: DeltaLog | None = None
        """Opened for a table that is left to Delta."""
        self._schema: TableSchema | None = None
        self._log_id = ""
        self._at: _Version | None = None
        self._former: _Former | None = None
        self._files: list[DataFile] | None = None
        self._described: tuple[Action, dict[str, tuple[LiveFile, DataFile]]] = {}, {}
        """The files as last asked for, and the metadata that they were described by: most are in the next version, too,
        and reading their statistics again would make each commit cost more the larger the table is."""
        self._fields: tuple[Action, dict[str, pa.Field]] = {}, {}
        """The table's columns, and the metadata that they are of."""
        self._arrow: tuple[Action, TableSchema, bool, pa.Schema] | None = None
        """The data files' schema that was asked for last, and of what it was made."""

    # ---- FormatTable ----

    @property
    def version(self) -> int:
        return self._version.snapshot.version

    @property
    def newest_version(self) -> int:
        return self._version.snapshot.version

    def ensure(
        self, schema: TableSchema, log_id: str, generation: Generation = FIRST, accepts: bool = False
    ) -> AppliedState:
        self._schema, self._log_id, self._former = schema, log_id, None
        found = self._newest()
        if found is None:
            return self._create(schema, generation.begin(schema, log_id))
        snapshot, state = found
        text = state.domains.get(DOMAIN)
        if text is None:
            raise TargetRefused(f"{self.location} holds a Delta table that Tailrace did not make", OTHERS)
        known = delta_state.peek(text, self.location)
        if known.log_id != log_id:
            raise TargetRefused(f"{self.location} is filled from change log {known.log_id}, not from {log_id}", OTHERS)
        # Before anything else is read: what is wrong with a former generation's rows is over with them.
        if not belongs(generation, known, schema, schema.name):
            if generation.keeps:
                self._at = None
                self._former = _Former(known.generation, delta_schema.last_id(state.metadata), snapshot.version)
                self._cleaner.opened(snapshot.version, state.removed)
                return known
            return self._replaced(snapshot, state, schema, generation.begin(schema, log_id))
        stored = delta_state.decode(text, self._holes, self.location)
        try:
            self._check_foreign(stored.version + 1, snapshot.version)
        except ForeignChange as change:
            if not accepts:
                raise
            log.warning("%s: taken over as it is, to be compared: %s", schema.name, change.message)
            self._load(snapshot, stored, state)
            self.commit(TableCommit(stored.applied))
            # Dying here is safe: the plan that calls for the comparison is recorded, and the next process meets it.
            seam("takeover.after-commit")
            return stored.applied
        return self._load(snapshot, stored, state)

    def refresh(self) -> AppliedState:
        at = self._at
        if at is not None and self._log.is_newest(at.snapshot.version, at.snapshot.digest):
            return at.stored.applied
        found = self._newest()
        if found is None:
            raise TargetChanged(
                self._name,
                f"{self.location} is no longer a Delta table",
                f"Put the table back, or {RESYNC}.",
            )
        snapshot, state = found
        stored = self._stored(state)
        if stored is None or stored.applied.log_id != self._log_id:
            raise TargetChanged(
                self._name,
                f"{self.location} no longer carries the state of change log {self._log_id}",
                f"Put the table back, or delete it and {RESYNC}.",
            )
        self._check_foreign(stored.version + 1, snapshot.version)
        return self._load(snapshot, stored, state)

    def version_at(self, record: RecordNumber) -> VersionAt | None:
        at = self._version
        if at.stored.applied.applied_record <= record:
            self._cuts.present(at.snapshot.version, self._files_of(at))
            return VersionAt(at.snapshot.version, at.stored.applied)
        for version in range(at.snapshot.version - 1, -1, -1):
            try:
                ((_, actions),) = self._log.changes(version, version)
                stored = _stored_by(actions, self.location, self._access)
            except (LogGap, NotFound):
                return None
            if stored is None:
                continue  # another program's compaction
            of_this = at.stored.applied.generation, at.stored.applied.table_id
            if (stored.applied.generation, stored.applied.table_id) != of_this:
                return None
            if stored.applied.applied_record <= record:
                return VersionAt(version, stored.applied)
        return None

    def keep(self, versions: Mapping[str, int]) -> None:
        """Readers find them by the manifest of the cut beside the tables (`lake.cut_files`)."""
        kept = set(versions.values())
        gone = self._cuts.numbers - kept
        self._cuts.keep(kept)
        if gone:
            self._cleaner.let_go()

    def former(self, version: int) -> AppliedState:
        return self._former_version(version)[1].applied

    def restore(self, version: int) -> None:
        """Files that the version has and the present one lacks come back, those that it lacks go; files of both are not
        named."""
        at, (state, former) = self._version, self._former_version(version)
        present, past = (
            {_identity(add): add for add in adds} for adds in ([file.add for file in at.live.values()], state.files)
        )
        actions = removing([add for identity, add in present.items() if identity not in past], self._now_ms)
        removed = [action["remove"] for action in actions]
        actions += adding([add for identity, add in past.items() if identity not in present])
        nonce, of_past = self._new_id().hex, replace(at, stored=former)
        stored, last = self._state_actions(former.applied, of_past, nonce)
        self._at, self._files = None, None
        self._check_there(at.snapshot)
        self._admit()
        self._send(at.snapshot, [*actions, *last], None, stored)
        self._cleaner.committed(removed, None, self._clock())
        self.refresh()
        self._checkpoint_if_due()

    def _former_version(self, version: int) -> tuple[State, StoredDomain]:
        at, read = self._version, self._log.read(version)
        if at.snapshot.delta is not None:
            raise RewindRefused(f"{self._name}: its log has features of Delta that Tailrace does not write", OTHER_CUT)
        state = None if read is None or read.version != version else read.state
        stored = None if state is None else self._stored(state)
        if state is None or stored is None:
            raise RewindRefused(f"{self._name}: version {version} is gone", OTHER_CUT)
        if state.metadata["schemaString"] != at.snapshot.metadata["schemaString"]:
            raise RewindRefused(f"{self._name}: its columns have changed since version {version}", OTHER_CUT)
        files = {path for add in state.files for path in delta_cleanup.files_of(add, self.location)}
        lost = next((path for path in sorted(files) if not self._access.exists(path)), None)
        if lost is not None:
            raise RewindRefused(f"{self._name}: version {version} lacks {lost}", OTHER_CUT)
        return state, stored

    def expire(self, older_than: float, chunks: KeptChunks = NO_CHUNKS) -> bool:
        former = self._former
        if not self._cleaner.due(former.version if former else self._version.snapshot.version, older_than):
            return False
        return self._cleaner.forget(self._present_former() if former else self._present(), older_than, chunks)

    def sweep(self, older_than: float, chunks: KeptChunks = NO_CHUNKS, skew: float = SKEW_SECONDS) -> int:
        return self._cleaner.sweep(self._present(), older_than, chunks, skew)

    def _present(self) -> CurrentTable:
        """The table as it is now, whichever program changed it: nothing is deleted by what we remember, nor by a driver
        that another has taken over from."""
        self.refresh()
        self._admit()
        at, files = self._version, self._files_of(self._version)
        newest = _first_of_log(at.snapshot, at.stored)
        return CurrentTable(at.snapshot.version, newest, at.snapshot.metadata, frozenset(names_of(files)))

    def _files_of(self, at: _Version) -> set[str]:
        files = {path for file in at.live.values() for path in delta_cleanup.files_of(file.add, self.location)}
        return files | ({at.stored.holes_file} if at.stored.holes_file else set())

    def _present_former(self) -> CurrentTable:
        """Reads a table that is kept for its readers, as far as that asks for no row and no list of holes."""
        snapshot, state, text = self._newest_former()
        self._admit()
        stored = delta_state.decode(text, lambda _: b"[]", self.location)
        files = {path for add in state.files for path in delta_cleanup.files_of(add, self.location)}
        if stored.holes_file:
            files.add(stored.holes_file)
        newest = _first_of_log(snapshot, stored)
        return CurrentTable(snapshot.version, newest, state.metadata, frozenset(names_of(files)))

    def files(self) -> Sequence[DataFile]:
        if self._files is None:
            metadata, before = self._described
            if metadata is not self._version.snapshot.metadata:
                metadata, before = self._version.snapshot.metadata, {}
            fields, found = self._fields_of(metadata), {}
            for uri, file in self._version.live.items():
                known = before.get(uri)
                if known is None or not known[0].is_like(file):
                    found[uri] = file, file.data_file(self.location, fields)
                else:  # at most, other rows are dead
                    found[uri] = known if known[0] is file else (file, replace(known[1], dead=file.dead))
            self._described = metadata, found
            self._files = [described for _, described in found.values()]
        return self._files

    def arrow_schema(self, schema: TableSchema, before: TableSchema | None = None) -> pa.Schema:
        metadata, applied = self._version.snapshot.metadata, self._version.stored.applied.schema_version
        # Only a newer version may change columns: what else the table lacks, somebody has dropped or renamed there.
        after = delta_schema.evolved(metadata, schema, before) if schema.version > applied else None
        of, present, known = after or metadata, schema.version >= applied, self._arrow
        if known is None or known[0] is not of or known[1] is not schema or known[2] != present:
            known = self._arrow = of, schema, present, delta_schema.arrow_schema(of, schema, present)
        return known[3]

    def _fields_of(self, metadata: Action) -> dict[str, pa.Field]:
        if self._fields[0] is not metadata:
            self._fields = metadata, delta_schema.all_fields(metadata)
        return self._fields[1]

    def commit(self, change: TableCommit) -> None:
        at = self._version
        former = at.snapshot.metadata
        metadata = delta_schema.evolved(former, change.evolve, change.before) if change.evolve else None
        if metadata is not None:
            delta_schema.check_clustering(self._name, at.snapshot.domains, former, metadata)
        nonce = self._new_id().hex
        out = self._plan(change, at, metadata or former)
        for name, data in out.files:
            self._access.create(f"{self.location}/{name}", data)
        stored, actions = self._state_actions(change.applied, at, nonce)
        seam("delta.before-commit")
        # From here on this object does not know the table's version until the outcome is known.
        self._at, self._files = None, None
        self._check_there(at.snapshot)
        self._admit()
        snapshot = self._send(at.snapshot, [*out.actions, *actions], metadata, stored)
        seam("delta.after-commit")
        if snapshot is None:
            self.refresh()
        else:  # known without reading it
            self._at = _Version(snapshot, stored, out.live)
        removed = (action["remove"] for action in out.actions if "remove" in action)
        changed = at.stored.holes_file != stored.holes_file
        self._cleaner.committed(removed, at.stored.holes_file if changed else None, self._clock())
        self._checkpoint_if_due()

    # ---- Reading ----

    @property
    def _version(self) -> _Version:
        if self._at is None:
            raise Retry(f"{self.location}: the version is not known", "Call refresh first.")
        return self._at

    @property
    def _name(self) -> str:
        return self._schema.name if self._schema else self.location

    def _check_foreign(self, first: int, last: int) -> None:
        """Others' commits after our last one."""
        if first > last:
            return
        try:
            for version, actions in self._log.changes(first, last):
                if not delta_foreign.is_ours(actions) and (fault := delta_foreign.assess(self._name, version, actions)):
                    raise fault
        except LogGap as error:
            raise TargetChanged(
                self._name,
                f"versions {first} to {last} are others', and {error.message}",
                f"Nothing proves that the rows are unchanged: {RESYNC}.",
            ) from error

    def _check_there(self, base: _Snapshot) -> None:
        """A commit continues from memory, even if the table was deleted, restored from an older copy or re-created."""
        if not self._log.has(base.version, base.digest):
            what = f"version {base.version} of {self.location} is missing or another one"
            raise Retry(f"{what}: the table was deleted or restored", "The table is read again.")

    def _newest(self) -> tuple[_Snapshot, State] | None:
        """None: there is no table."""
        read = self._log.read()
        if read is None:
            return None
        state = read.state
        if state is None or not is_direct(state.protocol, state.metadata):
            return self._newest_of_delta()
        self._delta = None
        return _Snapshot(read.version, state.protocol, state.metadata, state.domains, read.digest), state

    def _newest_of_delta(self) -> tuple[_Snapshot, State] | None:
        self._delta = self._delta or DeltaLog(self._spark(), self.location)
        found = self._delta.update()
        if found is None:
            return None
        state = replay(self._access, self.location, found.log_files()) or State(
            protocol=found.protocol(),
            metadata=found.metadata(),
            domains=found.domains(),
            files=list(found.files()),
            removed=list(found.removed()),
        )
        return _Snapshot(found.version, state.protocol, state.metadata, state.domains, delta=found), state

    def _stored(self, state: State) -> StoredDomain | None:
        text = state.domains.get(DOMAIN)
        if text is None:
            return None
        return delta_state.decode(text, self._holes, self.location)

    def _holes(self, path: str) -> bytes:
        try:
            return self._access.get(f"{self.location}/{path}")
        except NotFound as error:
            what = f"{self.location}/{path} is gone, which lists rows that are still unknown"
            fix = f"Restore it, or {RESYNC}."
            raise TargetChanged(self._name, what, fix) from error

    def _load(self, snapshot: _Snapshot, stored: StoredDomain, state: State) -> AppliedState:
        delta_schema.check_properties(self._name, self.location, state.metadata)
        live = {}
        for add in state.files:
            uri = uri_of(add["path"], self.location)
            if not add.get("stats") or "numRecords" not in add["stats"]:
                # A vector needs the file's row count next to it.
                add["stats"] = file_stats(footer_of(self._access, uri), [], tight=True)
            live[uri] = LiveFile(add, self._dead(add))
        self._at, self._files = _Version(snapshot, stored, live), None
        self._cleaner.opened(snapshot.version, state.removed)
        return stored.applied

    def _dead(self, add: Action) -> BitMap64:
        vector: dict[str, Any] | None = add.get("deletionVector")
        if not vector:
            return BitMap64()
        return read_delta(DeltaVector.from_json(vector), self.location, lambda *at: read_range(self._access, *at))

    # ---- Writing ----

    @property
    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _replaced(self, snapshot: _Snapshot, state: State, schema: TableSchema, applied: AppliedState) -> AppliedState:
        """Make the table one of another generation, in one commit: every column goes and every wanted one comes with an
        id and a physical name never used, every row goes, and the state begins. A file that was prepared for the former
        generation cannot be taken for one of the new."""
        log.info("%s: the target held an earlier capture of the table; it begins empty", schema.name)
        columns = Columns(0, {}, {}).extended(schema, delta_schema.last_id(state.metadata), delta_schema.physical)
        self._replace(snapshot, state, Replacement(applied, schema, columns, ()))
        applied = self.refresh()
        self._checkpoint_if_due()
        return applied

    def last_id(self) -> int:
        return self._kept.last_id

    def replace(self, by: Replacement) -> None:
        """Against the newest version, as long as that is still of the generation that was kept."""
        snapshot, state, _ = self._newest_former()
        self._former = None
        self._replace(snapshot, state, by)

    def _newest_former(self) -> tuple[_Snapshot, State, str]:
        """With what the table says of its state."""
        kept, found = self._kept, self._newest()
        text = None if found is None else found[1].domains.get(DOMAIN)
        known = None if text is None else delta_state.peek(text, self.location)
        if found is None or text is None or known is None or known.generation != kept.generation:
            raise Retry(f"{self.location} is another table than the one that was opened", "It is opened again.")
        return *found, text

    @property
    def _kept(self) -> _Former:
        if self._former is None:
            raise Retry(f"{self.location}: the version is not known", "Call ensure first.")
        return self._former

    def _replace(self, snapshot: _Snapshot, state: State, by: Replacement) -> None:
        out, metadata = replacing(self._access, self.location, state, by, file_id=self._new_id(), now_ms=self._now_ms)
        for name, data in out.files:
            self._access.create(f"{self.location}/{name}", data)
        stored = StoredDomain(by.applied, snapshot.version + 1, self._new_id().hex)
        self._at, self._files = None, None
        domain = _domain(delta_state.encode(stored, self._save)[0])
        seam("delta.before-replace")
        # Dying before the commit leaves the former generation untouched: the next opening replaces it.
        self._check_there(snapshot)
        self._admit()
        self._send(snapshot, [*out.actions, domain], metadata, stored)

    def _create(self, schema: TableSchema, applied: AppliedState) -> AppliedState:
        """Version 0 carries the applied state: a table of Tailrace is never without it."""
        stored = StoredDomain(applied, 0, self._new_id().hex)
        metadata = delta_schema.new_metadata(schema, str(self._new_id()), self._now_ms)
        actions = [_domain(delta_state.encode(stored, self._save)[0])]
        self._admit()
        if makes_tables_otherwise(self._spark, os.environ):
            DeltaLog(self._spark(), self.location).commit(None, actions, metadata)
            return self.refresh()
        self._log.forget_pointer()
        snapshot = self._write(_Snapshot(-1, NEW, {}, {}), actions, metadata, applied)
        self._at, self._files = _Version(snapshot, stored, {}), None
        self._cleaner.opened(0)
        return applied

    def _plan(self, change: TableCommit, at: _Version, metadata: Action) -> Plan:
        now = self._now_ms
        columns = stats_columns(self._fields_of(metadata), self._schema)
        place, day = self.location, delta_schema.partition(metadata)
        new = [
            new_add(file, footer_of(self._access, file.path), columns, place, now, partition=day) for file in change.add
        ]
        return plan(change, at.live, new, file_id=self._new_id(), now_ms=now)

    def _state_actions(self, applied: AppliedState, at: _Version, nonce: str) -> tuple[StoredDomain, list[Action]]:
        stored = StoredDomain(applied, at.snapshot.version + 1, nonce, at.stored.holes_file)
        text, holes_file = delta_state.encode(stored, self._save)
        # For people and other tools; we ourselves go by the domain.
        transaction = {
            "appId": f"tailrace-{applied.log_id}",
            "version": applied.applied_record,
            "lastUpdated": self._now_ms,
        }
        return StoredDomain(applied, stored.version, nonce, holes_file), [_domain(text), {"txn": transaction}]

    def _save(self, path: str, data: bytes) -> None:
        self._access.create(f"{self.location}/{path}", data)

    def _send(
        self, base: _Snapshot, actions: Sequence[Action], metadata: Action | None, stored: StoredDomain
    ) -> _Snapshot | None:
        """Commit on top of `base`. Returns the version as it is now; None: it has to be read."""
        if base.delta is None:
            return self._write(base, actions, metadata, stored.applied)
        self._leave_to_delta(base, actions, metadata, stored.nonce)
        return None

    def _write(
        self, base: _Snapshot, actions: Sequence[Action], metadata: Action | None, applied: AppliedState
    ) -> _Snapshot:
        """Commit by creating the version's file."""
        protocol, version = base.protocol, base.version + 1
        first = [self._commit_info(version, applied)]
        if metadata is not None:
            protocol, metadata = settled(base.protocol, metadata)
            first += [{"protocol": protocol}] if version == 0 or protocol != base.protocol else []
            first += [{"metaData": metadata}]
        digest = self._log.commit(version, [*first, *actions])
        return _Snapshot(version, protocol, metadata or base.metadata, base.domains, digest)

    def _commit_info(self, version: int, applied: AppliedState) -> Action:
        """The line for the table's history, and for other writers, who look whether the commit concerns theirs."""
        operation = {"outputMode": "Update", "queryId": f"tailrace-{applied.log_id}"}
        return {
            "commitInfo": {
                "timestamp": self._now_ms,
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

    def _leave_to_delta(self, base: _Snapshot, actions: Sequence[Action], metadata: Action | None, nonce: str) -> None:
        """After an unknown outcome the newest version tells: no other writer changes our state."""
        log = self._delta or DeltaLog(self._spark(), self.location)
        try:
            log.commit(base.delta, actions, metadata)
        except OutcomeUnknown as unknown:
            try:
                found = self._newest_of_delta()
            except Retry as error:
                raise unknown from error
            if found is None or nonce not in found[1].domains.get(DOMAIN, ""):
                raise Retry(f"{self.location}: the commit did not happen: {unknown.message}") from unknown

    def _checkpoint_if_due(self) -> None:
        """The commit before it stands without it, so nothing here fails."""
        at = self._version.snapshot
        if at.delta is not None or not checkpoint.due(at.version, at.metadata):
            return
        try:
            self.write_checkpoint()
        except (TailraceError, OSError, pa.ArrowException) as error:
            what = privacy.error_text(error)
            log.warning("%s: checkpoint of version %d failed: %s", self._name, at.version, what)

    def write_checkpoint(self) -> None:
        """Writes a checkpoint of the version last read or written, without Spark."""
        version = self._version.snapshot.version
        read = self._log.read(version)
        if read is None or read.version != version or read.state is None:
            raise Retry(f"{self.location}: the log up to version {version} cannot be read")
        pointer = checkpoint.write(self._access, self.location, version, read.state, self._clock())
        if pointer is not None:
            self._log.point_to(pointer)


def _identity(add: Action) -> tuple[str, str]:
    """A file under one vector."""
    return add["path"], json.dumps(add.get("deletionVector") or None, sort_keys=True)


def _stored_by(actions: Sequence[Action], location: str, access: FileAccess) -> StoredDomain | None:
    """The state in a commit of Tailrace; None: it is another program's."""
    if not delta_foreign.is_ours(actions):
        return None
    (text,) = (
        a["domainMetadata"]["configuration"] for a in actions if a.get("domainMetadata", {}).get("domain") == DOMAIN
    )
    return delta_state.decode(text, lambda path: access.get(f"{location}/{path}"), location)


def _first_of_log(snapshot: _Snapshot, stored: StoredDomain) -> int:
    """The last version whose checkpoint may become the first file of the log. Our own last commit stays: what came
    after it is judged again at the next start. Delta reads on from the checkpoint that it has in memory."""
    return stored.version if snapshot.delta is None else min(stored.version, snapshot.delta.checkpoint())


def _domain(configuration: str) -> Action:
    return {"domainMetadata": {"domain": DOMAIN, "configuration": configuration, "removed": False}}
