"""The events of tables: how they come, change and go, and how much of their log is applied and removed."""

from typing import Literal

from pydantic import Field

from tailrace.changelog.records.terms import Closed, Key, RecordNumber, Seq, TableSchema, is_empty, is_false, is_none
from tailrace.errors import Where


class TableAdded(Closed):
    """A table is captured from this record on. A chunk of it must see all that began before `edge`."""

    kind: Literal["table-added"] = "table-added"
    table: TableSchema
    edge: str
    """Only the source makes and reads it."""
    snapshot: bool = True
    """The initial snapshot is wanted (`spec.snapshot.initial`)."""
    resync: str | None = None
    """The snapshot that asked for it: the target begins a new generation, even for the same table in the same form."""
    must_hide: bool = Field(default=False, exclude_if=is_false)
    """True if the target may show values that must no longer be shown (a mask, a row filter, a column left out): it
    is emptied at once. Otherwise it stays until the table has been read. Absent in the record if false, as in older
    ones."""


class TableRemoved(Closed):
    """The include list no longer names the table, or the table is gone."""

    kind: Literal["table-removed"] = "table-removed"
    table_id: int
    reason: str
    drop: bool = Field(default=False, exclude_if=is_false)
    """The source proves that the table was dropped, and `onTableDrop` was `Drop`: its copy is to go, too. Absent in the
    record if false, as in older ones."""


class CopyRemoval(Closed):
    """The progress of deleting the copy of a table that was dropped in the source (`DroppedTable`)."""

    kind: Literal["copy-removal"] = "copy-removal"
    schema_name: str
    table_name: str
    """Its place in the target."""
    step: Literal["free", "begun", "dropped", "kept"]
    """`free`: a look after the drop found no other table of its name. `begun`: from here on it may be half deleted;
    without effect if the place is another table's by then. `dropped`: nothing is left of it. `kept`: it stays after
    all."""


class SchemaChanged(Closed):
    """A new schema version holds for rows after `seq`. `reread`: existing rows changed without row events."""

    kind: Literal["schema-changed"] = "schema-changed"
    table: TableSchema
    seq: Seq
    """The last sequence before the change."""
    reread: bool = False
    edge: str | None = None
    """The table's edge from here on; None: what held before."""


Parts = dict[str, dict[str, str]]
"""Kind of part -> item -> its value, a digest where it is long. A kind that is absent was not looked at."""

WRITTEN = "written"
"""Instead of a file's number: the log brought rows of a partition that no look has seen yet. If it is gone or empty by
the next look, nothing else reports it."""


class ReachedRows(Closed):
    """Rows that have one of these values in these columns (`Column.id`)."""

    columns: tuple[int, ...]
    values: tuple[Key, ...]


class ReachedThrough(Closed):
    """Rows whose columns refer to rows of another table that changes of the same record have reached."""

    parent: int
    """That table's id."""
    referenced: tuple[int, ...]
    """Its columns (`Column.id`)."""
    columns: tuple[int, ...]


class Cascaded(Closed):
    """Changes of other tables in this record have reached rows of the table through foreign keys, and no row event
    reports it: they are read again. Neither `rows` nor `through`: all of them."""

    kind: Literal["cascaded"] = "cascaded"
    table_id: int
    rows: tuple[ReachedRows, ...] = Field(default=(), exclude_if=is_empty)
    through: tuple[ReachedThrough, ...] = Field(default=(), exclude_if=is_empty)
    edge: str | None = Field(default=None, exclude_if=is_none)
    """The table's edge from here on; None: what held before."""


class CascadesLooked(Closed):
    """The rows of a table that were reached in these records have been looked for in its copy."""

    kind: Literal["cascades-looked"] = "cascades-looked"
    table_id: int
    records: tuple[RecordNumber, ...]
    snapshots: tuple[str, ...]
    """The snapshots, planned in this record, that read them; none: there were none."""


class TableFingerprint(Closed):
    """All that gives the table's rows their meaning and that no row event reports, as the last look at the source's
    catalog found it. A later look, also one after a stop, is compared with it."""

    kind: Literal["table-fingerprint"] = "table-fingerprint"
    table_id: int
    parts: Parts


class Truncated(Closed):
    """TRUNCATE; it has a sequence of its own."""

    kind: Literal["truncated"] = "truncated"
    table_id: int
    seq: Seq
    transaction: str
    """The id's text."""
    commit_time: int | None = Field(default=None, exclude_if=is_none)
    """Microseconds since the Unix epoch; None: not known, as in older records."""


class TableStopped(Closed):
    """Capture cannot continue for this table (an error's name and text); its changes after `seq` are not in the log."""

    kind: Literal["table-stopped"] = "table-stopped"
    table_id: int
    seq: Seq
    error: str
    message: str
    fix: str
    where: Where
    """The part that met it."""


class Applied(Closed):
    """Advisory: how far a target table was when apply last said so (the target is the truth)."""

    kind: Literal["applied"] = "applied"
    table_id: int
    applied_seq: Seq
    applied_record: RecordNumber


class SegmentsRemoved(Closed):
    """Retention: every segment of the table that ends at or below `through_seq` is gone or going."""

    kind: Literal["segments-removed"] = "segments-removed"
    table_id: int
    through_seq: Seq


class TransactionsRemoved(Closed):
    """Retention: transactions that began at or below `through_seq` are visible to every snapshot that may still be
    registered, so no replay point can be there."""

    kind: Literal["transactions-removed"] = "transactions-removed"
    through_seq: Seq


class TableForgotten(Closed):
    """Retention: a removed table of which the log holds nothing leaves the state. Should it come back, it is a new
    table to the log."""

    kind: Literal["table-forgotten"] = "table-forgotten"
    table_id: int


TableEvent = (
    TableAdded
    | TableRemoved
    | CopyRemoval
    | SchemaChanged
    | Cascaded
    | CascadesLooked
    | TableFingerprint
    | Truncated
    | TableStopped
    | TableForgotten
    | Applied
    | SegmentsRemoved
    | TransactionsRemoved
)
