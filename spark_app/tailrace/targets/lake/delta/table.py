"""A Delta table as a target: opened, read and committed to by its single writer, Tailrace's apply.

Implements `model.FormatTable`; `reader` and `writer` have the log's side of it, `rewinding` former versions. State that
matters is in the table (`delta.state`); this object only remembers the version it last read or wrote and that version's
files, which its own commits carry forward without listing.

Between writing files and the commit, dying leaves files that the next sweep removes. After the commit, dying loses
nothing: the applied state is in it.
"""

import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace.batch.applied import FIRST, AppliedState, Generation
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.errors import (
    RESYNC,
    ForeignChange,
    Retry,
    TargetChanged,
    TargetRefused,
)
from tailrace.seams import seam
from tailrace.targets.api import Admit, VersionAt
from tailrace.targets.lake.columns import Columns
from tailrace.targets.lake.delta import cleanup as delta_cleanup
from tailrace.targets.lake.delta import schema as delta_schema
from tailrace.targets.lake.delta import state as delta_state
from tailrace.targets.lake.delta.cleanup import CurrentTable, DeltaCleaner
from tailrace.targets.lake.delta.commit import Action, LiveFile, Plan, new_add, plan
from tailrace.targets.lake.delta.kept_versions import KeptVersions
from tailrace.targets.lake.delta.known import FormerCopy, KnownVersion, LogVersion
from tailrace.targets.lake.delta.log import DeltaLog, makes_tables_otherwise
from tailrace.targets.lake.delta.protocol import NEW
from tailrace.targets.lake.delta.reader import DeltaReader
from tailrace.targets.lake.delta.replace import replacing, stats_columns
from tailrace.targets.lake.delta.replay import State
from tailrace.targets.lake.delta.rewinding import coming_back, former_version, version_before
from tailrace.targets.lake.delta.state import DOMAIN, StoredDomain
from tailrace.targets.lake.delta.writer import DeltaWriter
from tailrace.targets.lake.files.access import FileAccess, footer_of
from tailrace.targets.lake.kept import NO_CHUNKS, SKEW_SECONDS, KeptChunks, names_of
from tailrace.targets.lake.model import OTHERS, DataFile, Naming, Replacement, TableCommit, always, belongs

