"""What a copy with all versions of its rows must hold, told by the plain rule, one change after the other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from typing_extensions import override

from support.conforming import LogOf, Rows, Table
from support.folder_lake import layout_of
from support.random_log import KeyOf, RandomLog
from support.soft_deletes import EVERYTHING
from tailrace.apply.history_chunks import HistoryChunkWriter
from tailrace.batch.history import stored_slice
from tailrace.batch.limits import BatchLimits, batch_end
from tailrace.batch.rule import UNCHANGED, ApplyRule, Batch, Change, Chunk, TargetState, Values
from tailrace.batch.slice import TableSlice, cut
from tailrace.batch.versions import version_ends
from tailrace.changelog.history import stored
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.state import LoggedTruncate
from tailrace.targets.api import ChunkWriter, WrittenChunk
from tailrace.targets.lake.chunk_writer import LakeChunkWriter


class CommittedLog(RandomLog):
    """Some neighbouring changes are of one commit, and the source's clock goes back now and then."""

    @override
    def _truncate(self) -> None:
        self._add("T", None)
        at = self.moment(self.seq)
        logged = LoggedTruncate(record=self.record, seq=self.seq, transaction="1", written_at=0, commit_time=at)
        self._update(truncates=self.table.truncates.append(logged))

    @override
    def moment(self, seq: int) -> int:
        change = next((change for change, _ in reversed(self.history) if change.seq == seq), None)
        if change is not None and change.op == "M":
            seq -= 1  # a move is one commit
        block = seq // 3
        return 1000 + 3 * block - (10 if block % 5 == 4 else 0)

    def now(self) -> float:
        """The clock of readers."""
        return self.moment(self.seq) / 1_000_000


class FolderVersionLog(CommittedLog):
    """Its chunks are written into a folder."""

    @override
    def put(self, number: int, rows: pa.Table) -> WrittenChunk | None:
        files = LakeChunkWriter(layout_of(stored(self.schema)), f"file://{self.folder}", self.access)
        return HistoryChunkWriter(self.schema, files, self.now).write("s", number, [rows])


class VersionLog(CommittedLog, LogOf):
    """Its chunks are written by a target."""

    @property
    @override
    def writer(self) -> ChunkWriter:
        return HistoryChunkWriter(self.schema, self.target.unit.chunk_writer(stored(self.schema)), self.now)


