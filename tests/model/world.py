"""One schedule of the simulation: a list of actions, then quiescence; `Fault` when the oracle disagrees.

The oracle (a) compares target and source at the end; (b) after every commit compares every loaded key with the source's
state in log order at the applied sequence, except holes, which are withheld; (c) in a target that is not stale it
compares also the rows of keys that are not loaded yet.
"""

from dataclasses import dataclass, field

from model.capture import Capture, SimSnapshot, shown
from model.source import Source, State

from tailrace.batch.rule import ApplyRule, Batch, Chunk, Finish, TargetState

Action = tuple[object, ...]
KEYS_LIST = -1


class Fault(AssertionError):
    """The target shows what the source never held."""


@dataclass(frozen=True)
class Plan:
    """How the world is before the first action."""

    keys: int
    rows: State
    ranges: tuple[range, ...]
    mode: str
    """`initial`: an empty target; `filled`: it equals the source; `stale`: it has wrong, lost and foreign rows."""
    junk: State = field(default_factory=dict)
    lost: frozenset[int] = frozenset()
    late: bool = False
    """Capture begins after the first transactions."""
    recut: bool = False
    """After a crash the batch is cut differently."""


class World:
    def __init__(self, plan: Plan, rule: ApplyRule[int], capture: type[Capture] = Capture) -> None:
        self.plan, self.rule = plan, rule
        self.source = Source(plan.rows, plan.keys)
        self.capture = capture(self.source)
        self.target: TargetState[int] = TargetState()
        self.offset = 0
        self.again: int | None = None
        if plan.mode != "filled":
            self.capture.snapshots.append(SimSnapshot(plan.ranges, complete=True, initial=True))
        if plan.mode != "initial":
            kept = {key: row for key, row in plan.rows.items() if key not in plan.lost}
            self.target = TargetState({**self.capture.copied(kept), **plan.junk})
        if not plan.late:
            self.capture.start(plan.rows)

    def run(self, actions: list[Action]) -> None:
        for action in actions:
            self.step(*action)
        self.quiesce()

    def step(self, name: object, *numbers: object) -> None:
        getattr(self, f"do_{name}")(*numbers)

    def do_write(self, slot: int, kind: str, key: int, other: int, columns: str) -> None:
        self.source.write(slot, kind, key, other, columns)

    def do_commit(self, number: int) -> None:
        self.source.commit(number)

    def do_show(self, number: int) -> None:
        self.source.show(number)

    def do_abort(self, number: int) -> None:
        self.source.abort(number)

    def do_slot(self) -> None:
        self.capture.start(self.plan.rows)

    def do_chunk(self, which: int, number: int) -> None:
        """Open a chunk of a running snapshot."""
        running = [s for s in self.capture.snapshots if not s.asked and len(s.chunks) < len(s.ranges)]
        if running:
            snapshot = running[which % len(running)]
            self.capture.open_chunk(snapshot, number % len(snapshot.ranges))

    def do_snapshot(self, low: int, high: int, complete: bool) -> None:
        """Somebody asks for a snapshot: one range, or everything."""
        if self.capture.base is not None:
            ranges = self.plan.ranges if complete else (range(low, high),)
            self.capture.snapshots.append(SimSnapshot(ranges, complete))

    def do_reread(self, number: int) -> None:
        """Read holes again: one of them or all."""
        holes = sorted(self.target.holes)
        if holes and not any(s.asked and self._unapplied(s) for s in self.capture.snapshots):
            asked = holes if number % 2 else [holes[number % len(holes)]]
            snapshot = SimSnapshot((range(0),), complete=False, asked=frozenset(asked))
            self.capture.open_chunk(snapshot, 0)
            if snapshot.chunks:
                self.capture.snapshots.append(snapshot)

    def _unapplied(self, snapshot: SimSnapshot) -> bool:
        return any(c.record is None or c.record > self.target.applied_record for c in snapshot.chunks.values())

    def do_read(self, number: int) -> None:
        self.capture.end_chunk(number)

    def do_receive(self, count: int) -> None:
        self.capture.receive(count)

    def do_record(self, choice: int) -> None:
        self.capture.record(choice)

    def do_crash(self) -> None:
        self.capture.crash()

    def do_trim(self) -> None:
        if self.capture.base is not None:
            self.capture.trim(min(self.capture.floors(self.target.applied_seq, self.target.applied_record)))

    def do_apply(self, count: int, crash: str) -> None:
        """`crash`: `before` or `after` the target's commit; the batch comes again, perhaps cut differently."""
        end = min(len(self.capture.journal), self.offset + count)
        if self.again is not None and not self.plan.recut:
            end = self.again
        if end > self.offset:
            after = self.rule.apply(self.target, self.batch(end))
            if crash != "before":
                self.target = after
                self.check()
            self.again = end if crash else None
            self.offset = self.offset if crash else end

    def batch(self, end: int) -> Batch[int]:
        journal = self.capture.journal
        chunks = [
            Chunk(number, c.replay_point, c.rows, c.snapshot.asked)
            for number in range(self.offset + 1, end + 1)
            for c in journal[number - 1].chunks
        ]
        finishes = [
            Finish(
                number,
                min(c.replay_point for c in s.chunks.values()),
                frozenset(key for c in s.chunks.values() for key in c.rows),
            )
            for number in range(self.offset + 1, end + 1)
            for s in journal[number - 1].finishes
            if s.complete
        ]
        repair = any(
            s.complete and (s.finished is None or s.finished > self.target.applied_record)
            for s in self.capture.snapshots
        )
        return Batch(end, journal[end - 1].through, tuple(self.capture.changes), chunks, finishes, repair)

    def loaded(self) -> frozenset[int]:
        """Keys that must equal the source at the applied sequence."""
        everything = frozenset(range(self.plan.keys))
        done = [s for s in self.capture.snapshots if s.finished and s.finished <= self.target.applied_record]
        if self.plan.mode == "filled" or any(s.complete for s in done):
            return everything
        applied = [
            c
            for s in self.capture.snapshots
            for c in s.chunks.values()
            if c.record and c.record <= self.target.applied_record
        ]
        return frozenset(k for c in applied for k in (c.rows if self.plan.mode == "stale" else c.keys))

    def check(self) -> None:
        truth = self.capture.copied(self.capture.states[self.target.applied_seq])
        loaded = self.loaded()
        for key in range(self.plan.keys + 2):
            mine, theirs = self.target.rows.get(key), truth.get(key)
            known = key in loaded or (mine is not None and self.plan.mode != "stale")
            if known and mine != theirs and key not in self.target.holes:
                raise Fault(f"key {key} at {self.target.applied_seq}: target {shown(mine)}, source {shown(theirs)}")
            if mine is not None and key in self.target.holes:
                raise Fault(f"key {key} has a row and is a hole")

    def quiesce(self) -> None:
        """Everything ends: transactions, chunks, records, batches, holes."""
        self.capture.start(self.plan.rows)
        for _ in range(self.plan.keys * 4):
            self.source.commit(0)
        while self.source.active:
            self.source.show(0)
        for _ in range(12):
            for snapshot in self.capture.snapshots:
                for number in range(len(snapshot.ranges)):
                    self.capture.open_chunk(snapshot, number)
            self.do_reread(1)
            while any(chunk.high is None for chunk in self.capture.reading):
                self.capture.end_chunk(0)
            self.capture.receive(len(self.source.log))
            self.capture.record(-1)
            self.do_apply(1000, "")
            self.do_apply(1000, "")
        if self.target.holes:
            raise Fault(f"holes were never closed: {sorted(self.target.holes)}")
        rows = self.capture.copied(self.source.visible)
        if dict(self.target.rows) != rows:
            raise Fault(f"at the end: target {self.target.rows}, source {rows}")
