"""The places that rows come from, and how places are reached: the source database, servers, object storage.

The place that they go to is in `contract.target`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from tailrace.contract.base import Identifier, Location, Model, Name, OneTable, Text, rules

ANEW = "create another Replicator, with its own locations"


class Credentials(Model):
    """A reference to a secret, never the secret itself. Give exactly one of the two."""

    model_config = rules(("has(self.secretName) != has(self.file)", "give exactly one of secretName and file"))

    secret_name: Name | None = None
    """Kubernetes: a Secret in the Replicator's namespace. Keys: `password` (databases); `serviceAccountKey`
    (BigQuery); `privateKey` and optionally `privateKeyPassphrase` (Snowflake); `accessKeyId`, `secretAccessKey` and
    optionally `sessionToken` (object storage); `username` and `password` (JDBC catalog); `token` or `credential` (REST
    catalog); `maskKey` (`spec.maskKey`); `signingKey` (`spec.notifications`)."""
    file: Text | None = None
    """Path of a file, as the reading process sees it. Databases, warehouses, `spec.maskKey` and `spec.notifications`:
    the file holds the password, or the key, and nothing else (Snowflake: the key's passphrase, if it has one, is in a
    file of the same name with `.passphrase` behind it). Object storage and catalogs: lines `name=value` with the names
    above."""

    @model_validator(mode="after")
    def _one(self) -> "Credentials":
        if (self.secret_name is None) == (self.file is None):
            raise ValueError("give exactly one of secretName and file")
        return self


_ONE_AUTHORITY = "give caSecretName or caFile, not both"
_ONE_CERTIFICATE = "give clientSecretName, or clientCertFile and clientKeyFile, not both"
_KEY_AND_CERTIFICATE = "clientCertFile and clientKeyFile go together"
_NEEDS_TLS = "a client certificate needs mode require, verify-ca or verify-full"


class Tls(Model):
    """Transport security of connections to a database; libpq's modes."""

    model_config = rules(
        ("!has(self.caSecretName) || !has(self.caFile)", _ONE_AUTHORITY),
        ("has(self.clientCertFile) == has(self.clientKeyFile)", _KEY_AND_CERTIFICATE),
        ("!has(self.clientSecretName) || !has(self.clientCertFile)", _ONE_CERTIFICATE),
        (
            "(!has(self.clientSecretName) && !has(self.clientCertFile))"
            " || self.mode in ['require', 'verify-ca', 'verify-full']",
            _NEEDS_TLS,
        ),
    )

    mode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] = "prefer"
    """The strictness: `verify-full` checks the certificate and the host name, `prefer` uses TLS if the server offers
    it."""
    ca_secret_name: Name | None = None
    """Secret with key `ca.crt`."""
    ca_file: Text | None = None
    """Path of the CA certificate, outside Kubernetes."""
    client_secret_name: Name | None = None
    """Secret of type `kubernetes.io/tls` (keys `tls.crt` and `tls.key`) with the certificate that the database knows
    Tailrace by. Needs mode `require`, `verify-ca` or `verify-full`."""
    client_cert_file: Text | None = None
    """Path of that certificate (PEM), outside Kubernetes."""
    client_key_file: Text | None = None
    """Path of its private key (PEM, without a passphrase), outside Kubernetes; readable only for its owner."""

    @model_validator(mode="after")
    def _one(self) -> "Tls":
        if self.ca_secret_name is not None and self.ca_file is not None:
            raise ValueError(_ONE_AUTHORITY)
        if (self.client_cert_file is None) != (self.client_key_file is None):
            raise ValueError(_KEY_AND_CERTIFICATE)
        if self.client_secret_name is not None and self.client_cert_file is not None:
            raise ValueError(_ONE_CERTIFICATE)
        certified = self.client_secret_name is not None or self.client_cert_file is not None
        if certified and self.mode not in ("require", "verify-ca", "verify-full"):
            raise ValueError(_NEEDS_TLS)
        return self


def fixed(field: str, of: str = "source") -> tuple[str, str]:
    """A field of a product's block stays as it is: it is neither changed, added nor removed, nor is its block."""
    block = field.partition(".")[0]
    new, old = (f"has({at}.{block}) && has({at}.{field})" for at in ("self", "oldSelf"))
    rule = f"({new}) == ({old}) && (!({new}) || self.{field} == oldSelf.{field})"
    return rule, f"{of}.{field} is immutable: {ANEW}"


DATABASE = "give database with type postgresql, and only there"
PORTS = {"postgresql": 5432, "mysql": 3306}
"""The default port of each type of source."""


class PostgreSql(Model):
    """Settings that only PostgreSQL has."""

    slot: Identifier | None = None
    """Replication slot; unset: Tailrace creates one, `tailrace_<name>_<8 hexadecimal digits>`. A slot named here must
    already exist, and is never dropped. Immutable."""
    publication: Identifier | None = None
    """Publication; unset: Tailrace creates one, `tailrace_<name>_<8 hexadecimal digits>`, and keeps it up to date. A
    publication named here is used as it is. Immutable."""


class MySql(Model):
    """Settings that only MySQL and MariaDB have."""

    server_id: Annotated[int, Field(ge=1, le=2**32 - 1)] | None = None
    """Number under which Tailrace reads the binary log; no server or other reader of the log may have it. Unset: made
    from the change log's id, above 2147483648. Immutable."""


_HOST_ALONE = (
    "host is a name or an address alone, without blanks: write the port into port and the database into database"
)
_HOST_WITH_MORE = "://| |^[^:/]+:[0-9]+$"


def _host(given: str) -> str:
    if re.search(_HOST_WITH_MORE, given):
        raise ValueError(_HOST_ALONE)
    return given


