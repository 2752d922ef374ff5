"""The life of one table's snapshot as a pure state machine: what was recorded, what is being read, what comes next.

The runner holds one `TableRun` per table of each running snapshot, asks `next_work` what to do, does it, and reports
the result to `step`. A table may be abandoned in every phase (it stopped, was removed or started over); what was asked
before is still answered, and changes nothing. An event that does not fit the phase raises `IllegalEvent`.

    EDGE --EdgePassed--> START --Started--> WALK --(all ranges registered)--> FINISH --Finished--> DONE
      any of EDGE, START, WALK --GaveUp--> FINISH (with a fault)

What the ranges of a table are, and which of them a resumed snapshot lacks, stands in `ranges`.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import Key, RecordNumber
from tailrace.changelog.state import SnapshotTable
from tailrace.contract.status import Fault
from tailrace.snapshot.ranges import Gap, IllegalEvent, Range, gaps_of, key_lists


class Phase(enum.Enum):
    EDGE = "waiting for transactions from before the capture to end"
    START = "looking up and recording the largest key"
    WALK = "cutting and reading chunks"
    FINISH = "recording the end"
    DONE = "recorded"


@dataclass(frozen=True)
class TableRun:
    snapshot_id: str
    table_id: int
    phase: Phase
    where: str | None = None
    keys: tuple[Key, ...] | None = None
    verify: bool = False
    sample: float | None = None
    """The share of the ranges that are read."""
    estimated_rows: int = 0
    gaps: tuple[Gap, ...] = ()
    cutting: bool = False
    ready: tuple[Range, ...] = ()
    reading: dict[int, Range] = field(default_factory=dict)
    chunks_done: int = 0
    rows_done: int = 0
    failures: int = 0
    """Failures in a row, over all chunks; a registered chunk resets the number."""
    fault: Fault | None = None
    given_up: RecordNumber | None = None
    """The record that added the table that was abandoned."""

    @property
    def complete(self) -> bool:
        """The snapshot replaces the table's rows."""
        return self.where is None and self.keys is None and not self.verify

    def takes(self, ordinal: int) -> bool:
        """True if the range is read. Decided by its ordinal, so that a resumed snapshot takes the same."""
        of = f"{self.snapshot_id}/{self.table_id}/{ordinal}"
        return self.sample is None or Random(of).random() < self.sample


# ---- events ----


@dataclass(frozen=True)
class EdgePassed:
    pass


@dataclass(frozen=True)
class Started:
    max_key: Key | None
    estimated_rows: int


@dataclass(frozen=True)
class CutBegun:
    pass


@dataclass(frozen=True)
class Cut:
    """`upper`: the key that ends the next chunk of the first gap; None: the rest of the gap is one chunk."""

    upper: Key | None


@dataclass(frozen=True)
class CutFailed:
    fault: Fault


@dataclass(frozen=True)
class ReadBegun:
    ordinal: int


@dataclass(frozen=True)
class Registered:
    ordinal: int
    rows: int


@dataclass(frozen=True)
class ReadFailed:
    ordinal: int
    fault: Fault


@dataclass(frozen=True)
class GaveUp:
    fault: Fault
    added: RecordNumber
    """The record that added the table."""


@dataclass(frozen=True)
class Finished:
    pass


Event = EdgePassed | Started | CutBegun | Cut | CutFailed | ReadBegun | Registered | ReadFailed | GaveUp | Finished


# ---- work ----


@dataclass(frozen=True)
class CheckEdge:
    pass


@dataclass(frozen=True)
class FindMaxKey:
    pass


@dataclass(frozen=True)
class CutNext:
    """Find the key that ends a chunk in (`lower`, `upper`]; `last`: the rest must be one chunk, nothing to look up."""

    lower: Key | None
    upper: Key
    last: bool


@dataclass(frozen=True)
class Read:
    range: Range


@dataclass(frozen=True)
class RecordFinish:
    pass


Work = CheckEdge | FindMaxKey | CutNext | Read | RecordFinish


def begin(
    snapshot_id: str,
    logged: SnapshotTable,
    where: str | None,
    keys: Sequence[Key] | None,
    *,
    verify: bool = False,
    sample: float | None = None,
) -> TableRun:
    """The run as the journal has it: after a restart registered ranges are kept, only what is between is read."""
    run = TableRun(
        snapshot_id,
        logged.table_id,
        Phase.EDGE,
        where,
        tuple(keys) if keys is not None else None,
        verify,
        sample,
        chunks_done=logged.chunks_done,
        rows_done=logged.rows_done,
    )
    if logged.finished is not None:
        return replace(run, phase=Phase.DONE)
    if not logged.started:
        return run
    run = replace(run, phase=Phase.WALK, estimated_rows=logged.estimated_rows)
    return _settle(_with_ranges(run, logged.max_key, logged.chunks))


