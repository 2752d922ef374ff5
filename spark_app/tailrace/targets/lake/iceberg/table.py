"""`FormatTable` on Apache Iceberg format 3: one target table, written by its single writer through Iceberg's Java API.

Apply opens one per source table. Rows are changed by deletion vectors and new files, never by a Spark job; the
applied state is in each commit. See docs/dev/design.md#the-commit, and `iceberg_state` for how it is found again.
"""

import hashlib
import json
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tailrace.batch.applied import FIRST, AppliedState, Generation
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.errors import ForeignChange, OutcomeUnknown, Retry, TargetRefused
from tailrace.seams import seam
from tailrace.targets.api import Admit, VersionAt
from tailrace.targets.lake.columns import COLUMNS, Columns
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.files.vectors import puffin_file
from tailrace.targets.lake.iceberg import at_rest, small
from tailrace.targets.lake.iceberg import schema as iceberg_schema
from tailrace.targets.lake.iceberg import state as iceberg_state
from tailrace.targets.lake.iceberg.catalog import IcebergCatalog, table_location
from tailrace.targets.lake.iceberg.cleanup import AT_ONCE, IcebergCleaner
from tailrace.targets.lake.iceberg.clock import clock_named
from tailrace.targets.lake.iceberg.commit import Plan, plan
from tailrace.targets.lake.iceberg.files import Vector, absolute
from tailrace.targets.lake.iceberg.java import CommitConflict, Java, MissingTable, guarded, replaced
from tailrace.targets.lake.iceberg.read import Reader, Version
from tailrace.targets.lake.iceberg.replace import mirrored
from tailrace.targets.lake.iceberg.replace import replace as replace_table
from tailrace.targets.lake.iceberg.state import IcebergSnapshot, Mirror, StoredSummary
from tailrace.targets.lake.iceberg.tagged_versions import TaggedVersions
from tailrace.targets.lake.iceberg.transaction import IcebergTransaction, files_after
from tailrace.targets.lake.kept import CHUNK, NO_CHUNKS, SKEW_SECONDS, KeptChunks, name_of
from tailrace.targets.lake.model import OTHERS, DataFile, Naming, Replacement, TableCommit, always, belongs


def _random_id() -> str:
    return uuid.uuid4().hex


log = logging.getLogger(__name__)

DAMAGED = (
    "If it persists, a power cut may have damaged the newest file in the table's metadata folder:"
    " see docs/operations.md (power cut)."
)
"""The error for a folder catalog, whose metadata Iceberg does not force to a local disk."""


