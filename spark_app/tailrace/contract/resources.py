"""The two resources as users write them: Replicator and SnapshotRequest, version `tailrace.dev/v1alpha1`.

The same documents go to `kubectl apply` and to `tailrace run -f`. camelCase outside, snake_case inside; unknown fields
are errors. CRDs are generated from these models (`tools/make_crds.py`): a field's text is its description there.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tailrace.contract.base import (
    API_VERSION,
    GROUP,
    VERSION,
    ApiVersion,
    Duration,
    FormerDefault,
    Identifier,
    Metadata,
    Model,
    Name,
    TablePattern,
    Text,
    rules,
)
from tailrace.contract.cutover import NOT_FROM_A_FOLLOWER, ONE_PRODUCT, CutoverSpec
from tailrace.contract.places import ANEW, Credentials, SourceSpec, StorageLocation, StorageSpec, Tls
from tailrace.contract.pods import DriverPod, Executors
from tailrace.contract.settings import (
    FRESHNESS,
    WAREHOUSE_FRESHNESS,
    ApplySpec,
    CutsSpec,
    LineageSpec,
    NotificationsSpec,
    ObjectiveSpec,
    RecoverSpec,
    RetentionSpec,
    RetrySpec,
    SnapshotSpec,
    VerifySpec,
)
from tailrace.contract.snapshot_request import RewindSpec, SnapshotRequest, SnapshotRequestSpec
from tailrace.contract.spark_conf import SparkConf
from tailrace.contract.tables import OnSchemaChange, OnTableDrop, TableOptions, TablesSpec
from tailrace.contract.target import Catalog, TargetSpec
from tailrace.contract.units import seconds

__all__ = [
    "API_VERSION", "GROUP", "VERSION", "ApplySpec", "Catalog", "Credentials", "DeletionPolicy", "Duration", "Executors",
    "Identifier", "Metadata", "Model", "Name", "RecoverSpec", "Replicator", "ReplicatorSpec", "RetentionSpec",
    "RetrySpec", "RewindSpec", "SnapshotRequest", "SnapshotRequestSpec", "SnapshotSpec", "SourceSpec",
    "StorageLocation", "StorageSpec", "TableOptions", "TablePattern", "TablesSpec", "TargetSpec", "Text", "Tls",
]  # fmt: skip


DeletionPolicy = Literal["Retain", "Delete", "Orphan"]
_NO_MASK_KEY = "options[].mask with method Hash needs spec.maskKey"
_SHOWN = "showValues would show what options[].mask hides: remove one of them"
_PARTITIONED_LAKE = "options[].partitionBy goes with a target of type delta or iceberg: remove it"
_MASKS = "has(self.options) && self.options.exists(o, has(o.mask) && "


_NOT_APART = (
    "target.location and storage.location are the same folder, or one is inside the other:"
    " give each its own, side by side"
)
_IN_STORAGE = "(self.target.location + '/').startsWith(self.storage.location + '/')"
_IN_TARGET = "(self.storage.location + '/').startsWith(self.target.location + '/')"
_ENDPOINTS = [f"(has(self.{place}.endpoint) ? self.{place}.endpoint : '')" for place in ("target", "storage")]
_APART_RULE = f"!has(self.target.location) || {' != '.join(_ENDPOINTS)} || (!{_IN_STORAGE} && !{_IN_TARGET})"
"""The part of the check that texts alone allow; a start compares the places (`tailrace.places`)."""


_FOLLOWS_ITSELF = "follow.location and storage.location are the same folder, or one is inside the other"
_FOLLOW_APART = (
    "!has(self.follow) || (!(self.follow.location + '/').startsWith(self.storage.location + '/')"
    " && !(self.storage.location + '/').startsWith(self.follow.location + '/'))"
)
_NOTHING_THERE = (
    "a Replicator that follows another one has no slot, publication, server id or signal table in the source: remove"
    " source.postgresql.slot, source.postgresql.publication, source.mysql.serverId and source.signalTable"
)
_NOTHING_THERE_RULE = (
    "!has(self.follow) || (!has(self.source.signalTable)"
    " && !(has(self.source.postgresql)"
    " && (has(self.source.postgresql.slot) || has(self.source.postgresql.publication)))"
    " && !(has(self.source.mysql) && has(self.source.mysql.serverId)))"
)
_SAME_FOLLOW = (
    "has(self.follow) == has(oldSelf.follow) && (!has(self.follow) || self.follow.location == oldSelf.follow.location)"
)


class ReplicatorSpec(Model):
    """The tables to copy, their source and their target."""

    model_config = rules(
        ("self.storage.location == oldSelf.storage.location", f"storage.location is immutable: {ANEW}"),
        (f"has(self.maskKey) || !({_MASKS}o.mask.exists(m, m.method == 'Hash')))", _NO_MASK_KEY),
        (_APART_RULE, _NOT_APART),
        (f"!has(self.showValues) || !self.showValues || !({_MASKS}size(o.mask) > 0))", _SHOWN),
        (
            "self.target.type == 'delta' || self.target.type == 'iceberg' || !has(self.options)"
            " || !self.options.exists(o, has(o.partitionBy))",
            _PARTITIONED_LAKE,
        ),
        ("!has(self.cutover) || self.target.type == self.source.type", ONE_PRODUCT),
        ("!has(self.cutover) || !has(self.follow)", NOT_FROM_A_FOLLOWER),
        (_SAME_FOLLOW, f"follow.location is immutable: {ANEW}"),
        (_FOLLOW_APART, _FOLLOWS_ITSELF),
        (_NOTHING_THERE_RULE, _NOTHING_THERE),
    )

    source: SourceSpec
    """The database that is read."""
    tables: TablesSpec
    """The source's tables to copy."""
    target: TargetSpec
    """The target of the copies."""
    storage: StorageSpec
    """Root of the change log; no other Replicator may use it. Its location is immutable."""
    follow: StorageLocation | None = None
    """The `storage` of another Replicator of the same source, whose change log is read in place of the source's log: a
    second target then costs the source its first rows only. Its options for the tables must be the same; it may select
    fewer tables. Unset: the source's log is read. Immutable."""
    suspend: bool = False
    """Stop everything. PostgreSQL then keeps its log, so a long stop fills its disk; MySQL and MariaDB delete theirs
    when it expires, after which every table must be read again."""
    show_values: bool = False
    """Show values and keys of rows in status, logs, events and errors where they help to find a fault; unset: only
    their type and a short hash are shown. Values may be personal data."""
    restart_nonce: Annotated[int, Field(ge=0, le=2**53 - 1)] = 0
    """Change this number to restart the driver."""
    deletion_policy: DeletionPolicy = "Retain"
    """The parts that are deleted with the Replicator. `Retain`: the slot and the publication that Tailrace created.
    `Delete`: also the target tables and the change log. `Orphan`: nothing, so that the same manifest, applied again
    here or in another cluster, continues without a snapshot; until then PostgreSQL keeps its log for the slot, which
    fills its disk."""
    on_table_failure: Literal["Degrade", "NotReady"] = "Degrade"
    """The effect of a failing or stopped table on `Ready` while others replicate. `Degrade`: it stays True, and
    `TablesHealthy` is False. `NotReady`: it is False. Ignored outside Kubernetes."""
    on_schema_change: Annotated[OnSchemaChange, FormerDefault("EvolveAdditive")] = "Evolve"
    """The reaction to a change of a table's columns or key. `Evolve`: added columns are followed, and so are
    columns that are dropped, renamed or given another type, if it is proven which they are; after any other change
    the table starts over by itself: all rows are read into a new copy, and readers see the former table until the copy
    is complete. `EvolveAdditive`: added columns are followed; any other change stops the table until it is resynced.
    `Stop`: added columns stop it, too."""
    on_table_drop: OnTableDrop = "Keep"
    """The treatment of the copy of a table that is dropped in the source. `Keep`: it is kept and no longer updated.
    `Drop`: it is deleted for good, data and history, unless another table has taken the name. A copy is kept in either
    case if the table is only excluded, unpublished, renamed, moved or hidden from Tailrace's user."""
    snapshot: SnapshotSpec = SnapshotSpec()
    """Defaults of every snapshot."""
    apply: ApplySpec = ApplySpec()
    """The way in which changes are applied."""
    objective: ObjectiveSpec | None = None
    """The freshness to be kept, on which the condition `SLOMet` and an alert depend; unset: `SLOMet` depends on the lag
    alone."""
    verify: VerifySpec | None = None
    """The verification of all tables in the background; unset: tables are verified on request only."""
    cuts: CutsSpec | None = None
    """Cuts by the clock: moments of the source at which all tables stay readable; unset: cuts are made on request only,
    and existing ones stay."""
    cutover: CutoverSpec | None = None
    """The end of the replication into a database: once the source is read-only, everything is applied and the tables
    are equal, the copies are handed over to programs, and the driver stops for good. It happens once, however often the
    manifest is applied. Unset: the tables are replicated, and `tailrace cutover` does it on request."""
    notifications: NotificationsSpec | None = None
    """Events about snapshots, tables, verifications and cuts for another program; unset: none are sent."""
    retry: RetrySpec = RetrySpec()
    """The retries of a table that fails, and of a driver that is refused."""
    retention: RetentionSpec = RetentionSpec()
    """The time for which the change log is kept."""
    lineage: LineageSpec | None = None
    """Lineage events for a data catalog; unset: none are sent."""
    options: Annotated[tuple[TableOptions, ...], Field(max_length=1000)] = ()
    """Options for single tables; the first match counts."""
    mask_key: Credentials | None = None
    """A reference to the key that `options[].mask` hashes with: at least 16 bytes, better 32 random ones in hexadecimal
    (`openssl rand -hex 32`). With another key each table with a hashed column must be read again."""
    recover: RecoverSpec | None = None
    """The reaction to a lost position in the source's log; unset: stop, until it is set or a SnapshotRequest asks for
    it. Ignored outside Kubernetes, where `tailrace resync --all` does it."""
    driver: DriverPod = DriverPod()
    """The driver's pod."""
    executors: Executors = Executors()
    """The executors' pods."""
    spark_conf: SparkConf = ()
    """Spark settings of driver and executors, such as `{name: spark.network.timeout, value: 300s}`. Refused are those
    that Tailrace sets itself, and those that would weaken its security."""
    image: Text | None = None
    """Image of driver and executors; unset: the operator's default. Ignored outside Kubernetes."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """The rule by which nodes pull the image. Ignored outside Kubernetes."""
    image_pull_secrets: Annotated[tuple[Name, ...], Field(max_length=10)] = ()
    """Secrets in the Replicator's namespace that nodes need to pull the image. Ignored outside Kubernetes."""
    service_account_name: Name | None = None
    """An existing ServiceAccount for driver and executors (workload identity), with the rights of ClusterRole
    `tailrace-driver` in its namespace. Unset: the operator creates one. Ignored outside Kubernetes."""

    @property
    def freshness(self) -> float:
        """The seconds within which a committed change is to be visible in the target."""
        if self.apply.freshness is not None:
            return seconds(self.apply.freshness)
        return WAREHOUSE_FRESHNESS if self.target.type in ("bigquery", "snowflake") else FRESHNESS

    @property
    def read_options(self) -> tuple[TableOptions, ...]:
        """The options by which tables are read: `options`, and whether the target is of the source's product."""
        if self.target.type != self.source.type:
            return self.options
        return tuple(options.into_same_product() for options in (*self.options, TableOptions(match="*.*")))

    @property
    def read_tables(self) -> TablesSpec:
        """The patterns by which tables are read: `tables`, without the signal table, unless it is named there."""
        signals = self.source.signal_table
        if signals is None or signals in self.tables.include:
            return self.tables
        return self.tables.model_copy(update={"exclude": (*self.tables.exclude, signals)})

    @model_validator(mode="after")
    def _masks(self) -> "ReplicatorSpec":
        masks = [mask for options in self.options for mask in options.mask]
        if self.mask_key is None and any(mask.method == "Hash" for mask in masks):
            raise ValueError(_NO_MASK_KEY)
        if self.show_values and masks:
            raise ValueError(_SHOWN)
        return self

    @model_validator(mode="after")
    def _apart(self) -> "ReplicatorSpec":
        target, storage = self.target.location, self.storage.location
        if target is not None and self.target.endpoint == self.storage.endpoint:
            one, other = f"{target}/", f"{storage}/"
            if one.startswith(other) or other.startswith(one):
                raise ValueError(_NOT_APART)
        return self

    @model_validator(mode="after")
    def _partitions_lakes(self) -> "ReplicatorSpec":
        if self.target.type not in ("delta", "iceberg") and any(o.partition_by is not None for o in self.options):
            raise ValueError(_PARTITIONED_LAKE)
        return self

    @model_validator(mode="after")
    def _moves_within_a_product(self) -> "ReplicatorSpec":
        if self.cutover is not None and self.target.type != self.source.type:
            raise ValueError(ONE_PRODUCT)
        if self.cutover is not None and self.follow is not None:
            raise ValueError(NOT_FROM_A_FOLLOWER)
        return self

    @model_validator(mode="after")
    def _follows(self) -> "ReplicatorSpec":
        if self.follow is None:
            return self
        one, other = f"{self.follow.location}/", f"{self.storage.location}/"
        if one.startswith(other) or other.startswith(one):
            raise ValueError(_FOLLOWS_ITSELF)
        source = self.source
        own = (source.signal_table, source.postgresql.slot, source.postgresql.publication, source.mysql.server_id)
        if any(part is not None for part in own):
            raise ValueError(_NOTHING_THERE)
        return self

    @model_validator(mode="after")
    def _held_by_the_target(self) -> "ReplicatorSpec":
        asked = (pair for options in self.options for pair in options.as_.items())
        for column, kind in asked:
            if kind in self.target.lacking:
                what = f"options[].as: {column}: {kind} is a type that the target does not have"
                raise ValueError(f"{what} (target.type: {self.target.type}): write {column}: text")
        return self


LIVE_FIELDS = frozenset(
    {
        "tables",
        "options",
        "on_schema_change",
        "on_table_drop",
        "snapshot",
        "apply",
        "objective",
        "verify",
        "cuts",
        "cutover",
        "retry",
        "retention",
    }
)
"""Fields of `ReplicatorSpec` that a running driver takes over; all others are read at its start."""
OPERATOR_FIELDS = frozenset({"suspend", "deletion_policy", "on_table_failure", "recover"})
"""Fields on which the driver's work does not depend."""


class Replicator(BaseModel):
    """Keeps live copies of tables of one source database in one target."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=Model.model_config["alias_generator"])

    api_version: ApiVersion
    kind: Literal["Replicator"]
    metadata: Metadata
    spec: ReplicatorSpec
