"""A table that the snapshot runner reads: its run, with what the journal does not need to know.

Owned by the runner's thread.
"""

from dataclasses import dataclass, field

from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.state import SnapshotState
from tailrace.contract.status import Fault
from tailrace.errors.backoff import Backoff
from tailrace.reading.chunk_rows import RowsPerChunk
from tailrace.snapshot import chunks
from tailrace.sources.api import Table

LONGEST_PAUSE = 15.0


@dataclass
class RunEntry:
    run: chunks.TableRun
    rows: RowsPerChunk
    table: Table | None = None
    busy: bool = False
    """An edge check, start, cut or finish is under way."""
    waits_for: str | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(LONGEST_PAUSE))
    small: bool = False
    """See `steps.Start`."""
    alone: bool = False
    """A step of it has failed: others do not wait for the next."""
    grouped: bool = False
    """Its chunk is being read with others'."""
    added: RecordNumber = RecordNumber(0)
    """The record that added the table, when the last step or read was begun."""

    def stepped(self, event: chunks.Event, table: Table | None) -> None:
        """A step has succeeded. `table`: as the source's catalog has it now; None: it was not looked up."""
        self.table, self.alone = table or self.table, False
        self.run, self.waits_for = chunks.step(self.run, event), None
        self.backoff.reset()

    def give_up(self, fault: Fault) -> None:
        if self.run.phase is not chunks.Phase.DONE:
            self.run = chunks.step(self.run, chunks.GaveUp(fault, self.added))


def as_recorded(snapshot: SnapshotState, table_id: int) -> chunks.TableRun:
    """The table's run as the journal has it."""
    plan, part = snapshot.plan, snapshot.tables[table_id]
    return chunks.begin(plan.snapshot_id, part, plan.where, plan.keys, verify=plan.verify, sample=plan.sample)
