"""The rows that a table's chunks should have: as many as a request or the spec says, or by what earlier chunks took.

Held by the snapshot runner for each table that it reads, and owned by its thread. The rule is in `snapshot.planner`;
here is what it is asked with.
"""

from dataclasses import dataclass, field

from tailrace.changelog.records.snapshots import SnapshotPlanned
from tailrace.contract.resources import SnapshotSpec
from tailrace.reading.executors import ChunkExecutors
from tailrace.reading.messages import ChunkDone
from tailrace.snapshot import planner
from tailrace.snapshot.chunks import Cut, TableRun


def chosen_rows(plan: SnapshotPlanned, spec: SnapshotSpec) -> int | None:
    """The rows of each chunk that were asked for; None: they go by what earlier chunks took."""
    return plan.chunk_rows or spec.chunk_rows


@dataclass
class RowsPerChunk:
    following: int
    """Rows of the chunk that is cut next, before the number of its readers is looked at."""
    cut: int
    """Rows of the chunks that this process has cut, about, and of those that were registered before."""
    _asked: dict[int, int] = field(default_factory=dict)
    """The table's rows in each chunk that is cut and not read, except a gap's last: its rows were not counted."""
    _begun: dict[int, float] = field(default_factory=dict)
    """The monotonic time at which the read of each chunk has begun."""

    def begin_cut(self, run: TableRun, plan: SnapshotPlanned, spec: SnapshotSpec) -> int:
        """The rows of the first gap's next chunk, which is cut now."""
        rows = self._to_cut(run, plan, spec)
        self.cut += rows
        self._asked[run.gaps[0].first] = rows
        return rows

    def _to_cut(self, run: TableRun, plan: SnapshotPlanned, spec: SnapshotSpec) -> int:
        """Chunks are cut by the table's rows: the estimate says nothing about them where it is of a request's filter
        alone."""
        if run.where is not None:
            return self.following
        if run.sample is not None and plan.chunk_rows is None:
            return planner.sample_rows(run.estimated_rows)
        if chosen_rows(plan, spec) is None:
            return planner.shared_chunk_rows(self.following, run.estimated_rows - self.cut, spec.parallelism)
        return self.following

    def end_cut(self, run: TableRun, cut: Cut) -> None:
        """`run`: before the cut. The rows were counted where a chunk ends before its gap does."""
        ordinal = run.gaps[0].first
        if cut.upper is None or not run.takes(ordinal):
            self._asked.pop(ordinal, None)

    def begin_read(self, ordinal: int, now: float) -> None:
        self._begun[ordinal] = now

    def end_read(
        self,
        done: ChunkDone,
        now: float,
        plan: SnapshotPlanned | None,
        spec: SnapshotSpec,
        executors: ChunkExecutors,
    ) -> tuple[int, float]:
        """Returns the table's rows in the chunk, about, and when its read began. `done.rows` are those that filters let
        through: the reader's work, and what is cut next, go by the table's. `plan`: None where the journal no longer
        has the snapshot."""
        asked = self._asked.pop(done.ordinal, None)
        rows = max(done.rows, asked or 0)
        begun = self._begun.pop(done.ordinal, now)
        if asked is not None and plan is not None:
            chosen, took = chosen_rows(plan, spec), now - begun - done.waited
            following = planner.next_chunk_rows(chosen, rows, done.size, took, spec.chunk_seconds)
            most = planner.MOST_COMPARED if plan.verify and chosen is None else following
            if done.bytes_in_memory:
                most = min(most, executors.following_rows(rows, done.bytes_in_memory))
            self.following = min(following, most)
        return rows, begun
