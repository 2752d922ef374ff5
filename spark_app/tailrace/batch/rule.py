"""The apply rule, one change after the other, as plain as it can be written. Pure; values are opaque.

The same in words: docs/dev/design.md#the-apply-rule.

Two callers: `fold.moved_keys` for the few keys whose values move between keys (everything else is done with arrays),
and the tests, for which this text is the reference (`tests/model` checks it against a simulated source). `Rule.apply`
takes a target and a batch and returns the next target. Small methods, so that a test can break one of them.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, Literal, TypeVar

K = TypeVar("K", bound=Hashable)


class Missing(Enum):
    """The reason why a column has no value."""

    UNCHANGED = "the log row does not carry it"
    UNKNOWN = "nobody knows it yet"


UNCHANGED: Final = Missing.UNCHANGED
UNKNOWN: Final = Missing.UNKNOWN

Values = tuple[object, ...]
Op = Literal["I", "U", "D", "M", "T"]


@dataclass(frozen=True)
class Change(Generic[K]):
    """A log row. D carries no values, T (TRUNCATE) neither key nor values; M follows the D of its old key. A D with
    values sets them, and its row stays (`options[].history: SoftDelete`)."""

    seq: int
    op: Op
    key: K | None = None
    values: Values = ()


@dataclass(frozen=True)
class Chunk(Generic[K]):
    """A registered chunk. `asked`: the keys of a chunk that is a list of keys."""

    record: int
    replay_point: int
    rows: Mapping[K, Values]
    asked: frozenset[K] = frozenset()

    @property
    def keys(self) -> frozenset[K]:
        """Keys that the chunk decides: those it holds, and those that were looked for and not found."""
        return self.asked.union(self.rows)


@dataclass(frozen=True)
class Finish(Generic[K]):
    """The end of a complete snapshot: the keys of all its chunks, the smallest of their replay points."""

    record: int
    replay_point: int
    keys: frozenset[K]


@dataclass(frozen=True)
class Batch(Generic[K]):
    """The log's content for one table, up to record `record`, whose last sequence is `through`."""

    record: int
    through: int
    changes: Sequence[Change[K]] = ()
    """The changes in order; those at or below the applied sequence are needed from the chunks' replay points on."""
    chunks: Sequence[Chunk[K]] = ()
    finishes: Sequence[Finish[K]] = ()
    repair: bool = False
    """A complete snapshot is under way: the target's rows may be stale, so a move takes nothing from them."""


@dataclass(frozen=True)
class TargetState(Generic[K]):
    rows: Mapping[K, Values] = field(default_factory=dict)
    applied_seq: int = 0
    applied_record: int = 0
    holes: frozenset[K] = frozenset()


@dataclass(frozen=True)
class Row:
    values: Values
    stale: frozenset[int] = frozenset()
    """Columns whose value stood in a target under repair."""
    waiting: bool = False
    """Made by an update that found no row: its chunk, or that chunk's replay, will bring the rest."""

    @property
    def complete(self) -> bool:
        return UNKNOWN not in self.values


Rows = dict[K, Row]


