"""State = fold(records): what the journal says, as one value. Pure; every reader and the writer hold one.

`fold(state, record)` returns the next state or raises `CorruptLog`; the writer folds before it writes, so a record that
does not fit never gets into the journal. The cost of a record is its own size plus copies of the tuples it extends.

What is forgotten, and when no reader can need it any longer:
* chunks and finishes of a table: once `Applied` says that its target holds their record;
* segments and TRUNCATEs: by `SegmentsRemoved`, in the record before the files go;
* removed tables: by `TableForgotten`, once nothing of them is kept; of their names those under which targets stand;
* cuts: by `CutDropped`;
* signals: all but the open ones and the newest `KEPT_SIGNALS`;
* stops of copies: by `CopiesResumed`;
* dropped tables: by `CopyRemoval`, once their copy is gone or stays for good;
* transactions: by `TransactionsRemoved`, once every snapshot that may still be registered sees them;
* schema versions: once nothing kept refers to them and the target is past them;
* ended snapshots: all but the newest `KEPT_SNAPSHOTS`, of requests and of Tailrace's own, and of rewinds that were
  carried out, all but `KEPT_REWINDS`.
"""

from typing import Any

from tailrace.changelog.cuts import CUT_HANDLERS
from tailrace.changelog.folding import Folding
from tailrace.changelog.logged import (
    KEPT_SNAPSHOTS,
    DroppedTable,
    LoggedCascade,
    LoggedChunk,
    LoggedCut,
    LoggedFinish,
    LoggedSchema,
    LoggedSegment,
    LoggedSignal,
    LoggedTruncate,
    LogState,
    SegmentList,
    SnapshotState,
    SnapshotTable,
    TableLog,
    TransactionLog,
)
from tailrace.changelog.records import EpochStarted, Origin, Record, Segment, SourceRenewed, check_format
from tailrace.changelog.records.terms import Seq, with_nulled
from tailrace.changelog.signals import SIGNAL_HANDLERS
from tailrace.changelog.snapshot_events import SNAPSHOT_HANDLERS
from tailrace.changelog.table_events import TABLE_HANDLERS
from tailrace.errors import CorruptLog

__all__ = [
    "KEPT_SNAPSHOTS",
    "DroppedTable",
    "LogState",
    "LoggedCascade",
    "LoggedChunk",
    "LoggedCut",
    "LoggedFinish",
    "LoggedSchema",
    "LoggedSegment",
    "LoggedSignal",
    "LoggedTruncate",
    "SegmentList",
    "SnapshotState",
    "SnapshotTable",
    "TableLog",
    "TransactionLog",
    "fold",
]


HANDLERS = {**TABLE_HANDLERS, **SNAPSHOT_HANDLERS, **CUT_HANDLERS, **SIGNAL_HANDLERS}


def fold(state: LogState, record: Record) -> LogState:
    """The state after `record`, or `CorruptLog` if it does not follow from `state`."""
    _check_number_and_writer(state, record)
    _check_range(state, record)
    work = Folding(state, record)
    for event in record.events:
        HANDLERS[type(event)](work, event)
    for segment in record.segments:
        _add_segment(work, segment)
    work.forget()
    return _advance(state, record, work)


def _corrupt(record: Record, what: str) -> CorruptLog:
    return CorruptLog(f"journal record {record.number}: {what}")


def _check_number_and_writer(state: LogState, record: Record) -> None:
    if record.number != state.number + 1:
        raise _corrupt(record, f"expected record {state.number + 1}")
    origin = [e for e in record.events if isinstance(e, Origin)]
    if (record.number == 0) != (len(origin) == 1) or len(origin) > 1:
        raise _corrupt(record, "record 0, and no other, holds the origin")
    if origin:
        check_format(origin[0].format_version)
    if record.epoch < state.epoch:
        raise _corrupt(record, f"epoch {record.epoch} after epoch {state.epoch}")
    if record.epoch == state.epoch and record.nonce != state.nonce:
        raise _corrupt(record, f"two writers in epoch {record.epoch}")
    started = any(isinstance(e, EpochStarted) for e in record.events)
    if record.number > 0 and started != (record.epoch > state.epoch):
        raise _corrupt(record, "an epoch begins with the event epoch-started, and nothing else does")


