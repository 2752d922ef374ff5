"""Wrong rules, one broken sentence each: the checker must find every one (docs/dev/design.md#the-apply-rule)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from model.capture import Capture, SimChunk
from typing_extensions import override

from tailrace.batch.rule import UNCHANGED, ApplyRule, Batch, Change, Chunk, Finish, Row, Rows, TargetState, Values
from tailrace.sources.postgresql.visibility import PgSnapshot


class NoOpBySequence(ApplyRule[int]):
    """A batch that brings no change is skipped, and with it its chunks."""

    @override
    def done(self, target: TargetState[int], batch: Batch[int]) -> bool:
        return batch.through <= target.applied_seq


class NoRecordNumber(ApplyRule[int]):
    """A chunk that an earlier commit brought comes again with a batch cut differently."""

    @override
    def done(self, target: TargetState[int], batch: Batch[int]) -> bool:
        return False

    @override
    def new_chunks(self, target: TargetState[int], batch: Batch[int]) -> list[Chunk[int]]:
        return list(batch.chunks)


class NoReplay(ApplyRule[int]):
    """The chunk's row wins over everything."""

    @override
    def replay(
        self, key: int, chunk: Chunk[int], changes: Sequence[Change[int]], target: TargetState[int]
    ) -> Row | None:
        return super().replay(key, chunk, (), target)


class ReplayOnlyToA(ApplyRule[int]):
    """Changes of this batch are taken for part of the chunk."""

    @override
    def replay(
        self, key: int, chunk: Chunk[int], changes: Sequence[Change[int]], target: TargetState[int]
    ) -> Row | None:
        old = [change for change in changes if change.seq <= target.applied_seq]
        return super().replay(key, chunk, old, target)


class ReplayOnlyAboveA(ApplyRule[int]):
    """What is applied is never looked at again."""

    @override
    def replay(
        self, key: int, chunk: Chunk[int], changes: Sequence[Change[int]], target: TargetState[int]
    ) -> Row | None:
        new = [change for change in changes if change.seq > target.applied_seq]
        return super().replay(key, chunk, new, target)


class TruncateIgnoredInReplay(ApplyRule[int]):
    """TRUNCATE has no key, so a look-up by key misses it."""

    @override
    def replay(
        self, key: int, chunk: Chunk[int], changes: Sequence[Change[int]], target: TargetState[int]
    ) -> Row | None:
        return super().replay(key, chunk, [change for change in changes if change.op != "T"], target)


class MovesInReplay(ApplyRule[int]):
    """A replayed move takes its unchanged columns from the old key."""

    @override
    def apply(self, target: TargetState[int], batch: Batch[int]) -> TargetState[int]:
        self.every = [change for change in batch.changes if change.seq <= batch.through]
        return super().apply(target, batch)

    @override
    def replay(
        self, key: int, chunk: Chunk[int], changes: Sequence[Change[int]], target: TargetState[int]
    ) -> Row | None:
        rows: Rows[int] = {key: Row(values) for key, values in chunk.rows.items()}
        self.fold(rows, [change for change in self.every if change.seq >= chunk.replay_point], moves=True)
        return rows.get(key)


class MoveKeepsNewKeysRow(ApplyRule[int]):
    """A move's unchanged columns are filled from an older row of the new key."""

    @override
    def moved(self, rows: Rows[int], key: int, old: Row | None) -> Row:
        return rows.get(key) or super().moved(rows, key, old)


class MoveFromStaleRow(ApplyRule[int]):
    """While the table is repaired a move carries a stale value into what is repaired."""

    @override
    def apply(self, target: TargetState[int], batch: Batch[int]) -> TargetState[int]:
        return super().apply(target, replace(batch, repair=False))


class HoleIsForgotten(ApplyRule[int]):
    """Keys with an unknown column are left out, and not remembered."""

    @override
    def is_hole(self, key: int, row: Row, start: TargetState[int]) -> bool:
        return False


class HoleIsClosedOnce(ApplyRule[int]):
    """A re-read closes the hole whatever it finds."""

    @override
    def apply(self, target: TargetState[int], batch: Batch[int]) -> TargetState[int]:
        after = super().apply(target, batch)
        asked = frozenset(key for chunk in self.new_chunks(target, batch) for key in chunk.asked)
        return replace(after, holes=after.holes - asked)


