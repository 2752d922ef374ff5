"""One table of the lake, whatever its format: a slice of the log becomes one commit, chunks become files, files rest.

Made by `LakeTarget`, driven by `LakeUnit`. The format's table (`model.FormatTable`) commits; the engine says
what.
"""

import logging
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from tailrace.batch.applied import AppliedState, Generation
from tailrace.batch.slice import TableSlice
from tailrace.batch.written import NO_FILES, WrittenFiles
from tailrace.changelog.history import is_marked, is_versioned
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.errors import RESYNC, Fenced, TailraceError, TargetChanged, foreign
from tailrace.fold.fold_input import FoldInput
from tailrace.seams import seam
from tailrace.storage.store import NotFound
from tailrace.targets.api import Admit, ChunkLost, NeededChunks, VersionAt
from tailrace.targets.lake.chunk_writer import LakeChunkWriter
from tailrace.targets.lake.engine.build import Spread, build
from tailrace.targets.lake.engine.changes import build_changes
from tailrace.targets.lake.engine.keyless import build_keyless
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.engine.soft_delete import build_marked
from tailrace.targets.lake.engine.versions import build_versions
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.files.compact import CompactionLimits, compact
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.files.locate import forget
from tailrace.targets.lake.files.vector_costs import VectorCosts
from tailrace.targets.lake.kept import HISTORY_SECONDS, KeptChunks
from tailrace.targets.lake.look import Compare, LakeLook
from tailrace.targets.lake.model import FileTable, FormatTable, TableCommit, always
from tailrace.targets.lake.staged import StagedTable

log = logging.getLogger(__name__)

SWEEP_RECORDS = 20_000
"""Records of the log after which a changed table's folder is listed for files that no version names: hours when
busy."""
SWEEP_SECONDS = 24 * 3600.0
"""The interval in seconds, for tables that rarely change."""
READ_AGAIN = "They are read again."
CHECKS = 8
"""Chunk files looked at together: each look is one small request."""