class ApplyRule(Generic[K]):
    """The rule; every method is one sentence of docs/dev/design.md#the-apply-rule."""

    def __init__(self, columns: int) -> None:
        self.unknown = Row((UNKNOWN,) * columns)

    def apply(self, target: TargetState[K], batch: Batch[K]) -> TargetState[K]:
        if self.done(target, batch):
            return target
        changes = [c for c in batch.changes if c.seq <= batch.through]
        chunks = self.new_chunks(target, batch)
        start = self.cleared(target, changes)
        streamed = self.stream(start, [c for c in changes if c.seq > start.applied_seq], batch.repair)
        rows = dict(streamed)
        histories = self.histories(changes)
        for key, chunk in self.deciding(chunks).items():
            row = self.decide(self.replay(key, chunk, histories(key), target), streamed.get(key))
            rows.pop(key, None)
            if row is not None:
                rows[key] = row
        for finish in batch.finishes:
            if finish.record > target.applied_record:
                rows = self.at_snapshot_end(rows, finish, changes)
        return TargetState(
            {key: row.values for key, row in rows.items() if row.complete},
            batch.through,
            batch.record,
            frozenset(key for key, row in rows.items() if self.is_hole(key, row, start)),
        )

    def done(self, target: TargetState[K], batch: Batch[K]) -> bool:
        """True if the target holds the batch, by record, not by sequence: a record may bring a chunk and no change."""
        return batch.record <= target.applied_record

    def new_chunks(self, target: TargetState[K], batch: Batch[K]) -> list[Chunk[K]]:
        """A batch may be cut differently after a crash: what an earlier commit brought is not applied again."""
        return [chunk for chunk in batch.chunks if chunk.record > target.applied_record]

    def cleared(self, target: TargetState[K], changes: Sequence[Change[K]]) -> TargetState[K]:
        """Nothing before the last new TRUNCATE outlives it, holes included."""
        truncates = [c.seq for c in changes if c.op == "T" and c.seq > target.applied_seq]
        return TargetState({}, truncates[-1], target.applied_record) if truncates else target

    def stream(self, start: TargetState[K], changes: Sequence[Change[K]], repair: bool) -> Rows[K]:
        """The target's rows, then the changes since, without any chunk."""
        stale = frozenset(range(len(self.unknown.values))) if repair else frozenset()
        rows: Rows[K] = {key: Row(values, stale) for key, values in start.rows.items()}
        rows.update(dict.fromkeys(start.holes, self.unknown))
        self.fold(rows, changes, moves=True)
        return rows

    def deciding(self, chunks: Iterable[Chunk[K]]) -> dict[K, Chunk[K]]:
        """One row per key: of several chunks the one with the greatest replay point; of equal ones the one that was
        registered last, for rows may change without an event (an enum label renamed, a partition attached)."""
        deciding: dict[K, Chunk[K]] = {}
        for chunk in chunks:
            for key in chunk.keys:
                if key not in deciding or chunk.replay_point >= deciding[key].replay_point:
                    deciding[key] = chunk
        return deciding

    def histories(self, changes: Sequence[Change[K]]) -> Callable[[K], list[Change[K]]]:
        """The changes of one key, TRUNCATEs among them, in order."""
        own: dict[K | None, list[Change[K]]] = {}
        for change in changes:
            own.setdefault(change.key, []).append(change)
        truncates = own.pop(None, [])
        return lambda key: sorted([*own.get(key, ()), *truncates], key=lambda change: change.seq)

    def replay(self, key: K, chunk: Chunk[K], changes: Sequence[Change[K]], target: TargetState[K]) -> Row | None:
        """The chunk's row, then the key's changes from the replay point on, also those below the applied sequence."""
        rows: Rows[K] = {key: Row(chunk.rows[key])} if key in chunk.rows else {}
        self.fold(rows, [change for change in changes if change.seq >= chunk.replay_point], moves=False)
        return rows.get(key)

    def decide(self, replayed: Row | None, streamed: Row | None) -> Row | None:
        """The stream helps out where the replay meets a move whose value it may not take from another key."""
        if replayed is None or replayed.complete:
            return replayed
        return streamed if streamed is not None and streamed.complete and not streamed.stale else replayed

    def at_snapshot_end(self, rows: Rows[K], finish: Finish[K], changes: Sequence[Change[K]]) -> Rows[K]:
        """A complete snapshot replaces: a key in none of its chunks and without a change since is not in the source."""
        changed = {c.key for c in changes if c.seq >= finish.replay_point}
        return {key: row for key, row in rows.items() if key in finish.keys or key in changed}

    def is_hole(self, key: K, row: Row, start: TargetState[K]) -> bool:
        return not row.complete and (not row.waiting or key in start.holes)

    def fold(self, rows: Rows[K], changes: Iterable[Change[K]], moves: bool) -> None:
        deleted: tuple[int, Row | None] = (-1, None)
        for change in changes:
            if change.op == "T":
                rows.clear()
                continue
            key = change.key
            assert key is not None
            if change.op == "D":
                deleted = change.seq, rows.pop(key, None)
                if change.values and (deleted[1] is None or deleted[1].waiting or deleted[1].complete):
                    rows[key] = self.updated(deleted[1], change.values)
            elif change.op == "U":
                rows[key] = self.updated(rows.get(key), change.values)
            else:
                adjacent = moves and change.op == "M" and deleted[0] == change.seq - 1
                rows[key] = self.placed(change.values, self.moved(rows, key, deleted[1] if adjacent else None))

    def moved(self, rows: Rows[K], key: K, old: Row | None) -> Row:
        """The row from which a move may take values: the old key's row from just before its D, never the new key's
        older row."""
        if old is None:
            return self.unknown
        return Row(tuple(UNKNOWN if i in old.stale else value for i, value in enumerate(old.values)))

    def placed(self, values: Values, base: Row) -> Row:
        return Row(tuple(old if new is UNCHANGED else new for new, old in zip(values, base.values, strict=True)))

    def updated(self, row: Row | None, values: Values) -> Row:
        """An update sets what it carries."""
        base = row or Row(self.unknown.values, waiting=True)
        after = self.placed(values, base)
        stale = frozenset(i for i in base.stale if values[i] is UNCHANGED)
        return Row(after.values, stale, base.waiting and not after.complete)