@dataclass
class Versions:
    """The table that there should be."""

    log: RandomLog
    target: TargetState[KeyOf] = field(default_factory=TargetState)
    """The open versions' values."""
    begins: dict[KeyOf, int] = field(default_factory=dict)
    ended: list[tuple[Values, int, int]] = field(default_factory=list)
    """Values, beginning and end."""

    def follow(self, part: TableSlice, chunk_times: dict[int, int], now: int) -> None:
        """`now`: what a reading no longer finds ends then."""
        columns = len(part.schema.columns)
        ended = [((*values, *[None] * (columns - len(values))), begun, end) for values, begun, end in self.ended]
        self.ended = ended
        rows = {key: (*row, *[None] * (columns - len(row))) for key, row in self.target.rows.items()}
        self.target = replace(self.target, rows=rows)
        history = [(change, version) for change, version in self.log.history if change.seq <= part.through_seq]
        changes = [_padded(change, columns) for change, _ in history if change.op != "T"]
        emptied = [change.seq for change, _ in history if change.op == "T"]
        rule = ApplyRule[KeyOf](columns)
        for seq in (seq for seq in emptied if seq > part.applied.applied_seq):
            self._step(rule, changes, seq - 1, part.repair)
            for key in list(self.begins):
                self._end(key, self.log.moment(seq))
            self.target = TargetState({}, seq, self.target.applied_record)
        self._step(rule, changes, part.through_seq, part.repair)
        self._read(rule, changes, (part, emptied), chunk_times, now)
        self.target = replace(self.target, applied_record=part.through_record)

    def _step(self, rule: ApplyRule[KeyOf], changes: Sequence[Change[KeyOf]], through: int, repair: bool) -> None:
        record = self.target.applied_record
        after = rule.apply(self.target, Batch(record + 1, through, changes, (), (), repair))
        rows = rule.stream(self.target, [], repair)
        for piece in _pieces([c for c in changes if self.target.applied_seq < c.seq <= through]):
            rule.fold(rows, piece, moves=True)
            known = {key: row.values for key, row in rows.items() if row.complete}
            self._move(known, {c.key: self.log.moment(c.seq) for c in piece if c.key is not None})
        assert self.target.rows == after.rows
        self.target = replace(after, applied_record=record)

    def _move(self, known: Mapping[KeyOf, Values], times: dict[KeyOf, int]) -> None:
        for key, time in times.items():
            if key in self.begins:
                self._end(key, time)
            if key in known:
                self.begins[key] = time
        self.target = replace(self.target, rows=known)
        assert self.begins.keys() == known.keys()

    def _end(self, key: KeyOf, time: int) -> None:
        begun = self.begins.pop(key)
        if begun != time:
            self.ended.append((self.target.rows[key], begun, max(begun, time)))

    def _read(
        self,
        rule: ApplyRule[KeyOf],
        changes: Sequence[Change[KeyOf]],
        what: tuple[TableSlice, Sequence[int]],
        chunk_times: dict[int, int],
        now: int,
    ) -> None:
        part, emptied = what
        taken, record = (part.applied.applied_record, part.through_record), self.target.applied_record + 1
        mine = [
            (registered, chunk) for registered, chunk in self.log.chunks
            if taken[0] < chunk.record <= taken[1] and all(seq < chunk.replay_point for seq in emptied)
        ]  # fmt: skip
        width = len(part.schema.columns)
        chunks = [
            Chunk(record, chunk.replay_point,
                  {key: (*row, *[None] * (width - len(row))) for key, row in chunk.rows.items()}, chunk.asked)
            for _, chunk in mine
        ]  # fmt: skip
        finishes = [replace(f, record=record) for f in self.log.finishes if taken[0] < f.record <= taken[1]]
        after = rule.apply(self.target, Batch(record, part.through_seq, changes, chunks, finishes, part.repair))
        moments = {id(chunk): chunk_times[registered.chunk] for (registered, _), chunk in zip(mine, chunks, strict=True)
                   if chunk.rows}  # fmt: skip
        deciding, times = rule.deciding(chunks), dict[KeyOf, int]()
        for key in {*self.target.rows, *after.rows}:
            if self.target.rows.get(key) == after.rows.get(key):
                continue
            times[key] = now
            if key in after.rows:
                chunk = deciding[key]
                later = [c.seq for c in changes if c.key == key and c.seq >= chunk.replay_point]
                times[key] = self.log.moment(later[-1]) if later else moments[id(chunk)]
        self._move(after.rows, times)
        self.target = replace(after, applied_record=self.target.applied_record)

    def shown(self, names: Sequence[str]) -> Rows:
        open_rows = [(*row, _at(self.begins[key]), None, True) for key, row in self.target.rows.items()]
        ended = [(*values, _at(begun), _at(end), False) for values, begun, end in self.ended]
        return [dict(zip(names, row, strict=True)) for row in (*open_rows, *ended)]


def _padded(change: Change[KeyOf], columns: int) -> Change[KeyOf]:
    if not change.values:
        return change
    fill = UNCHANGED if change.op == "U" else None
    return replace(change, values=(*change.values, *[fill] * (columns - len(change.values))))


def _pieces(changes: Sequence[Change[KeyOf]]) -> Iterator[list[Change[KeyOf]]]:
    """A move comes with the deletion under the old key."""
    piece: list[Change[KeyOf]] = []
    for change in changes:
        if piece and not (change.op == "M" and piece[-1].op == "D" and piece[-1].seq == change.seq - 1):
            yield piece
            piece = []
        piece.append(change)
    if piece:
        yield piece


def _at(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def slices(log: RandomLog, table: Any, covered: RecordNumber, through: RecordNumber) -> Iterator[TableSlice]:
    """The batches as the worker of a unit cuts them. `table`: has `applied`, which moves on between them."""
    while covered < through:
        covered = batch_end([(log.table, covered)], through, limits(), version_ends(log.table))
        part = cut(log.state, log.schema.table_id, table.applied, covered)
        if part is not None:
            yield part


def limits() -> BatchLimits:
    return EVERYTHING


@dataclass
class VersionTable(Table):
    """A table of a subject, moved as the worker of its unit moves it."""

    covered: RecordNumber = RecordNumber(0)
    batches: int = 0

    def bring(self, log: RandomLog, through: RecordNumber) -> Iterator[TableSlice]:
        """Yields each slice before it is applied."""
        for part in slices(log, self, max(self.covered, self.applied.applied_record), through):
            yield part
            self.apply(stored_slice(part))
            self.batches += 1
        self.covered = max(self.covered, through)
