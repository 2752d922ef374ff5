"""The places that rows come from and go to: the source database, object storage, the target with its catalog."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator
from typing_extensions import override

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


def _fixed(field: str, of: str = "source") -> tuple[str, str]:
    """A field of a product's block stays as it is: it is neither changed, added nor removed, nor is its block."""
    block = field.partition(".")[0]
    new, old = (f"has({at}.{block}) && has({at}.{field})" for at in ("self", "oldSelf"))
    rule = f"({new}) == ({old}) && (!({new}) || self.{field} == oldSelf.{field})"
    return rule, f"{of}.{field} is immutable: {ANEW}"


_DATABASE = "give database with type postgresql, and only there"
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
_HOST_RULE = f"!has(self.host) || !self.host.matches('{_HOST_WITH_MORE}')", _HOST_ALONE


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
        return [_secret(self.credentials), self.tls.ca_secret_name, self.tls.client_secret_name]

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
        ("has(self.database) == (self.type == 'postgresql')", _DATABASE),
        _HOST_RULE,
        ("!has(self.postgresql) || self.type == 'postgresql'", "the block postgresql goes with type postgresql only"),
        ("!has(self.mysql) || self.type == 'mysql'", "the block mysql goes with type mysql only"),
        _fixed("postgresql.slot"),
        _fixed("postgresql.publication"),
        _fixed("mysql.serverId"),
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
            raise ValueError(_DATABASE)
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
        return [_secret(self.credentials)]


def _secret(credentials: Credentials | None) -> str | None:
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


_SECRET = "(?i)(//[^/?#]*:[^/?#]*@|[?&;(,][a-z]*(password|token|secret|credential)=)"
"""A pattern for a secret in an address: `//user:password@host`, or a parameter. In the syntax of both RE2 and
Python."""
_NO_SECRET = (
    "uri and warehouse must not contain a password or a token; write it into the file or Secret that credentials names"
)


class Catalog(Model):
    """Iceberg catalog. `folder` (local files only), `rest` or `jdbc`."""

    model_config = rules(
        (
            f"(!has(self.uri) || !self.uri.matches('{_SECRET}'))"
            f" && (!has(self.warehouse) || !self.warehouse.matches('{_SECRET}'))",
            _NO_SECRET,
        )
    )

    type: Literal["folder", "rest", "jdbc"] = "folder"
    """Kind of catalog."""
    uri: Text | None = None
    """Address: `https://…` (rest) or `jdbc:postgresql://…` (jdbc)."""
    warehouse: Text | None = None
    """The catalog's warehouse; unset: the target's location."""
    credentials: Credentials | None = None
    """Credentials of the catalog."""

    @model_validator(mode="after")
    def _without_a_secret(self) -> "Catalog":
        if any(re.search(_SECRET, address) for address in (self.uri, self.warehouse) if address is not None):
            raise ValueError(_NO_SECRET)
        return self


_NO_LOCATION = "location is required with type delta and with type iceberg"
_ON_STORES = (
    "tables of a lake are on s3:// or file:///; only storage.location and follow.location may be gs:// or az://"
)
_NO_CATALOG = "catalog goes with type iceberg only"
_NO_SERVER = "host and username are required with types postgresql and mysql"
_SERVER_FIELDS = ("host", "port", "database", "schema", "username", "passwordFile", "tls")
_LAKE_FIELDS = ("location", "catalog", "endpoint", "region")
_ONLY_SERVER = (
    "host, port, database, schema, adopt, username, passwordFile and tls go with types postgresql and mysql only"
)
_ONLY_LAKE = "location, catalog, endpoint, region and pathStyle go with type delta and iceberg only"
_OF_A_SERVER = {"host", "port", "database", "schema_name", "adopt", "username", "password_file", "tls"}
_OWN_SCHEMA = "schema _tailrace is Tailrace's own: name another one"
_OF_A_LAKE = {"location", "catalog", "endpoint", "region", "path_style"}
_LAKES = "self.type in ['delta', 'iceberg']"
_SERVERS = "self.type in ['postgresql', 'mysql']"
_BIGQUERY = "the block bigquery goes with type bigquery, and only there"
_SNOWFLAKE = "the block snowflake goes with type snowflake, and only there"
_NO_KEY = "credentials are required with type snowflake: the private key of its user"
_Unquoted = Annotated[str, StringConstraints(max_length=200, pattern="^[A-Za-z_][A-Za-z0-9_$]{0,199}$")]
"""A name as statements of Snowflake have it without quotes."""


def _none_of(names: tuple[str, ...]) -> str:
    return "(" + " && ".join(f"!has(self.{name})" for name in names) + ")"


_FOLDER = "a folder catalog has no atomic commit on object storage; set catalog.type to rest or jdbc"


