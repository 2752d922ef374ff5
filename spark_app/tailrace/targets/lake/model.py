"""The data that apply and the lake committers exchange: data files, one commit. No Spark, no format.

A lake table is a set of immutable Parquet data files, each with an optional deletion vector (positions of dead rows,
from 0, in file order). Paths are absolute URIs (`file:///…`, `s3://…`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyroaring import BitMap64

from tailrace.batch.applied import FIRST, AppliedState, Generation
from tailrace.changelog.records.terms import Column, RecordNumber, TableSchema
from tailrace.errors import TargetChanged, TargetRefused
from tailrace.storage.path_names import table_folder
from tailrace.targets.api import VersionAt
from tailrace.targets.lake.columns import Columns
from tailrace.targets.lake.kept import KeptChunks


def always() -> None:
    """The check of tables without a change log that could be taken over."""


OTHER_CUT = "Choose another cut (`tailrace cuts` shows all), or leave the table out with --tables."
OTHERS = (
    "It may be the live copy of another Replicator, so do not delete it. Choose another target.location; or, if this"
    " Replicator wrote the table, the storage.location of the change log that it wrote it from (in Kubernetes, create"
    " another Replicator for that). If nobody else reads or writes it, it can be moved away: it is then read again."
)
"""The fix for a table that another change log, or another program, has filled. The owner of that log is named in the
log alone, which may be anywhere."""


def belongs(generation: Generation, applied: AppliedState, schema: TableSchema, name: str) -> bool:
    """False: the target is to be replaced. Refused: its generation is later than ours, or it may be of another name."""
    if generation.holds(applied, schema.table_id):
        return True
    if applied.generation == generation.number and applied.table_id != schema.table_id:
        # Added in one record: neither came after the other, so each would replace the other's rows for ever.
        folder = table_folder(schema.schema_name, schema.table_name)
        raise TargetRefused(
            f"{folder} of {name} (table {schema.table_id}) holds table {applied.table_id}, which is captured since the"
            f" same record {generation.number}: their names differ in case only, and the target's file system or"
            " catalog ignores case",
            f"Rename one of them, or leave it out with tables.exclude; then delete {folder} and resync the other.",
        )
    if applied.generation > generation.number:
        raise TargetChanged(
            name,
            f"the target holds table {applied.table_id} since record {applied.generation}, and table {schema.table_id}"
            f" is captured since record {generation.number}: the change log was put back to an older state",
            "Put the change log back to its newest state; or drop the target table and resync the table.",
        )
    return False


@dataclass(frozen=True)
class DataFile:
    """A live data file of the current table version."""

    path: str
    rows: int
    """Physical rows, dead ones included."""
    size: int
    dead: BitMap64 = field(default_factory=BitMap64)
    lower: Mapping[str, object] = field(default_factory=dict)
    """Smallest value by source column name, where the table's metadata knows one (never a truncated one)."""
    upper: Mapping[str, object] = field(default_factory=dict)
    day: str | None = None
    """The day of all its rows, as `2026-11-29`, of a table that is partitioned by days; None: they have none."""
    vector_bytes: int = 0
    """Bytes of its present deletion vector as it is written; 0 where none is written for this file alone."""


@dataclass(frozen=True)
class NewFile:
    """A Parquet file to add: just written by us or a chunk file to adopt; `dead`: rows superseded from the start."""

    path: str
    rows: int
    size: int
    dead: BitMap64 = field(default_factory=BitMap64)
    day: str | None = None
    """The day of all its rows, as in `DataFile`."""


@dataclass(frozen=True)
class TableCommit:
    """One atomic change of a table. `marks` holds each file's whole new vector (old positions included)."""

    applied: AppliedState
    add: Sequence[NewFile] = ()
    marks: Mapping[str, BitMap64] = field(default_factory=dict)
    clear: bool = False
    """Remove every present file first (TRUNCATE); `marks` is then empty."""
    data_change: bool = True
    """False: compaction."""
    remove: Sequence[str] = ()
    """Files replaced by `add` (compaction)."""
    evolve: TableSchema | None = None
    """Evolve the table to this schema in the same commit: columns by their ids, also dropped and renamed ones."""
    before: TableSchema | None = None
    """The schema that the table has until then, where the log knows it."""


