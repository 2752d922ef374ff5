"""Steps of small tables that the snapshot runner takes together: gathered in each of its rounds, begun as one step.

Owned by the runner's thread. `reading.together` does what they ask for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tailrace.capture.client import CaptureClient
from tailrace.reading import together
from tailrace.reading.messages import (
    ChunkDone,
    ChunkFailed,
    EndFailed,
    Message,
    RunKey,
    StepDone,
    StepFailed,
    Together,
)
from tailrace.reading.steps import Start, Tools
from tailrace.reading.task import ChunkFile
from tailrace.reading.together import ChunkAsked, StartAsked
from tailrace.snapshot import chunks

Submit = Callable[[Callable[[], Message], Callable[[Exception], Message]], None]
"""Has a step done on the pool; the second is called in its place if it fails as a whole."""


@dataclass
class Groups:
    tools: Callable[[], Tools]
    client: CaptureClient
    submit: Submit
    starts: list[tuple[RunKey, StartAsked]] = field(default_factory=list)
    reads: list[tuple[RunKey, ChunkAsked]] = field(default_factory=list)
    finishes: list[tuple[RunKey, chunks.TableRun]] = field(default_factory=list)
    being_read: int = 0
    """Groups whose chunks are being read, one after the other."""

    @property
    def readers(self) -> int:
        """Chunks that are read at the same time for groups, with the one that is gathered."""
        return self.being_read + bool(self.reads)

    def begin(self, least: int) -> None:
        """Begins the groups that have so many tables."""
        if len(self.starts) >= least:
            starts, self.starts = self.starts, []
            self._begin_starts(starts)
        if len(self.reads) >= least:
            reads, self.reads = self.reads, []
            self._begin_reads(reads)
        if len(self.finishes) >= least:
            finishes, self.finishes = self.finishes, []
            self._begin_finishes(finishes)

    def _begin_starts(self, group: list[tuple[RunKey, StartAsked]]) -> None:
        tools, keys = self.tools(), [key for key, _ in group]

        def message(key: RunKey, found: Start | Exception) -> Message:
            if isinstance(found, Exception):
                return StepFailed(key, found)
            return StepDone(key, chunks.Started(found.max_key, found.estimated_rows), found.table, found.small)

        def act() -> Message:
            found = together.find_starts(tools, self.client, [asked for _, asked in group])
            return Together(tuple(map(message, keys, found)))

        self.submit(act, lambda error: Together(tuple(StepFailed(key, error) for key in keys)))

    def _begin_finishes(self, group: list[tuple[RunKey, chunks.TableRun]]) -> None:
        tools, keys = self.tools(), [key for key, _ in group]

        def message(key: RunKey, error: Exception | None) -> Message:
            return StepDone(key, chunks.Finished()) if error is None else EndFailed(key, error)

        def act() -> Message:
            errors = together.record_finishes(tools, self.client, [run for _, run in group])
            return Together(tuple(map(message, keys, errors)))

        self.submit(act, lambda error: Together(tuple(EndFailed(key, error) for key in keys)))

    def _begin_reads(self, group: list[tuple[RunKey, ChunkAsked]]) -> None:
        self.being_read += 1
        tools = self.tools()

        def message(one: tuple[RunKey, ChunkAsked], found: ChunkFile | Exception) -> Message:
            key, asked = one
            if isinstance(found, Exception):
                return ChunkFailed(key, asked.part.ordinal, found)
            return ChunkDone(key, asked.part.ordinal, found.all_rows, found.all_bytes, asked.table)

        def act() -> Message:
            found = together.read(tools, [asked for _, asked in group])
            return Together(tuple(map(message, group, found)), read=True)

        def failed(error: Exception) -> Message:
            return Together(tuple(message(one, error) for one in group), read=True)

        self.submit(act, failed)
