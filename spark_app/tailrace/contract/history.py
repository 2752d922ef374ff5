"""Documents of a driver beside its status: the numbers of the last hour, and one table with its schema and chunks.

Made by `tailrace.driver.telling`, answered to `GET /history` and `GET /tables/{name}`, shown by the console.
"""

from typing import Literal

from tailrace.contract.base import Model
from tailrace.contract.status import Fault, Many, SnapshotState, TableStatus

ChunkState = Literal["waiting", "reading", "read", "applied", "failed"]


class LastHour(Model):
    """The numbers of the last hour in memory of the driver: lists of one length, the oldest value first."""

    step_seconds: float
    """Seconds between two of them."""
    at: Many[float] = ()
    """Seconds since 1970."""
    capture_lag_seconds: Many[float | None] = ()
    apply_lag_seconds: Many[float | None] = ()
    captured_rows_per_second: Many[float] = ()
    applied_rows_per_second: Many[float] = ()
    """Rows that were written to the target, those of snapshots included."""
    retained_bytes: Many[int | None] = ()
    """Log that the source keeps."""
    tables_failing: Many[int] = ()


class ColumnView(Model):
    """One column of a table as it is captured."""

    name: str
    source_type: str
    """Its type in the source."""
    type: str
    """Its type in the change log and in the target, such as `int64` or `decimal(10,2)`."""
    nullable: bool = True
    key: int | None = None
    """The place in the key, from 0; None: it is not part of it."""
    mask: str | None = None
    """The mask that replaces its values; None: none does."""


class ChunkRun(Model):
    """Neighbouring chunks in the same state."""

    state: ChunkState
    """`waiting`: its range is known. `read`: its rows are durable, and not yet in the target. `failed`: the last
    attempt failed, and it is tried again."""
    chunks: int


class ChunkMap(Model):
    """The chunks of one table in one snapshot, in the order of the key."""

    snapshot: str
    state: SnapshotState
    verify: bool = False
    """The rows are compared with the target; `applied` chunks are then compared ones."""
    chunks: Many[ChunkRun] = ()
    more: int | None = None
    """The estimated number of chunks that are not cut yet; None: it is not known."""
    reading: Many[str] = ()
    """Ranges that are being read now, `(lower, upper]`."""
    rows_done: int = 0
    rows_estimated: int = 0
    fault: Fault | None = None


class CounterHistory(Model):
    """The growth of a table's counters in each minute of the last hour: lists of one length, the oldest first."""

    step_seconds: float
    """Seconds of one step, or a little more."""
    at: Many[float] = ()
    """The ends of the steps, in seconds since 1970."""
    inserts: Many[int] = ()
    updates: Many[int] = ()
    deletes: Many[int] = ()
    truncates: Many[int] = ()
    schema_changes: Many[int] = ()
    snapshot_rows: Many[int] = ()


class TableView(Model):
    """One table: its status, its columns, and the chunks of its snapshots."""

    status: TableStatus
    schema_version: int
    """It grows with each change of the columns or the key."""
    columns: Many[ColumnView]
    where: str | None = None
    """Only rows for which this is true are copied."""
    keyless: bool = False
    """No column is a key: rows are counted instead."""
    snapshots: Many[ChunkMap] = ()
    """The newest last."""
    history: CounterHistory | None = None
    """None: the driver is older."""