class LakeTable:
    """The copy of one table. Its methods are those of `targets.api.Unit`, for a single table."""

    def __init__(
        self, table: FormatTable, log: FileAccess, lake: FileAccess, spread: Spread | None, admit: Admit = always
    ) -> None:
        """`log`: the change log's root. `spread` works large batches elsewhere; None: here."""
        self._format = table
        self._staged: StagedTable | None = None
        """The copy in which the next generation is built while readers see the former one."""
        self._log, self._lake, self._admit = log, lake, admit
        self._spread = spread
        self._latest: Layout | None = None
        """The layout that was asked for last: it keeps what it derives."""
        self._written = NO_FILES
        self._costs = VectorCosts()
        self._swept: tuple[int, float] | None = None
        """Part of the log and time of the last sweep."""

    def open(self, schema: TableSchema, log_id: str, generation: Generation, accepts: bool = False) -> AppliedState:
        try:
            applied = self._format.ensure(schema, log_id, generation, accepts)
        except NotFound as error:
            raise _incomplete(schema, error) from error
        self._staged = None
        if generation.holds(applied, schema.table_id):
            return applied
        self._staged = StagedTable(self._lake, self._format.location, self._format.naming, self._admit)
        return self._staged.ensure(schema, log_id, generation, self._format.last_id(), applied.generation)

    @property
    def replacing(self) -> bool:
        """True if the copy that `open` returned is a new one that readers do not see yet."""
        return self._staged is not None

    @property
    def version(self) -> int | None:
        """See `targets.api.Opened`."""
        return None if self.replacing else self._format.version

    @property
    def newest_version(self) -> int | None:
        """See `targets.api.Unit`."""
        return None if self.replacing else self._format.newest_version

    def take_written(self) -> WrittenFiles:
        """See `targets.api.Unit`."""
        written, self._written = self._written, NO_FILES
        return written

    def publish(self) -> None:
        """Replace the copy that readers see by the new, complete one, in one commit. The table must be opened again
        afterwards."""
        assert self._staged is not None
        whole = self._staged.replacement()
        seam("publish.before")
        # Dying before the commit leaves the former table untouched: the next process continues here.
        self._format.replace(whole)
        seam("publish.after")
        self._staged.forget()
        log.info("%s: the new copy is complete and has taken the old one's place", whole.schema.name)

    @property
    def _table(self) -> FileTable:
        """The table that batches are applied to."""
        return self._staged or self._format

    def apply(self, part: TableSlice) -> AppliedState:
        layout = self._layout(part.schema, part.before)
        self._check_forms(part)
        change = self._build(part, layout)
        seam("apply.before-commit")
        self._check_chunks(part)
        self._table.commit(change)
        self._written += WrittenFiles(len(change.add), sum(file.size for file in change.add))
        # Dying here loses nothing: the applied state moved with the data; status and retention hear of it next time.
        seam("apply.after-commit")
        self._count_marks(change)
        return change.applied

    def _count_marks(self, change: TableCommit) -> None:
        marked = {*change.marks, *(new.path for new in change.add if new.dead)}
        if marked:
            files = self._table.files()
            self._costs.wrote(files, marked)
            # A file whose last row was marked has left the table.
            forget([*marked.difference(file.path for file in files)])

    def chunk_writer(self, schema: TableSchema) -> LakeChunkWriter:
        return LakeChunkWriter(self._layout(schema), self._table.location, self._lake)

    def look(self, schema: TableSchema, applied: AppliedState, compare: Compare) -> LakeLook:
        files, location = tuple(self._table.files()), self._table.location
        return LakeLook(applied, files, self._layout(schema), self._log, self._lake, location, compare)

    def version_at(self, record: RecordNumber) -> VersionAt | None:
        return self._format.version_at(record)

    def keep(self, versions: Mapping[str, int]) -> None:
        """Keep versions of the copy that readers see."""
        self._format.keep(versions)

    def tidy(self, schema: TableSchema, applied: AppliedState, needed: NeededChunks, now: float) -> None:
        chunks, extra = KeptChunks.of(needed), {"table": schema.name}
        layout, limits = self._layout(schema), CompactionLimits()
        self._costs.keep_only(self._table.files())
        files = compact(self._table, self._lake, layout, applied, limits, chunks=chunks, costs=self._costs)
        if files:
            log.info("compacted %d files", files, extra=extra)
        if self._staged is not None:
            self._expire_former(now, chunks, extra)
            return  # nothing is swept: what no version names may be the new copy's
        expired = self._format.expire(now - HISTORY_SECONDS, chunks)
        swept = self._sweep(applied, now, chunks)
        if expired:
            log.debug("expired versions older than %d s", HISTORY_SECONDS, extra=extra)
        if swept:
            log.info("deleted %d unneeded files", swept, extra=extra)

    def _layout(self, schema: TableSchema, before: TableSchema | None = None) -> Layout:
        arrow, known = self._table.arrow_schema(schema, before), self._latest
        if known is None or known.schema is not schema or known.arrow is not arrow:
            known = self._latest = Layout(schema, arrow)
        return known

    def _expire_former(self, now: float, chunks: KeptChunks, extra: dict[str, str]) -> None:
        """Versions from before what is shown now may hold what must no longer be seen. Whatever else is wrong with a
        table that is being replaced ends with the replacement."""
        try:
            self._format.expire(now - HISTORY_SECONDS, chunks)
        except Fenced:
            raise
        except TailraceError as error:
            log.debug("old versions could not be removed: %s", error, extra=extra)

    def _sweep(self, applied: AppliedState, now: float, chunks: KeptChunks) -> int:
        """Now and then; tables that are opened together take turns by their ids."""
        turn = (applied.table_id * 7919) % 1000 / 1000
        part = int(applied.applied_record / SWEEP_RECORDS + turn)
        if self._swept is None:
            self._swept = (part, now - SWEEP_SECONDS + HISTORY_SECONDS * (1 + turn))
        before, when = self._swept
        if part == before and now - when < SWEEP_SECONDS:
            return 0
        self._swept = (part, now)
        return self._format.sweep(now - HISTORY_SECONDS, chunks)

    def _check_forms(self, part: TableSlice) -> None:
        """A chunk file that was written for other columns than the target has now (it was replaced, or deleted and made
        again, since) would be adopted as nulls or as other columns' values: it counts as lost."""
        written = [chunk for chunk in part.chunks if chunk.path is not None]
        requested = {chunk.schema_version for chunk in written}
        digests = {version: self._layout(part.versions[version], part.before).digest for version in requested}
        mismatched = tuple(chunk for chunk in written if chunk.layout != digests[chunk.schema_version])
        if mismatched:
            names = ", ".join(str(chunk.path) for chunk in mismatched)
            raise ChunkLost(f"chunk files were written for another form of the target: {names}", READ_AGAIN, mismatched)

    def _check_chunks(self, part: TableSlice) -> None:
        """A chunk's file may be a week old: if another program has removed it since its keys were read, no version may
        be made that no reader can open."""
        files = [chunk for chunk in part.chunks if chunk.path is not None]
        if not files:
            return
        with ThreadPoolExecutor(CHECKS) as pool:
            there = pool.map(lambda chunk: self._is_there(str(chunk.path), chunk.size), files)
            lost = tuple(chunk for chunk, found in zip(files, there, strict=True) if not found)
        if lost:
            names = ", ".join(str(chunk.path) for chunk in lost)
            raise ChunkLost(f"chunk files are gone, or have another size: {names}", READ_AGAIN, lost)

    def _is_there(self, path: str, size: int) -> bool:
        try:
            return self._lake.size(path) == size
        except NotFound:
            return False

    def _build(self, part: TableSlice, layout: Layout) -> TableCommit:
        files = () if part.clear else tuple(self._table.files())
        work = PartInput(FoldInput(part, layout.types, self._log), layout, self._lake, self._table.location, files)
        try:
            if is_versioned(part.schema):
                return build_versions(work, self._spread, time.time())
            if part.schema.history is not None:
                return build_marked(work, self._spread) if is_marked(part.schema) else build_changes(work)
            return build_keyless(work) if part.schema.keyless else build(work, self._spread)
        except Exception as error:  # Spark's own, if a task met the missing file
            lost = lost_chunks(part, self._lake)
            gone = [file.path for file in files if foreign.names(error, file.path) and not self._lake.exists(file.path)]
            if gone and not lost:
                raise _incomplete(part.schema, NotFound(f"{gone[0]} does not exist")) from error
            if not lost:
                raise
            names = ", ".join(str(chunk.path) for chunk in lost)
            raise ChunkLost(f"chunk files are gone: {names}", READ_AGAIN, lost) from error


def _incomplete(schema: TableSchema, error: NotFound) -> TargetChanged:
    return TargetChanged(
        schema.name, f"the target's current version lacks a file: {error.message}", f"Restore it, or {RESYNC}."
    )


def lost_chunks(part: TableSlice, lake: FileAccess) -> tuple[ChunkRegistered, ...]:
    """The chunks that the slice needs and whose file is gone."""
    # The end of a snapshot reads the keys of files, too, that were adopted before, and compacted away since.
    needed = [*part.chunks, *(chunk for finish in part.finished for chunk in finish.chunks)]
    files = {chunk.path: chunk for chunk in needed if chunk.path is not None}
    return tuple(chunk for path, chunk in files.items() if not lake.exists(path))
