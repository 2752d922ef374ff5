"""The resource SnapshotRequest as users write it."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from tailrace.contract.base import (
    ApiVersion,
    Metadata,
    Model,
    Name,
    Share,
    TablePattern,
    no_expression,
    rules,
)

MODE_WITHOUT_WHERE = "mode Verify and Repair compare whole tables, or keys: remove where"
REWIND_WITH_MODE = "rewind goes with mode Rewind, and mode Rewind needs it"
REWIND_ALONE = "mode Rewind reads no rows: remove where, keys, sample, resync, chunkRows and parallelism"
ONE_MOMENT = "rewind needs exactly one of toCut, toTime and toRecord"
SAMPLE_ONLY_COMPARED = "sample goes with mode Verify or Repair, and without keys"
MODE_WITHOUT_RESYNC = "resync replaces the table: remove it, or mode"
_OF_READING = " || ".join(f"has(self.{name})" for name in ("where", "keys", "sample", "chunkRows", "parallelism"))
_OF_READING += " || (has(self.resync) && self.resync)"
CUT = "^[a-z0-9][a-z0-9_]*$"
ZONED = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})$"
EVERY_TABLE = "*.*"
"""The pattern that matches all."""


class RewindSpec(Model):
    """The cut that tables of a lake go back to; exactly one field."""

    model_config = rules(
        (
            f"[{', '.join(f'has(self.{n})' for n in ('toCut', 'toTime', 'toRecord'))}].filter(x, x).size() == 1",
            ONE_MOMENT,
        )
    )

    to_cut: Annotated[str, StringConstraints(pattern=CUT, max_length=63)] | None = None
    """Name of a cut."""
    to_time: Annotated[str, StringConstraints(pattern=ZONED, max_length=40)] | None = None
    """The last cut at or before this time, which has a zone: `2026-11-28T12:00:00Z`."""
    to_record: Annotated[int, Field(ge=0, le=2**53 - 1)] | None = None
    """The cut at this record of the change log."""

    @model_validator(mode="after")
    def _one(self) -> "RewindSpec":
        if [self.to_cut, self.to_time, self.to_record].count(None) != 2:
            raise ValueError(ONE_MOMENT)
        if self.to_time is not None:
            datetime.fromisoformat(self.to_time)
        return self


class SnapshotRequestSpec(Model):
    """The tables to read again, to verify or to rewind."""

    model_config = rules(
        ("!has(self.where) || !has(self.keys)", "give where or keys, not both"),
        ("!has(self.keys) || size(self.tables) == 1", "keys goes with exactly one table"),
        no_expression("tables"),
        (
            "!has(self.resync) || !self.resync || (!has(self.where) && !has(self.keys))",
            "resync reads whole tables: remove where and keys",
        ),
        ("!has(self.mode) || self.mode in ['Read', 'Rewind'] || !has(self.where)", MODE_WITHOUT_WHERE),
        ("has(self.rewind) == (has(self.mode) && self.mode == 'Rewind')", REWIND_WITH_MODE),
        (f"!has(self.rewind) || !({_OF_READING})", REWIND_ALONE),
        (
            "!has(self.mode) || self.mode in ['Read', 'Rewind'] || !has(self.resync) || !self.resync",
            MODE_WITHOUT_RESYNC,
        ),
        (
            "!has(self.sample) || (has(self.mode) && self.mode in ['Verify', 'Repair'] && !has(self.keys))",
            SAMPLE_ONLY_COMPARED,
        ),
        *(
            (
                f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
                f"{name} is immutable, like all of spec except suspend: create another SnapshotRequest",
            )
            for name in (
                "replicator",
                "tables",
                "where",
                "keys",
                "chunkRows",
                "parallelism",
                "mode",
                "sample",
                "rewind",
                "resync",
            )
        ),
    )

    replicator: Name
    """The Replicator, in the same namespace."""
    tables: Annotated[tuple[TablePattern, ...], Field(min_length=1, max_length=1000)]
    """Patterns `schema.table` of captured tables; `*` matches any run of characters, `?` one."""
    where: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = None
    """SQL condition on the source's columns: only matching rows are read again."""
    keys: (
        Annotated[
            tuple[
                Annotated[
                    tuple[Annotated[str, StringConstraints(max_length=1024)], ...], Field(min_length=1, max_length=32)
                ],
                ...,
            ],
            Field(min_length=1, max_length=10_000),
        ]
        | None
    ) = None
    """Read only the rows with these keys: the values of the key columns as text, in key order. Needs exactly one
    table."""
    chunk_rows: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """Fixed chunk size in rows; unset: as the Replicator says."""
    parallelism: Annotated[int, Field(ge=1, le=256)] | None = None
    """Number of chunks of this snapshot read at the same time; unset: as the Replicator says. The Replicator's number
    is the limit for all snapshots together."""
    mode: Literal["Read", "Verify", "Repair", "Rewind"] = "Read"
    """`Read`: the rows go into the target. `Verify`: they are compared with it, exactly, while both sides change; the
    status names what differs, and nothing is written. `Repair`: rows that differ are read again afterwards. `Rewind`:
    no row is read; while the Replicator's `apply.suspend` is true, the tables of a lake go back to the cut that
    `rewind` names."""
    sample: Share | None = None
    """Compare about this share of each table's rows, `5%`, chosen at random in ranges of the key; a small table as a
    whole. Rows that only the target has are not looked for. With mode Verify or Repair."""
    rewind: RewindSpec | None = None
    """The cut that mode `Rewind` goes back to. A request of this name is carried out once, also if it is deleted and
    created again."""
    resync: bool = False
    """Start the tables over: capture each as it is now, even if it is stopped, and read all rows into a new copy, which
    replaces the target table (columns and rows) when it is complete."""
    suspend: bool = False
    """Pause the snapshot; chunks being read are finished. The only field that may be changed."""

    @property
    def starts_all_over(self) -> bool:
        """Such a request may also bring back a Replicator whose position is lost: every table is read anyway."""
        return self.resync and EVERY_TABLE in self.tables

    @model_validator(mode="after")
    def _where_or_keys(self) -> "SnapshotRequestSpec":
        if self.where is not None and self.keys is not None:
            raise ValueError("give where or keys, not both")
        if self.keys is not None and len(self.tables) != 1:
            raise ValueError("keys goes with exactly one table")
        if self.resync and (self.where is not None or self.keys is not None):
            raise ValueError("resync reads whole tables: remove where and keys")
        if (self.rewind is not None) != (self.mode == "Rewind"):
            raise ValueError(REWIND_WITH_MODE)
        if self.rewind is not None:
            self._check_alone()
            return self
        if self.mode != "Read" and self.where is not None:
            raise ValueError(MODE_WITHOUT_WHERE)
        if self.sample is not None and (self.mode == "Read" or self.keys is not None):
            raise ValueError(SAMPLE_ONLY_COMPARED)
        if self.mode != "Read" and self.resync:
            raise ValueError(MODE_WITHOUT_RESYNC)
        return self

    def _check_alone(self) -> None:
        reading = (self.where, self.keys, self.sample, self.chunk_rows, self.parallelism)
        if self.resync or any(given is not None for given in reading):
            raise ValueError(REWIND_ALONE)


class SnapshotRequest(BaseModel):
    """Reads tables, or some of their rows, again while the Replicator continues to follow changes; or verifies them; or
    rewinds them to a cut."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=Model.model_config["alias_generator"])

    api_version: ApiVersion
    kind: Literal["SnapshotRequest"]
    metadata: Metadata
    spec: SnapshotRequestSpec