class ChunkOutlivesTruncate(ApplyRule[int]):
    """Rows and holes from before a TRUNCATE stay."""

    @override
    def cleared(self, target: TargetState[int], changes: Sequence[Change[int]]) -> TargetState[int]:
        return target

    @override
    def fold(self, rows: Rows[int], changes: Iterable[Change[int]], moves: bool) -> None:
        super().fold(rows, [change for change in changes if change.op != "T"], moves)


class SmallestReplayPointWins(ApplyRule[int]):
    """Of two chunks the older row is taken, and replayed from the younger one's replay point."""

    @override
    def deciding(self, chunks: Iterable[Chunk[int]]) -> dict[int, Chunk[int]]:
        ordered = sorted(chunks, key=lambda chunk: chunk.replay_point)
        latest = max((chunk.replay_point for chunk in ordered), default=0)
        first = super().deciding(replace(chunk, replay_point=-number) for number, chunk in enumerate(ordered))
        return {key: replace(chunk, replay_point=latest) for key, chunk in first.items()}


class UnchangedIsNull(ApplyRule[int]):
    """A column that the log does not carry is written as NULL."""

    @override
    def updated(self, row: Row | None, values: Values) -> Row:
        return Row(tuple(None if value is UNCHANGED else value for value in values))


class NothingIsReplaced(ApplyRule[int]):
    """The end of a complete snapshot removes nothing."""

    @override
    def at_snapshot_end(self, rows: Rows[int], finish: Finish[int], changes: Sequence[Change[int]]) -> Rows[int]:
        return rows


class ReplacesChangedKeys(ApplyRule[int]):
    """The end of a complete snapshot removes also keys that changed since."""

    @override
    def at_snapshot_end(self, rows: Rows[int], finish: Finish[int], changes: Sequence[Change[int]]) -> Rows[int]:
        return super().at_snapshot_end(rows, finish, ())


class ReplacesByNewestPoint(ApplyRule[int]):
    """Only changes of this batch keep a key that is in no chunk."""

    @override
    def apply(self, target: TargetState[int], batch: Batch[int]) -> TargetState[int]:
        finishes = [replace(finish, replay_point=target.applied_seq + 1) for finish in batch.finishes]
        return super().apply(target, replace(batch, finishes=finishes))


class XipOnly(Capture):
    """Transactions at or above xmax are taken as seen."""

    @override
    def replay_point(self, chunk: SimChunk) -> int:
        everything = PgSnapshot(chunk.seen.xmin, 2**63, chunk.seen.xip)
        return super().replay_point(replace(chunk, seen=everything))


class WindowRule(Capture):
    """The chunk's rows are placed at the end of the record: the classical high watermark."""

    @override
    def replay_point(self, chunk: SimChunk) -> int:
        return self.durable_seq + 1


class RegisteredEarly(Capture):
    """A chunk is registered before the log reached what the chunk may have seen."""

    @override
    def reached(self, chunk: SimChunk) -> bool:
        return chunk.high is not None


class ForgetsTransactions(Capture):
    """Transactions received before a restart are not considered."""

    @override
    def crash(self) -> None:
        super().crash()
        self.forgotten = len(self.transactions)

    @override
    def known(self) -> list[tuple[int, int]]:
        return self.transactions[getattr(self, "forgotten", 0) :]


class RetentionWithoutNow(Capture):
    """The log goes up to what is applied, though a commit in it is still invisible."""

    @override
    def floor_now(self) -> list[int]:
        return []


class NoEdge(Capture):
    """Chunks do not wait for transactions that were in progress where capture began."""

    @override
    def beyond_edge(self, seen: PgSnapshot) -> bool:
        return self.base is not None


RULES: tuple[type[ApplyRule[int]], ...] = (
    NoOpBySequence, NoRecordNumber, NoReplay, ReplayOnlyToA, ReplayOnlyAboveA, TruncateIgnoredInReplay, MovesInReplay,
    MoveKeepsNewKeysRow, MoveFromStaleRow, HoleIsForgotten, HoleIsClosedOnce, ChunkOutlivesTruncate,
    SmallestReplayPointWins, UnchangedIsNull, NothingIsReplaced, ReplacesChangedKeys, ReplacesByNewestPoint,
)  # fmt: skip
CAPTURES: tuple[type[Capture], ...] = (
    XipOnly, WindowRule, RegisteredEarly, ForgetsTransactions, RetentionWithoutNow, NoEdge,
)  # fmt: skip
