"""The messages of a snapshot's steps to the runner when they have ended: one class for each way in which they end.

Put into the runner's queue by the pool's threads, taken by the thread that owns all state (`reading.runner`).
"""

from dataclasses import dataclass

from tailrace.snapshot import chunks
from tailrace.snapshot.edge import EdgeLook
from tailrace.sources.api import Table

RunKey = tuple[str, int]
"""Snapshot and table."""


@dataclass(frozen=True)
class EdgeLooked:
    key: RunKey
    look: EdgeLook


@dataclass(frozen=True)
class StepDone:
    """The start, a cut or the end."""

    key: RunKey
    event: chunks.Started | chunks.Cut | chunks.Finished
    table: Table | None = None
    """The table as the source's catalog has it; None: it was not looked up."""
    small: bool = False
    """See `steps.Start`."""


@dataclass(frozen=True)
class EndFailed:
    """The table's end was not recorded, as far as is known."""

    key: RunKey
    error: Exception


@dataclass(frozen=True)
class StepFailed:
    """The failure of a step, or of the look at the edge."""

    key: RunKey
    error: Exception


@dataclass(frozen=True)
class ChunkDone:
    """Read and registered."""

    key: RunKey
    ordinal: int
    rows: int
    size: int
    """The bytes of its files."""
    table: Table
    waited: float = 0.0
    """Seconds for which it waited for Spark."""
    bytes_in_memory: int = 0
    """See `task.ChunkFile`."""


@dataclass(frozen=True)
class ChunkFailed:
    key: RunKey
    ordinal: int
    error: Exception


@dataclass(frozen=True)
class CascadesSearched:
    """The end of a search for rows that foreign keys have reached (`reading.cascades`); not of a run."""

    error: Exception | None = None
    key: RunKey = ("", 0)


@dataclass(frozen=True)
class Together:
    """The results for the tables of a group (`reading.together`)."""

    messages: "tuple[Message, ...]"
    read: bool = False
    """True if their chunks were read."""


Message = CascadesSearched | Together | EdgeLooked | StepDone | StepFailed | EndFailed | ChunkDone | ChunkFailed