@dataclass(frozen=True)
class Naming:
    """How a format lays new columns out in data files."""

    shown: Callable[[TableSchema], TableSchema]
    """The schema under the names that its columns have in the target; raises `TableStop` for what it cannot have."""
    physical: Callable[[Column, int], str] | None = None
    """Physical names, as in `Columns.extended`."""
    key_required: bool = False
    """Key columns are written as such that hold no NULL."""


@dataclass(frozen=True)
class Replacement:
    """A whole table that takes the place of another generation's, in one commit."""

    applied: AppliedState
    schema: TableSchema
    columns: Columns
    """Ids begin after the last one that the format's table had used."""
    files: Sequence[NewFile]


class FileTable(Protocol):
    """A set of data files with the applied state: read by its single writer, changed by one commit after the other."""

    location: str
    """The table's folder, absolute URI without a trailing slash."""

    def files(self) -> Sequence[DataFile]:
        """The live data files of the version last read or written."""
        ...

    def commit(self, change: TableCommit) -> None:
        """Commit against the version last read; refused when anybody changed the table since (`Retry`: read
        the applied state again and locate again). Afterwards `files()` shows the new version."""
        ...

    def arrow_schema(self, schema: TableSchema, before: TableSchema | None = None) -> object:
        """pyarrow.Schema that data and chunk files of this source schema must have: physical names, field ids. A newer
        one than the table's is what a commit will give it; `before`: as in `TableCommit`."""
        ...


class FormatTable(FileTable, Protocol):
    """One target table in its format, opened by its single writer. Methods raise `Retry`, `OutcomeUnknown`,
    `TargetRefused`, `ForeignChange` or `TargetChanged`."""

    naming: Naming

    @property
    def version(self) -> int | None:
        """See `targets.api.Opened`."""
        ...

    @property
    def newest_version(self) -> int | None:
        """See `targets.api.Unit`."""
        ...

    def ensure(
        self, schema: TableSchema, log_id: str, generation: Generation = FIRST, accepts: bool = False
    ) -> AppliedState:
        """Create the table for `schema` if there is none, replace one of another generation; return the applied state
        of the current version. A table of another log, or one that is not Tailrace's, is refused, and so is one of a
        later generation: this writer's table has ended. Where the generation keeps the former one, that is left as it
        is, its state is returned, and of all methods only `last_id`, `expire` and `replace` may be called.
        `accepts`: rows that another program changed count as Tailrace's from then on, by a commit without rows."""
        ...

    def last_id(self) -> int:
        """The highest field id ever used, of the table as it was opened."""
        ...

    def replace(self, by: Replacement) -> None:
        """Everything that the table holds goes, and what was made beside it comes, in one commit. It must be opened
        again before it is used."""
        ...

    def refresh(self) -> AppliedState:
        """Read the current version (a foreign compaction is accepted, a foreign change of rows is refused)."""
        ...

    def version_at(self, record: RecordNumber) -> VersionAt | None:
        """See `targets.api.Unit`."""
        ...

    def keep(self, versions: Mapping[str, int]) -> None:
        """See `targets.api.Unit`; also called where the former generation is kept."""
        ...

    def expire(self, older_than: float, chunks: KeptChunks) -> bool:
        """Forget versions that were replaced before this time (seconds since the Unix epoch), and delete the files that
        only they reached. Changes no row; whether anything was forgotten. Cheap when nothing is old."""
        ...

    def sweep(self, older_than: float, chunks: KeptChunks) -> int:
        """Delete files older than this that no version reaches, which killed writers and interrupted clean-ups left;
        how many. Lists the table's folder."""
        ...


class RewindableTable(FormatTable, Protocol):
    """A table that can go back to a version which a cut keeps."""

    def former(self, version: int) -> AppliedState:
        """The state of a kept version. `RewindRefused`: it is gone, or not whole, or has other columns."""
        ...

    def restore(self, version: int) -> None:
        """Make the kept version the present one again, in one commit; refused as in `former`."""
        ...