log = logging.getLogger(__name__)


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
        self._reader = DeltaReader(spark, access, self.location)
        self._writer = DeltaWriter(self._reader, access, self.location, clock, new_id)
        self._schema: TableSchema | None = None
        self._log_id = ""
        self._at: KnownVersion | None = None
        self._former: FormerCopy | None = None
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
        found = self._reader.newest()
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
                self._former = FormerCopy(known.generation, delta_schema.last_id(state.metadata), snapshot.version)
                self._cleaner.opened(snapshot.version, state.removed)
                return known
            return self._replaced(snapshot, state, schema, generation.begin(schema, log_id))
        stored = self._reader.decoded(schema.name, text)
        try:
            self._reader.check_foreign(schema.name, stored.version + 1, snapshot.version)
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
        if at is not None and self._reader.log.is_newest(at.snapshot.version, at.snapshot.digest):
            return at.stored.applied
        found = self._reader.newest()
        if found is None:
            raise TargetChanged(
                self._name,
                f"{self.location} is no longer a Delta table",
                f"Put the table back, or {RESYNC}.",
            )
        snapshot, state = found
        stored = self._reader.stored(self._name, state)
        if stored is None or stored.applied.log_id != self._log_id:
            raise TargetChanged(
                self._name,
                f"{self.location} no longer carries the state of change log {self._log_id}",
                f"Put the table back, or delete it and {RESYNC}.",
            )
        self._reader.check_foreign(self._name, stored.version + 1, snapshot.version)
        return self._load(snapshot, stored, state)

    def version_at(self, record: RecordNumber) -> VersionAt | None:
        at = self._version
        if at.stored.applied.applied_record <= record:
            self._cuts.present(at.snapshot.version, self._files_of(at))
            return VersionAt(at.snapshot.version, at.stored.applied)
        return version_before(self._reader, at, record)

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
        actions, removed = coming_back(at, state, self._writer.now_ms)
        nonce, of_past = self._new_id().hex, replace(at, stored=former)
        stored, last = self._writer.state_actions(former.applied, of_past, nonce)
        self._at, self._files = None, None
        self._reader.check_there(at.snapshot)
        self._admit()
        self._writer.send(at.snapshot, [*actions, *last], None, stored)
        self._cleaner.committed(removed, None, self._clock())
        self.refresh()
        self._writer.checkpoint_if_due(self._name, self._version.snapshot)

    def _former_version(self, version: int) -> tuple[State, StoredDomain]:
        at = self._version
        return former_version(self._reader, self._access, self.location, self._name, at=at, version=version)

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
        newest = at.snapshot.first_of_log(at.stored)
        return CurrentTable(at.snapshot.version, newest, at.snapshot.metadata, frozenset(names_of(files)))

    def _files_of(self, at: KnownVersion) -> set[str]:
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
        newest = snapshot.first_of_log(stored)
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
                    found[uri] = known if known[0] is file else (file, file.marked(known[1]))
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
        self._writer.create_all(out.files)
        stored, actions = self._writer.state_actions(change.applied, at, nonce)
        seam("delta.before-commit")
        # From here on this object does not know the table's version until the outcome is known.
        self._at, self._files = None, None
        self._reader.check_there(at.snapshot)
        self._admit()
        snapshot = self._writer.send(at.snapshot, [*out.actions, *actions], metadata, stored)
        seam("delta.after-commit")
        if snapshot is None:
            self.refresh()
        else:  # known without reading it
            self._at = KnownVersion(snapshot, stored, out.live)
        removed = (action["remove"] for action in out.actions if "remove" in action)
        changed = at.stored.holes_file != stored.holes_file
        self._cleaner.committed(removed, at.stored.holes_file if changed else None, self._clock())
        self._writer.checkpoint_if_due(self._name, self._version.snapshot)

    # ---- Reading ----

    @property
    def _version(self) -> KnownVersion:
        if self._at is None:
            raise Retry(f"{self.location}: the version is not known", "Call refresh first.")
        return self._at

    @property
    def _name(self) -> str:
        return self._schema.name if self._schema else self.location

    def _load(self, snapshot: LogVersion, stored: StoredDomain, state: State) -> AppliedState:
        delta_schema.check_properties(self._name, self.location, state.metadata)
        self._at, self._files = KnownVersion(snapshot, stored, self._reader.live_files(state)), None
        self._cleaner.opened(snapshot.version, state.removed)
        return stored.applied

    # ---- Writing ----

    def _replaced(self, snapshot: LogVersion, state: State, schema: TableSchema, applied: AppliedState) -> AppliedState:
        """Make the table one of another generation, in one commit: every column goes and every wanted one comes with an
        id and a physical name never used, every row goes, and the state begins. A file that was prepared for the former
        generation cannot be taken for one of the new."""
        log.info("%s: the target held an earlier capture of the table; it begins empty", schema.name)
        columns = Columns(0, {}, {}).extended(schema, delta_schema.last_id(state.metadata), delta_schema.physical)
        self._replace(snapshot, state, Replacement(applied, schema, columns, ()))
        applied = self.refresh()
        self._writer.checkpoint_if_due(self._name, self._version.snapshot)
        return applied

    def last_id(self) -> int:
        return self._kept.last_id

    def replace(self, by: Replacement) -> None:
        """Against the newest version, as long as that is still of the generation that was kept."""
        snapshot, state, _ = self._newest_former()
        self._former = None
        self._replace(snapshot, state, by)

    def _newest_former(self) -> tuple[LogVersion, State, str]:
        """With what the table says of its state."""
        kept, found = self._kept, self._reader.newest()
        text = None if found is None else found[1].domains.get(DOMAIN)
        known = None if text is None else delta_state.peek(text, self.location)
        if found is None or text is None or known is None or known.generation != kept.generation:
            raise Retry(f"{self.location} is another table than the one that was opened", "It is opened again.")
        return *found, text

    @property
    def _kept(self) -> FormerCopy:
        if self._former is None:
            raise Retry(f"{self.location}: the version is not known", "Call ensure first.")
        return self._former

    def _replace(self, snapshot: LogVersion, state: State, by: Replacement) -> None:
        out, metadata = replacing(
            self._access, self.location, state, by, file_id=self._new_id(), now_ms=self._writer.now_ms
        )
        self._writer.create_all(out.files)
        stored = StoredDomain(by.applied, snapshot.version + 1, self._new_id().hex)
        self._at, self._files = None, None
        domain = self._writer.domain(stored)
        seam("delta.before-replace")
        # Dying before the commit leaves the former generation untouched: the next opening replaces it.
        self._reader.check_there(snapshot)
        self._admit()
        self._writer.send(snapshot, [*out.actions, domain], metadata, stored)

    def _create(self, schema: TableSchema, applied: AppliedState) -> AppliedState:
        """Version 0 carries the applied state: a table of Tailrace is never without it."""
        stored = StoredDomain(applied, 0, self._new_id().hex)
        metadata = delta_schema.new_metadata(schema, str(self._new_id()), self._writer.now_ms)
        actions = [self._writer.domain(stored)]
        self._admit()
        if makes_tables_otherwise(self._spark, os.environ):
            DeltaLog(self._spark(), self.location).commit(None, actions, metadata)
            return self.refresh()
        self._reader.log.forget_pointer()
        snapshot = self._writer.write(LogVersion(-1, NEW, {}, {}), actions, metadata, applied)
        self._at, self._files = KnownVersion(snapshot, stored, {}), None
        self._cleaner.opened(0)
        return applied

    def _plan(self, change: TableCommit, at: KnownVersion, metadata: Action) -> Plan:
        now = self._writer.now_ms
        columns = stats_columns(self._fields_of(metadata), self._schema)
        place, day = self.location, delta_schema.partition(metadata)
        new = [
            new_add(file, footer_of(self._access, file.path), columns, place, now, partition=day) for file in change.add
        ]
        return plan(change, at.live, new, file_id=self._new_id(), now_ms=now)

    def write_checkpoint(self) -> None:
        """Writes a checkpoint of the version last read or written, without Spark."""
        self._writer.write_checkpoint(self._version.snapshot.version)
