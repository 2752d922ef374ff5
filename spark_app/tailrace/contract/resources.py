"""The two resources as users write them: Replicator and SnapshotRequest, version `tailrace.dev/v1alpha1`.

The same documents go to `kubectl apply` and to `tailrace run -f`. camelCase outside, snake_case inside; unknown fields
are errors. CRDs are generated from these models (`tools/make_crds.py`): a field's text is its description there.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints, model_validator

from tailrace.contract.base import (
    A_MINUTE,
    API_VERSION,
    CODE,
    GROUP,
    VERSION,
    ApiVersion,
    ColumnName,
    CopiedAs,
    Duration,
    FormerDefault,
    Identifier,
    LineageNamespace,
    Model,
    Name,
    ReceiverUrl,
    Share,
    TablePattern,
    Text,
    at_least_a_minute,
    no_expression,
    rules,
    seconds_in_cel,
)
from tailrace.contract.cutover import NOT_FROM_A_FOLLOWER, ONE_PRODUCT, CutoverSpec
from tailrace.contract.places import (
    ANEW,
    Catalog,
    Credentials,
    SourceSpec,
    StorageLocation,
    StorageSpec,
    TargetSpec,
    Tls,
)
from tailrace.contract.pods import DriverPod, Executors
from tailrace.contract.spark_conf import SparkConf
from tailrace.contract.units import seconds

__all__ = [
    "API_VERSION", "GROUP", "VERSION", "ApplySpec", "Catalog", "Credentials", "DeletionPolicy", "Duration", "Executors",
    "Identifier", "Metadata", "Model", "Name", "RecoverSpec", "Replicator", "ReplicatorSpec", "RetentionSpec",
    "RetrySpec", "RewindSpec", "SnapshotRequest", "SnapshotRequestSpec", "SnapshotSpec", "SourceSpec",
    "StorageLocation", "StorageSpec", "TableOptions", "TablePattern", "TablesSpec", "TargetSpec", "Text", "Tls",
]  # fmt: skip


class Metadata(BaseModel):
    """Only the name and the labels of owners matter outside Kubernetes; what else Kubernetes writes here is passed
    over."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Name
    namespace: str = "default"
    uid: str | None = None
    generation: int | None = None
    labels: dict[str, str] | None = None
    """Those that begin with `tailrace.dev/owner` name owners in lineage events."""


class TablesSpec(Model):
    """The selected tables: any include pattern and no exclude pattern."""

    model_config = rules(no_expression("include"), no_expression("exclude"))

    include: Annotated[tuple[TablePattern, ...], Field(min_length=1, max_length=1000)]
    """Patterns `schema.table`; `*` matches any run of characters, `?` one. Tables that are created
    later and match are captured, too."""
    exclude: Annotated[tuple[TablePattern, ...], Field(max_length=1000)] = ()
    """Patterns of tables to leave out."""
    confirm_removal: Annotated[str, StringConstraints(pattern=CODE, max_length=8)] | None = None
    """Confirms a change of these patterns that drops all tables from capture, or more than half of them. Without it
    such a change is refused with the list of the tables and the code to set here, eight hexadecimal digits. The code
    holds for exactly those tables, so it confirms no other change and may stay."""