class BigQuerySpec(Model):
    """A data set of BigQuery, for one Replicator alone."""

    project: Annotated[str, StringConstraints(max_length=100, pattern="^[a-z0-9.:-]{1,100}$")]
    """Id of the project. Immutable."""
    dataset: Annotated[str, StringConstraints(max_length=1000, pattern="^[A-Za-z][A-Za-z0-9_]{0,999}$")]
    """Data set that all tables are copied into; Tailrace's own tables are in `<dataset>_tailrace`. Both are created if
    they are missing. Source tables that would get the same name there are refused. Immutable."""
    location: Annotated[str, StringConstraints(max_length=50, pattern="^[A-Za-z0-9-]{1,50}$")]
    """Location of the data sets, such as `EU` or `europe-west3`. Immutable."""
    endpoint: Text | None = None
    """URL of an emulator; unset: Google's service."""
    lists: Literal["Text", "Repeated"] = "Text"
    """The type of columns with `options[].as: list`. `Text`: JSON in a `STRING`. `Repeated`: an `ARRAY`, which can
    neither be NULL nor contain NULL: such a value stops its table. After a change tables with lists stop until they
    are read again (`tailrace resync`)."""


class SnowflakeSpec(Model):
    """A schema of Snowflake, for one Replicator alone. Names of objects are those that statements have without quotes:
    their case does not count."""

    account: Annotated[str, StringConstraints(max_length=255, pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$")]
    """Identifier of the account, such as `myorg-account1`. Immutable."""
    user: Text
    """User to connect as, by key pair: `credentials` refer to its private key."""
    database: _Unquoted
    """Database, which must exist. Immutable."""
    schema_name: Annotated[_Unquoted, Field(alias="schema")]
    """Schema that all tables are copied into; Tailrace's own tables are in `<schema>_TAILRACE`. Both are created if
    they are missing. Source tables that would get the same name there are refused. Immutable."""
    warehouse: _Unquoted
    """Warehouse that the statements run in."""
    role: _Unquoted
    """Role that the tables belong to."""
    endpoint: Text | None = None
    """URL of an emulator or a private link; unset: that of the account."""


class TargetSpec(StoreAccess):
    """The place of the tables: a lake's folder, or a database."""

    model_config = rules(
        (f"!({_LAKES}) || has(self.location)", _NO_LOCATION),
        (f"!({_SERVERS}) || (has(self.host) && has(self.username))", _NO_SERVER),
        (f"!({_SERVERS}) || has(self.database) == (self.type == 'postgresql')", _DATABASE),
        # The API server fills in adopt and pathStyle.
        (f"{_SERVERS} || ({_none_of(_SERVER_FIELDS)} && (!has(self.adopt) || !self.adopt))", _ONLY_SERVER),
        (f"{_LAKES} || ({_none_of(_LAKE_FIELDS)} && (!has(self.pathStyle) || !self.pathStyle))", _ONLY_LAKE),
        ("!has(self.credentials) || !has(self.passwordFile)", "give credentials or passwordFile, not both"),
        ("has(self.bigquery) == (self.type == 'bigquery')", _BIGQUERY),
        *(_fixed(f"bigquery.{field}", "target") for field in ("project", "dataset", "location")),
        ("has(self.snowflake) == (self.type == 'snowflake')", _SNOWFLAKE),
        ("self.type != 'snowflake' || has(self.credentials)", _NO_KEY),
        *(_fixed(f"snowflake.{field}", "target") for field in ("account", "database", "schema")),
        ("self.type != 'delta' || !has(self.catalog)", _NO_CATALOG),
        _HOST_RULE,
        (
            "!has(self.location) || self.location.startsWith('s3://') || self.location.startsWith('file:///')",
            _ON_STORES,
        ),
        (
            "self.type != 'iceberg' || !has(self.location) || self.location.startsWith('file:///')"
            " || (has(self.catalog) && self.catalog.type != 'folder')",
            _FOLDER,
        ),
        ("self.type == oldSelf.type", f"target.type is immutable: {ANEW}"),
        (
            "has(self.database) == has(oldSelf.database) && (!has(self.database) || self.database == oldSelf.database)",
            f"target.database is immutable: {ANEW}",
        ),
        ("!has(self.schema) || self.schema != '_tailrace'", _OWN_SCHEMA),
        (
            "has(self.schema) == has(oldSelf.schema) && (!has(self.schema) || self.schema == oldSelf.schema)",
            f"target.schema is immutable: {ANEW}",
        ),
    )

    type: Literal["delta", "iceberg", "postgresql", "mysql", "bigquery", "snowflake"]
    """Table format of a lake, or kind of database; `mysql` is MariaDB, too; `bigquery` and `snowflake` were tested
    against emulators only. Immutable."""
    location: Location | None = None
    """Lakes: root of the tables, `<location>/<schema>/<table>`: `s3://bucket/prefix` or `file:///path`; required. A
    path must be on a volume that driver and executors mount."""
    catalog: Catalog | None = None
    """Iceberg only; unset: a folder catalog at `location` (local files only)."""
    host: Host | None = None
    """Databases: host name or address of the primary server; required."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Databases: TCP port; unset: the product's default (PostgreSQL: 5432, MySQL: 3306)."""
    database: Text | None = None
    """PostgreSQL: name of the database that the tables are in, required. MySQL: leave it out; each schema of the source
    is a database there. Immutable."""
    schema_name: Annotated[Text | None, Field(alias="schema")] = None
    """Databases: schema (MySQL: database) that all tables are copied into; unset: the source's names. Source tables
    that would get the same name there are refused. Immutable."""
    adopt: bool = False
    """Databases: take over tables that already exist, if they are empty and their columns fit; otherwise they are
    refused. With `snapshot.initial: false` they may have rows, which must be those of the source: nothing is read."""
    username: Text | None = None
    """Databases: user to connect as; it needs the right to create schemas (MySQL: databases). Required."""
    password_file: Text | None = None
    """Databases: short form of `credentials: {file: …}`."""
    tls: Tls | None = None
    """Databases: transport security; unset: as `mode: prefer`."""
    bigquery: BigQuerySpec | None = None
    """BigQuery only, and required there. `credentials` refer to the key of a service account; unset: taken from the
    environment (workload identity)."""
    snowflake: SnowflakeSpec | None = None
    """Snowflake only, and required there, with `credentials`: the private key of a key pair."""

    @property
    @override
    def secrets(self) -> list[str | None]:
        """Names of Secrets, where they are given."""
        catalog = _secret(self.catalog.credentials) if self.catalog is not None else None
        return [*super().secrets, catalog, *(self.server.secrets if self.is_server else ())]

    @property
    def is_server(self) -> bool:
        """A database that is reached at a host."""
        return self.type in PORTS

    @property
    def is_database(self) -> bool:
        """A database's tables, not a lake's."""
        return self.is_server or self.bigquery is not None or self.snowflake is not None

    @property
    def place(self) -> str:
        """A text for people: where the tables are."""
        if self.bigquery is not None:
            return f"BigQuery {self.bigquery.project}.{self.bigquery.dataset}"
        if self.snowflake is not None:
            of = self.snowflake
            return f"Snowflake {of.account} {of.database.upper()}.{of.schema_name.upper()}"
        return self.server.address if self.is_server else self.lake.location

    @property
    def lacking(self) -> frozenset[str]:
        """Types of `options[].as` that the target does not have."""
        return frozenset({"time"}) if self.type == "delta" else frozenset()

    @property
    def lake(self) -> StorageLocation:
        """Root of a lake's tables, and how it is reached."""
        assert self.location is not None
        return StorageLocation(
            location=self.location, **{name: getattr(self, name) for name in StoreAccess.model_fields}
        )

    @property
    def server(self) -> ServerSpec:
        """The database's server. Only of a type that is one."""
        assert self.type in ("postgresql", "mysql") and self.host is not None and self.username is not None
        return ServerSpec(
            type=self.type,
            host=self.host,
            port=self.port,
            database=self.database,
            username=self.username,
            credentials=self.credentials,
            password_file=self.password_file,
            tls=self.tls or Tls(),
        )

    @model_validator(mode="after")
    def _database(self) -> "TargetSpec":
        given = {name for name in self.model_fields_set if getattr(self, name) not in (None, False)}
        lake, server = given & _OF_A_LAKE, given & _OF_A_SERVER
        if (self.bigquery is not None) != (self.type == "bigquery"):
            raise ValueError(_BIGQUERY)
        if (self.snowflake is not None) != (self.type == "snowflake"):
            raise ValueError(_SNOWFLAKE)
        if self.snowflake is not None and self.credentials is None:
            raise ValueError(_NO_KEY)
        if self.is_database and lake:
            raise ValueError(_ONLY_LAKE)
        if not self.is_server and server:
            raise ValueError(_ONLY_SERVER)
        if self.is_server and not {"host", "username"} <= given:
            raise ValueError(_NO_SERVER)
        if self.is_server and ("database" in given) != (self.type == "postgresql"):
            raise ValueError(_DATABASE)
        if self.credentials is not None and self.password_file is not None:
            raise ValueError("give credentials or passwordFile, not both")
        if self.schema_name == "_tailrace":
            raise ValueError(_OWN_SCHEMA)
        return self

    @model_validator(mode="after")
    def _lake(self) -> "TargetSpec":
        if self.is_database:
            return self
        if self.location is None:
            raise ValueError(_NO_LOCATION)
        if not self.location.startswith(("s3://", "file:///")):
            raise ValueError(_ON_STORES)
        if self.type == "delta" and self.catalog is not None:
            raise ValueError(_NO_CATALOG)
        folder = self.type == "iceberg" and (self.catalog is None or self.catalog.type == "folder")
        if folder and not self.location.startswith("file:///"):
            raise ValueError(_FOLDER)
        return self