def _with_ranges(run: TableRun, max_key: Key | None, registered: Sequence[ChunkRegistered]) -> TableRun:
    known = {chunk.chunk for chunk in registered}
    if run.keys is not None:
        return replace(run, ready=tuple(r for r in key_lists(run.keys) if r.ordinal not in known))
    tail = () if 0 in known else (Range(0, max_key, None),)
    gaps = () if max_key is None else gaps_of(registered, max_key)
    return replace(run, ready=tail, gaps=gaps)


def next_work(run: TableRun, ahead: int) -> Work | None:
    """The next step; None: wait for what is under way. `ahead`: how many cut chunks may wait to be read."""
    match run.phase:
        case Phase.EDGE:
            return CheckEdge()
        case Phase.START:
            return FindMaxKey()
        case Phase.FINISH:
            return None if run.reading else RecordFinish()  # nothing may be registered behind the end
        case Phase.DONE:
            return None
        case Phase.WALK if run.gaps and not run.cutting and len(run.ready) < ahead:
            gap = run.gaps[0]
            return CutNext(gap.lower, gap.upper, last=gap.first == gap.last)
        case Phase.WALK:
            return Read(run.ready[0]) if run.ready else None


def step(run: TableRun, event: Event) -> TableRun:
    """The run after the event; raises `IllegalEvent`."""
    if isinstance(event, GaveUp) and run.phase is not Phase.DONE:
        run = replace(run, phase=Phase.FINISH, fault=event.fault, given_up=event.added)
        return replace(run, gaps=(), ready=(), cutting=False)
    match run.phase, event:
        case Phase.EDGE, EdgePassed():
            return replace(run, phase=Phase.START)
        case Phase.START, Started():
            started = replace(run, phase=Phase.WALK, estimated_rows=event.estimated_rows)
            return _settle(_with_ranges(started, event.max_key, ()))
        case Phase.FINISH, Finished():
            return replace(run, phase=Phase.DONE)
        case ((Phase.WALK | Phase.FINISH), (Registered() | ReadFailed())) if event.ordinal in run.reading:
            return _settle(_read_over(run, event))
        case Phase.FINISH, (EdgePassed() | Started() | Cut() | CutFailed()) if run.fault is not None:
            return run  # the answer to a question asked before the table was given up
        case Phase.WALK, _:
            return _settle(_walk(run, event))
        case _:
            raise IllegalEvent(f"{event} in phase {run.phase.name} of table {run.table_id}")


def _walk(run: TableRun, event: Event) -> TableRun:
    match event:
        case CutBegun() if run.gaps and not run.cutting:
            return replace(run, cutting=True)
        case Cut() if run.cutting:
            return _cut(run, event.upper)
        case CutFailed() if run.cutting:
            return replace(run, cutting=False, failures=run.failures + 1, fault=event.fault)
        case ReadBegun() if run.ready and run.ready[0].ordinal == event.ordinal:
            return replace(run, ready=run.ready[1:], reading=run.reading | {event.ordinal: run.ready[0]})
        case _:
            raise IllegalEvent(f"{event} in phase {run.phase.name} of table {run.table_id}")


def _cut(run: TableRun, upper: Key | None) -> TableRun:
    gap, rest = run.gaps[0], run.gaps[1:]
    done = upper is None or upper == gap.upper or gap.first == gap.last
    chunk = Range(gap.first, gap.lower, gap.upper if done else upper)
    gaps = rest if done else (Gap(chunk.upper, gap.upper, gap.first + 1, gap.last), *rest)
    # Above the largest key every sample reads. Of the table itself it has one range at least: the last, if no other.
    others = run.chunks_done + len(run.reading) + len(run.ready) > 1
    taken = run.takes(chunk.ordinal) or not (gaps or others)
    return replace(run, cutting=False, gaps=gaps, ready=(*run.ready, chunk) if taken else run.ready)


def _read_over(run: TableRun, event: Registered | ReadFailed) -> TableRun:
    chunk = run.reading[event.ordinal]
    reading = {n: r for n, r in run.reading.items() if n != event.ordinal}
    if isinstance(event, Registered):
        fault = run.fault if run.phase is Phase.FINISH else None
        return replace(
            run,
            reading=reading,
            chunks_done=run.chunks_done + 1,
            rows_done=run.rows_done + event.rows,
            failures=0,
            fault=fault,
        )
    if run.phase is Phase.FINISH:
        return replace(run, reading=reading)
    return replace(run, reading=reading, ready=(chunk, *run.ready), failures=run.failures + 1, fault=event.fault)


def _settle(run: TableRun) -> TableRun:
    over = not (run.gaps or run.ready or run.reading or run.cutting)
    return replace(run, phase=Phase.FINISH) if run.phase is Phase.WALK and over else run
