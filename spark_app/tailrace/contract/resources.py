"""The two resources as users write them: Replicator and SnapshotRequest, version `tailrace.dev/v1alpha1`.

The same documents go to `kubectl apply` and to `tailrace run -f`. camelCase outside, snake_case inside; unknown fields
are errors. CRDs are generated from these models.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

GROUP = "tailrace.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

Name = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Identifier = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z_][a-z0-9_]*$")]
TablePattern = Annotated[str, StringConstraints(min_length=3, max_length=256, pattern=r"^[^.]+\..+$")]
"""`schema.table`; `*` matches any run of characters, `?` one; everything else is literal, case counts."""
Duration = Annotated[str, StringConstraints(pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$", max_length=32)]
"""`30s`, `15m`, `1h30m`, `7d`."""


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Metadata(BaseModel):
    """Only the name matters outside Kubernetes; what else Kubernetes writes here is passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Name
    namespace: str = "default"
    uid: str | None = None
    generation: int | None = None


class Credentials(Model):
    """Where a secret lies: never the secret itself. Exactly one of the two."""

    secret_name: Name | None = None
    """Kubernetes: Secret of the Replicator's namespace. Key `password` (source), or `accessKeyId` and `secretAccessKey`
    (object storage)."""
    file: Text | None = None
    """Outside Kubernetes: path of a file. Source: holds the password. Object storage: lines `accessKeyId=…` and
    `secretAccessKey=…`."""

    @model_validator(mode="after")
    def _one(self) -> "Credentials":
        if (self.secret_name is None) == (self.file is None):
            raise ValueError("give exactly one of secretName and file")
        return self


class Tls(Model):
    """Transport security towards the source, libpq's modes."""

    mode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] = "prefer"
    ca_secret_name: Name | None = None
    """Secret with key `ca.crt`."""
    ca_file: Text | None = None
    """Outside Kubernetes: path of the CA certificate."""


class Source(Model):
    """The database that is read."""

    type: Literal["postgresql"]
    host: Text
    port: Annotated[int, Field(ge=1, le=65535)] = 5432
    database: Text
    username: Text
    credentials: Credentials | None = None
    """None: no password is sent (trust, peer or certificate authentication)."""
    password_file: Text | None = None
    """Short form of `credentials: {file: …}`."""
    tls: Tls = Tls()
    slot: Identifier | None = None
    """Replication slot; default `tailrace_<name>`, made if missing. One named here must exist; it is kept."""
    publication: Identifier | None = None
    """Publication; default `tailrace_<name>`, made and kept up to date if missing. One named here is used as it is."""

    @model_validator(mode="after")
    def _one_password(self) -> "Source":
        if self.credentials is not None and self.password_file is not None:
            raise ValueError("give credentials or passwordFile, not both")
        return self


class Tables(Model):
    """Which tables: any include pattern and no exclude pattern."""

    include: Annotated[tuple[TablePattern, ...], Field(min_length=1, max_length=1000)]
    exclude: Annotated[tuple[TablePattern, ...], Field(max_length=1000)] = ()


class Storage(Model):
    """A place on a file system or an object store."""

    location: Annotated[
        str, StringConstraints(min_length=1, max_length=1024, pattern=r"^(file:///|s3://|gs://|az://).+$")
    ]
    endpoint: Text | None = None
    """URL of an S3-compatible service; None: the provider's own."""
    region: Text | None = None
    path_style: bool = False
    """Bucket in the path instead of the host name; most S3-compatible servers need it."""
    credentials: Credentials | None = None
    """None: the environment's (instance role, workload identity)."""


class Catalog(Model):
    """Iceberg catalog. `folder` (local files only), `rest` or `jdbc`."""

    type: Literal["folder", "rest", "jdbc"] = "folder"
    uri: Text | None = None
    warehouse: Text | None = None
    credentials: Credentials | None = None