class IcebergTable:
    """See `FormatTable`. Not shared between threads. `new_id` names vector files and commits."""

    naming = Naming(iceberg_schema.shown, key_required=True)
    version = None  # snapshots have ids that no other table has

    def __init__(
        self,
        catalog: IcebergCatalog,
        access: FileAccess,
        schema_name: str,
        table_name: str,
        *,
        new_id: Callable[[], str] = _random_id,
        admit: Admit = always,
    ) -> None:
        self.name = f"{schema_name}.{table_name}"
        self.location = table_location(catalog.location, schema_name, table_name)
        self._catalog, self._access, self._new_id = catalog, access, new_id
        self._admit = admit
        self._names = schema_name, table_name
        self._at_rest: tuple[TableSchema, AppliedState, Generation] | None = None
        """The question of `ensure` that was answered without Java: the table is opened when more is wanted of it."""
        self._opened: tuple[Reader, str] | None = None
        self._version: Version | None = None
        self._writer: Any = None
        """The Java object of small commits to the opened table."""
        self._arrow: tuple[TableSchema, tuple[Columns, frozenset[int], int, bool], pa.Schema] | None = None
        """The answer of `arrow_schema`, and what it was made of."""
        self._let_go = True
        """Versions that cuts kept may be there without their tags."""
        self._former: int | None = None
        """The generation that is kept until another is complete."""

    @property
    def newest_version(self) -> int | None:
        return None if self._version is None else self._version.snapshot

    def ensure(
        self, schema: TableSchema, log_id: str, generation: Generation = FIRST, accepts: bool = False
    ) -> AppliedState:
        self._at_rest = self._opened = None
        if self._catalog.folder and not accepts:
            found = at_rest.applied_state(self._access, self.location, self.name)
            if found is not None and found.log_id == log_id and generation.holds(found, schema.table_id):
                self._at_rest, self._former, self._version = (schema, found, generation), None, None
                return found
        return self._ensure_open(schema, log_id, generation, accepts)

    @property
    def _java(self) -> Java:
        return self._catalog.java

    def _ensure_open(self, schema: TableSchema, log_id: str, generation: Generation, accepts: bool) -> AppliedState:
        try:
            applied = self._ensure(schema, log_id, generation, accepts)
            self._former = None if generation.holds(applied, schema.table_id) else applied.generation
            return applied
        except (MissingTable, Retry) as error:
            if not self._catalog.folder or isinstance(error, CommitConflict):
                raise
            raise Retry(error.message, DAMAGED) from error

    def _ensure(self, schema: TableSchema, log_id: str, generation: Generation, accepts: bool) -> AppliedState:
        with guarded(self.name, "opening"):
            found = self._catalog.find(*self._names)
        table = self._create(schema, generation.begin(schema, log_id)) if found is None else found
        reader = Reader(self._java, table, self.name, schema.key_columns, self._access)
        described = reader.describe()
        self.location = absolute(described.location)
        self._opened, self._version, self._writer = (reader, described.uuid), None, None
        if found is None:
            self._version = reader.version(described)
            return self._version.stored.applied
        known = mirrored(described.properties, self.name)
        # Before anything else is read: what is wrong with a former generation's rows is over with them.
        if known is not None and known.log_id == log_id and not belongs(generation, known, schema, self.name):
            if generation.keeps:
                return known
            self._replaced_by(schema, generation.begin(schema, log_id))
        applied = self._taken_over() if accepts else self.refresh()
        if applied.log_id != log_id:
            raise TargetRefused(
                f"{self.name} at {self.location} is filled from change log {applied.log_id}, not from {log_id}",
                OTHERS,
            )
        if belongs(generation, applied, schema, self.name):
            return applied
        if not generation.keeps:  # it was put back to a version of a former generation
            self._replaced_by(schema, generation.begin(schema, log_id))
            return self.refresh()
        return applied

    def _taken_over(self) -> AppliedState:
        try:
            return self.refresh()
        except ForeignChange as change:
            reader = self._open()[0]
            reader.look()
            self._version = reader.version(reader.describe(), accepts=True)
            log.warning("%s: taken over as it is, to be compared: %s", self.name, change.message)
        applied = self._version.stored.applied
        self.commit(TableCommit(applied))
        # Dying here is safe: the plan that calls for the comparison is recorded, and the next process meets it.
        seam("takeover.after-commit")
        return applied

    def _peek(self) -> AppliedState | None:
        with guarded(self.name, "reading"):
            properties = self._java.properties(self._open()[0].table)
        return mirrored(properties, self.name)

    def last_id(self) -> int:
        with guarded(self.name, "reading"):
            return int(self._open()[0].table.operations().current().lastColumnId())

    def replace(self, by: Replacement) -> None:
        self._version = None
        table, first_uuid = self._open()[0].table, self._open()[1]
        with guarded(self.name, "reading"):
            table.refresh()
        if self._open()[0].uuid() != first_uuid:
            raise self._replaced("another uuid")
        known = self._peek()
        if known is None or known.generation != self._former:
            raise self._replaced(f"generation {known and known.generation}, at first {self._former}")
        self._former = None
        self._replace(by)

    def _replaced_by(self, schema: TableSchema, state: AppliedState) -> None:
        log.info("%s: the target held an earlier capture of the table; it begins empty", self.name)
        self._version = None
        columns = Columns(0, {}, {}).extended(iceberg_schema.shown(schema), self.last_id())
        self._replace(Replacement(state, schema, columns, ()))

    def _replace(self, by: Replacement) -> None:
        vectors = self._write_vectors(Plan(vectors={file.path: file.dead for file in by.files if file.dead}))
        stored = self._store(by.applied, StoredSummary(by.applied))
        seam("iceberg.before-replace")
        self._admit()
        table = self._open()[0].table
        replace_table(
            self._java, self._access, table, self.name, by=by, stored=stored, vectors=vectors, nonce=self._new_id()
        )

    def _create(self, schema: TableSchema, state: AppliedState) -> Any:
        document, days = iceberg_schema.schema_json(schema), iceberg_schema.days_of(schema)
        properties = iceberg_schema.properties(schema) | {
            iceberg_state.STATE: iceberg_state.encode_mirror(Mirror(StoredSummary(state), None, 0)),
            COLUMNS: iceberg_schema.first_columns(schema).to_json(),
        }
        self._catalog.ensure_namespace(*self._names)
        self._admit()
        with guarded(self.name, "creating"):
            return self._catalog.create(*self._names, document, properties, days)

    def refresh(self) -> AppliedState:
        reader, first_uuid = self._open()
        try:
            table_uuid, current = reader.look()
        except MissingTable as error:
            raise self._replaced(str(error)) from error
        if table_uuid != first_uuid:
            raise self._replaced(f"uuid {table_uuid}, at first {first_uuid}")
        if self._version is None or self._version.snapshot != current:
            self._version = None
            self._version = reader.version(reader.describe())
        return self._version.stored.applied

    def _replaced(self, detail: str) -> CommitConflict:
        return replaced(self.name, detail)

    def files(self) -> Sequence[DataFile]:
        return [tracked.file for tracked in self._known().files.values()]

    def arrow_schema(self, schema: TableSchema, before: TableSchema | None = None) -> pa.Schema:
        known, kept = self._known(), self._arrow
        present = schema.version >= known.stored.applied.schema_version  # an older one may have columns that have gone
        of = known.columns, known.fields, known.last_id, present
        if kept is None or kept[0] is not schema or kept[1] != of:
            if present:
                iceberg_schema.check_fields(schema, known.columns, known.fields)
            kept = self._arrow = schema, of, iceberg_schema.arrow_schema(schema, known.columns, known.last_id)
        return kept[2]

    def _open(self) -> tuple[Reader, str]:
        if self._at_rest is not None:
            self._wake(*self._at_rest)
        if self._opened is None:
            raise ValueError(f"{self.name} was not opened: call ensure first")
        return self._opened

    def _wake(self, schema: TableSchema, state: AppliedState, generation: Generation) -> None:
        asked, self._at_rest = self._at_rest, None
        try:
            found = self._ensure_open(schema, state.log_id, generation, accepts=False)
            if found != state:
                raise self._replaced(f"at record {found.applied_record}, at first {state.applied_record}")
        except Exception:
            self._at_rest = asked
            raise

    def _known(self) -> Version:
        self._open()
        if self._version is None:
            raise CommitConflict(f"{self.name} must be read again before it is used", "Call refresh.")
        return self._version

    def commit(self, change: TableCommit) -> None:
        base = self._known()
        work, nonce = plan(change, base.files), self._new_id()
        stored = self._store(change.applied, base.stored)
        vectors = self._write_vectors(work)
        # Dying up to here leaves only files that no version names.
        seam("iceberg.before-commit")
        # Whatever goes wrong from here on, the version must be read before it is used again.
        self._version = None
        try:
            committed, after = self._transact(base, change, work, vectors=vectors, stored=stored, nonce=nonce)
        except MissingTable as error:
            raise self._replaced(str(error)) from error
        except OutcomeUnknown as error:
            self._read_back(nonce, base, error)
            return
        seam("iceberg.after-commit")
        reader = self._open()[0]
        if committed.parent != base.snapshot:
            reader.check_between(committed.parent, base.snapshot)
            self.refresh()
        else:
            self._version = after

    def version_at(self, record: RecordNumber) -> VersionAt | None:
        known = self._known()
        if known.stored.applied.applied_record <= record:
            if known.snapshot is None:  # only a snapshot can have a tag
                self.commit(TableCommit(known.stored.applied))
                known = self._known()
            return VersionAt(known.snapshot, known.stored.applied)
        return self._tagged().before(known, record)

    def keep(self, versions: Mapping[str, int]) -> None:
        """Tags name them, which Iceberg's own expiry respects as well."""
        tagged = self._tagged()
        new, gone = tagged.changes(versions)
        self._let_go = self._let_go or bool(gone)
        if new or gone:
            tagged.tag(new, gone)

    def former(self, version: int) -> AppliedState:
        return self._tagged().former(self._known(), version)

    def restore(self, version: int) -> None:
        self.former(version)
        self._version = None
        self._tagged().restore(version)
        self.refresh()

    def _tagged(self) -> TaggedVersions:
        return TaggedVersions(self._open()[0], self._access, self._admit)

    def expire(self, older_than: float, chunks: KeptChunks = NO_CHUNKS, at_once: int = AT_ONCE) -> bool:
        """All snapshots are listed in one metadata file that every commit rewrites: without this it grows forever. The
        state's ancestors may go as well: the mirror in the properties proves itself (`iceberg_state`)."""
        if self._former is None:
            self._known()
        let_go, self._let_go = self._let_go, False
        return self._cleaner().expire(older_than, chunks, at_once, let_go)

    def sweep(self, older_than: float, chunks: KeptChunks = NO_CHUNKS, skew: float = SKEW_SECONDS) -> int:
        self.refresh()
        known = self._known()
        vectors = [tracked.vector.path for tracked in known.files.values() if tracked.vector is not None]
        return self._cleaner().sweep(older_than, chunks, [*known.files, *vectors], skew)

    def _cleaner(self) -> IcebergCleaner:
        return IcebergCleaner(self._open()[0], self._access, self.location, self._admit)

    def _transact(
        self,
        base: Version,
        change: TableCommit,
        work: Plan,
        *,
        vectors: dict[str, Vector],
        stored: StoredSummary,
        nonce: str,
    ) -> tuple[IcebergSnapshot, Version]:
        adopted = sum(name_of(new.path).startswith(CHUNK) for new in work.add)
        entries = {
            iceberg_state.ADOPTED: str(adopted),
            iceberg_state.NONCE: nonce,
            iceberg_state.STATE: iceberg_state.encode_text(stored),
        }
        if change.evolve is None and small.is_small(work):
            done = self._small(base, work, vectors, stored, entries)
            if done is not None:
                return done
        transaction = IcebergTransaction(self._java, self._access, *self._open(), base)
        made = transaction.prepare(change, work, vectors=vectors, stored=stored, entries=entries)
        self._admit()
        committed = transaction.commit()
        files = files_after(base.files, work, made.described, vectors, keys=self._open()[0].keys, columns=made.columns)
        after = Version(committed.id, stored, made.columns, made.last_id, made.schema_id, made.fields, files)
        return committed, after

    def _small(
        self, base: Version, work: Plan, vectors: Mapping[str, Vector], stored: StoredSummary, entries: dict[str, str]
    ) -> tuple[IcebergSnapshot, Version] | None:
        """The commit without Iceberg's transaction; None: what others did to the table's columns wants that."""
        reader, table_uuid = self._open()
        text, footers = small.request(self._access, base, table_uuid, work, vectors=vectors, summary=entries)
        with clock_named(self._java, reader.table, self.name), guarded(self.name, "preparing a commit to"):
            if self._writer is None:
                self._writer = self._java.iceberg.TailraceWriter(reader.table)
            told = str(self._writer.prepare(text, footers))
        if not told:
            return None
        self._admit()
        with guarded(self.name, "committing to", committing=True):
            self._writer.send()
        made = json.loads(told)
        files = files_after(base.files, work, made["files"], vectors, keys=reader.keys, columns=base.columns)
        committed = IcebergSnapshot(
            made["snapshot"], base.snapshot, made["sequence"], "", None, entries[iceberg_state.NONCE]
        )
        return committed, replace(base, snapshot=committed.id, stored=stored, files=files)

    def _store(self, applied: AppliedState, last: StoredSummary) -> StoredSummary:
        text = iceberg_state.holes_json(applied)
        if len(text) <= iceberg_state.INLINE_HOLES:
            return StoredSummary(applied)
        digest = hashlib.sha256(text.encode()).hexdigest()
        if last.holes_digest == digest:
            return StoredSummary(applied, last.holes_file, digest)
        # A leading underscore keeps orphan clean-ups away: no snapshot lists this file among its own.
        path = f"{self.location}/_tailrace/holes-{self._new_id()}.json"
        self._access.create(path, text.encode())
        return StoredSummary(applied, path, digest)

    def _write_vectors(self, work: Plan) -> dict[str, Vector]:
        if not work.vectors:
            return {}
        data, blobs = puffin_file({work.raw(file): dead for file, dead in work.vectors.items()})
        path = f"{self.location}/data/{self._new_id()}.puffin"
        self._access.create(path, data)
        return {file: Vector(path, len(data), blobs[work.raw(file)]) for file in work.vectors}

    def _read_back(self, nonce: str, base: Version, cause: OutcomeUnknown) -> None:
        """Did the commit happen? One that arrives later still cannot do harm: the catalog swaps metadata by comparison,
        so it or our next commit is refused."""
        try:
            happened = self._open()[0].find_commit(nonce, base.snapshot)
            if happened:
                self.refresh()
        except Retry as error:
            raise OutcomeUnknown(f"{cause.message}; reading back failed, too: {error.message}", cause.fix) from error
        if not happened:
            raise CommitConflict(
                f"{cause.message}; the commit did not happen", "The table is read again and the batch located again."
            ) from cause
