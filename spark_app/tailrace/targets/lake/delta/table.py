"""A Delta table as a target: opened, read and committed to by its single writer, Tailrace's apply.

Implements `model.FormatTable`. State that matters is in the table (`delta_state`); this object only remembers the
version it last read or wrote and that version's files, which its own commits carry forward without listing.

Between writing files and the commit, dying leaves files that the next sweep removes. After the commit, dying loses
nothing: the applied state is in it.
"""

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from tailrace import privacy
from tailrace.batch.applied import FIRST, AppliedState, Generation
from tailrace.changelog.records import TableSchema
from tailrace.errors import RESYNC, OutcomeUnknown, Retry, TailraceError, TargetChanged, TargetRefused
from tailrace.seams import seam
from tailrace.storage.store import NotFound
from tailrace.targets.api import Admit
from tailrace.targets.lake.columns import Columns
from tailrace.targets.lake.delta import checkpoint
from tailrace.targets.lake.delta import cleanup as delta_cleanup
from tailrace.targets.lake.delta import foreign as delta_foreign
from tailrace.targets.lake.delta import schema as delta_schema
from tailrace.targets.lake.delta import state as delta_state
from tailrace.targets.lake.delta.actions import Action, LiveFile, Plan, new_add, plan, uri_of
from tailrace.targets.lake.delta.cleanup import CurrentTable, DeltaCleaner
from tailrace.targets.lake.delta.log import DeltaLog, DeltaSnapshot, LogGap
from tailrace.targets.lake.delta.replace import replacing, stats_columns
from tailrace.targets.lake.delta.replay import State, replay
from tailrace.targets.lake.delta.state import DOMAIN, StoredDomain
from tailrace.targets.lake.delta.stats import file_stats
from tailrace.targets.lake.files.access import FileAccess, footer_of, read_range
from tailrace.targets.lake.files.vectors import DeltaVector, read_delta
from tailrace.targets.lake.kept import NO_CHUNKS, SKEW_SECONDS, KeptChunks, names_of
from tailrace.targets.lake.model import OTHERS, DataFile, Naming, Replacement, TableCommit, always, belongs

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Version:
    """The facts about the version last read or written."""

    snapshot: DeltaSnapshot
    stored: StoredDomain
    metadata: Action
    live: dict[str, LiveFile]
    ours: bool = False
    """We wrote it, and have not read it back."""


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
        spark: SparkSession,
        access: FileAccess,
        location: str,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
        admit: Admit = always,
    ) -> None:
        self.location = location.rstrip("/")
        self._spark = spark
        self._access = access
        self._clock = clock
        self._new_id = new_id
        self._admit = admit
        self._cleaner = DeltaCleaner(access, self.location)
        self._log: DeltaLog | None = None
        self._schema: TableSchema | None = None
        self._log_id = ""
        self._at: _Version | None = None
        self._former: _Former | None = None
        self._files: list[DataFile] | None = None
        self._described: tuple[Action, dict[str, tuple[LiveFile, DataFile]]] = {}, {}
        """The files as last asked for, and the metadata that they were described by: most are in the next version, too,
        and reading their statistics again would make each commit cost more the larger the table is."""

    # ---- FormatTable ----

    def ensure(self, schema: TableSchema, log_id: str, generation: Generation = FIRST) -> AppliedState:
        self._schema, self._log_id, self._former = schema, log_id, None
        self._log = DeltaLog(self._spark, self.location)
        snapshot = self._log.update()
        if snapshot is None:
            return self._create(schema, generation.begin(schema, log_id))
        state = self._read(snapshot)
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
        self._check_foreign(stored.version + 1, snapshot.version)
        return self._load(snapshot, stored, state)

    def refresh(self) -> AppliedState:
        snapshot = self._open.update()
        if snapshot is None:
            raise TargetChanged(
                self._name,
                f"{self.location} is no longer a Delta table",
                f"Put the table back, or {RESYNC}.",
            )
        at = self._at
        same = at is not None and at.snapshot.version == snapshot.version
        if at is not None and same and at.metadata["id"] == snapshot.metadata()["id"]:
            # Delta may read it from a newer checkpoint now; log files before that one may go.
            self._at = replace(at, snapshot=snapshot)
            return at.stored.applied
        state = self._read(snapshot)
        stored = self._stored(state)
        if stored is None or stored.applied.log_id != self._log_id:
            raise TargetChanged(
                self._name,
                f"{self.location} no longer carries the state of change log {self._log_id}",
                f"Put the table back, or delete it and {RESYNC}.",
            )
        self._check_foreign(stored.version + 1, snapshot.version)
        return self._load(snapshot, stored, state)

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
        at = self._version
        files = {path for file in at.live.values() for path in delta_cleanup.files_of(file.add, self.location)}
        if at.stored.holes_file:
            files.add(at.stored.holes_file)
        # Our own last commit stays in the log: what came after it is judged again at the next start.
        newest = min(at.stored.version, at.snapshot.checkpoint())
        return CurrentTable(at.snapshot.version, newest, at.metadata, frozenset(names_of(files)))

    def _present_former(self) -> CurrentTable:
        """Reads a table that is kept for its readers, as far as that asks for no row and no list of holes."""
        snapshot, state, text = self._newest_former()
        self._admit()
        stored = delta_state.decode(text, lambda _: b"[]", self.location)
        files = {path for add in state.files for path in delta_cleanup.files_of(add, self.location)}
        if stored.holes_file:
            files.add(stored.holes_file)
        newest = min(stored.version, snapshot.checkpoint())
        return CurrentTable(snapshot.version, newest, state.metadata, frozenset(names_of(files)))

    def files(self) -> Sequence[DataFile]:
        if self._files is None:
            metadata, before = self._described
            if metadata is not self._version.metadata:
                metadata, before = self._version.metadata, {}
            fields = delta_schema.all_fields(metadata)
            found = {}
            for uri, file in self._version.live.items():
                known = before.get(uri)
                same = known is not None and known[0] is file
                found[uri] = known if known and same else (file, file.data_file(self.location, fields))
            self._described = metadata, found
            self._files = [described for _, described in found.values()]
        return self._files

    def arrow_schema(self, schema: TableSchema, before: TableSchema | None = None) -> pa.Schema:
        metadata, applied = self._version.metadata, self._version.stored.applied.schema_version
        # Only a newer version may change columns: what else the table lacks, somebody has dropped or renamed there.
        after = delta_schema.evolved(metadata, schema, before) if schema.version > applied else None
        return delta_schema.arrow_schema(after or metadata, schema, schema.version >= applied)

    def commit(self, change: TableCommit) -> None:
        at = self._version
        metadata = delta_schema.evolved(at.metadata, change.evolve, change.before) if change.evolve else None
        if metadata is not None:
            delta_schema.check_clustering(self._name, at.snapshot.domains(), at.metadata, metadata)
        nonce = self._new_id().hex
        out = self._plan(change, at, metadata or at.metadata)
        for name, data in out.files:
            self._access.create(f"{self.location}/{name}", data)
        stored, actions = self._state_actions(change.applied, at, nonce)
        seam("delta.before-commit")
        # From here on this object does not know the table's version until the outcome is known.
        self._at, self._files = None, None
        self._check_there(at)
        self._admit()
        version = self._send(at, [*out.actions, *actions], metadata, nonce)
        seam("delta.after-commit")
        self._advance(version, out, stored, at.metadata if metadata is None else None)
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
    def _open(self) -> DeltaLog:
        if self._log is None:
            raise Retry(f"{self.location} is not open", "Call ensure first.")
        return self._log

    @property
    def _name(self) -> str:
        return self._schema.name if self._schema else self.location

    def _check_foreign(self, first: int, last: int) -> None:
        """Others' commits after our last one."""
        if first > last:
            return
        try:
            for version, actions in self._open.changes(first):
                if not delta_foreign.is_ours(actions) and (fault := delta_foreign.assess(self._name, version, actions)):
                    raise fault
        except LogGap as error:
            raise TargetChanged(
                self._name,
                f"versions {first} to {last} are others', and {error.message}",
                f"Nothing proves that the rows are unchanged: {RESYNC}.",
            ) from error

    def _check_there(self, at: _Version) -> None:
        """Delta continues from memory, even if the table was deleted or put back to an older copy."""
        entry = f"{self.location}/_delta_log/{at.snapshot.version:020d}.json"
        if at.ours and not self._access.exists(entry):
            raise Retry(f"{entry} is missing: the table was deleted or restored", "The table is read again.")

    def _read(self, snapshot: DeltaSnapshot) -> State:
        found = replay(self._access, self.location, snapshot.log_files())
        return found or State(
            metadata=snapshot.metadata(),
            domains=snapshot.domains(),
            files=list(snapshot.files()),
            removed=list(snapshot.removed()),
        )

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

    def _load(self, snapshot: DeltaSnapshot, stored: StoredDomain, state: State) -> AppliedState:
        delta_schema.check_properties(self._name, self.location, state.metadata)
        live = {}
        for add in state.files:
            uri = uri_of(add["path"], self.location)
            if not add.get("stats") or "numRecords" not in add["stats"]:
                # A vector needs the file's row count next to it.
                add["stats"] = file_stats(footer_of(self._access, uri), [], tight=True)
            live[uri] = LiveFile(add, self._dead(add))
        self._at, self._files = _Version(snapshot, stored, state.metadata, live), None
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

    def _replaced(
        self, snapshot: DeltaSnapshot, state: State, schema: TableSchema, applied: AppliedState
    ) -> AppliedState:
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

    def _newest_former(self) -> tuple[DeltaSnapshot, State, str]:
        """With what the table says of its state."""
        kept = self._kept
        snapshot = self._open.update()
        state = None if snapshot is None else self._read(snapshot)
        text = None if state is None else state.domains.get(DOMAIN)
        known = None if text is None else delta_state.peek(text, self.location)
        if snapshot is None or state is None or text is None or known is None or known.generation != kept.generation:
            raise Retry(f"{self.location} is another table than the one that was opened", "It is opened again.")
        return snapshot, state, text

    @property
    def _kept(self) -> _Former:
        if self._former is None:
            raise Retry(f"{self.location}: the version is not known", "Call ensure first.")
        return self._former

    def _replace(self, snapshot: DeltaSnapshot, state: State, by: Replacement) -> None:
        out, metadata = replacing(self._access, self.location, state, by, file_id=self._new_id(), now_ms=self._now_ms)
        for name, data in out.files:
            self._access.create(f"{self.location}/{name}", data)
        stored = StoredDomain(by.applied, snapshot.version + 1, self._new_id().hex)
        domain = _domain(delta_state.encode(stored, self._save)[0])
        self._at, self._files = None, None
        seam("delta.before-replace")
        # Dying before the commit leaves the former generation untouched: the next opening replaces it.
        self._admit()
        self._open.commit(snapshot, [*out.actions, domain], metadata, checkpoint=_left_to_delta(snapshot, metadata))

    def _create(self, schema: TableSchema, applied: AppliedState) -> AppliedState:
        """Version 0 carries the applied state: a table of Tailrace is never without it."""
        stored = StoredDomain(applied, 0, self._new_id().hex)
        metadata = delta_schema.new_metadata(schema, str(self._new_id()), self._now_ms)
        self._admit()
        self._open.commit(None, [_domain(delta_state.encode(stored, self._save)[0])], metadata)
        snapshot = self._open.current(0)
        if snapshot is None:
            raise OutcomeUnknown(f"{self.location} was created but cannot be read")
        self._at, self._files = _Version(snapshot, stored, snapshot.metadata(), {}, ours=True), None
        self._cleaner.opened(snapshot.version)
        return applied

    def _plan(self, change: TableCommit, at: _Version, metadata: Action) -> Plan:
        now = self._now_ms
        columns = stats_columns(metadata, self._schema)
        new = [new_add(file, footer_of(self._access, file.path), columns, self.location, now) for file in change.add]
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

    def _send(self, at: _Version, actions: Sequence[Action], metadata: Action | None, nonce: str) -> int:
        try:
            left = _left_to_delta(at.snapshot, metadata or at.metadata)
            return self._open.commit(at.snapshot, actions, metadata, checkpoint=left)
        except OutcomeUnknown as unknown:
            version = self._read_back(at.snapshot.version + 1, nonce, unknown)
            if version is None:
                raise Retry(f"{self.location}: the commit did not happen: {unknown.message}") from unknown
            return version

    def _read_back(self, first: int, nonce: str, unknown: OutcomeUnknown) -> int | None:
        """The version that carries our nonce, None if none does. No other writer has this nonce, and it is sent
        once."""
        try:
            self._open.update()
            for version, actions in self._open.changes(first):
                for action in actions:
                    domain = action.get("domainMetadata", {})
                    if domain.get("domain") == DOMAIN and nonce in domain["configuration"]:
                        return version
        except Retry as error:
            raise unknown from error
        return None

    def _advance(self, version: int, out: Plan, stored: StoredDomain, metadata: Action | None) -> None:
        """The version that we wrote is known without reading it, unless Delta put it behind a harmless foreign one."""
        snapshot = self._open.current(version)
        if version != stored.version or snapshot is None:
            self.refresh()
            return
        # Delta adds to metadata that it is given, so what it made of ours is read back.
        self._at = _Version(snapshot, stored, metadata or snapshot.metadata(), out.live, ours=True)

    def _checkpoint_if_due(self) -> None:
        """The commit before it stands without it, so nothing here fails."""
        at = self._version
        if not checkpoint.due(at.snapshot.version, at.metadata):
            return
        try:
            if not _left_to_delta(at.snapshot, at.metadata):
                self.write_checkpoint()
        except (TailraceError, OSError, pa.ArrowException) as error:
            what = privacy.error_text(error)
            log.warning("%s: checkpoint of version %d failed: %s", self._name, at.snapshot.version, what)

    def write_checkpoint(self) -> None:
        """Writes a checkpoint of the version last read or written, without Spark; Delta continues from there."""
        at = self._version
        version = at.snapshot.version
        state = replay(self._access, self.location, at.snapshot.log_files())
        if state is None or not checkpoint.understood(state.protocol, state.metadata):
            raise Retry(f"{self.location}: the log up to version {version} cannot be read without Delta")
        pointer = checkpoint.write(self._access, self.location, version, state, self._clock())
        if pointer is not None:
            self._open.point_to(pointer)
        checkpoint.write_checksum(self._access, self.location, version, self._open.checksum(at.snapshot))
        snapshot = self._open.update()
        if snapshot is not None and snapshot.version == version:
            self._at = replace(at, snapshot=snapshot)


def _left_to_delta(snapshot: DeltaSnapshot, metadata: Action) -> bool:
    """True if Delta writes the table's checkpoints: it has features that Tailrace does not know."""
    return not checkpoint.understood(snapshot.protocol(), metadata)


def _domain(configuration: str) -> Action:
    return {"domainMetadata": {"domain": DOMAIN, "configuration": configuration, "removed": False}}
