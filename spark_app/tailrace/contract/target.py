"""The place that rows go to: a lake with its catalog, a database server, a warehouse."""

import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator
from typing_extensions import override

from tailrace.contract.base import Location, Model, Text, rules
from tailrace.contract.places import (
    ANEW,
    DATABASE,
    HOST_RULE,
    PORTS,
    Credentials,
    Host,
    ServerSpec,
    StorageLocation,
    StoreAccess,
    Tls,
    fixed,
    secret_name,
)

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
        (f"!({_SERVERS}) || has(self.database) == (self.type == 'postgresql')", DATABASE),
        # The API server fills in adopt and pathStyle.
        (f"{_SERVERS} || ({_none_of(_SERVER_FIELDS)} && (!has(self.adopt) || !self.adopt))", _ONLY_SERVER),
        (f"{_LAKES} || ({_none_of(_LAKE_FIELDS)} && (!has(self.pathStyle) || !self.pathStyle))", _ONLY_LAKE),
        ("!has(self.credentials) || !has(self.passwordFile)", "give credentials or passwordFile, not both"),
        ("has(self.bigquery) == (self.type == 'bigquery')", _BIGQUERY),
        *(fixed(f"bigquery.{field}", "target") for field in ("project", "dataset", "location")),
        ("has(self.snowflake) == (self.type == 'snowflake')", _SNOWFLAKE),
        ("self.type != 'snowflake' || has(self.credentials)", _NO_KEY),
        *(fixed(f"snowflake.{field}", "target") for field in ("account", "database", "schema")),
        ("self.type != 'delta' || !has(self.catalog)", _NO_CATALOG),
        HOST_RULE,
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
        catalog = secret_name(self.catalog.credentials) if self.catalog is not None else None
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
            raise ValueError(DATABASE)
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