def _check_range(state: LogState, record: Record) -> None:
    if record.first_seq != state.last_seq + 1 or record.last_seq < state.last_seq:
        raise _corrupt(record, f"sequences {record.first_seq}..{record.last_seq} after {state.last_seq}")
    if record.position < state.position and not any(isinstance(e, SourceRenewed) for e in record.events):
        raise _corrupt(record, f"position {record.position} below {state.position}")
    _check_ids(record)
    firsts = record.transactions.first_seqs
    if (record.last_seq >= record.first_seq) != bool(firsts):
        raise _corrupt(record, "changes without a transaction, or the reverse")
    covered = not firsts or (firsts[0] == record.first_seq and firsts[-1] <= record.last_seq)
    if not covered or list(firsts) != sorted(firsts):  # a transaction may have two ids
        raise _corrupt(record, "its transactions do not cover its sequences")
    if record.commit_time is not None and record.commit_time[0] > record.commit_time[1]:
        raise _corrupt(record, "its oldest commit is newer than its newest")


def _check_ids(record: Record) -> None:
    ids = record.transactions
    if len(ids.first_seqs) != len(ids.numbers):
        raise _corrupt(record, "transactions without a first sequence, or the reverse")
    places = range(len(ids.prefixes))
    named = len(ids.prefix) == len(ids.numbers) and all(place in places for place in ids.prefix)
    if not (named if ids.prefix else len(places) == 1 or not ids.numbers):
        raise _corrupt(record, "transactions whose ids have no prefix")


def _add_segment(work: Folding, segment: Segment) -> None:
    record = work.record
    table = work.table(segment.table_id)
    if not record.first_seq <= segment.first_seq <= segment.last_seq <= record.last_seq:
        raise _corrupt(record, f"segment {segment.path} is outside the record's sequences")
    if not 1 <= segment.rows <= segment.last_seq - segment.first_seq + 1:
        raise _corrupt(record, f"segment {segment.path} has {segment.rows} rows")
    before = table.segments.last_seq
    if before is not None and before >= segment.first_seq:
        raise _corrupt(record, f"segment {segment.path} overlaps the table's segment before it")
    if table.stopped is not None and segment.last_seq > table.stopped.seq:
        raise _corrupt(record, f"segment {segment.path} of a stopped table")
    if table.removed and work.state.tables[segment.table_id].removed:
        raise _corrupt(record, f"segment {segment.path} of a removed table")
    begin, end = _version_range(table, segment.schema_version, record)
    if segment.first_seq <= begin or (end is not None and segment.last_seq > end):
        raise _corrupt(record, f"segment {segment.path} is outside its schema version {segment.schema_version}")
    logged = LoggedSegment(record=record.number, segment=segment, written_at=record.written_at)
    nulled = with_nulled(table.nulled, segment.nulled) if segment.nulled else table.nulled
    work.update(table, segments=table.segments.append(logged), nulled=nulled)


def _version_range(table: TableLog, version: int, record: Record) -> tuple[Seq, Seq | None]:
    """The version holds for rows after the first and up to the second sequence (None: it is the newest)."""
    for index in range(len(table.schemas) - 1, -1, -1):
        if table.schemas[index].table.version == version:
            later = table.schemas[index + 1 :]
            return table.schemas[index].after_seq, later[0].after_seq if later else None
    raise _corrupt(record, f"table {table.schema.name} has no schema version {version}")


def _advance(state: LogState, record: Record, work: Folding) -> LogState:
    changes: dict[str, Any] = {
        "number": record.number,
        "epoch": record.epoch,
        "nonce": record.nonce,
        "last_seq": record.last_seq,
        "position": record.position,
        "source_state": state.source_state if record.source_state is None else record.source_state,
        "origin": work.origin,
        "source_since": work.source_since,
        "renewed": work.renewed,
        "renewals": work.renewals,
        "renewal": work.renewal,
        "owner": work.owner,
        "released": work.released,
        "tables": work.tables,
        "snapshots": work.snapshots,
        "transactions": work.transactions,
        "forgotten_plan": work.forgotten_plan,
        "forgotten_tables": work.forgotten_tables,
        "dropped": work.dropped,
        "cuts": work.cuts,
        "signals": work.signals,
        "notified": work.notified,
        "copy_stops": work.copy_stops,
        "commit_times": work.commit_times,
        "newest_commits": work.newest_commits,
    }
    if record.commit_time is not None:
        changes["newest_commit"] = max(record.commit_time[1], state.newest_commit or record.commit_time[1])
    return state.model_copy(update=changes)