class Target(Storage):
    """Where the tables are written: `<location>/<schema>/<table>`."""

    type: Literal["delta", "iceberg"]
    catalog: Catalog | None = None
    """Iceberg only; None: a folder catalog at `location` (local files only)."""

    @model_validator(mode="after")
    def _catalog(self) -> "Target":
        if self.type == "delta" and self.catalog is not None:
            raise ValueError("catalog goes with type iceberg only")
        folder = self.type == "iceberg" and (self.catalog is None or self.catalog.type == "folder")
        if folder and not self.location.startswith("file:///"):
            raise ValueError(
                "a folder catalog has no atomic commit on object storage; set catalog.type to rest or jdbc"
            )
        return self


class Snapshot(Model):
    """Defaults of every snapshot."""

    initial: bool = True
    """Read the present rows of each table when it is first captured."""
    chunk_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Chunk size aims at this many seconds of reading."""
    chunk_rows: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """Fixed chunk size instead; None: adaptive."""
    parallelism: Annotated[int, Field(ge=1, le=256)] = 2
    """Chunks read at the same time, all tables together."""


class Apply(Model):
    suspend: bool = False
    """Pause the target only; capture goes on."""
    interval: Duration = "500ms"
    """Shortest time between two batches."""


class Retry(Model):
    time: Duration = "1h"
    """A failing table is retried for this long; then it is cut off and needs a snapshot."""


class Retention(Model):
    time: Duration = "1h"
    """The change log keeps at least this much, longer where a table still needs it."""


class TableOptions(Model):
    """Options of the tables that match; the first match counts."""

    match: TablePattern
    columns: tuple[Text, ...] | None = None
    """Keep only these columns (the key is always kept); None: all."""
    as_text: tuple[Text, ...] = ()
    """Columns to copy as exact text, whatever their type."""


class Pod(Model):
    """Resources of a driver or executor pod. Ignored outside Kubernetes except `memory` and `cores` of the driver."""

    cores: Annotated[int, Field(ge=1, le=256)] = 1
    memory: Annotated[str, StringConstraints(pattern=r"^[0-9]+(Mi|Gi)$")] = "2Gi"


class Executors(Pod):
    count: Annotated[int, Field(ge=0, le=1000)] = 1


class ReplicatorSpec(Model):
    source: Source
    tables: Tables
    target: Target
    storage: Storage
    """Root of the change log; of this Replicator alone."""
    suspend: bool = False
    restart_nonce: int = 0
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    snapshot: Snapshot = Snapshot()
    apply: Apply = Apply()
    retry: Retry = Retry()
    retention: Retention = Retention()
    options: Annotated[tuple[TableOptions, ...], Field(max_length=1000)] = ()
    driver: Pod = Pod()
    executors: Executors = Executors()
    image: Text | None = None


class Replicator(BaseModel):
    """Live copies of the tables of one source database in one target."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    api_version: Literal["tailrace.dev/v1alpha1"]
    kind: Literal["Replicator"]
    metadata: Metadata
    spec: ReplicatorSpec


class SnapshotRequestSpec(Model):
    replicator: Name
    tables: Annotated[tuple[TablePattern, ...], Field(min_length=1, max_length=1000)]
    where: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = None
    """SQL condition on the source's columns: only rows that meet it are read again."""
    keys: Annotated[tuple[tuple[str, ...], ...], Field(min_length=1, max_length=10_000)] | None = None
    """Only these keys: the text of the key columns in key order. Goes with exactly one table."""
    chunk_rows: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    parallelism: Annotated[int, Field(ge=1, le=256)] | None = None
    suspend: bool = False

    @model_validator(mode="after")
    def _where_or_keys(self) -> "SnapshotRequestSpec":
        if self.where is not None and self.keys is not None:
            raise ValueError("give where or keys, not both")
        if self.keys is not None and len(self.tables) != 1:
            raise ValueError("keys goes with exactly one table")
        return self


class SnapshotRequest(BaseModel):
    """Read tables (or rows) of a Replicator again, while it goes on."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    api_version: Literal["tailrace.dev/v1alpha1"]
    kind: Literal["SnapshotRequest"]
    metadata: Metadata
    spec: SnapshotRequestSpec
