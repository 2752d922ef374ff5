"""The state that a target table keeps about itself: how much of which change log it holds, and which table's rows.
Pure.

Read by `apply.unit_worker` when it opens a table, kept by the target in the same commit as the data.
"""

from dataclasses import dataclass

from tailrace.changelog.records.terms import Key, RecordNumber, Seq, TableSchema


@dataclass(frozen=True)
class AppliedState:
    """Stored in the target in the same commit as the data (docs/dev/design.md#the-commit)."""

    log_id: str
    """The id of the change log that fills the target."""
    applied_seq: Seq = Seq(0)
    """The applied sequence: the last change that the target holds."""
    applied_record: RecordNumber = RecordNumber(0)
    """The applied record: the last record of the journal that it holds. One may bring a chunk and no change."""
    holes: frozenset[Key] = frozenset()
    """Keys whose row has a column with an unknown value; the row is withheld until it is read again."""
    schema_version: int = 0
    """Version of the source table's schema that the target table has (0: not created by a log yet)."""
    table_id: int = 0
    """The source table's id."""
    gap: RecordNumber | None = None
    """The record after which something was passed over that the log no longer has: only a complete snapshot that was
    planned later makes the table whole again. None: nothing is lacking."""
    generation: RecordNumber = RecordNumber(0)
    """`Generation.number` of the rows and columns."""


@dataclass(frozen=True)
class Generation:
    """The identity of the rows that a target holds. Names and column numbers do not suffice: a table that was dropped
    and re-created, or that took another's name, has the same ones for other columns. A target of another generation is
    replaced in one commit: its columns get new identities, its rows go, and the state begins with the generation."""

    number: RecordNumber = RecordNumber(0)
    """The journal's record that began it."""
    begin_seq: Seq = Seq(0)
    """The last sequence before it."""
    keeps: bool = False
    """A target of an earlier generation stays as it is, for its readers, until this one is complete (`targets.api`).
    Else its rows go at once."""

    def holds(self, applied: AppliedState, table_id: int) -> bool:
        """True if a target with this state is of this generation."""
        return applied.table_id == table_id and applied.generation == self.number

    def begin(self, schema: TableSchema, log_id: str) -> AppliedState:
        """The state of a target without rows."""
        return AppliedState(
            log_id,
            self.begin_seq,
            schema_version=schema.version,
            table_id=schema.table_id,
            generation=self.number,
        )


FIRST = Generation()
