"""The two resources as users write them: Replicator and SnapshotRequest, version `tailrace.dev/v1alpha1`.

The same documents go to `kubectl apply` and to `tailrace run -f`. camelCase outside, snake_case inside; unknown fields
are errors. CRDs are generated from these models (`tools/make_crds.py`): a field's text is its description there.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from tailrace.contract.base import (
    API_VERSION,
    GROUP,
    VERSION,
    ColumnName,
    Duration,
    Identifier,
    Model,
    Name,
    TablePattern,
    Text,
    rules,
)
from tailrace.contract.places import ANEW, Catalog, Credentials, LogStorage, Source, Storage, Target, Tls
from tailrace.contract.pods import Executors, Pod

__all__ = [
    "API_VERSION", "GROUP", "VERSION", "Apply", "Catalog", "Credentials", "Duration", "Executors", "Identifier",
    "LogStorage", "Metadata", "Model", "Name", "Pod", "Replicator", "ReplicatorSpec", "Retention", "Retry", "Snapshot",
    "SnapshotRequest", "SnapshotRequestSpec", "Source", "Storage", "TableOptions", "TablePattern", "Tables", "Target",
    "Text", "Tls",
]  # fmt: skip


class Metadata(BaseModel):
    """Only the name matters outside Kubernetes; what else Kubernetes writes here is passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Name
    namespace: str = "default"
    uid: str | None = None
    generation: int | None = None


class Tables(Model):
    """Which tables: any include pattern and no exclude pattern."""

    include: Annotated[tuple[TablePattern, ...], Field(min_length=1, max_length=1000)]
    """Patterns `schema.table`; `*` matches any run of characters, `?` one. Tables that match later are taken in too."""
    exclude: Annotated[tuple[TablePattern, ...], Field(max_length=1000)] = ()
    """Patterns of tables to leave out."""


class Snapshot(Model):
    """Defaults of every snapshot."""

    initial: bool = True
    """Read the present rows of each table when it is first captured. Tables that begin again (renamed,
    mended, taken in again, another one under the name) are read whatever this says."""
    chunk_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Chunk size aims at this many seconds of reading."""
    chunk_rows: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """Fixed chunk size in rows instead; unset: adaptive."""
    parallelism: Annotated[int, Field(ge=1, le=256)] = 2
    """Chunks read at the same time, all tables together."""


class Apply(Model):
    """How changes are applied to the target."""

    suspend: bool = False
    """Pause the target only; capture goes on."""
    interval: Duration = "500ms"
    """Shortest time between two batches (`500ms`, `10s`)."""


class Retry(Model):
    """What happens to a table that fails."""

    time: Duration = "1h"
    """A failing table is retried for this long (`30m`, `7d`); then it is cut off and needs a snapshot."""


class Retention(Model):
    """How long the change log is kept."""

    time: Duration = "1h"
    """The change log keeps at least this much (`1h`, `7d`), longer where a table still needs it."""


class TableOptions(Model):
    """Options of the tables that match; the first match counts."""

    match: TablePattern
    """Pattern `schema.table` as in `tables`."""
    columns: Annotated[tuple[ColumnName, ...], Field(max_length=1600)] | None = None
    """Keep only these columns (the key is always kept); unset: all."""
    as_text: Annotated[tuple[ColumnName, ...], Field(max_length=1600)] = ()
    """Columns to copy as exact text, whatever their type."""


class ReplicatorSpec(Model):
    """What is to be copied from where to where."""

    model_config = rules(
        ("self.storage.location == oldSelf.storage.location", f"storage.location is immutable: {ANEW}"),
    )

    source: Source
    """The database that is read."""
    tables: Tables
    """Which of its tables."""
    target: Target
    """Where the copies are written."""
    storage: LogStorage
    """Root of the change log; of this Replicator alone. Its location is immutable."""
    suspend: bool = False
    """Stop everything. The source then keeps its log: a long stop fills its disk."""
    show_values: bool = False
    """Write values and keys of rows into status, logs, events and error texts, where they help to find a fault; unset:
    their type and a short hash. They may be personal data."""
    restart_nonce: Annotated[int, Field(ge=0, le=2**53 - 1)] = 0
    """Restarts the driver when it is changed."""
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    """Whether tables and change log are deleted with the Replicator. A slot that Tailrace made is dropped
    in either case."""
    snapshot: Snapshot = Snapshot()
    """Defaults of every snapshot."""
    apply: Apply = Apply()
    """How changes are applied."""
    retry: Retry = Retry()
    """What happens to a table that fails."""
    retention: Retention = Retention()
    """How long the change log is kept."""
    options: Annotated[tuple[TableOptions, ...], Field(max_length=1000)] = ()
    """Options by table; the first match counts."""
    driver: Pod = Pod()
    """The driver's pod."""
    executors: Executors = Executors()
    """The executors' pods."""
    image: Text | None = None
    """Image of driver and executors; unset: the operator's default. Ignored outside Kubernetes."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When nodes fetch the image. Ignored outside Kubernetes."""
    image_pull_secrets: Annotated[tuple[Name, ...], Field(max_length=10)] = ()
    """Secrets of the Replicator's namespace with which nodes fetch the image. Ignored outside Kubernetes."""
    service_account_name: Name | None = None
    """An existing ServiceAccount for driver and executors (workload identity), with the rights of ClusterRole
    `tailrace-driver` in its namespace. Unset: the operator makes one. Ignored outside Kubernetes."""


