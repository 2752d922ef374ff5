"""What a copy whose deleted rows stay, marked, must hold, told by the plain rule, one record after the other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from typing_extensions import override

from support.conforming import Rows, Table
from support.folder_lake import layout_of
from support.histories import HistoryLog
from support.random_log import KeyOf, RandomLog
from tailrace.apply.history_chunks import HistoryChunkWriter
from tailrace.batch.history import stored_slice
from tailrace.batch.limits import BatchLimits, batch_end
from tailrace.batch.rule import UNCHANGED, ApplyRule, Batch, Change, Chunk, TargetState, Values
from tailrace.batch.slice import TableSlice, cut
from tailrace.batch.soft_delete import ends_before
from tailrace.changelog.history import stored
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.state import LoggedTruncate
from tailrace.targets.api import WrittenChunk
from tailrace.targets.lake.chunk_writer import LakeChunkWriter

EVERYTHING = BatchLimits(1 << 40, 1 << 60, 1 << 40, 1 << 40)


class TimedLog(RandomLog):
    """TRUNCATEs have a time, as everything does: their sequence, in microseconds."""

    @override
    def _truncate(self) -> None:
        self._add("T", None)
        logged = LoggedTruncate(record=self.record, seq=self.seq, transaction="1", written_at=0, commit_time=self.seq)
        self._update(truncates=self.table.truncates.append(logged))


class SoftLog(TimedLog, HistoryLog):
    """Its chunks are written by a target."""


class FolderSoftLog(TimedLog):
    """Its chunks are written into a folder."""

    @override
    def put(self, number: int, rows: pa.Table) -> WrittenChunk | None:
        files = LakeChunkWriter(layout_of(stored(self.schema)), f"file://{self.folder}", self.access)
        return HistoryChunkWriter(self.schema, files).write("s", number, [rows])


@dataclass
class SoftTable(Table):
    """A table of a subject, moved as the worker of its unit moves it; and beside it what it should have."""

    wanted: TargetState[KeyOf] = field(default_factory=TargetState)
    covered: RecordNumber = RecordNumber(0)
    batches: int = 0
    lost: list[KeyOf] = field(default_factory=list)
    """Keys of deleted rows that it could not keep."""

    def bring(self, log: RandomLog, through: RecordNumber) -> None:
        self.covered = max(self.covered, self.applied.applied_record)
        while self.covered < through:
            end = batch_end([(log.table, self.covered)], through, EVERYTHING, ends_before(log.table))
            part = cut(log.state, self.schema.table_id, self.applied, end)
            if part is not None:
                self.apply(stored_slice(part))
                self.wanted = following(self.wanted, log, part, self.lost)
                self.batches += 1
            self.covered = end


def following(
    target: TargetState[KeyOf], log: RandomLog, part: TableSlice, lost: list[KeyOf] | None = None
) -> TargetState[KeyOf]:
    """`target` has the values of a row and, behind them, its marks. `lost`: gets the keys of deleted rows of which
    nobody has the values."""
    lost = [] if lost is None else lost
    columns = len(part.schema.columns)
    rows = {key: _padded(row, columns) for key, row in target.rows.items()}
    target = replace(target, rows=rows)
    changes = [_marking(_of_version(log, at, columns), columns) for at in log.history if at[0].seq <= part.through_seq]
    emptied = [change.seq for change, _ in log.history if change.op == "T" and change.seq <= part.through_seq]
    moves = [change for change in changes if change.op != "T"]
    for seq in (seq for seq in emptied if seq > part.applied.applied_seq):
        target = _stepped(target, moves, seq - 1, part.repair)
        lost += target.holes
        target = TargetState(_marked(target, lambda key: True, _at(seq)), seq, target.applied_record)
    taken = part.applied.applied_record, part.through_record
    chunks = [
        (registered, replace(chunk, rows={key: (*row, *[None] * (columns - len(row)), False, None)
                                          for key, row in chunk.rows.items()}))
        for registered, chunk in log.chunks
        if taken[0] < chunk.record <= taken[1] and all(seq < chunk.replay_point for seq in emptied)
    ]  # fmt: skip
    target = _stepped(target, moves, part.through_seq, part.repair, [chunk for _, chunk in chunks])
    there = target.holes
    target = _unfound(target, moves, [chunk for _, chunk in chunks])
    for finish in log.finishes:
        if taken[0] < finish.record <= taken[1]:
            kept = finish.keys | {change.key for change in moves if change.seq >= finish.replay_point}
            target = _without(target, lambda key, kept=kept: key not in kept)
    lost += there - target.holes
    return replace(target, applied_record=part.through_record)


def _stepped(
    target: TargetState[KeyOf],
    changes: Sequence[Change[KeyOf]],
    through: int,
    repair: bool,
    chunks: Sequence[Chunk[KeyOf]] = (),
) -> TargetState[KeyOf]:
    asked = [replace(chunk, record=target.applied_record + 1, asked=frozenset()) for chunk in chunks]
    width = max((len(change.values) for change in changes), default=0)
    width = max(
        [width, *(len(row) for chunk in chunks for row in chunk.rows.values()), *map(len, target.rows.values())]
    )
    batch = Batch(target.applied_record + 1, through, changes, asked, (), repair)
    return replace(ApplyRule[KeyOf](width).apply(target, batch), applied_record=target.applied_record)


def _unfound(
    target: TargetState[KeyOf], changes: Sequence[Change[KeyOf]], chunks: Sequence[Chunk[KeyOf]]
) -> TargetState[KeyOf]:
    """Keys that a chunk looked for, that it lacks, and that have not changed since."""
    deciding = ApplyRule[KeyOf](0).deciding(chunks)
    gone = {key: chunk.replay_point for key, chunk in deciding.items() if key not in chunk.rows}
    changed = {change.key for change in changes if change.seq >= gone.get(change.key or (), change.seq + 1)}
    return _without(target, lambda key: key in gone and key not in changed)


def _without(target: TargetState[KeyOf], is_gone: Any) -> TargetState[KeyOf]:
    holes = frozenset(key for key in target.holes if not is_gone(key))
    return replace(target, rows=_marked(target, is_gone, None), holes=holes)


def _marked(target: TargetState[KeyOf], is_gone: Any, at: datetime | None) -> dict[KeyOf, Values]:
    return {key: (*row[:-2], True, at) if is_gone(key) and not row[-2] else row for key, row in target.rows.items()}


def _at(seq: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=seq)


def _padded(row: Values, columns: int) -> Values:
    return (*row[:-2], *[None] * (columns - len(row) + 2), *row[-2:])


def _of_version(log: RandomLog, logged: tuple[Change[KeyOf], int], columns: int) -> Change[KeyOf]:
    change, _ = logged
    fill = UNCHANGED if change.op == "U" else None
    return (
        replace(change, values=(*change.values, *[fill] * (columns - len(change.values)))) if change.values else change
    )


def _marking(change: Change[KeyOf], columns: int) -> Change[KeyOf]:
    """The change as one of a wider table."""
    if change.op == "T":
        return change
    marks = (True, _at(change.seq)) if change.op == "D" else (False, None)
    return replace(change, values=(*(change.values or (UNCHANGED,) * columns), *marks))


def shown(target: TargetState[KeyOf], names: Sequence[str]) -> Rows:
    return [dict(zip(names, row, strict=True)) for row in target.rows.values()]


def marks_of(rows: Rows, names: Sequence[str]) -> Iterator[tuple[bool, Any]]:
    """`names`: of all columns."""
    return ((row[names[-2]], row[names[-1]]) for row in rows)


def told_of_lost(caplog: pytest.LogCaptureFixture) -> int:
    """The number of deleted rows that warnings say are not kept."""
    told = [record for record in caplog.records if record.name == "tailrace.targets.lost_rows"]
    return sum(int(record.getMessage().partition(": ")[2].partition(";")[0]) for record in told)


def texts(rows: Rows) -> list[str]:
    """The rows, to be compared whatever their order."""
    return sorted(repr(sorted((row | _in_utc(row)).items())) for row in rows)


def _in_utc(row: dict[str, Any]) -> dict[str, datetime]:
    return {name: value.astimezone(UTC) for name, value in row.items() if isinstance(value, datetime)}