class SnapshotSpec(Model):
    """Defaults of every snapshot."""

    initial: bool = True
    """Read the existing rows of each table when it is first captured. A table that starts over (renamed, repaired,
    captured again, or re-created under the same name) is always read."""
    chunk_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Chunks are sized to take about this many seconds to read; up to three times as many while their files would be
    smaller than 48 MiB."""
    chunk_rows: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """Fixed chunk size in rows instead; unset: adaptive."""
    parallelism: Annotated[int, Field(ge=1, le=256)] = 2
    """Number of chunks read at the same time, over all tables. If it is raised while the driver runs, large batches of
    changes may have to wait for the end of a chunk, until the driver is restarted."""


SHORTEST_FRESHNESS, LONGEST_FRESHNESS = 0.1, 3600.0
FRESHNESS, WAREHOUSE_FRESHNESS = 5.0, 60.0
"""Seconds that are promised unless the manifest says otherwise."""
_BOUNDS = "it must be at least 100ms and at most 1h"
_IN_BOUNDS = f"!has(self.freshness) || [{seconds_in_cel('freshness')}].all(s, s >= 0.1 && s <= 3600.0)"


class ApplySpec(Model):
    """The way in which changes are applied to the target."""

    model_config = rules((_IN_BOUNDS, f"freshness: {_BOUNDS}"))

    suspend: bool = False
    """Pause writing to the target only; capture continues."""
    freshness: Annotated[Duration | None, FormerDefault("5s")] = None
    """The time within which a committed change is to be visible in the target (`500ms`, `1m`): from 100ms to 1h; unset:
    `5s`, and `60s` in a warehouse, which bills each batch. The longer it is, the fewer commits are made, and the less
    the same changes cost."""

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, given: object) -> object:
        """A plain "not a known field" would not say what took its place."""
        if isinstance(given, Mapping) and "interval" in given:
            raise ValueError(
                "interval is now freshness: the time within which a change shall be visible, not the time between two"
                " batches; 500ms comes closest to the former default"
            )
        return given

    @model_validator(mode="after")
    def _in_bounds(self) -> "ApplySpec":
        if self.freshness is not None and not SHORTEST_FRESHNESS <= seconds(self.freshness) <= LONGEST_FRESHNESS:
            raise ValueError(f"freshness is {self.freshness}: {_BOUNDS}")
        return self


SHORTEST_PERIOD = 60.0
_LONG_ENOUGH = at_least_a_minute("every")


def _check_period(every: str) -> None:
    if seconds(every) < SHORTEST_PERIOD:
        raise ValueError(f"every is {every}: {A_MINUTE}")


class VerifySpec(Model):
    """The verification of all tables in the background, one after another."""

    model_config = rules(_LONG_ENOUGH)

    every: Duration = "7d"
    """The period in which each table is compared with its source once (`24h`, `7d`), spread over it."""
    max_rows_per_second: Annotated[int, Field(ge=100, le=100_000_000)] = 50_000
    """Maximum number of rows that are compared per second."""

    @model_validator(mode="after")
    def _long_enough(self) -> "VerifySpec":
        _check_period(self.every)
        return self


class CutsSpec(Model):
    """Cuts that the driver makes by its clock."""

    model_config = rules(_LONG_ENOUGH)

    every: Duration = "15m"
    """The time between two cuts, at least `1m`."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 96
    """The number of these cuts that are kept; the oldest is dropped for a new one. Cuts that were requested by name
    do not count."""

    @model_validator(mode="after")
    def _long_enough(self) -> "CutsSpec":
        _check_period(self.every)
        return self


_WINDOW = "it must be at least 1h and at most 7d"
_IN_WINDOW = f"!has(self.window) || [{seconds_in_cel('window')}].all(s, s >= 3600.0 && s <= 604800.0)"


class ObjectiveSpec(Model):
    """The age that changes may have when they become visible in the target, and how many of them may be older."""

    model_config = rules((_IN_WINDOW, f"window: {_WINDOW}"))

    within: Duration = "10s"
    """The age, from the commit in the source on."""
    percent: Annotated[float, Field(ge=50, lt=100)] = 99.0
    """The percentage of the changes that must not be older."""
    window: Duration = "24h"
    """The time over which they are counted, from 1h to 7d."""

    @model_validator(mode="after")
    def _kept(self) -> "ObjectiveSpec":
        if not 3600 <= seconds(self.window) <= 7 * 86_400:
            raise ValueError(f"window is {self.window}: {_WINDOW}")
        return self


_NO_CONFIGURATION = "give exactly one of configFile and secretName"


class LineageSpec(Model):
    """Lineage events in OpenLineage's format: which table of the source becomes which one of the target."""

    model_config = rules(("has(self.secretName) != has(self.configFile)", _NO_CONFIGURATION))

    namespace: LineageNamespace
    """The namespace of the jobs: one for the Replicator, and one for each of its tables."""
    config_file: Text | None = None
    """Path of OpenLineage's own configuration file (`openlineage.yml`), as the driver sees it: where and how events are
    sent."""
    secret_name: Name | None = None
    """Kubernetes: a Secret in the Replicator's namespace with this file under the key `openlineage.yml`."""

    @model_validator(mode="after")
    def _one(self) -> "LineageSpec":
        if (self.secret_name is None) == (self.config_file is None):
            raise ValueError(_NO_CONFIGURATION)
        return self


class RetrySpec(Model):
    """The retries of a table that fails, and of a driver that is refused."""

    time: Duration = "1h"
    """The time for which a failing table is retried (`30m`, `7d`). After that, the change log no longer waits for the
    table, and it needs a snapshot."""
    halted: Duration = "30m"
    """The time after which the operator starts a driver again that was stopped because the source, the target or the
    storage refused its credentials or its configuration; 0s: it does not. Ignored outside Kubernetes."""