class Replicator(BaseModel):
    """Live copies of the tables of one source database in one target."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=Model.model_config["alias_generator"])

    api_version: Literal["tailrace.dev/v1alpha1"]
    kind: Literal["Replicator"]
    metadata: Metadata
    spec: ReplicatorSpec


EVERY_TABLE = "*.*"
"""The pattern that matches all."""


class SnapshotRequestSpec(Model):
    """Which rows are to be read again."""

    model_config = rules(
        ("!has(self.where) || !has(self.keys)", "give where or keys, not both"),
        ("!has(self.keys) || size(self.tables) == 1", "keys goes with exactly one table"),
        (
            "!has(self.resync) || !self.resync || (!has(self.where) && !has(self.keys))",
            "resync reads whole tables: leave where and keys out",
        ),
        *(
            (
                f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
                f"{name} is immutable, as all of spec but suspend: create another SnapshotRequest",
            )
            for name in ("replicator", "tables", "where", "keys", "chunkRows", "parallelism", "resync")
        ),
    )

    replicator: Name
    """The Replicator, in the same namespace."""
    tables: Annotated[tuple[TablePattern, ...], Field(min_length=1, max_length=1000)]
    """Patterns `schema.table` of captured tables; `*` matches any run of characters, `?` one."""
    where: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = None
    """SQL condition on the source's columns: only rows that meet it are read again."""
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
    """Only these keys: the text of the key columns in key order. Goes with exactly one table."""
    chunk_rows: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """Fixed chunk size in rows; unset: the Replicator's."""
    parallelism: Annotated[int, Field(ge=1, le=256)] | None = None
    """Chunks of this snapshot read at the same time: fewer than the Replicator's, which bounds all snapshots together;
    unset: as many."""
    resync: bool = False
    """Start the tables over: capture each again in its present form, even if it is stopped, replace its target table
    (columns and rows), and read all rows."""
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
            raise ValueError("resync reads whole tables: leave where and keys out")
        return self


class SnapshotRequest(BaseModel):
    """Read tables (or rows) of a Replicator again, while it goes on."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=Model.model_config["alias_generator"])

    api_version: Literal["tailrace.dev/v1alpha1"]
    kind: Literal["SnapshotRequest"]
    metadata: Metadata
    spec: SnapshotRequestSpec