Host = Annotated[Text, AfterValidator(_host)]
HOST_RULE = f"!has(self.host) || !self.host.matches('{_HOST_WITH_MORE}')", _HOST_ALONE


class ServerSpec(Model):
    """A database server, and how it is reached."""

    type: Literal["postgresql", "mysql"]
    """Kind of database; `mysql` is MariaDB, too. Immutable."""
    host: Host
    """Host name or address of the primary server."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """TCP port; unset: the product's default (PostgreSQL: 5432, MySQL: 3306)."""
    database: Text | None = None
    """PostgreSQL: name of the database, required. MySQL: leave it out; the first part of the patterns in `tables` names
    databases there. Immutable."""
    username: Text
    """User to connect as; it needs the rights to replicate and to read the tables."""
    credentials: Credentials | None = None
    """A reference to the password. Unset: no password is sent (trust, peer or certificate authentication)."""
    password_file: Text | None = None
    """Short form of `credentials: {file: …}`."""
    tls: Tls = Tls()
    """Transport security."""

    @property
    def secrets(self) -> list[str | None]:
        """Names of Secrets, where they are given."""
        return [secret_name(self.credentials), self.tls.ca_secret_name, self.tls.client_secret_name]

    @property
    def tcp_port(self) -> int:
        """The port in the manifest, else the product's default."""
        return self.port if self.port is not None else PORTS[self.type]

    @property
    def address(self) -> str:
        """A text for people: `host:port/database`, or without a database."""
        return f"{self.host}:{self.tcp_port}" + (f"/{self.database}" if self.database is not None else "")


class SourceSpec(ServerSpec):
    """The database that is read. Settings of one product only are in that product's block."""

    model_config = rules(
        ("!has(self.credentials) || !has(self.passwordFile)", "give credentials or passwordFile, not both"),
        ("self.type == oldSelf.type", f"source.type is immutable: {ANEW}"),
        (
            "has(self.database) == has(oldSelf.database) && (!has(self.database) || self.database == oldSelf.database)",
            f"source.database is immutable: {ANEW}",
        ),
        ("has(self.database) == (self.type == 'postgresql')", DATABASE),
        HOST_RULE,
        ("!has(self.postgresql) || self.type == 'postgresql'", "the block postgresql goes with type postgresql only"),
        ("!has(self.mysql) || self.type == 'mysql'", "the block mysql goes with type mysql only"),
        fixed("postgresql.slot"),
        fixed("postgresql.publication"),
        fixed("mysql.serverId"),
    )

    signal_table: OneTable | None = None
    """A table of three columns (id, type, data) into which programs insert signals in Debezium's form, such as requests
    for snapshots: `schema.table`, in MySQL and MariaDB `database.table`. It is read from the source's log, never
    written, and not copied unless `tables.include` has its very name."""
    postgresql: PostgreSql = Field(default_factory=PostgreSql)
    """Settings that only PostgreSQL has."""
    mysql: MySql = Field(default_factory=MySql)
    """Settings that only MySQL and MariaDB have."""

    @property
    def keeps_log(self) -> bool:
        """The source keeps its log for as long as it is not read, until its disk is full."""
        return self.type == "postgresql"

    @property
    def unread_log(self) -> str:
        """A text for people: the fate of the source's log while no reader consumes it."""
        keeps = "keeps its log meanwhile"
        return f"the source {keeps}" if self.keeps_log else f"the source {keeps} only until it expires"

    @model_validator(mode="before")
    @classmethod
    def _in_the_block(cls, given: object) -> object:
        """These stood here once, and a plain "not a known field" would not say where they went."""
        found = [name for name in PostgreSql.model_fields if isinstance(given, Mapping) and name in given]
        if found:
            moved = ", ".join(f"source.{name} is now source.postgresql.{name}" for name in found)
            raise ValueError(f"{moved}: move it into the block postgresql")
        return given

    @model_validator(mode="after")
    def _one_password(self) -> "SourceSpec":
        if self.credentials is not None and self.password_file is not None:
            raise ValueError("give credentials or passwordFile, not both")
        return self

    @model_validator(mode="after")
    def _of_the_product(self) -> "SourceSpec":
        if (self.database is not None) != (self.type == "postgresql"):
            raise ValueError(DATABASE)
        blocks = {"postgresql": self.postgresql != PostgreSql(), "mysql": self.mysql != MySql()}
        wrong = [block for block, given in blocks.items() if given and block != self.type]
        if wrong:
            raise ValueError(f"the block {wrong[0]} goes with type {wrong[0]} only")
        return self


class StoreAccess(Model):
    """The access to an object store."""

    endpoint: Text | None = None
    """URL of an S3-compatible service; unset: the provider's default."""
    region: Text | None = None
    """Region of the bucket; unset: taken from the environment."""
    path_style: bool = False
    """Put the bucket into the path instead of the host name. Most S3-compatible servers need it; an endpoint with an IP
    address always does."""
    credentials: Credentials | None = None
    """Keys of the object store. Unset: taken from the environment (instance role, workload identity)."""

    @property
    def secrets(self) -> list[str | None]:
        """Names of Secrets, where they are given."""
        return [secret_name(self.credentials)]


def secret_name(credentials: Credentials | None) -> str | None:
    """Name of the Secret that they refer to; None: they refer to none."""
    return None if credentials is None else credentials.secret_name


class StorageLocation(StoreAccess):
    """A folder, on a file system or in an object store."""

    location: Location
    """Root: `s3://bucket/prefix`, `file:///path`, `gs://…` or `az://…`. A path must be on a volume that driver and
    executors mount."""


class StorageSpec(StorageLocation):
    """The location of the change log."""

    adopt: Text | None = None
    """Take over the change log of the owner named here, written as the error about another owner prints it. Has no
    effect once this Replicator owns the log."""