class RetentionSpec(Model):
    """The time for which the change log is kept."""

    time: Duration = "1h"
    """Minimum time that changes are kept (`1h`, `7d`); longer where a table still needs them."""


OnSchemaChange = Literal["Evolve", "EvolveAdditive", "Stop"]
OnTableDrop = Literal["Keep", "Drop"]
OnUnsupported = Literal["Fail", "SetNull"]


_LENGTH = "give length with method Truncate, and only there"


class Mask(Model):
    """The replacement of one column's values."""

    model_config = rules(("has(self.length) == (self.method == 'Truncate')", _LENGTH))

    column: ColumnName
    """Name of the column. It must not be part of the table's key."""
    method: Literal["Hash", "Redact", "Truncate"]
    """`Hash`: HMAC-SHA-256 of the value's text with the key that `spec.maskKey` names, as 64 hexadecimal digits; equal
    values have equal hashes. `Redact`: `***`. `Truncate`: the first `length` characters of the value's text."""
    length: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """Number of characters that `Truncate` keeps."""

    @model_validator(mode="after")
    def _measured(self) -> "Mask":
        if (self.length is not None) != (self.method == "Truncate"):
            raise ValueError(_LENGTH)
        return self


_FILTERED_HISTORY = "history: Changes has every change, and where would leave some out: remove one of them"
_PREFIX_OF_NOTHING = "historyPrefix names the columns that a history adds: set history, or remove it"
_PARTITIONED_CHANGES = "partitionBy goes with history: Changes alone"


class TableOptions(Model):
    """Options of the matching tables; the first match counts."""

    model_config = rules(
        ("!has(self.where) || !has(self.history) || self.history != 'Changes'", _FILTERED_HISTORY),
        (
            "!has(self.historyPrefix) || self.historyPrefix == '_' || (has(self.history) && self.history != 'Current')",
            _PREFIX_OF_NOTHING,
        ),
        ("!has(self.partitionBy) || (has(self.history) && self.history == 'Changes')", _PARTITIONED_CHANGES),
    )

    match: TablePattern
    """Pattern `schema.table` as in `tables`."""
    columns: Annotated[tuple[ColumnName, ...], Field(max_length=1600)] | None = None
    """Keep only these columns (the key is always kept); unset: all."""
    as_: Annotated[dict[str, CopiedAs], Field(max_length=1600)] = Field(default_factory=dict, alias="as")
    """Columns to copy as another type, by name. `text`: their exact text, whatever their type. `decimal(p,s)`: exact;
    `double`: the nearest one, as PostgreSQL's own cast rounds, so not always exact. Both of `numeric` (in MySQL
    `decimal`) and integers, except in keys. `list`: of PostgreSQL's arrays of one dimension, except in keys; the
    elements have the type that a column of theirs would have. `struct`: of PostgreSQL's composite types, likewise with
    their fields. `binary`: of `uuid` (PostgreSQL, MariaDB), its 16 bytes.
    `time`: of `time` without a zone, except in keys, into Iceberg only: Delta has no such type, and Spark 4.1 reads no
    Iceberg table that has such a column. A value outside of the type is one that it cannot hold (`onUnsupported`). A
    masked column is `string` all the same. Once a table is captured, a change of this has it start over
    (`onSchemaChange`)."""
    as_text: Annotated[tuple[ColumnName, ...], Field(max_length=1600)] = ()
    """A short form of `as` with `text` for each of these columns."""
    on_unsupported: Annotated[OnUnsupported, FormerDefault("Fail")] = "SetNull"
    """The treatment of a value that its column's type cannot hold exactly, such as a date `infinity`. `SetNull`: it is
    NULL in the target, and counted: in the status, in a metric and, in Kubernetes, by the condition `ValuesCopied`.
    `Fail`: it stops the table. A key cannot be NULL, so there it stops the table in either case."""
    mask: Annotated[
        tuple[Mask, ...],
        Field(
            max_length=100,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["column"]},
        ),
    ] = ()
    """Columns whose values are replaced before anything is written, also in the change log. In the target they are
    `string`, whatever their type; NULL stays NULL. Once a table is captured, a change of this has it
    start over (`onSchemaChange`)."""
    where: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """Copy only rows for which this is true: comparisons of columns with literals (`=`, `<>`, `<`, `<=`, `>`, `>=`),
    `IN`, `BETWEEN`, `IS NULL`, `IS NOT NULL`, joined by `AND`, `OR` and `NOT`, such as `region = 'eu' AND id > 1000`.
    A row that no longer matches is deleted in the target, marked with `history: SoftDelete`, or ended with `Versions`.
    Once a table is captured, a change of this has it start over (`onSchemaChange`)."""
    history: Literal["Current", "SoftDelete", "Versions", "Changes"] = "Current"
    """The rows that the copy has. `Current`: those of the source, as they are. `SoftDelete`: also deleted ones, with
    their last values; the columns `_is_deleted` and `_deleted_at` mark them. `Versions`: every version of each row,
    with the columns `_valid_from`, `_valid_to` (NULL: it still is) and `_is_current`. `Changes`: one for each
    change, which are only ever added, with the columns `_op` (`r` read by a snapshot, `c` insert, `u` update, `d`
    delete, `t` truncate), `_seq`, `_commit_time` and `_unchanged`; takes no `where`. All but the first need a key.
    Once a table is captured, a change of this has it start over (`onSchemaChange`), which ends the history and begins
    another."""
    history_prefix: Annotated[str, StringConstraints(pattern="^[A-Za-z_][A-Za-z0-9_]*$", max_length=32)] = "_"
    """The beginning of the names of the columns that `history` adds, instead of `_`: with `sys_`, `_is_deleted` is
    `sys_is_deleted`. Only with a history; a change of it is one of `history`."""
    partition_by: Literal["day"] | None = None
    """`day`: the copy of a table with `history: Changes` is partitioned by the day (UTC) of the commits, which an added
    column `_commit_day` has (NULL in rows that a snapshot read). In Delta and Iceberg only; unset: it is not
    partitioned. A change of this is one of `history`."""
    on_schema_change: OnSchemaChange | None = None
    """Overrides `spec.onSchemaChange` for these tables."""
    on_table_drop: OnTableDrop | None = None
    """Overrides `spec.onTableDrop` for these tables."""

    _whole: bool = PrivateAttr(default=False)

    @property
    def whole(self) -> bool:
        """True if the target can hold what the logical types of columns cannot."""
        return self._whole

    def into_same_product(self) -> "TableOptions":
        """A copy for a target of the source's own product."""
        options = self.model_copy()
        options._whole = True
        return options

    @model_validator(mode="after")
    def _named_once(self) -> "TableOptions":
        masked = [m.column for m in self.mask]
        twice = sorted({name for name in masked if masked.count(name) > 1})
        if twice:
            raise ValueError(f"mask: {', '.join(twice)} is listed twice")
        both = sorted(set(self.as_text) & self.as_.keys())
        if both:
            raise ValueError(f"asText: {', '.join(both)} is in as, too: remove it from one of them")
        return self

    @model_validator(mode="after")
    def _with_history(self) -> "TableOptions":
        if self.history == "Changes" and self.where is not None:
            raise ValueError(_FILTERED_HISTORY)
        if self.history == "Current" and self.history_prefix != "_":
            raise ValueError(_PREFIX_OF_NOTHING)
        if self.history != "Changes" and self.partition_by is not None:
            raise ValueError(_PARTITIONED_CHANGES)
        return self

    @model_validator(mode="after")
    def _scaled(self) -> "TableOptions":
        for column, kind in self.as_.items():
            digits = [int(number) for number in re.findall(r"\d+", kind)]
            if digits and digits[1] > digits[0]:
                raise ValueError(f"as: {column}: {kind} has more digits after the point than at all")
        return self


class RecoverSpec(Model):
    """The reaction to a lost position in the source's log (`PositionLost`)."""

    mode: Literal["Resnapshot"]
    """`Resnapshot`: start every table over from the present end of the source's log, and read all rows."""
    nonce: Annotated[int, Field(ge=0, le=2**53 - 1)]
    """Each number allows one recovery: change it to recover again."""


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


class NotificationsSpec(Model):
    """The receiver of events about snapshots, tables, verifications and cuts, as CloudEvents over HTTP."""

    url: ReceiverUrl
    """`https://host/path`, without user name and password."""
    credentials: Credentials
    """The key that signs each event: key `signingKey` of a Secret, or the content of a file; at least 16 bytes, or
    `whsec_` and base64."""


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
